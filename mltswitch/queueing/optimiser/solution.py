"""What every search returns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltswitch.queueing.objective import LOSS_WEIGHT
from mltswitch.queueing.optimiser.cost import QueueCost


@dataclass(frozen=True, slots=True)
class Solution:
    """S and L as the costs count them, highest priority first, and what no choice does better than."""

    thresholds: tuple[int, ...]
    limits: tuple[int, ...]
    lower_bound_rounds: float
    method: str

    def figures(self, costs: Sequence[QueueCost]) -> tuple[float, float]:
        """(extra rounds, byte-weighted loss)."""
        return figures(costs, self.thresholds, self.limits)


def figures(
    costs: Sequence[QueueCost], thresholds: Sequence[int], limits: Sequence[int]
) -> tuple[float, float]:
    """(extra rounds, byte-weighted loss) of a choice."""
    rounds = loss = 0.0
    for cost, threshold, limit in zip(costs, thresholds, limits, strict=True):
        one = cost.evaluate(np.array(threshold), np.array(limit - threshold))
        rounds += float(one[0])
        loss += float(one[1])
    return rounds, loss


def total_cost(costs: Sequence[QueueCost], thresholds: Sequence[int], limits: Sequence[int]) -> float:
    """Extra rounds with the tie-breaks."""
    rounds, loss = figures(costs, thresholds, limits)
    buffer = sum(float(cost.buffer_cost(np.array(limit))) for cost, limit in zip(costs, limits, strict=True))
    return rounds + LOSS_WEIGHT * loss + buffer
