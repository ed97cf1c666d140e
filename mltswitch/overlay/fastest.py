"""Ways between hosts over the fastest links, of which policies for slow, unequal networks build trees.

The weight of a link is the seconds that a bit needs on it. Hosts forward; switches between them are passed.
"""

from collections import defaultdict
from collections.abc import Mapping, Set
from heapq import heappop, heappush
from typing import Any, Final

from mltswitch.errors import MachineError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.routes import Tree

WEIGHT: Final = "seconds_a_bit"


def networkx() -> Any:
    """The imported package networkx; raises MachineError where it is missing."""
    try:
        import networkx as found
    except ImportError as error:
        hint = "`pip install 'mltswitch[sim]'`"
        raise MachineError("this policy needs networkx", where="overlay", hint=hint) from error
    return found


def directed(overlay: Overlay) -> Any:
    """The network as a networkx.DiGraph of node names, links weighted by the seconds that a bit needs."""
    graph = networkx().DiGraph()
    graph.add_nodes_from(node.name for node in overlay.nodes)
    for link in overlay.links:
        graph.add_edge(link.source, link.target, **{WEIGHT: 1 / link.rate_bps, "rate_bps": link.rate_bps})
    return graph


def tree_of_ways(overlay: Overlay, root: int, ways: Mapping[str, list[str]]) -> Tree:
    """A tree of the ranks towards a root: each rank's parent is the next host with a rank on its way.

    Args:
        overlay: the network.
        root: the root's number among the job's nodes.
        ways: the names of the hosts on the way from the root's host to each other host.
    """
    names = {node.name: number for number, node in enumerate(overlay.ranks)}
    names[overlay.members[root].name] = root
    parents = {}
    for rank, node in enumerate(overlay.ranks):
        if rank != root:
            nearer = ways[node.name][-2::-1] or [node.name]  # a server's own host
            parents[rank] = next(names[name] for name in nearer if name in names)
    return parents


def fastest_trees(overlay: Overlay, graph: Any, root: int) -> tuple[Tree, Tree, float]:
    """Dijkstra's trees towards a root and from it, and the sum of their delays, in seconds for each bit.

    The delay of a tree is that of its farthest leaf (NetStorm, theorem 1).
    """
    found, begin = networkx(), overlay.members[root].name
    seconds_up, ways_up = found.single_source_dijkstra(graph.reverse(copy=False), begin, weight=WEIGHT)
    seconds_down, ways_down = found.single_source_dijkstra(graph, begin, weight=WEIGHT)
    hosts = [node.name for node in overlay.ranks]
    delay = max(seconds_up[name] for name in hosts) + max(seconds_down[name] for name in hosts)
    return tree_of_ways(overlay, root, ways_up), tree_of_ways(overlay, root, ways_down), delay


def disjoint_paths(
    rates_bps: Mapping[tuple[int, int], float], source: int, target: int
) -> list[tuple[int, ...]]:
    """Paths between two nodes that share no node but their ends, the fastest first, without the direct link.

    Args:
        rates_bps: the rate of each link, by the nodes at its ends.
        source: the node where paths begin.
        target: the node where paths end.
    """
    outward: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for (one, other), bps in rates_bps.items():
        if (one, other) != (source, target):
            outward[one].append((other, 1 / bps))
    paths, used = list[tuple[int, ...]](), set[int]()
    while path := _fastest_path(outward, source, target, used):
        paths.append(path)
        used.update(path[1:-1])
    return paths


def _fastest_path(
    outward: Mapping[int, list[tuple[int, float]]], source: int, target: int, used: Set[int]
) -> tuple[int, ...]:
    """By Dijkstra, and without networkx, which not every rank of a job has; empty: there is none."""
    reached = {*used}
    coming: list[tuple[float, tuple[int, ...]]] = [(0.0, (source,))]
    while coming:
        seconds, path = heappop(coming)
        if path[-1] == target:
            return path
        if path[-1] not in reached:
            reached.add(path[-1])
            for node, more in outward.get(path[-1], ()):
                heappush(coming, (seconds + more, (*path, node)))
    return ()
