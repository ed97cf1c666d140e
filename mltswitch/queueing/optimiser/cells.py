"""Boxes of (S, D) that cover all choices of one queue, finer where the optimum may lie."""

from math import ceil

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.optimiser.cost import IntArray, QueueCost
from mltswitch.queueing.paper import FloatArray

EDGE_RATIO = 1.3
"""Edges of the first boxes grow by this factor."""


class Cells:
    """One row for each box, by rising least S: least and largest S, least and largest D, in granules."""

    def __init__(self, cost: QueueCost, least_threshold: int, largest_limit: int) -> None:
        self._cost = cost
        self._largest_limit = largest_limit
        thresholds = _edges(least_threshold, largest_limit)
        spares = _edges(0, largest_limit - least_threshold)
        self.boxes = np.array(
            [(*threshold, *spare) for threshold in thresholds for spare in spares], dtype=np.int64
        )
        self._keep_conceivable()
        self.rounds, self.total = self._bounds(self.boxes)

    @property
    def least_limits(self) -> IntArray:
        """Smallest L in each box."""
        return np.asarray(self.boxes[:, 0] + self.boxes[:, 2])

    @property
    def largest_limits(self) -> IntArray:
        """Largest L in each box."""
        return np.asarray(self.boxes[:, 1] + self.boxes[:, 3])

    @property
    def is_unit(self) -> npt.NDArray[np.bool_]:
        """Whether a box is one single choice."""
        return np.asarray((self.boxes[:, 0] == self.boxes[:, 1]) & (self.boxes[:, 2] == self.boxes[:, 3]))

    def split(self, rows: IntArray) -> None:
        """Cut these boxes in half in both directions."""
        parents = self.boxes[rows]
        children = _halve(_halve(parents, 0), 2)
        kept = np.ones(len(self.boxes), dtype=bool)
        kept[rows] = False
        rounds, total = self.rounds[kept], self.total[kept]
        kept_boxes = self.boxes[kept]
        self.boxes = children
        self._keep_conceivable()
        new_rounds, new_total = self._bounds(self.boxes)
        self.boxes = np.concatenate((kept_boxes, self.boxes))
        order = np.argsort(self.boxes[:, 0], kind="stable")
        self.boxes = self.boxes[order]
        self.rounds = np.concatenate((rounds, new_rounds))[order]
        self.total = np.concatenate((total, new_total))[order]

    def _keep_conceivable(self) -> None:
        longest = np.minimum(self._largest_limit, self._cost.frontier.conceivable[self.boxes[:, 0]])
        self.boxes = self.boxes[self.least_limits <= longest]

    def _bounds(self, boxes: IntArray) -> tuple[FloatArray, FloatArray]:
        return self._cost.bounds(boxes[:, 0], boxes[:, 1], boxes[:, 2], boxes[:, 3])


def _edges(first: int, last: int) -> list[tuple[int, int]]:
    """Intervals that cover first … last, each wider than the one before."""
    intervals: list[tuple[int, int]] = []
    start, width = first, 1
    while start <= last:
        end = min(last, start + width - 1)
        intervals.append((start, end))
        start, width = end + 1, max(width + 1, ceil(width * EDGE_RATIO))
    return intervals


def _halve(boxes: IntArray, column: int) -> IntArray:
    """Both halves along S (column 0) or D (column 2); a box of width 1 stays."""
    low, high = boxes[:, column], boxes[:, column + 1]
    middle = (low + high) // 2
    lower, upper = boxes.copy(), boxes[low < high].copy()
    lower[:, column + 1] = middle
    upper[:, column] = middle[low < high] + 1
    return np.concatenate((lower, upper))
