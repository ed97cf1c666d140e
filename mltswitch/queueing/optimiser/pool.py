"""A shared buffer: what alphas leave to each queue, and the best choice found so far."""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Final

import numpy as np

from mltswitch.queueing.objective import TOLERANCE_ROUNDS
from mltswitch.queueing.optimiser.columns import CappedQueue
from mltswitch.queueing.optimiser.complete import MAXIMUM_UNITS
from mltswitch.queueing.optimiser.cost import QueueCost
from mltswitch.queueing.paper import FloatArray

RELATIVE_GAP: Final = 0.002
"""A search ends when its bound is this near; small buffers are searched to the end."""


class Pool:
    """The problem of one shared buffer, with the best thresholds (in granules) and alphas so far."""

    def __init__(
        self,
        costs: Sequence[QueueCost],
        buffer_packets: int,
        granularity_packets: int,
        alphas: Sequence[float],
        *,
        is_ordered: bool,
    ) -> None:
        self._buffer, self._granularity = buffer_packets, granularity_packets
        self.units = buffer_packets // granularity_packets
        self.alphas = tuple(sorted(set(alphas)))
        self.queues = [CappedQueue(cost, self.units) for cost in costs]
        self._is_ordered = is_ordered
        self._is_small = self.units <= MAXIMUM_UNITS
        self.choice: tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]] | None = None
        """Thresholds, limits and alphas."""
        self.cost = inf

    def cap(self, alpha: float, alphas_sum: float) -> int:
        """Length in granules at which a queue rests while all chosen queues are full."""
        packets = alpha * self._buffer / (1 + alphas_sum)
        # The small addition keeps a whole number of granules from being lost to rounding.
        return min(int(packets / self._granularity + 1e-9), self.units)

    def caps(self, chosen: Sequence[float]) -> list[int]:
        """One for each queue."""
        total = sum(chosen)
        return [self.cap(alpha, total) for alpha in chosen]

    def is_near(self, bound: float) -> bool:
        """Whether a search may end."""
        if self._is_small or not isfinite(self.cost):
            return bound >= self.cost
        return self.cost - bound <= max(RELATIVE_GAP * self.cost, TOLERANCE_ROUNDS / 4)

    def try_alphas(self, chosen: tuple[float, ...]) -> float:
        """Find the best thresholds for these alphas; return their bound."""
        caps = self.caps(chosen)
        if min(caps) < 1:
            return inf
        columns = [queue.column(cap) for queue, cap in zip(self.queues, caps, strict=True)]
        bounds = self._choose([column.bounds for column in columns])
        thresholds = self._choose([column.costs for column in columns])
        if bounds is None:
            return inf
        bound = float(sum(column.bounds[s - 1] for column, s in zip(columns, bounds, strict=True)))
        if thresholds is not None:
            total = float(sum(column.costs[s - 1] for column, s in zip(columns, thresholds, strict=True)))
            if total < self.cost:
                limits = (int(column.limits[s - 1]) for column, s in zip(columns, thresholds, strict=True))
                self.choice, self.cost = (tuple(thresholds), tuple(limits), chosen), total
        return bound

    def sums(self) -> FloatArray:
        """All sums of one alpha for each queue, rising; sums that differ by rounding are one."""
        sums = np.zeros(1)
        for _ in self.queues:
            sums = np.unique((sums[:, None] + np.asarray(self.alphas)).ravel())
            # Of sums that differ by rounding, the largest: a budget of it admits them all.
            sums = sums[np.concatenate((np.diff(sums) > 1e-12 * sums[1:], [True]))]
        return sums

    def _choose(self, costs: Sequence[FloatArray]) -> list[int] | None:
        if self._is_ordered:
            return rising(costs)
        thresholds = [int(cost.argmin()) + 1 for cost in costs]
        return thresholds if all(isfinite(c[s - 1]) for c, s in zip(costs, thresholds, strict=True)) else None


def rising(costs: Sequence[FloatArray]) -> list[int] | None:
    """The cheapest S that rise strictly from queue to queue; one array for each queue, S = 1, 2, …"""
    best = np.zeros(1)
    stages: list[FloatArray] = []
    for cost in costs:
        # best[k]: least cost of the queues before with their S at most k.
        before = np.concatenate((best, np.full(max(0, len(cost) - len(best)), best[-1])))[: len(cost)]
        stages.append(cost + before)
        best = np.concatenate(([inf], np.minimum.accumulate(stages[-1])))
    thresholds: list[int] = []
    end = len(stages[-1])
    for stage in reversed(stages):
        row = int(stage[:end].argmin()) if end > 0 else -1
        if row < 0 or not isfinite(stage[row]):
            return None
        thresholds.append(row + 1)
        end = row
    return thresholds[::-1]
