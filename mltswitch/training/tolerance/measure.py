"""Which trainings a measurement needs, and what follows from them: points, comparisons, a profile."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.profile import (
    LayerRangeCurve,
    ModelProfile,
    Sensitivity,
    profile_of_module,
    queue_curves,
)
from mltswitch.profile.default import EXTRA_ROUNDS_PER_LOSS
from mltswitch.sweep import Cell, Rows
from mltswitch.training.tolerance.loss import PAYLOAD_BYTES, Importance
from mltswitch.training.tolerance.sequential import Interval, Verdict, interval, next_count, verdict
from mltswitch.training.tolerance.task import load_task, with_options
from mltswitch.training.tolerance.trial import Trainings

CAP: Final = 4
"""A lossy training is given up after this many times the rounds of the lossless one of its seed."""
HOPELESS: Final = 1.0
"""Extra rounds beyond which larger ratios of the same curve are not measured."""

Kind = tuple[int, int, Importance]
"""First layer, last layer, and importance of what is lost."""


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    task: str
    groups: int
    """Ranges of layers with curves of their own; layer i of L is in range i · groups // L."""
    ratios: tuple[float, ...]
    """Rising, within 0 to 1."""
    least_seeds: int = 5
    most_seeds: int = 20
    tolerance: float = 0.05
    """Extra rounds that count as none."""
    target: float | None = None
    ranks: int | None = None
    """None: the task's own."""


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
    """Of the 95 % interval; None: unbounded."""
    verdict: Verdict
    given_up: int
    """Trainings that never reached the target: they count with the rounds after which they were given up."""
    eligible_share: float
    """Packets of this kind among those of these layers."""
    lost_share: float
    """What was lost of the packets of this kind."""
    predicted: float | None = None
    """For the whole model: the sum over the ranges' curves, as plans predict it."""


@dataclass(frozen=True)
class Comparison:
    """Two kinds of packets lost at the same ratio: rounds with the first by rounds with the second, less 1."""

    question: str
    ratio: float
    seeds: int
    difference: float
    low: float | None
    high: float | None
    answer: str


@dataclass(frozen=True)
class Bound:
    """The bounded-loss ratio p: how much of all packets may be lost with the same rounds (MLT, tables 1, 5)."""

    importance: Importance
    tolerated: float
    """The largest measured ratio of all packets whose extra rounds are within the tolerance; 0: none."""
    refused: float | None
    """The smallest one whose extra rounds are beyond it; None: none. The truth lies between."""


@dataclass(frozen=True)
class Measurement:
    """All that was found."""

    profile: ModelProfile
    points: tuple[Point, ...]
    comparisons: tuple[Comparison, ...]
    bounds: tuple[Bound, ...]
    lossless_rounds: float
    """Median over seeds."""
    trainings: int
    not_finite: int
    """Trainings that met a gradient that is not finite; they count as given up."""


def describe(settings: Settings) -> tuple[ModelProfile, Trainings]:
    """The layers of a task's model in the order of a forward pass, and what computes cells.

    Raises:
        UserInputError: no such task, its code raises, or it has fewer layers than there are groups.
        MachineError: a package is missing.
    """
    task = with_options(load_task(settings.task), settings.target, settings.ranks)
    model = task.model()

    def forward() -> None:
        task.loss(model, next(iter(task.batches(0, 0, task.ranks))))

    profile = profile_of_module(settings.task, model, forward)
    if len(profile.layers) < settings.groups:
        raise UserInputError(
            f"{settings.groups} groups of {len(profile.layers)} layers", where=settings.task
        )
    layers = tuple(tuple(tensor.name for tensor in layer.tensors) for layer in profile.layers)
    return profile, Trainings(settings.task, settings.target, settings.ranks, layers)


def measure(
    settings: Settings,
    profile: ModelProfile,
    finished: Mapping[Cell, Rows],
    compute: Callable[[Sequence[Cell]], None],
) -> Measurement:
    """Measure every curve, ratio by ratio, with seeds until each answer is clear.

    Which trainings are made depends on their results alone, so that an interrupted measurement goes on to the
    same end, with any number of processes.

    Args:
        settings: What to measure.
        profile: The model's layers.
        finished: Results by cell; `compute` adds to it.
        compute: Computes cells that are not finished.

    Raises:
        UserInputError: lossless training does not reach the target.
    """
    campaign = _Campaign(settings, profile, finished, compute)
    points = campaign.points()
    measured = _profile(settings, profile, points, campaign)
    predicted = {Importance.UNIMPORTANT: [0], Importance.IMPORTANT: [1], Importance.ANY: [0, 1]}
    curves = queue_curves(measured, 0, len(profile.layers) - 1)
    points = [
        _with_prediction(point, sum(float(curves[index](point.ratio)) for index in predicted[point.importance]))
        if (point.first_layer, point.last_layer) == campaign.whole
        else point
        for point in points
    ]
    used = [finished[cell][0] for cell in campaign.used]
    return Measurement(
        profile=measured,
        points=tuple(points),
        comparisons=tuple(campaign.comparisons(points)),
        bounds=tuple(campaign.bounds(points)),
        lossless_rounds=sorted(campaign.lossless_rounds.values())[len(campaign.lossless_rounds) // 2],
        trainings=len(used),
        not_finite=sum(not row["is_finite"] for row in used),
    )


def _with_prediction(point: Point, predicted: float) -> Point:
    return Point(**{**vars(point), "predicted": predicted})


class _Campaign:
    """The trainings made so far, and what they say."""

    def __init__(
        self,
        settings: Settings,
        profile: ModelProfile,
        finished: Mapping[Cell, Rows],
        compute: Callable[[Sequence[Cell]], None],
    ) -> None:
        self.settings = settings
        self._finished = finished
        self._compute = compute
        count = len(profile.layers)
        owners = [layer * settings.groups // count for layer in range(count)]
        self.ranges = [
            (owners.index(group), count - 1 - owners[::-1].index(group)) for group in range(settings.groups)
        ]
        self.whole = (0, count - 1)
        self._task = with_options(load_task(settings.task), settings.target, settings.ranks)
        self.lossless_rounds: dict[int, int] = {}
        self.used: dict[Cell, None] = {}

    def points(self) -> list[Point]:
        """All points; each curve goes to its next ratio when the one before is clear."""
        kinds: list[Kind] = [
            (*layers, importance)
            for layers in dict.fromkeys([*self.ranges, self.whole])
            for importance in Importance
        ]
        measured: dict[tuple[Kind, float], Point] = {}
        ahead = {kind: list(self.settings.ratios) for kind in kinds}
        seeds = dict.fromkeys(kinds, self.settings.least_seeds)
        while ahead:
            self._train_lossless(max(seeds[kind] for kind in ahead))
            self._run([cell for kind in ahead for cell in self._cells(kind, ahead[kind][0], seeds[kind])])
            for kind in list(ahead):
                point = self._point(kind, ahead[kind][0], seeds[kind])
                if point.verdict is Verdict.UNCLEAR and point.seeds < self.settings.most_seeds:
                    seeds[kind] = next_count(point.seeds, self.settings.most_seeds)
                    continue
                measured[kind, point.ratio] = point
                seeds[kind] = self.settings.least_seeds
                ahead[kind] = ahead[kind][1:]
                is_hopeless = point.low is not None and point.low > HOPELESS
                if not ahead[kind] or is_hopeless or 2 * point.given_up > point.seeds:
                    del ahead[kind]
        return [
            measured[kind, ratio] for kind in kinds for ratio in self.settings.ratios if (kind, ratio) in measured
        ]

    def comparisons(self, points: Sequence[Point]) -> Iterator[Comparison]:
        """Front against back layers, unimportant against important packets (MLT, figure 4), by pairs of seeds."""
        pairs: list[tuple[str, str, Kind, str, Kind]] = []
        if len(self.ranges) > 1:
            front, back = (*self.ranges[0], Importance.ANY), (*self.ranges[-1], Importance.ANY)
            pairs.append(("front against back layers", "front", front, "back", back))
        small, large = (*self.whole, Importance.UNIMPORTANT), (*self.whole, Importance.IMPORTANT)
        pairs.append(("unimportant against important packets", "unimportant", small, "important", large))
        seeds = {((p.first_layer, p.last_layer, p.importance), p.ratio): p.seeds for p in points}
        for question, first_name, first, second_name, second in pairs:
            for ratio in self.settings.ratios:
                count = min(seeds.get((first, ratio), 0), seeds.get((second, ratio), 0))
                if not count:
                    continue
                values = [
                    one - other
                    for one, other in zip(
                        self._logarithms(first, ratio, count),
                        self._logarithms(second, ratio, count),
                        strict=True,
                    )
                ]
                found = interval(values, self._rounding()).as_growth()
                answer = "unclear"
                if found.high < 0:
                    answer = f"{first_name} costs less"
                elif found.low > 0:
                    answer = f"{second_name} costs less"
                yield Comparison(question, ratio, count, found.estimate, *_bounded(found), answer)

    def bounds(self, points: Sequence[Point]) -> Iterator[Bound]:
        """For packets of any importance (table 1), and for unimportant ones, as the switch drops (table 5)."""
        for importance in (Importance.ANY, Importance.UNIMPORTANT):
            own = [p for p in points if (p.first_layer, p.last_layer, p.importance) == (*self.whole, importance)]
            tolerated, refused = 0.0, None
            for point in own:
                if point.verdict is not Verdict.TOLERATED:
                    break
                tolerated = point.ratio * point.eligible_share
            for point in reversed(own):
                if point.verdict is Verdict.REFUSED:
                    refused = point.ratio * point.eligible_share
            yield Bound(importance, tolerated, refused)

    def _cells(self, kind: Kind, ratio: float, seeds: int) -> list[Cell]:
        first, last, importance = kind
        return [
            (first, last, str(importance), ratio, seed, CAP * self.lossless_rounds[seed]) for seed in range(seeds)
        ]

    def _run(self, cells: Sequence[Cell]) -> None:
        self._compute(cells)
        self.used.update(dict.fromkeys(cells))

    def _train_lossless(self, seeds: int) -> None:
        cells: list[Cell] = [
            (*self.whole, str(Importance.ANY), 0.0, seed, self._task.most_rounds) for seed in range(seeds)
        ]
        self._run(cells)
        for seed, cell in enumerate(cells):
            row = self._finished[cell][0]
            if not row["is_reached"]:
                reason = "" if row["is_finite"] else "; a gradient is not finite"
                metric = "no number" if row["metric"] is None else f"{row['metric']:.4g}"
                raise UserInputError(
                    f"training without loss came to {metric} of {self._task.target:g} in {row['rounds']} rounds "
                    f"(seed {seed}{reason})",
                    where=self.settings.task,
                    hint="choose a lower --target, or a longer training",
                )
            self.lossless_rounds[seed] = row["rounds"]

    def _logarithms(self, kind: Kind, ratio: float, seeds: int) -> list[float]:
        """Of lossy by lossless rounds, for each seed; their mean is 0 where the loss changes nothing."""
        rows = [self._finished[cell][0] for cell in self._cells(kind, ratio, seeds)]
        return [math.log(row["rounds"] / self.lossless_rounds[seed]) for seed, row in enumerate(rows)]

    def _rounding(self) -> float:
        """Standard deviation of a logarithm from counting rounds in steps between evaluations, at both ends."""
        mean = math.fsum(self.lossless_rounds.values()) / len(self.lossless_rounds)
        return self._task.evaluate_every / mean / math.sqrt(6)

    def _point(self, kind: Kind, ratio: float, seeds: int) -> Point:
        rows = [self._finished[cell][0] for cell in self._cells(kind, ratio, seeds)]
        found = interval(self._logarithms(kind, ratio, seeds), self._rounding()).as_growth()
        packets, eligible, lost = (sum(row[key] for row in rows) for key in ("packets", "eligible", "lost"))
        return Point(
            *kind,
            ratio=ratio,
            seeds=seeds,
            extra_rounds=found.estimate,
            low=_bounded(found)[0],
            high=_bounded(found)[1],
            verdict=verdict(found, self.settings.tolerance),
            given_up=sum(not row["is_reached"] for row in rows),
            eligible_share=eligible / packets,
            lost_share=lost / eligible if eligible else 0.0,
        )
