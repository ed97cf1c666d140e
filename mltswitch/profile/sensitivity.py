"""What lost gradients cost a model, as data: curves per layer range and importance."""

from itertools import pairwise
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mltswitch.profile.curves import Curve
from mltswitch.profile.layers import MAXIMUM_LAYERS

LEAST_STEP: Final = 1e-9
"""Least distance between two loss ratios of a curve; nobody measures finer, and slopes stay finite."""

LossRatio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
ExtraRounds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
CurvePoint = tuple[LossRatio, ExtraRounds]
"""One point of a curve: (loss ratio, extra rounds as a fraction of those of lossless training)."""


def _check_points(points: tuple[CurvePoint, ...]) -> tuple[CurvePoint, ...]:
    if points[0] != (0.0, 0.0):
        raise ValueError(f"starts at {list(points[0])} instead of [0, 0]")
    for (ratio, rounds), (next_ratio, next_rounds) in pairwise(points):
        if next_ratio - ratio < LEAST_STEP:
            raise ValueError(f"loss ratio {next_ratio:g} does not lie above the {ratio:g} before it")
        if next_rounds < rounds:
            raise ValueError(f"extra rounds fall from {rounds:g} to {next_rounds:g} while the loss rises")
    return points


CurvePoints = Annotated[
    tuple[CurvePoint, ...], Field(min_length=2, max_length=1000), AfterValidator(_check_points)
]
"""The points of a curve, which is linear between them and continues with the last slope."""


class LayerRangeCurve(BaseModel):
    """Extra rounds when gradients of these layers, and of no others, are lost.

    A measurement does just that: it loses a ratio of the unimportant (or important) gradients of the whole
    range and counts the rounds to the quality target. A part of the range has the curve's share by its bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_layer: int = Field(ge=0)
    last_layer: int = Field(ge=0)
    """The last layer of the range; layers count from 0 in forward order, and both ends are included."""
    unimportant: CurvePoints
    important: CurvePoints

    def curve(self, *, important: bool) -> Curve:
        """The curve of the important or of the unimportant gradients as a function."""
        ratios, rounds = zip(*(self.important if important else self.unimportant), strict=True)
        return Curve(ratios, rounds)


class Sensitivity(BaseModel):
    """Loss sensitivity of a whole model; losses in different ranges add up (MLT, appendix B)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    is_default: bool
    """Whether these are default curves because nobody has measured this model."""
    provenance: str = Field(min_length=1, max_length=4000)
    """Where the curves come from, in words."""
    extra_rounds_per_loss: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)
    """Slope beyond the tolerance that a default assumes; None for measured curves."""
    unimportant_share: float = Field(default=0.5, gt=0, lt=1, allow_inf_nan=False)
    """θ: share of the gradients that is tagged unimportant; hosts split at the median."""
    curves: tuple[LayerRangeCurve, ...] = Field(min_length=1, max_length=MAXIMUM_LAYERS)
    """Curves by layer range, in forward order, covering every layer once."""

    @model_validator(mode="after")
    def _contiguous(self) -> Self:
        expected = 0
        for entry in self.curves:
            if entry.first_layer != expected:
                raise ValueError(f"a curve begins at layer {entry.first_layer} instead of {expected}")
            if entry.last_layer < entry.first_layer:
                raise ValueError(f"a curve ends at layer {entry.last_layer}, before it begins")
            expected = entry.last_layer + 1
        return self
