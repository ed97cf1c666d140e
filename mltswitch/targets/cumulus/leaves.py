"""The NVUE object model as data: a tree of names, and its leaves by path."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Tree = dict[str, Any]
"""Name → a tree, or a value as text."""
Path = tuple[str, ...]
Leaves = dict[Path, str]
"""Path → value; an object without attributes has the value "" ."""

_LISTED: Final = frozenset({"interface", "member", "dscp", "pcp", "switch-priority", "traffic-class"})
"""Nodes whose children NVUE may join to a range, `swp1-16`."""
_RANGE: Final = re.compile(
    r"(?P<stem>(?:[a-z]+(?:[0-9]{1,3}s)?)?)(?P<first>[0-9]{1,4})(?:-(?P=stem)?(?P<last>[0-9]{1,4}))?"
)

MOST_ENTRIES: Final = 100_000
"""That ranges inside one another may name, `swp0-999` with `dscp 0-999` below."""


def flatten(tree: Mapping[str, Any]) -> Leaves:
    """Leaves of a tree, in its order; ranges must be expanded before."""
    return dict(_flatten((), tree))


def _flatten(path: Path, tree: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for key, value in tree.items():
        here = (*path, str(key))
        if isinstance(value, Mapping) and value:
            yield from _flatten(here, value)
        else:
            yield here, value or ""


def nest(leaves: Mapping[Path, str]) -> Tree:
    """Inverse of `flatten`."""
    tree: Tree = {}
    for path, value in leaves.items():
        *parents, name = path
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value or {}
    return tree


def at(tree: Mapping[str, Any], *path: str) -> Tree:
    """What is below a path, not to be changed; empty where there is no such object."""
    node: Any = tree
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def expanded(tree: Mapping[str, Any]) -> Tree:
    """The tree with ranges of ports, priorities, classes and code points as single entries, values as text.

    A port may stand in a range and by itself, each with a part of its settings. Raises ValueError.
    """
    return _expanded(tree, is_listed=False)[0]


def _expanded(tree: Mapping[str, Any], *, is_listed: bool) -> tuple[Tree, int]:
    """(the tree, how many entries it has at all depths)."""
    result: Tree = {}
    count = 0
    for key, value in tree.items():
        is_tree = isinstance(value, Mapping)
        below, inside = _expanded(value, is_listed=key in _LISTED) if is_tree else (_text(value), 0)
        names = expand_names(str(key)) if is_listed else (str(key),)
        count += len(names) * (1 + inside)
        if count > MOST_ENTRIES:
            raise ValueError(f"ranges stand for more than {MOST_ENTRIES:,} entries at {str(key)[:60]!r}")
        for name in names:
            result[name] = _merged(result.get(name), below)
    return result, count


def _text(value: object) -> str | Tree:
    if value is None:
        return {}
    return value if isinstance(value, str) else json.dumps(value)


def _merged(old: Any, new: Any) -> Any:
    """A fresh tree: entries of one range must not share theirs."""
    if not isinstance(new, Mapping):
        return new
    result = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        result[key] = _merged(result.get(key), value)
    return result


def expand_names(text: str) -> tuple[str, ...]:
    """`swp1-3,swp5` as single names; a name that is no range stands for itself. Raises ValueError."""
    names: list[str] = []
    stem = ""
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            names.append(part)
            continue
        stem = match["stem"] or stem
        first = int(match["first"])
        last = int(match["last"] or first)
        if not first <= last < first + MOST_ENTRIES - len(names):
            raise ValueError(f"{text[:60]!r} is no range, or a long one")
        names += (f"{stem}{number}" for number in range(first, last + 1))
    return tuple(names)
