"""One queue whose limit is capped: what each S costs, and the least that any S can cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.queueing.optimiser.complete import tables
from mltswitch.queueing.optimiser.cost import IntArray, QueueCost
from mltswitch.queueing.paper import FloatArray

MAXIMUM_UNITS: Final = 512
"""Up to this many granules, all S and L are tabulated; above, bounds take the place of the best L."""
SINGLE_SPARES: Final = 16
"""The loss of unimportant packets is bounded apart for each D up to here, and for doubling ranges beyond."""
PIECES: Final = 16
"""An interval of S that may hold the optimum is cut into this many."""


@dataclass(frozen=True, slots=True)
class Column:
    """For S = 1, 2, … up to the cap."""

    costs: FloatArray
    """With the tie-breaks; infinite where nothing is allowed."""
    limits: IntArray
    """The L that costs so much."""
    bounds: FloatArray
    """What no L within the cap costs less than."""


class CappedQueue:
    """Answers are remembered: a search asks for few caps, and often."""

    def __init__(self, cost: QueueCost, units: int) -> None:
        self._cost = cost
        self._table = tables(cost, units)[0] if units <= MAXIMUM_UNITS else None
        self._columns: dict[int, Column] = {}
        self._bounds: dict[int, float] = {}

    def column(self, cap: int) -> Column:
        """Cost of each S at its best L within the cap (at its longest one in a large buffer)."""
        if cap not in self._columns:
            table = self._table
            self._columns[cap] = self._large(cap) if table is None else _tabulated(table, cap)
        return self._columns[cap]

    def bound(self, cap: int) -> float:
        """No S and L within the cap cost less."""
        if cap < 1:
            return np.inf
        if cap not in self._bounds:
            if self._table is not None:
                self._bounds[cap] = float(self._table[:, :cap].min())
            else:
                self._bounds[cap] = self._least(cap)
        return self._bounds[cap]

    def _large(self, cap: int) -> Column:
        thresholds = np.arange(1, cap + 1)
        none = np.zeros_like(thresholds)
        allowed = np.minimum(cap, self._cost.frontier.allowed[thresholds]) - thresholds
        longest = np.minimum(cap, self._cost.frontier.conceivable[thresholds]) - thresholds
        costs, spare = np.full(cap, np.inf), none
        for _, last in self._pieces(none, allowed):
            tried = np.where(allowed >= 0, self._cost.cost(thresholds, np.maximum(last, 0)), np.inf)
            spare = np.where(tried < costs, last, spare)
            costs = np.minimum(costs, tried)
        return Column(costs, thresholds + spare, self._bound(thresholds, thresholds, none, longest))

    def _least(self, cap: int) -> float:
        """Bounds over intervals of S, cut until the lowest is a single S.

        A choice with both S and L one higher is better in both losses. So the best one has its L at the cap,
        or so near the delay bound that the next S would break it.
        """
        edges = np.unique(np.concatenate((np.geomspace(1, cap + 1, 65).astype(np.int64), [1, cap + 1])))
        low, high = edges[:-1], edges[1:] - 1
        values = self._interval_bounds(low, high, cap)
        while True:
            best = int(values.argmin())
            if low[best] == high[best] or not np.isfinite(values[best]):
                return float(values[best])
            rows = (low < high) & (values <= values[best] + 0.05 * abs(values[best]))
            parts = [
                np.linspace(a, b + 1, min(PIECES, b - a + 1) + 1).astype(np.int64)
                for a, b in zip(low[rows], high[rows], strict=True)
            ]
            new_low = np.concatenate([part[:-1] for part in parts])
            new_high = np.concatenate([part[1:] - 1 for part in parts])
            values = np.concatenate((values[~rows], self._interval_bounds(new_low, new_high, cap)))
            low, high = np.concatenate((low[~rows], new_low)), np.concatenate((high[~rows], new_high))

    def _interval_bounds(self, low: IntArray, high: IntArray, cap: int) -> FloatArray:
        frontier = self._cost.frontier
        longest = np.minimum(cap, frontier.conceivable[low])
        following = np.minimum(high + 1, len(frontier.allowed) - 1)
        shortest = np.minimum(cap, frontier.allowed[following])
        return self._bound(low, high, np.maximum(shortest - high, 0), longest - low)

    def _bound(self, low: IntArray, high: IntArray, least_spare: IntArray, spare: IntArray) -> FloatArray:
        bounds = np.full(len(low), np.inf)
        for first, last in self._pieces(least_spare, spare):
            bound = self._cost.bounds(low, high, first, np.maximum(last, first))[1]
            bounds = np.minimum(bounds, np.where(first <= spare, bound, np.inf))
        return bounds

    def _pieces(self, least: IntArray, most: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Ranges of D that cover least … most, each longer than the one before.

        One is enough where D does not touch the unimportant packets: then the longest is the best.
        """
        start, width = 0, 1
        while start == 0 or np.any(least + start <= most):
            if not self._cost.is_touched_by_spare:
                yield least, most
                return
            yield least + start, np.minimum(most, least + start + width - 1)
            start += width
            width = 1 if start < SINGLE_SPARES else start


def _tabulated(table: FloatArray, cap: int) -> Column:
    part = table[:cap, :cap]
    costs = part.min(axis=1)
    return Column(costs, part.argmin(axis=1) + 1, costs)
