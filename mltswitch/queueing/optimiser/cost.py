"""What thresholds cost one queue under a separable model, for whole arrays of thresholds at once.

S is the threshold and D = L - S the spare room above it, both in granules. In these two the models are
simple: both losses fall with S at the same D; with D at the same S the important loss falls, and the
unimportant one stays (`paper`) or rises (`mm1k`). All bounds rest on that, and on curves of extra rounds that
never fall.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.mm1k import Chain, ClassService, class_services
from mltswitch.queueing.objective import LOSS_WEIGHT, PACKET_WEIGHT, QueueObjective, ThresholdProblem
from mltswitch.queueing.optimiser.losses import LossFunction, mm1k_losses, paper_losses
from mltswitch.queueing.paper import FloatArray, utilisations

EXACT_FRONTIER: Final = 128
"""Delay bounds are evaluated at every threshold up to here, and at geometric steps beyond."""
FRONTIER_RATIO: Final = 1.03

IntArray = npt.NDArray[np.int64]
DELAY_PERCENTILE: Final = 0.99


@dataclass(frozen=True, slots=True)
class Frontier:
    """Largest L, in granules, that the delay bound leaves to each S = 0, 1, …; below S: none."""

    allowed: IntArray
    """Every L up to this one keeps the bound."""
    conceivable: IntArray
    """Every L above this one breaks it."""


class QueueCost:
    """One gradient queue of the problem."""

    def __init__(
        self,
        losses: LossFunction,
        objective: QueueObjective,
        unimportant_share: float,
        hops: int,
        granularity_packets: int,
        frontier: Frontier,
        *,
        is_touched_by_spare: bool,
    ) -> None:
        self._losses = losses
        self._objective = objective
        self._share = unimportant_share
        self._hops = hops
        self._granularity = granularity_packets
        self.frontier = frontier
        self.byte_share = objective.byte_share
        self.is_touched_by_spare = is_touched_by_spare
        """Whether D changes the loss of unimportant packets."""

    def evaluate(self, threshold: IntArray, spare: IntArray) -> tuple[FloatArray, FloatArray]:
        """(extra rounds, byte-weighted loss) of S and D that broadcast against each other."""
        unimportant, important = self._path_losses(threshold, spare)
        return self._rounds(unimportant, important), self._loss(unimportant, important)

    def bounds(
        self, least_threshold: IntArray, threshold: IntArray, least_spare: IntArray, spare: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """What no point of a box costs less than: (extra rounds, extra rounds with the tie-breaks)."""
        unimportant, _ = self._path_losses(threshold, least_spare)
        _, important = self._path_losses(threshold, spare)
        rounds = self._rounds(unimportant, important)
        loss = self._loss(unimportant, important)
        return rounds, rounds + LOSS_WEIGHT * loss + self.buffer_cost(least_threshold + least_spare)

    def cost(self, threshold: IntArray, spare: IntArray) -> FloatArray:
        """Extra rounds with the tie-breaks."""
        rounds, loss = self.evaluate(threshold, spare)
        return np.asarray(rounds + LOSS_WEIGHT * loss + self.buffer_cost(threshold + spare))

    def buffer_cost(self, limit: IntArray) -> FloatArray:
        """Tie-break of the buffer alone."""
        return np.asarray(PACKET_WEIGHT * self._granularity * limit)

    def _path_losses(self, threshold: IntArray, spare: IntArray) -> tuple[FloatArray, FloatArray]:
        size = float(self._granularity)
        one_hop = self._losses(
            np.asarray(threshold * size, dtype=np.float64), np.asarray(spare * size, dtype=np.float64)
        )
        unimportant, important = (
            -np.expm1(self._hops * np.log1p(-np.clip(loss, 0.0, 1 - 1e-16))) for loss in one_hop
        )
        return unimportant, important

    def _rounds(self, unimportant: FloatArray, important: FloatArray) -> FloatArray:
        return np.asarray(
            self._objective.rounds_unimportant(unimportant) + self._objective.rounds_important(important)
        )

    def _loss(self, unimportant: FloatArray, important: FloatArray) -> FloatArray:
        mixed = self._share * unimportant + (1 - self._share) * important
        return np.asarray(self._objective.byte_share * mixed)


def queue_costs(problem: ThresholdProblem, model: str, units: int) -> list[QueueCost]:
    """One for each queue that is to be chosen, for limits up to `units` granules."""
    loads = [offered.load for offered in problem.traffic]
    services, rho = class_services(loads), utilisations(loads)
    chosen = [index for index, fixed in enumerate(problem.fixed) if fixed is None]
    costs: list[QueueCost] = []
    for index, objective in zip(chosen, problem.objectives, strict=True):
        share, service = problem.traffic[index].unimportant_share, services[index]
        bound = objective.delay_bound_packet_times
        if model == "paper":
            losses = paper_losses(float(rho[index]), share)
            longest = _worst_case(bound, service, problem.granularity_packets, units)
            frontier = Frontier(longest, longest)
        else:
            losses = mm1k_losses(service, share, count_in_service=problem.port.count_in_service)
            frontier = _chain_frontier(problem, service, share, bound, units)
        costs.append(
            QueueCost(
                losses,
                objective,
                share,
                problem.hops,
                problem.granularity_packets,
                frontier,
                is_touched_by_spare=model != "paper",
            )
        )
    return costs


def _worst_case(bound: float | None, service: ClassService, granularity: int, units: int) -> IntArray:
    """The model knows no delay: L packets at the rate that is left must go within the bound."""
    if bound is None:
        return np.full(units + 1, units)
    # The small addition keeps a bound of exactly L packets from being lost to rounding.
    return np.full(units + 1, min(units, int(bound * service.rate / granularity + 1e-9)))


def _chain_frontier(
    problem: ThresholdProblem, service: ClassService, share: float, bound: float | None, units: int
) -> Frontier:
    """The 99th percentile rises with L, and nearly always with S: one walk along the longest L.

    In overload it may fall by a hundredth with S (a load of 2 at half the rate, S from 1 to 2 of L = 2), so
    each step looks a little above the L of the step before.
    """
    free = np.full(units + 1, units)
    if bound is None:
        return Frontier(free, free)
    size = problem.granularity_packets

    def keeps(threshold: int, limit: int) -> bool:
        if service.rate <= 0:
            return False
        count = problem.port.count_in_service
        chain = Chain.solve(service, share, threshold * size, limit * size, count)
        return chain.delays().beyond(bound) <= 1 - DELAY_PERCENTILE + 1e-12

    steps = _frontier_steps(units)
    longest, ceiling = np.zeros(len(steps), dtype=np.int64), units
    for index, step in enumerate(steps):
        threshold = int(step)
        if ceiling < threshold or not keeps(threshold, threshold):
            break
        above = min(units, ceiling + max(1, ceiling // 16))
        longest[index] = ceiling = _last(partial(keeps, threshold), threshold, above)
    thresholds = np.arange(units + 1)
    next_step = np.searchsorted(steps, thresholds, side="left")
    last_step = np.maximum(np.searchsorted(steps, thresholds, side="right") - 1, 0)
    return Frontier(longest[next_step], longest[last_step])


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Largest number from `low`, where it holds, to `high` before it ceases; mostly near `high`."""
    stride = 1
    while not holds(high):
        high -= stride
        stride *= 2
        if high <= low:
            high = low
            break
    low, high = high, high + max(1, stride // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _frontier_steps(units: int) -> IntArray:
    """1, 2, … and then geometric up to `units`."""
    steps = list(range(1, min(units, EXACT_FRONTIER) + 1))
    while steps[-1] < units:
        steps.append(min(units, ceil(steps[-1] * FRONTIER_RATIO)))
    return np.array(steps)
