"""The policy `fapt`: fastest-path trees for slow, unequal links; the best get most of the model (NetStorm).

For each root it takes Dijkstra's tree towards the root and the one from it, weighted by the seconds that a
bit needs on a link. A root's score is one over the delay of both; pieces are dealt out by score (NetStorm,
section IV). Each tree is planned as if it were alone.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import directed, fastest_trees
from mltswitch.overlay.policies import Policy
from mltswitch.overlay.routes import RoutesTree, row


class FaptSettings(BaseModel):
    """Settings of the policy `fapt`: which nodes may be roots."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: Annotated[int, Field(ge=1, strict=True)] | tuple[str, ...] | None = None
    """How many roots (the best by score), or their hosts' names; None: all servers, or else all ranks."""


def fapt_trees(overlay: Overlay, settings: FaptSettings, _exchange: Exchange) -> Sequence[RoutesTree]:
    """The trees of the policy `fapt`; raises UserInputError for too many roots, or unknown ones."""
    graph, wanted, candidates = directed(overlay), settings.roots, [*overlay.roots]
    if isinstance(wanted, tuple):
        named = {overlay.members[root].name: root for root in candidates}
        if not wanted or not named.keys() >= {*wanted}:
            names = ", ".join(named)
            raise UserInputError(f"{', '.join(wanted)}", where="fapt.roots", expected=f"some of {names}")
        candidates, wanted = [named[name] for name in wanted], None
    if wanted is not None and wanted > len(candidates):
        raise UserInputError(f"{wanted}", where="fapt.roots", expected=f"1 to {len(candidates)}")
    grown = {root: fastest_trees(overlay, graph, root) for root in candidates}
    best = sorted(grown, key=lambda root: (grown[root][2], root))[:wanted]
    # of one host alone there is no delay
    scores = {root: 1 / grown[root][2] if grown[root][2] else 1.0 for root in sorted(best)}
    whole, ranks = sum(scores.values()), len(overlay.ranks)
    return [row(root, score / whole, *grown[root][:2], ranks) for root, score in scores.items()]


POLICY: Final = Policy("fapt", FaptSettings, fapt_trees)
