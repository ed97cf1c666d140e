"""The policy `mst`: one maximum spanning tree by rate for all pieces, which avoids slow links (TSEngine)."""

from collections.abc import Sequence
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import directed, networkx, tree_of_ways
from mltswitch.overlay.policies import NoSettings, Policy
from mltswitch.overlay.routes import RoutesTree, Tree, row
from mltswitch.overlay.trees import depths


def mst_trees(overlay: Overlay, _settings: NoSettings, _exchange: Exchange) -> Sequence[RoutesTree]:
    """The tree of the policy `mst`; a link counts as fast as its slower direction.

    The root is the one from which the farthest rank has the fewest hops.
    """
    found, links = networkx(), directed(overlay)
    graph = found.Graph()
    graph.add_nodes_from(links)
    for source, target, rate_bps in links.edges(data="rate_bps"):
        back_bps = links.edges[target, source]["rate_bps"] if links.has_edge(target, source) else 0.0
        if back_bps:
            graph.add_edge(source, target, rate_bps=min(rate_bps, back_bps))
    if not found.is_connected(graph):
        problem = "has sites that links of both directions do not join"
        raise UserInputError(problem, where="mst", expected="links both ways", hint="use fapt or packed")
    spanning = found.maximum_spanning_tree(graph, weight="rate_bps")

    def grown(root: int) -> Tree:
        ways = found.single_source_shortest_path(spanning, overlay.members[root].name)
        return tree_of_ways(overlay, root, ways)

    trees = {root: grown(root) for root in overlay.roots}
    root = min(trees, key=lambda each: (max(depths(trees[each]).values(), default=0), each))
    return [row(root, 1.0, trees[root], trees[root], len(overlay.ranks))]


POLICY: Final = Policy("mst", NoSettings, mst_trees)
