"""The policy `tree`: ranks sum on the way, so that a link carries a tensor once, not once a rank (MLNET)."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange, simulate_trees
from mltswitch.overlay.policies import Policy
from mltswitch.overlay.routes import Tree
from mltswitch.overlay.trees import RACK, star, tree

AUTO: Final = "auto"
CANDIDATES: Final = (2, 4, 8)
"""The in-degrees among which `AUTO` chooses, beside `STAR` and, where there are racks, `RACK`."""
STAR: Final = "star"


def _checked_degree(value: Any) -> int | str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not is_number and value not in (RACK, AUTO):
        raise ValueError("must be a whole number, 1 or more, rack or auto")
    return value  # type: ignore[no-any-return]  # it was looked at


class TreeShape(BaseModel):
    """Settings of the shape of trees: the most children of a node, where ranks stand, and use of racks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    in_degree: Annotated[Any, BeforeValidator(_checked_degree)] = 2
    """The most children of a node; `rack`: one aggregator a rack; `auto`: for the shortest exchange."""
    placement: Literal["spread", "fixed"] = "spread"
    """`spread`: ranks have other places in each tree; `fixed`: lower ranks are nearer to every root."""
    locality: Literal["rack", "none"] = "rack"
    """`rack`: a tree enters each rack once, where racks are known; `none`: racks are ignored."""

    def candidates(self, ranks: int, *, has_racks: bool) -> list[int | str]:
        """The in-degrees to try: the configured one, or with `auto` all that make sense for so many ranks."""
        if self.in_degree != AUTO:
            return [self.in_degree]
        found: list[int | str] = [each for each in CANDIDATES if each < ranks]
        return [*found, *[RACK] * has_racks, STAR]

    def grown(
        self, in_degree: int | str, roots: Iterable[int], ranks: int, racks: Mapping[int, Hashable]
    ) -> dict[int, Tree]:
        """Build the tree of each root over all ranks; raises UserInputError for an invalid in-degree."""
        if in_degree == STAR:
            return {root: star(root, ranks) for root in roots}
        is_near = racks and RACK in {self.locality, in_degree}
        found: dict[int, Tree] = {}
        for root in roots:
            order = [*range(ranks)]
            if self.placement == "spread":
                order = np.random.default_rng(root).permutation(ranks).tolist()
            found[root] = tree(root, order, racks if is_near else {}, in_degree)
        return found


def shaped_trees(overlay: Overlay, settings: TreeShape, exchange: Exchange) -> Mapping[int, Tree]:
    """The trees of the policy `tree`, grouped by the racks that the overlay names."""
    racks = {number: node.rack for number, node in enumerate(overlay.members) if node.rack is not None}
    if settings.in_degree == RACK and not overlay.racks:
        raise UserInputError("are missing", where="racks of the overlay", hint="in_degree is rack")
    candidates = settings.candidates(len(overlay.ranks), has_racks=bool(overlay.racks))
    grown = [settings.grown(each, overlay.roots, len(overlay.ranks), racks) for each in candidates]
    if len(grown) == 1:
        return grown[0]
    return min(grown, key=lambda trees: simulate_trees(overlay, trees, exchange).seconds)


POLICY: Final = Policy("tree", TreeShape, shaped_trees)
