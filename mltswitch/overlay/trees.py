"""Trees over the ranks of a job, along which sums go up and results come down."""

import heapq
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, TypeVar

from mltswitch.errors import UserInputError

Node = TypeVar("Node", bound=Hashable)
RACK: Final = "rack"
"""Given in place of an in-degree: one aggregator a rack, which alone sends out of the rack."""


def grown(root: Node, groups: Iterable[Sequence[Node]], in_degree: int) -> dict[Node, Node]:
    """The parents in a tree as low as `in_degree` allows, which enters each group of near nodes once.

    Args:
        root: the node without a parent; it is in no group.
        groups: nodes near each other, in the order in which they are placed; where no nodes are nearer to
            each other than to the rest, each is a group by itself.
        in_degree: the most children that a node has, at least 1.

    Raises UserInputError for an in-degree below 1.
    """
    if in_degree < 1:
        raise UserInputError(f"{in_degree}", where="in_degree", expected="1 or more, rack or auto")
    parents: dict[Node, Node] = {}
    order = count()
    free = [(0, next(order), root, in_degree)]
    for group in groups:
        head, *others = group
        depth = _below(free, head, parents)
        inside = [(depth + 1, next(order), head, in_degree)]
        for node in others:
            depth = _below(inside, node, parents)
            heapq.heappush(inside, (depth + 1, next(order), node, in_degree))
        for place in inside:
            heapq.heappush(free, place)
    return parents


def _below(free: list[tuple[int, int, Node, int]], node: Node, parents: dict[Node, Node]) -> int:
    """Give it the first parent that has room, of a heap by depth; its parent's depth."""
    depth, number, parent, room = free[0]
    parents[node] = parent
    if room > 1:
        heapq.heapreplace(free, (depth, number, parent, room - 1))
    else:
        heapq.heappop(free)
    return depth


def star(root: int, ranks: int) -> dict[int, int]:
    """The parent of each rank is the root itself."""
    return {rank: root for rank in range(ranks) if rank != root}


def by_rack(root: Node, groups: Iterable[Sequence[Node]]) -> dict[Node, Node]:
    """The parents in a tree where the first node of each rack sums for its rack and sends to the root."""
    parents: dict[Node, Node] = {}
    for head, *others in groups:
        parents[head] = root
        parents.update(dict.fromkeys(others, head))
    return parents


def tree(
    root: Node, order: Sequence[Node], racks: Mapping[Node, Hashable], in_degree: int | str
) -> dict[Node, Node]:
    """The parent of each node but the root, in a tree of this in-degree.

    Args:
        root: the root, one of the nodes or another one.
        order: the nodes; earlier ones are nearer to the root, and aggregators of their racks.
        racks: the rack of each node, where trees enter each rack once; empty: racks are ignored. The root's
            own rack is placed first and sends to the root.
        in_degree: the most children of a node, or `RACK`.

    Raises UserInputError for an invalid in-degree, or `RACK` without racks.
    """
    nodes = [node for node in order if node != root]
    groups: dict[Hashable, list[Node]] = {}
    for number, node in enumerate(nodes):
        groups.setdefault(racks[node] if racks else number, []).append(node)
    if isinstance(in_degree, int):
        own = groups.pop(racks[root], []) if racks and root in racks else []
        near = [[node] for node in own]
        return grown(root, [*near, *groups.values()], in_degree)
    if in_degree != RACK or not racks:
        expected = "1 or more, rack or auto" if in_degree != RACK else "racks, where in_degree is rack"
        raise UserInputError(f"{in_degree!r:.40}", where="in_degree", expected=expected)
    own = groups.pop(racks[root], []) if root in racks else []
    return {**dict.fromkeys(own, root), **by_rack(root, groups.values())}


def depths(parents: Mapping[Node, Node]) -> dict[Node, int]:
    """Hops from each node to the root of its tree."""
    found: dict[Node, int] = {}
    for begin in parents:
        way, node = [], begin
        while node in parents and node not in found:
            way.append(node)
            node = parents[node]
        depth = found.get(node, 0)
        for each in reversed(way):
            depth += 1
            found[each] = depth
    return found


def children_of(parents: Mapping[Node, Node]) -> dict[Node, list[Node]]:
    """The children of each node that has any, in the order of `parents`."""
    found: dict[Node, list[Node]] = {}
    for child, parent in parents.items():
        found.setdefault(parent, []).append(child)
    return found


def without(root: Node, parents: Mapping[Node, Node], gone: Container[Node]) -> dict[Node, Node]:
    """The parents after some nodes are removed: orphans go to their nearest remaining ancestor.

    Args:
        root: the root of the tree, which remains.
        parents: the parent of each other node.
        gone: the removed nodes.
    """
    found: dict[Node, Node] = {}
    for node in parents:
        if node not in gone:
            parent = parents[node]
            while parent in gone and parent != root:
                parent = parents[parent]
            found[node] = parent
    return found


def rooted_at(root: Node, old: Node, parents: Mapping[Node, Node]) -> dict[Node, Node]:
    """The same tree with its node `root` moved to the place of the former root `old`, which is removed."""
    return {node: root if parent == old else parent for node, parent in parents.items() if node != root}
