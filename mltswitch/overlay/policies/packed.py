"""The policy `packed`: trees for small parts of the model that together load the fullest link least.

One part after the other gets the cheapest trees, up and down; the more a link carries by then, the more it
costs (multiplicative weights; Garg and Koenemann, FOCS 1998). A lower bound for all trees: each cut of the
network carries the model once each way.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import WEIGHT, directed, networkx
from mltswitch.overlay.policies import NoSettings, Policy
from mltswitch.overlay.policies.fapt import FaptSettings, fapt_trees
from mltswitch.overlay.policies.mst import mst_trees
from mltswitch.overlay.routes import RoutesTree, row

MOST_SITES: Final = 32
PARTS_A_ROOT: Final = 8
"""For how many parts of the model a root is kept before it is chosen anew."""
Ends = tuple[str, str]
Edges = tuple[tuple[int, int], ...]
STEEPNESS: Final = 12.0
"""The exponent of e by which a link's cost has grown when it is as full as the fullest link may become."""
STEEPEST: Final = 20.0
"""The largest exponent of e in a link's cost, so that costs can still be told apart."""
SLACK: Final = 1.3
"""How full the fullest link may become, about, as a multiple of the lower bound."""
ANY: Final = "any root"
COST: Final = "cost"


class PackedSettings(BaseModel):
    """Settings of the policy `packed`: how finely it cuts the model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parts: int = Field(default=32, ge=1, le=1024, strict=True)
    """How many parts the model is cut into, each with trees of its own; a job has at least as many pieces."""


def packed_trees(overlay: Overlay, settings: PackedSettings, exchange: Exchange) -> Sequence[RoutesTree]:
    """The trees of the policy `packed`, or those of `fapt` or `mst` where they load the fullest link less.

    Raises UserInputError where hosts are not linked with each other, or are more than MOST_SITES.
    """
    ranks = len(overlay.ranks)
    if ranks < len(overlay.nodes) or overlay.servers:
        problem = "has servers" if overlay.servers else "has switches"
        expected = "ranks that serve each other, with links between them"
        raise UserInputError(problem, where="packed", expected=expected, hint="use fapt or tree")
    if ranks > MOST_SITES:
        problem = f"{ranks} hosts take too long"
        raise UserInputError(problem, where="packed", expected=f"at most {MOST_SITES}", hint="use fapt")
    if ranks == 1:
        return [row(0, 1.0, {}, {}, 1)]
    found = [_packed(overlay, settings.parts), fapt_trees(overlay, FaptSettings(), exchange)]
    with suppress(UserInputError):  # links of one direction
        found.append(mst_trees(overlay, NoSettings(), exchange))
    return min(found, key=partial(fullest_seconds, overlay))


def fullest_seconds(overlay: Overlay, rows: Sequence[RoutesTree]) -> float:
    """Seconds that the fullest link needs for each bit of the model under these trees."""
    names = [node.name for node in overlay.ranks]
    rates_bps = {(link.source, link.target): link.rate_bps for link in overlay.links}
    loads: defaultdict[tuple[str, str], float] = defaultdict(float)
    for each in rows:
        for child, parent in each.tree.items():
            loads[names[child], names[parent]] += each.share
        for child, parent in each.down_tree.items():
            loads[names[parent], names[child]] += each.share
    return max(share / rates_bps[ends] for ends, share in loads.items())


def _packed(overlay: Overlay, parts: int) -> list[RoutesTree]:
    graph, limit = directed(overlay), SLACK * seconds_at_least(overlay)
    _drop_slow_links(graph, parts * limit)
    names = {node.name: rank for rank, node in enumerate(overlay.ranks)}
    full = dict.fromkeys(graph.edges, 0.0)
    counts: Counter[tuple[int, Edges, Edges]] = Counter()
    roots: list[str] = []
    for part in range(parts):
        back = _costed(graph, full, limit)
        if part % PARTS_A_ROOT == 0:
            roots = sorted({_arborescence(each, None)[0] for each in (graph, back)})
        root, up, down = _cheapest(graph, back, roots)
        for source, target in (*up, *down):
            full[source, target] += graph.edges[source, target][WEIGHT] / parts
        to_root = tuple(sorted((names[source], names[target]) for source, target in up))
        from_root = tuple(sorted((names[target], names[source]) for source, target in down))
        counts[names[root], to_root, from_root] += 1
    ordered = sorted(counts.items())
    return [
        row(root, count / parts, dict(up), dict(down), len(overlay.ranks))
        for (root, up, down), count in ordered
    ]


def _drop_slow_links(graph: Any, most: float) -> None:
    """Those over which one part takes longer than all may, slowest first, where the others still connect."""
    slow = sorted(
        ((seconds, ends) for *ends, seconds in graph.edges(data=WEIGHT) if seconds > most), reverse=True
    )
    for seconds, ends in slow:
        graph.remove_edge(*ends)
        if not networkx().is_strongly_connected(graph):
            graph.add_edge(*ends, **{WEIGHT: seconds, "rate_bps": 1 / seconds})


def _costed(graph: Any, full: dict[tuple[str, str], float], limit: float) -> Any:
    """Write what links cost by what they carry; the same network backwards."""
    for edge, seconds in full.items():
        steep = min(STEEPNESS * seconds / limit, STEEPEST)
        graph.edges[edge][COST] = graph.edges[edge][WEIGHT] * math.exp(steep)
    return graph.reverse(copy=True)


def _cheapest(graph: Any, back: Any, roots: list[str]) -> tuple[str, list[Ends], list[Ends]]:
    """A root, links up to it, and links down from it."""
    best: tuple[float, str, list[Ends], list[Ends]] | None = None
    for root in roots:
        down, up = _arborescence(graph, root)[1], _arborescence(back, root)[1]
        cost = sum(graph.edges[edge][COST] for edge in down) + sum(back.edges[edge][COST] for edge in up)
        if best is None or cost < best[0]:
            best = cost, root, [(target, source) for source, target in up], down
    assert best is not None, "there are roots"  # noqa: S101
    return best[1:]


def _arborescence(graph: Any, root: str | None) -> tuple[str, list[tuple[str, str]]]:
    """The cheapest tree of links away from a root, or from the best one."""
    chosen = graph.copy()
    dear = 1 + sum(cost for *_, cost in graph.edges(data=COST))
    for node in graph if root is None else (root,):
        chosen.add_edge(ANY, node, **{COST: dear})
    tree = networkx().minimum_spanning_arborescence(chosen, attr=COST)
    found = next(target for source, target in tree.edges if source == ANY)
    return found, [edge for edge in tree.edges if edge[0] != ANY]


def seconds_at_least(overlay: Overlay) -> float:
    """Lower bound of the seconds for each bit of the model: what the narrowest cut of the network needs."""
    graph, found = directed(overlay), networkx()
    first, *others = (node.name for node in overlay.ranks)
    ways = [ends for other in others for ends in ((first, other), (other, first))]
    narrowest: float = min(found.maximum_flow_value(graph, *ends, capacity="rate_bps") for ends in ways)
    return 1 / narrowest


POLICY: Final = Policy("packed", PackedSettings, packed_trees)
