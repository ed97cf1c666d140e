"""Small buffers: compare every combination of thresholds, packet by packet (dynamic programming)."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from mltswitch.queueing.optimiser.cost import IntArray, QueueCost
from mltswitch.queueing.optimiser.solution import Solution
from mltswitch.queueing.paper import FloatArray

MAXIMUM_UNITS: Final = 160
"""Buffers up to this many granules are searched here."""
METHOD: Final = "every combination compared"


def tables(cost: QueueCost, units: int) -> tuple[FloatArray, FloatArray]:
    """(cost with tie-breaks, extra rounds) by S (rows) and L, 1 to `units`; infinite: not allowed."""
    sizes = np.arange(1, units + 1)
    threshold, limit = sizes[:, None], sizes[None, :]
    spare = np.maximum(limit - threshold, 0)
    is_allowed = (limit >= threshold) & (limit <= cost.frontier.allowed[1 : units + 1, None])
    rounds = cost.evaluate(threshold, spare)[0]
    return np.where(is_allowed, cost.cost(threshold, spare), np.inf), np.where(is_allowed, rounds, np.inf)


def search_static(costs: Sequence[QueueCost], units: int, *, is_ordered: bool) -> Solution | None:
    """Limits that together fit into `units`; None where nothing keeps all constraints."""
    both = [tables(cost, units) for cost in costs]
    search = _ordered if is_ordered else _free
    found = search([table for table, _ in both], units)
    if found is None:
        return None
    bound = (_least_ordered if is_ordered else _least_free)([rounds for _, rounds in both], units)
    return Solution(*found, bound, METHOD)


_Choice = tuple[tuple[int, ...], tuple[int, ...]]


def _free(costs: Sequence[FloatArray], units: int) -> _Choice | None:
    """best[b]: least cost of the queues so far with at most b granules."""
    best = np.zeros(units + 1)
    stages: list[IntArray] = []
    for table in costs:
        best, limits = _add_queue(table.min(axis=0), best)
        stages.append(limits)
    if not np.isfinite(best[units]):
        return None
    left, chosen = units, []
    for limits in reversed(stages):
        chosen.append(int(limits[left]))
        left -= chosen[-1]
    chosen.reverse()
    thresholds = [int(table[:, limit - 1].argmin()) + 1 for table, limit in zip(costs, chosen, strict=True)]
    return tuple(thresholds), tuple(chosen)


def _least_free(rounds: Sequence[FloatArray], units: int) -> float:
    best = np.zeros(units + 1)
    for table in rounds:
        best, _ = _add_queue(table.min(axis=0), best)
    return float(best[units])


def _add_queue(by_limit: FloatArray, best: FloatArray) -> tuple[FloatArray, IntArray]:
    """One queue more: next[b] = min over l of by_limit[l] + best[b - l]."""
    total = _windows(best, len(by_limit)) + by_limit
    return total.min(axis=1), total.argmin(axis=1) + 1


def _windows(best: FloatArray, units: int) -> FloatArray:
    """Row b: best[b - 1], best[b - 2], …, what is left when a queue takes 1, 2, … granules."""
    padded = np.concatenate((np.full(units, np.inf), best))
    return np.lib.stride_tricks.sliding_window_view(padded, units)[: units + 1, ::-1]


def _ordered(costs: Sequence[FloatArray], units: int) -> _Choice | None:
    best = _start(units)
    stages: list[tuple[FloatArray, IntArray]] = []
    for table in costs:
        best, limits = _extend(table, best)
        stages.append((best, limits))
    if not np.isfinite(best[units].min()):
        return None
    left, ceiling = units, units + 1
    thresholds, chosen = [], []
    for best, limits in reversed(stages):
        threshold = int(best[left, :ceiling].argmin())
        chosen.append(int(limits[left, threshold]))
        thresholds.append(threshold)
        left -= chosen[-1]
        ceiling = threshold
    return tuple(thresholds[::-1]), tuple(chosen[::-1])


def _least_ordered(rounds: Sequence[FloatArray], units: int) -> float:
    best = _start(units)
    for table in rounds:
        best, _ = _extend(table, best)
    return float(best[units].min())


def _start(units: int) -> FloatArray:
    """best[b, s]: least cost of the queues so far with at most b granules and the last S equal to s."""
    best = np.full((units + 1, units + 1), np.inf)
    best[:, 0] = 0.0
    return best


def _extend(table: FloatArray, best: FloatArray) -> tuple[FloatArray, IntArray]:
    """One queue more: next[b, s] = min over l of table[s, l] + (min over s' < s of best[b - l, s'])."""
    units = len(table)
    below = np.minimum.accumulate(best, axis=1)
    extended = np.full_like(best, np.inf)
    limits = np.zeros(best.shape, dtype=np.int64)
    for threshold in range(1, units + 1):
        # L is at least S: the columns before it are infinite.
        first = threshold - 1
        total = _windows(below[:, first], units)[:, first:] + table[first, first:]
        limits[:, threshold] = total.argmin(axis=1) + threshold
        extended[:, threshold] = total.min(axis=1)
    return extended, limits
