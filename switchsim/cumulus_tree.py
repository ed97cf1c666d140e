"""Trees of NVUE objects: setting, removing, comparing, and joining equal entries as NVUE prints them."""

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Tree = dict[str, Any]

_JOINED: Final = frozenset({"dscp", "pcp", "switch-priority", "traffic-class"})
_PORT: Final = re.compile(r"(swp(?:[0-9]+s)?)([0-9]+)")


def set_leaf(tree: Tree, path: Sequence[str], value: str | int | None) -> None:
    """Set a value, or create an object where the value is None."""
    *parents, name = path
    for parent in parents:
        tree = tree.setdefault(parent, {})
    if value is None:
        tree.setdefault(name, {})
    else:
        tree[name] = value


def remove(tree: Tree, path: Sequence[str]) -> None:
    """Remove an object or a value, and parents that are empty then."""
    name, *rest = path
    if name not in tree:
        return
    if rest and isinstance(tree[name], dict):
        remove(tree[name], rest)
    if not rest or tree[name] == {}:
        del tree[name]


def leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of all leaves; of an empty object, the value is None."""
    for name, value in tree.items():
        here = (*path, str(name))
        if isinstance(value, Mapping) and value:
            yield from leaves(value, here)
        else:
            yield here, None if isinstance(value, Mapping) else value


def difference(old: Tree, new: Tree) -> list[dict[str, Tree]]:
    """What `nv config diff` prints: removals, then what is set."""
    before, after = dict(leaves(old)), dict(leaves(new))
    removed: Tree = {}
    for path in before:
        if path not in after and not any(other[: len(path)] == path for other in after):
            set_leaf(removed, path, None)
    changed: Tree = {}
    for path, value in after.items():
        if path not in before or before[path] != value:
            set_leaf(changed, path, value)
    return [{name: part} for name, part in (("unset", removed), ("set", changed)) if part]


def joined(tree: Tree) -> Tree:
    """The tree as `nv config show` prints it: what neighbours have in common stands under their range."""
    result = _joined_numbers(tree)
    if "interface" in result:
        result["interface"] = dict(_joined_ports(result["interface"]))
    return result


def _joined_numbers(tree: Tree) -> Tree:
    result: Tree = {}
    for name, value in tree.items():
        if not isinstance(value, dict):
            result[name] = value
        elif name in _JOINED and all(map(str.isdigit, value)):
            result[name] = dict(_join_equal(value))
        else:
            result[name] = _joined_numbers(value)
    return result


def _join_equal(entries: Tree) -> Iterator[tuple[str, Any]]:
    ordered = sorted(entries, key=int)
    for value in _distinct(entries[name] for name in ordered):
        yield _ranges([int(name) for name in ordered if entries[name] == value]), copy.deepcopy(value)


def _distinct(values: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _ranges(numbers: list[int]) -> str:
    parts: list[str] = []
    for _, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)


def _joined_ports(interfaces: Tree) -> Iterator[tuple[str, Any]]:
    """`swp1-2` with what both have alike, then each with the rest."""
    ports = sorted(filter(_PORT.fullmatch, interfaces), key=_place)
    for name in interfaces:
        if name not in ports:
            yield name, interfaces[name]
    for _, group in itertools.groupby(enumerate(ports), key=lambda pair: _run(*pair)):
        names = [name for _, name in group]
        common = _common([interfaces[name] for name in names])
        if len(names) > 1 and common:
            yield f"{names[0]}-{_place(names[-1])[1]}", common
        for name in names:
            rest = {
                key: value for key, value in interfaces[name].items() if len(names) == 1 or key not in common
            }
            if rest or len(names) == 1:
                yield name, rest


def _place(name: str) -> tuple[str, int]:
    found = _PORT.fullmatch(name)
    assert found is not None  # noqa: S101 (the caller has filtered)
    return found[1], int(found[2])


def _run(index: int, name: str) -> tuple[str, int]:
    stem, number = _place(name)
    return stem, number - index


def _common(settings: list[Tree]) -> Tree:
    first, *others = settings
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }
