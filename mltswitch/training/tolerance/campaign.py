"""Decides which trainings a measurement needs, one after another, until every answer is clear."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.profile import ModelProfile, import_torch, profile_of_module, queue_curves, user_code
from mltswitch.profile.default import EXTRA_ROUNDS_PER_LOSS
from mltswitch.sweep import Cell, Rows
from mltswitch.training.tolerance.loss import PAYLOAD_BYTES, Importance
from mltswitch.training.tolerance.results import (
    Bound,
    Comparison,
    Kind,
    Measurement,
    Point,
    Settings,
    with_curves,
)
from mltswitch.training.tolerance.sequential import Interval, Verdict, interval, next_count, verdict
from mltswitch.training.tolerance.trial import Trainings, batches_of

CAP: Final = 4
"""A lossy training is given up after this many times the rounds of the lossless one of its seed."""
HOPELESS: Final = 1.0
"""Extra rounds beyond which larger ratios of the same curve are not measured."""


def describe(settings: Settings) -> tuple[ModelProfile, Trainings]:
    """The layers of a task's model in the order of a forward pass, and the function that runs its trainings.

    Raises:
        UserInputError: no such task, its code raises, or it has fewer layers than there are groups.
        MachineError: a package is missing.
    """
    task = settings.load()
    with user_code(f"{settings.task}: model"):
        model = task.model()
    if not isinstance(model, import_torch().nn.Module):
        raise UserInputError(
            f"model() returned a {type(model).__name__}", where=settings.task, expected="a torch.nn.Module"
        )

    def forward() -> None:
        with user_code(f"{settings.task}: batches"):
            batch = next(batches_of(settings.task, task, 0, 0))
        task.loss(model, batch)

    profile = profile_of_module(settings.task, model, forward)
    if len(profile.layers) < settings.groups:
        raise UserInputError(f"{settings.groups} groups of {len(profile.layers)} layers", where=settings.task)
    layers = tuple(tuple(tensor.name for tensor in layer.tensors) for layer in profile.layers)
    return profile, Trainings(settings.task, settings.target, settings.ranks, layers)


def measure(
    settings: Settings,
    profile: ModelProfile,
    finished: Mapping[Cell, Rows],
    compute: Callable[[Sequence[Cell]], None],
) -> Measurement:
    """Measure every curve of extra rounds over loss, ratio by ratio, with more seeds until each answer is
    clear.

    Which trainings are made depends on their results alone, so that an interrupted measurement goes on to the
    same end, with any number of processes.

    Args:
        profile: The model's layers.
        finished: Results by cell; `compute` adds to it.
        compute: Computes cells that are not finished.

    Raises:
        UserInputError: lossless training does not reach the target.
    """
    campaign = _Campaign(settings, profile, finished, compute)
    points = campaign.points()
    measured = with_curves(profile, points, campaign.ranges, campaign.provenance)
    predicted = {Importance.UNIMPORTANT: [0], Importance.IMPORTANT: [1], Importance.ANY: [0, 1]}
    curves = queue_curves(measured, 0, len(profile.layers) - 1)
    points = [
        replace(point, predicted=sum(float(curves[at](point.ratio)) for at in predicted[point.importance]))
        if point.kind[:2] == campaign.whole
        else point
        for point in points
    ]
    comparisons = tuple(campaign.comparisons(points))
    used = [finished[cell][0] for cell in campaign.used]
    return Measurement(
        profile=measured,
        points=tuple(points),
        comparisons=comparisons,
        bounds=tuple(campaign.bounds(points)),
        lossless_rounds=sorted(campaign.lossless_rounds.values())[len(campaign.lossless_rounds) // 2],
        trainings=len(used),
        not_finite=sum(not row["is_finite"] for row in used),
    )


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
        self._task = settings.load()
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
            measured[kind, ratio]
            for kind in kinds
            for ratio in self.settings.ratios
            if (kind, ratio) in measured
        ]

    def comparisons(self, points: Sequence[Point]) -> Iterator[Comparison]:
        """Front against back layers, unimportant against important packets (MLT, figure 4), seed by seed."""
        layers = {"front": (*self.ranges[0], Importance.ANY), "back": (*self.ranges[-1], Importance.ANY)}
        packets = {str(each): (*self.whole, each) for each in (Importance.UNIMPORTANT, Importance.IMPORTANT)}
        pairs: list[tuple[str, dict[str, Kind]]] = [("unimportant against important packets", packets)]
        if len(self.ranges) > 1:
            pairs.insert(0, ("front against back layers", layers))
        seeds = {(point.kind, point.ratio): point.seeds for point in points}
        for question, pair in pairs:
            (first_name, first), (second_name, second) = pair.items()
            common = [r for r in self.settings.ratios if (first, r) in seeds and (second, r) in seeds]
            for ratio in common:
                count = min(seeds[first, ratio], seeds[second, ratio])
                found = self._difference(first, second, ratio, count)
                # A difference shows best at the largest ratio: more seeds are spent there alone.
                while ratio == common[-1] and found.low < 0 < found.high and count < self.settings.most_seeds:
                    count = next_count(count, self.settings.most_seeds)
                    self._train_lossless(count)
                    self._run([cell for kind in (first, second) for cell in self._cells(kind, ratio, count)])
                    found = self._difference(first, second, ratio, count)
                answer = "unclear"
                if found.high < 0:
                    answer = f"{first_name} costs less"
                elif found.low > 0:
                    answer = f"{second_name} costs less"
                yield Comparison(question, ratio, count, found.estimate, *_bounded(found), answer)

    def _difference(self, first: Kind, second: Kind, ratio: float, seeds: int) -> Interval:
        ones, others = (self._logarithms(kind, ratio, seeds) for kind in (first, second))
        return interval(
            [one - other for one, other in zip(ones, others, strict=True)], self._rounding()
        ).as_growth()

    def bounds(self, points: Sequence[Point]) -> Iterator[Bound]:
        """For packets of any importance (table 1), and for unimportant ones, dropped first (table 5)."""
        for importance in (Importance.ANY, Importance.UNIMPORTANT):
            own = [point for point in points if point.kind == (*self.whole, importance)]
            shares = [(point.ratio * point.eligible_share, point.verdict) for point in own]
            tolerated = [share for share, _ in takewhile(lambda each: each[1] is Verdict.TOLERATED, shares)]
            refused = next((share for share, verdict in shares if verdict is Verdict.REFUSED), None)
            yield Bound(importance, tolerated[-1] if tolerated else 0.0, refused)

    def _cells(self, kind: Kind, ratio: float, seeds: int) -> list[Cell]:
        first, last, importance = kind
        return [
            (first, last, str(importance), ratio, seed, CAP * self.lossless_rounds[seed])
            for seed in range(seeds)
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
                    f"training without loss came to {metric} of {self._task.target:g} in "
                    f"{row['rounds']} rounds (seed {seed}{reason})",
                    where=self.settings.task,
                    hint="choose a lower --target, or a longer training",
                )
            self.lossless_rounds[seed] = row["rounds"]

    def _logarithms(self, kind: Kind, ratio: float, seeds: int) -> list[float]:
        """Logarithms of lossy by lossless rounds, by seed; their mean is 0 where the loss changes nothing."""
        rows = [self._finished[cell][0] for cell in self._cells(kind, ratio, seeds)]
        return [math.log(row["rounds"] / self.lossless_rounds[seed]) for seed, row in enumerate(rows)]

    def _rounding(self) -> float:
        """Standard deviation of a logarithm from counting rounds in steps of evaluations, at both ends."""
        mean = math.fsum(self.lossless_rounds.values()) / len(self.lossless_rounds)
        return self._task.evaluate_every / mean / math.sqrt(6)

    def _point(self, kind: Kind, ratio: float, seeds: int) -> Point:
        rows = [self._finished[cell][0] for cell in self._cells(kind, ratio, seeds)]
        found = interval(self._logarithms(kind, ratio, seeds), self._rounding()).as_growth()
        packets, eligible, lost = (sum(row[key] for row in rows) for key in ("packets", "eligible", "lost"))
        low, high = _bounded(found)
        return Point(
            *kind,
            ratio=ratio,
            seeds=seeds,
            extra_rounds=found.estimate,
            low=low,
            high=high,
            verdict=verdict(found, self.settings.tolerance),
            given_up=sum(not row["is_reached"] for row in rows),
            eligible_share=eligible / packets,
            lost_share=lost / eligible if eligible else 0.0,
        )

    @property
    def provenance(self) -> str:
        """How the curves were measured, for the profile."""
        rounds, settings, task = self.lossless_rounds.values(), self.settings, self._task
        return (
            f"Measured by mltswitch profile measure: {settings.task}, {task.ranks} virtual ranks, target "
            f"{task.target:g}, reached without loss in {min(rounds)} to {max(rounds)} rounds; "
            f"{settings.least_seeds} to {settings.most_seeds} pairs of seeds a point, packets of "
            f"{PAYLOAD_BYTES} B, important from the median of packet means on; what is lost reads as 0. "
            "Beyond the largest measured ratio the slope is assumed: the last one, or "
            f"{EXTRA_ROUNDS_PER_LOSS:g} extra rounds per loss of all, whichever is steeper."
        )


def _bounded(found: Interval) -> tuple[float | None, float | None]:
    """The ends of an interval; None where so few seeds say nothing."""
    low = None if found.low <= -1 else found.low
    return low, None if low is None else found.high
