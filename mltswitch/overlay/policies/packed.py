"""Trees for small parts of the model that share the network: the fullest link is as empty as can be.

One part after the other gets the cheapest trees, up and down, where a link is the dearer the more it carries
by now (multiplicative weights; Garg and Koenemann, FOCS 1998). What no trees can be below: each cut of the
network carries the model once each way.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import directed, networkx, row
from mltswitch.overlay.routes import RoutesTree

STEEPNESS: Final = 12.0
"""How much dearer, as a power of e, a link is that is as full as the fullest one may become."""
SLACK: Final = 1.3
"""Of the fullest link over the bound, about."""
ANY: Final = "any root"
COST: Final = "cost"


class PackedSettings(BaseModel):
    """Of the policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parts: int = Field(default=32, ge=1, le=1024, strict=True)
    """Of the model, each with trees of its own; a job has at least as many pieces."""


class Packed:
    """The description that is registered."""

    name = "packed"
    settings = PackedSettings

    def trees(self, overlay: Overlay, settings: PackedSettings, exchange: Exchange) -> Sequence[RoutesTree]:  # noqa: ARG002
        """See Policy; hosts are linked with each other. Raises UserInputError where switches are between."""
        if len(overlay.ranks) < len(overlay.nodes) or overlay.servers:
            problem = "has nodes that are no ranks"
            raise UserInputError(
                problem, where="packed", expected="links between ranks", hint="use fapt or tree"
            )
        if len(overlay.ranks) == 1:
            return [row(0, 1.0, {}, {}, 1)]
        graph, limit = directed(overlay), SLACK * seconds_at_least(overlay)
        names = {node.name: rank for rank, node in enumerate(overlay.ranks)}
        full = dict.fromkeys(graph.edges, 0.0)
        shares: dict[tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], float] = {}
        for _ in range(settings.parts):
            root, up, down = _cheapest(graph, full, limit)
            for edges in (up, down):
                for source, target in edges:
                    full[source, target] += graph.edges[source, target]["seconds_a_bit"] / settings.parts
            to_root = tuple(sorted((names[source], names[target]) for source, target in up))
            from_root = tuple(sorted((names[target], names[source]) for source, target in down))
            key = names[root], to_root, from_root
            shares[key] = shares.get(key, 0.0) + 1 / settings.parts
        ranks = len(overlay.ranks)
        ordered = sorted(shares.items())
        return [row(root, share, dict(up), dict(down), ranks) for (root, up, down), share in ordered]


def _cheapest(
    graph: Any, full: dict[tuple[str, str], float], limit: float
) -> tuple[str, list[tuple[str, str]], list[tuple[str, str]]]:
    """A root, links up to it and down from it: the best of the roots of either kind of tree alone."""
    for edge, seconds in full.items():
        found = graph.edges[edge]
        found[COST] = found["seconds_a_bit"] * math.exp(STEEPNESS * seconds / limit)
    back = graph.reverse(copy=True)
    roots = {_arborescence(each, None)[0] for each in (graph, back)}
    best: tuple[float, str, Any, Any] | None = None
    for root in sorted(roots):
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
    """Of a bit of the model over any trees: the narrowest cut carries it once each way, at once."""
    graph, found = directed(overlay), networkx()
    first, *others = (node.name for node in overlay.ranks)
    ways = [ends for other in others for ends in ((first, other), (other, first))]
    narrowest: float = min(found.maximum_flow_value(graph, *ends, capacity="rate_bps") for ends in ways)
    return 1 / narrowest


POLICY: Final[Any] = Packed()
