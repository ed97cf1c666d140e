"""The greatest spanning tree by rate, for all pieces (TSEngine): it leaves out what slow links it can."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import directed, networkx, row, tree_of_ways
from mltswitch.overlay.routes import RoutesTree, Tree
from mltswitch.overlay.trees import depths


class MstSettings(BaseModel):
    """None: any is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Mst:
    """The description that is registered; a link is as fast as its slower direction."""

    name = "mst"
    settings = MstSettings

    def trees(self, overlay: Overlay, settings: MstSettings, exchange: Exchange) -> Sequence[RoutesTree]:  # noqa: ARG002
        """See Policy; its root is the one from which the farthest rank has the fewest hops."""
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


POLICY: Final[Any] = Mst()
