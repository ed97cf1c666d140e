"""Trees of NVUE objects: setting, removing, comparing, and joining equal entries as NVUE prints them."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Tree = dict[str, Any]

_JOINED: Final = frozenset({"dscp", "pcp", "switch-priority", "traffic-class"})
_PORT: Final = re.compile(r"(swp(?:[0-9]+s)?)([0-9]+)")


def set_leaf(tree: Tree, path: Sequence[str], value: str | int | None) -> None:
    """Set the value at a path of the tree; None creates an empty object there."""
    *parents, name = path
    for parent in parents:
        tree = tree.setdefault(parent, {})
    if value is None:
        tree.setdefault(name, {})
    else:
        tree[name] = value


def remove(tree: Tree, path: Sequence[str]) -> None:
    """Remove the object or value at a path of the tree, and each parent that becomes empty."""
    name, *rest = path
    if name not in tree:
        return
    if rest and isinstance(tree[name], dict):
        remove(tree[name], rest)
    if not rest or tree[name] == {}:
        del tree[name]


def leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The (path, value) pair of each leaf of the tree; the value of an empty object is None."""
    for name, value in tree.items():
        here = (*path, str(name))
        if isinstance(value, Mapping) and value:
            yield from leaves(value, here)
        else:
            yield here, None if isinstance(value, Mapping) else value


def difference(old: Tree, new: Tree) -> list[dict[str, Tree]]:
    """The operations that `nv config diff` prints: first what is unset, then what is set."""
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
    """The tree as `nv config show` prints it: neighbouring names with equal contents joined into a range."""
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
    """`0-3,7` with what these have alike, in the order of the first number."""
    left = sorted(entries, key=int)
    while left:
        value = entries[left[0]]
        numbers = [int(name) for name in left if entries[name] == value]
        left = [name for name in left if entries[name] != value]
        runs = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
        spans = [[number for _, number in run] for _, run in runs]
        yield ",".join(f"{span[0]}-{span[-1]}" if span[1:] else str(span[0]) for span in spans), value


def _joined_ports(interfaces: Tree) -> Iterator[tuple[str, Any]]:
    """`swp1-2` with what both have alike, then each with the rest."""
    places = {name: (found[1], int(found[2])) for name in interfaces if (found := _PORT.fullmatch(name))}
    yield from ((name, interfaces[name]) for name in interfaces if name not in places)
    ordered = sorted((stem, number, name) for name, (stem, number) in places.items())
    for _, run in itertools.groupby(enumerate(ordered), key=lambda pair: (pair[1][0], pair[1][1] - pair[0])):
        ports = [port for _, port in run]
        settings = [interfaces[name] for *_, name in ports]
        common = {
            key: value
            for key, value in settings[0].items()
            if settings[1:] and all(other.get(key) == value for other in settings)
        }
        if common:
            yield f"{ports[0][2]}-{ports[-1][1]}", common
        for (*_, name), setting in zip(ports, settings, strict=True):
            rest = {key: value for key, value in setting.items() if key not in common}
            if rest or len(ports) == 1:
                yield name, rest
