"""A configuration that is a tree of named objects: its leaves are the facts.

Files that say the leaves are read strictly, and what leads from some leaves to others, or back, follows from
the leaves alone. A device may join the names of equal objects to a range, `swp1-16`, and print a part of what
one object has under a range and the rest under its own name.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

from mltswitch.targets.base import FileError, LineError

Tree = dict[str, Any]
"""A configuration tree: name → a subtree, or a value as text."""
Path = tuple[str, ...]
Leaves = Mapping[Path, str]
"""Path → value; an object without attributes has the value "" ."""

_RANGE: Final = re.compile(
    r"(?P<stem>(?:[a-z]+(?:[0-9]{1,3}s)?)?)(?P<first>[0-9]{1,4})(?:-(?P=stem)?(?P<last>[0-9]{1,4}))?"
)
MOST_ENTRIES: Final = 100_000
"""How many entries ranges inside one another may name together, such as `dscp 0-999` below `swp0-999`."""


def at(tree: Mapping[str, Any], *path: str) -> Tree:
    """The subtree below a path, which must not be changed; empty where there is none."""
    node: Any = tree
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, str):
            raise TypeError(f"{' '.join(path)}: {node[:60]!r} stands where an object is expected")
    return node if isinstance(node, dict) else {}


def flatten(tree: Mapping[str, Any]) -> dict[Path, str]:
    """The leaves of a tree whose values are texts, in its order: path → value."""
    return dict(_leaves((), tree, frozenset()))


def printed_leaves(tree: Mapping[str, Any], listed: Set[str]) -> list[tuple[Path, str]]:
    """The leaves of a tree as a device prints it, with ranges expanded and values as text; raises ValueError.

    Only the objects directly below a name in `listed` may have ranges as names.
    """
    leaves: list[tuple[Path, str]] = []
    for path, value in _leaves((), tree, listed):
        leaves.append((path, value))
        if len(leaves) > MOST_ENTRIES:
            raise ValueError(f"ranges stand for more than {MOST_ENTRIES:,} entries at {path[-1][:60]!r}")
    return leaves


def _leaves(
    path: Path, tree: Mapping[str, Any], listed: Set[str], *, is_listed: bool = False
) -> Iterator[tuple[Path, str]]:
    for key, value in tree.items():
        for name in expand_names(str(key)) if is_listed else (str(key),):
            here = (*path, name)
            if isinstance(value, Mapping) and value:
                yield from _leaves(here, value, listed, is_listed=key in listed)
            else:
                yield here, _text(value)


def _text(value: object) -> str:
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def nest(leaves: Iterable[tuple[Path, str]]) -> Tree:
    """The tree of leaves; leaves of the same object, or of a range that contains it, are merged."""
    tree: Tree = {}
    for path, value in leaves:
        *parents, name = path
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        if value:
            node[name] = value
        else:
            node.setdefault(name, {})
    return tree


def expand_names(text: str) -> tuple[str, ...]:
    """The single names in a text such as `swp1-3,swp5`; a name that is no range stands for itself.

    Raises ValueError.
    """
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


def yaml_lines(tree: Tree, indent: str) -> list[str]:
    """The tree as lines of YAML behind this indentation; names that are numbers are quoted."""
    lines: list[str] = []
    for name, value in tree.items():
        quoted = f"'{name}'" if name.isdigit() else name
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{quoted}:")
            lines += yaml_lines(value, indent + "  ")
        else:
            lines.append(f"{indent}{quoted}: {value or '{}'}")
    return lines


def numbered(
    lines: Iterable[tuple[int, Iterable[tuple[Path, str]]]],
) -> tuple[dict[Path, str], dict[Path, int]]:
    """The leaves that lines of a file set, and leaf → its line number; raises LineError for duplicates."""
    leaves: dict[Path, str] = {}
    numbers: dict[Path, int] = {}
    for number, found in lines:
        for path, value in found:
            if path in leaves:
                raise LineError(number, "", f"{' '.join(path)} is set twice")
            leaves[path], numbers[path] = value, number
    return leaves, numbers


def check_leaves(found: Leaves, needed: Leaves, numbers: Mapping[Path, int]) -> None:
    """Raise FileError for every leaf that is not needed, with its line, and for every one that is missing."""
    errors = [
        LineError(numbers[path], "", f"does not fit the other lines: {' '.join(path)} {value}")
        for path, value in found.items()
        if needed.get(path) != value
    ]
    missing = (path for path in needed if path not in found)
    errors += (LineError(0, "", f"lacks {' '.join(path)} {needed[path]}") for path in missing)
    if errors:
        raise FileError(errors)


def removed_objects(before: Leaves, after: Leaves, shallowest: Mapping[str, int]) -> list[Path]:
    """Paths of the objects to remove, as whole objects where nothing of them is kept.

    `shallowest` is the depth of the objects that may go whole, by the first word of their path.
    """
    in_use = {path[:depth] for path in after for depth in range(len(path) + 1)}
    removed: dict[Path, None] = {}
    for path in before:
        if path not in after:
            depth = min(shallowest.get(path[0], 1), len(path))
            while depth < len(path) and path[:depth] in in_use:
                depth += 1
            removed[path[:depth]] = None
    return list(removed)


def put_back(now: Leaves, before: Leaves, pushed: Leaves) -> dict[Path, str]:
    """The leaves that undo a push: what runs now, but all leaves which the push changed as before."""
    changed = {path for path in before.keys() | pushed.keys() if before.get(path) != pushed.get(path)}
    return {path: value for path, value in now.items() if path not in changed} | {
        path: value for path, value in before.items() if path in changed
    }
