"""Fastest-path trees for networks of slow, unequal links, the best of them with most of the model (NetStorm).

Each root has Dijkstra's tree towards it, by the seconds that a bit needs on a link, and from it; its score is
one over the delay of both, and pieces are dealt by score (NetStorm, section IV). Each tree is planned as if
it were alone.
"""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import directed, fastest_trees, row
from mltswitch.overlay.routes import RoutesTree


class FaptSettings(BaseModel):
    """Which roots `fapt` may choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: int | None = Field(default=None, ge=1, strict=True)
    """How many, those of the best scores; none: all servers, or all ranks."""


class Fapt:
    """The description that is registered."""

    name = "fapt"
    settings = FaptSettings

    def trees(self, overlay: Overlay, settings: FaptSettings, exchange: Exchange) -> Sequence[RoutesTree]:  # noqa: ARG002
        """See Policy. Raises UserInputError for more roots than there are."""
        graph, most = directed(overlay), len(overlay.roots)
        if settings.roots is not None and settings.roots > most:
            raise UserInputError(f"{settings.roots}", where="fapt.roots", expected=f"1 to {most}")
        grown = {root: fastest_trees(overlay, graph, root) for root in overlay.roots}
        best = sorted(grown, key=lambda root: (grown[root][2], root))[: settings.roots]
        # of one host alone there is no delay
        scores = {root: 1 / grown[root][2] if grown[root][2] else 1.0 for root in sorted(best)}
        whole, ranks = sum(scores.values()), len(overlay.ranks)
        return [row(root, score / whole, *grown[root][:2], ranks) for root, score in scores.items()]


POLICY: Final[Any] = Fapt()
