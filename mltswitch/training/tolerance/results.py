"""The results of a measurement: points, comparisons, bounds, and the curves of a profile."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mltswitch.profile import LayerRangeCurve, ModelProfile, Sensitivity
from mltswitch.profile.default import EXTRA_ROUNDS_PER_LOSS
from mltswitch.training.tolerance.loss import Importance
from mltswitch.training.tolerance.sequential import Verdict
from mltswitch.training.tolerance.task import TrainingTask, load_task

LEAST_SHARE: Final = 0.01
"""The least share of unimportant packets that a profile says, even if layers have only one packet each."""

Kind = tuple[int, int, Importance]
"""A kind of packets that are lost: first layer, last layer, and importance."""


@dataclass(frozen=True)
class Settings:
    """The settings of a loss-tolerance measurement."""

    task: str
    groups: int
    """Number of layer ranges with curves of their own; layer i of L is in range i · groups // L."""
    ratios: tuple[float, ...]
    """Loss ratios to measure, ascending, within 0 to 1."""
    least_seeds: int = 5
    most_seeds: int = 20
    tolerance: float = 0.05
    """Ratio of extra rounds up to which a loss counts as tolerated."""
    target: float | None = None
    ranks: int | None = None
    """Number of virtual ranks; None: the task's own."""

    def load(self) -> TrainingTask:
        """The task, as these settings change it; raises what `load_task` raises."""
        return load_task(self.task, self.target, self.ranks)


@dataclass(frozen=True)
class Point:
    """Extra rounds at one loss ratio of one kind of packets, measured; fractions of the lossless rounds."""

    first_layer: int
    last_layer: int
    importance: Importance
    ratio: float
    seeds: int
    extra_rounds: float
    """Geometric mean over seeds of lossy by lossless rounds, less 1."""
    low: float | None
    high: float | None
    """Upper end of the 95 % interval of the extra rounds, as `low` is the lower; None: it is unbounded."""
    verdict: Verdict
    given_up: int
    """Number of trainings that never reached the target; they count with the rounds after which they were
    given up."""
    eligible_share: float
    """Share of packets of this kind among all packets of the point's layers."""
    lost_share: float
    """Share of the packets of this kind that was lost."""
    predicted: float | None = None
    """For the whole model, the extra rounds that plans predict: the sum over the ranges' curves; None: not
    predicted."""

    @property
    def kind(self) -> Kind:
        """The kind of packets that are lost: layers and importance."""
        return self.first_layer, self.last_layer, self.importance


@dataclass(frozen=True)
class Comparison:
    """Comparison of two kinds of packets lost at one ratio: rounds with the first over rounds with the
    second, less 1."""

    question: str
    ratio: float
    seeds: int
    difference: float
    low: float | None
    high: float | None
    answer: str


@dataclass(frozen=True)
class Bound:
    """The bounded-loss ratio p: the share of all packets that may be lost at no cost (MLT, tables 1, 5)."""

    importance: Importance
    tolerated: float
    """The largest measured ratio of all packets whose extra rounds are within the tolerance; 0: none."""
    refused: float | None
    """The smallest measured ratio whose extra rounds exceed the tolerance; None: none does. The true bound
    lies between."""


@dataclass(frozen=True)
class Measurement:
    """All results of a loss-tolerance measurement."""

    profile: ModelProfile
    points: tuple[Point, ...]
    comparisons: tuple[Comparison, ...]
    bounds: tuple[Bound, ...]
    lossless_rounds: float
    """Number of rounds of lossless training, the median over seeds."""
    trainings: int
    not_finite: int
    """Number of trainings with a gradient that was not finite, which count as given up."""


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing values nearest to these in weighted squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (first, one, few), (second, other, more) = pools[-2:]
            pools[-2:] = [((first * one + second * other) / (one + other), one + other, few + more)]
    return [value for value, _, count in pools for _ in range(count)]


def curve_points(points: Sequence[Point], share: float) -> tuple[tuple[float, float], ...]:
    """The points of a profile's curve: non-negative, non-decreasing, from (0, 0) to a loss of everything.

    Beyond the largest measured ratio it goes on with its last slope, or with the default's where that is
    steeper: no measurement says that the rest is free.

    Args:
        points: The measured points of one curve, by rising ratio.
        share: Share of the model's bytes that the curve covers.
    """
    rounds = rising([max(point.extra_rounds, 0.0) for point in points], [point.seeds for point in points])
    curve = [
        (0.0, 0.0),
        *((point.ratio, float(f"{value:.6g}")) for point, value in zip(points, rounds, strict=True)),
    ]
    (before, less), (last, most) = curve[-2:]
    if last < 1:
        slope = max((most - less) / (last - before), EXTRA_ROUNDS_PER_LOSS * share)
        curve.append((1.0, float(f"{most + slope * (1 - last):.6g}")))
    return tuple(curve)


def with_curves(
    profile: ModelProfile, points: Sequence[Point], ranges: Sequence[tuple[int, int]], provenance: str
) -> ModelProfile:
    """The profile with measured curves for each range of layers.

    Args:
        profile: The model's profile, with any sensitivity.
        points: The measured points of each range and of the whole model.
        ranges: First and last layer of each range, in forward order, covering all.
        provenance: How the curves were measured.
    """
    by_kind: defaultdict[Kind, list[Point]] = defaultdict(list)
    for point in points:
        by_kind[point.kind].append(point)
    share = by_kind[0, len(profile.layers) - 1, Importance.UNIMPORTANT][0].eligible_share
    curves = []
    for first, last in ranges:
        size = sum(layer.size_bytes for layer in profile.layers[first : last + 1]) / profile.total_bytes
        unimportant, important = (
            curve_points(by_kind[first, last, importance], size * part)
            for importance, part in ((Importance.UNIMPORTANT, share), (Importance.IMPORTANT, 1 - share))
        )
        curves.append(
            LayerRangeCurve(first_layer=first, last_layer=last, unimportant=unimportant, important=important)
        )
    sensitivity = Sensitivity(
        is_default=False,
        provenance=provenance,
        unimportant_share=min(max(float(f"{share:.4g}"), LEAST_SHARE), 1 - LEAST_SHARE),
        curves=tuple(curves),
    )
    return profile.model_copy(update={"sensitivity": sensitivity})
