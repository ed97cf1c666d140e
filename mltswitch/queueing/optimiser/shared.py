"""Shared buffers: each queue takes the length at which one of its alphas lets it rest, and S below it.

Read so, queues do not touch each other: every S at every such length is compared, and where S must rise the
cheapest rising ones are found queue by queue (dynamic programming over S).
"""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Final

import numpy as np

from mltswitch.queueing.objective import FloatArray
from mltswitch.queueing.optimiser.cost import IntArray, QueueCost
from mltswitch.queueing.optimiser.solution import Solution

METHOD: Final = "every threshold compared at every alpha"


def search_shared(
    costs: Sequence[QueueCost], limits: Sequence[int], step_packets: int, *, is_ordered: bool
) -> Solution | None:
    """S in steps and L out of `limits`, in packets; None where nothing keeps all constraints.

    The costs count single packets: the lengths at which queues rest are no multiples of the step.
    """
    thresholds = np.arange(step_packets, max(limits) + 1, step_packets)
    lengths = np.array(limits)
    columns = [_column(cost, thresholds, lengths) for cost in costs]
    rows = _choose([column for column, _, _ in columns], is_ordered=is_ordered)
    least = _choose([rounds for _, _, rounds in columns], is_ordered=is_ordered)
    if rows is None or least is None:
        return None
    return Solution(
        tuple(int(thresholds[row]) for row in rows),
        tuple(int(lengths[column[1][row]]) for column, row in zip(columns, rows, strict=True)),
        float(sum(rounds[row] for (_, _, rounds), row in zip(columns, least, strict=True))),
        METHOD,
    )


def _column(
    cost: QueueCost, thresholds: IntArray, limits: IntArray
) -> tuple[FloatArray, IntArray, FloatArray]:
    """For each S: the least cost with tie-breaks, the L (its place) that has it, and the least extra rounds.

    The extra rounds are also those of limits of which it is not known whether they keep the delay bound.
    """
    threshold, limit = thresholds[:, None], limits[None, :]
    spare = np.maximum(limit - threshold, 0)
    fits = limit >= threshold
    allowed = fits & (limit <= cost.frontier.allowed[thresholds][:, None])
    conceivable = fits & (limit <= cost.frontier.conceivable[thresholds][:, None])
    total = np.where(allowed, cost.cost(threshold, spare), inf)
    rounds = np.where(conceivable, cost.evaluate(threshold, spare)[0], inf)
    return total.min(axis=1), total.argmin(axis=1), rounds.min(axis=1)


def _choose(columns: Sequence[FloatArray], *, is_ordered: bool) -> list[int] | None:
    """The cheapest row of each column, rising strictly from column to column where ordered."""
    # Unordered, no row bounds the next.
    below = np.zeros(len(columns[0]))
    stages: list[FloatArray] = []
    for column in columns:
        stages.append(column + below)
        if is_ordered:
            below = np.concatenate(([inf], np.minimum.accumulate(stages[-1])[:-1]))
    rows: list[int] = []
    end = len(columns[0])
    for stage in reversed(stages):
        row = int(stage[:end].argmin()) if end > 0 else -1
        if row < 0 or not isfinite(stage[row]):
            return None
        rows.append(row)
        end = row if is_ordered else end
    return rows[::-1]
