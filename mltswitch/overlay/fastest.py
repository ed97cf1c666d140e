"""Ways between hosts over the fastest links: what policies for slow, unequal networks grow trees of.

The weight of a link is the seconds that a bit needs on it. Hosts forward; switches between them are passed.
"""

from collections.abc import Mapping
from typing import Any, Final

from mltswitch.errors import MachineError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.routes import NOBODY, RoutesTree, Tree

WEIGHT: Final = "seconds_a_bit"


def networkx() -> Any:
    """The package; raises MachineError where it is missing."""
    try:
        import networkx as found
    except ImportError as error:
        hint = "`pip install 'mltswitch[sim]'`"
        raise MachineError("this policy needs networkx", where="overlay", hint=hint) from error
    return found


def directed(overlay: Overlay) -> Any:
    """The network as a networkx.DiGraph of names, its links weighted."""
    graph = networkx().DiGraph()
    graph.add_nodes_from(node.name for node in overlay.nodes)
    for link in overlay.links:
        graph.add_edge(link.source, link.target, **{WEIGHT: 1 / link.rate_bps, "rate_bps": link.rate_bps})
    return graph


def tree_of_ways(overlay: Overlay, root: int, ways: Mapping[str, list[str]]) -> Tree:
    """Parents of all ranks but the root: the next host with a rank on the way.

    Args:
        overlay: the network.
        root: number of a node of the job.
        ways: from the root's host to each other one.
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
    """Dijkstra's trees towards a root and from it, and the seconds that a bit needs up and down at most.

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
    """Paths over other nodes, no two of which have an inner node in common, the fastest first.

    Args:
        rates_bps: of links, by the nodes at their ends.
        source: where paths begin.
        target: where they end.

    Raises MachineError without networkx.
    """
    found, graph, paths = networkx(), networkx().DiGraph(), []
    graph.add_nodes_from((source, target))
    graph.add_weighted_edges_from((*ends, 1 / bps) for ends, bps in rates_bps.items())
    graph.remove_edges_from([(source, target)])
    while found.has_path(graph, source, target):
        path = found.dijkstra_path(graph, source, target)
        graph.remove_nodes_from(path[1:-1])
        paths.append(tuple(path))
    return paths


def row(root: int, share: float, up: Tree, down: Tree, ranks: int) -> RoutesTree:
    """A tree of a routes document, which says the way of results only where it is another one."""
    lines = [" ".join(str(tree.get(rank, NOBODY)) for rank in range(ranks)) for tree in (up, down)]
    return RoutesTree.model_validate(
        {"root": root, "share": share, "parents": lines[0], "down": None if up == down else lines[1]}
    )
