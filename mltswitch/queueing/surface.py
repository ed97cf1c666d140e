"""Interpolates a loss model's answers for one queue from a coarse grid of S and L - S.

Losses fall about exponentially in both, so it is their logarithms that are interpolated.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.errors import UserInputError
from mltswitch.queueing.objective import FloatArray, ThresholdProblem

IntArray = npt.NDArray[np.int64]

SMALLEST_LOSS: Final = 1e-12
"""Loss ratio below which the analytic models give only noise."""
GRID_THRESHOLDS: Final = 4
"""Number of values of the ECN threshold S on the grid where the limit L is chosen as well, each with
GRID_MARGINS values of L - S.
"""
GRID_MARGINS: Final = 3
GRID_ALONE: Final = 5
"""Number of values of the ECN threshold S on the grid where the limit L is given."""
CERTAIN_PART: Final = 4
"""Each queue is sure of its room for bursts where all that room takes at most one part in this many of the
buffer."""


@dataclass(frozen=True, slots=True)
class Space:
    """The values, in packets, that a queue's threshold S and the margin M = L - S below its limit L may have,
    and the grid of them at which the loss model is evaluated."""

    least_threshold: int
    least_margin: int
    limit: int
    """The largest limit L that leaves the other queues their least room; where L is given, that L."""
    cap: int | None
    """The largest ECN threshold S that is allowed, even if more would fit; None: no such bound."""
    is_fixed: bool
    """Whether the limit L is given, so that the margin M follows from S."""
    thresholds: FloatArray
    """Grid of the ECN threshold S in ascending order, with as many values for every queue."""
    margins: FloatArray
    """Grid of the margin M; a single place where the limit L is given."""

    @property
    def size(self) -> int:
        """Number of points on the grid."""
        return len(self.thresholds) * len(self.margins)

    def point(self, index: int) -> tuple[int, int]:
        """The pair (S, L) of a grid point; that all queues fit into the buffer together is not checked."""
        row, column = divmod(index, len(self.margins))
        threshold = int(self.thresholds[row])
        return threshold, self.limit if self.is_fixed else threshold + int(self.margins[column])


class Surface:
    """The model's answers for one queue as a function of the ECN threshold S and M = L - S, interpolated
    between grid points.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.samples: list[FloatArray] = []
        self._corrections: list[tuple[float, float, FloatArray]] = []

    def at(self, thresholds: FloatArray, margins: FloatArray) -> FloatArray:
        """Losses and delays at these points, in an array of shape (points, scenarios, 3)."""
        return np.exp(self._logarithms(thresholds, margins))

    def correct(self, threshold: int, margin: int, figures: FloatArray) -> None:
        """Correct the interpolation to the model's answer at one point, with less effect the farther away."""
        place = np.array([float(threshold)]), np.array([float(margin)])
        self._corrections.append((threshold, margin, _logarithm(figures) - self._logarithms(*place)[0]))

    def _logarithms(self, thresholds: FloatArray, margins: FloatArray) -> FloatArray:
        space = self._space
        known = _logarithm(np.array(self.samples))
        known = known.reshape(len(space.thresholds), len(space.margins), *known.shape[1:])
        row, along = _bracket(space.thresholds, thresholds)
        if len(space.margins) == 1:
            found = known[row, 0] * (1 - along) + known[row + 1, 0] * along
        else:
            column, across = _bracket(space.margins, margins)
            lower = known[row, column] * (1 - along) + known[row + 1, column] * along
            upper = known[row, column + 1] * (1 - along) + known[row + 1, column + 1] * along
            found = lower * (1 - across) + upper * across
        for threshold, margin, error in self._corrections:
            distance = np.abs(np.log(thresholds / threshold)) + np.abs(np.log(margins / margin))
            found = found + np.exp(-2 * distance)[:, None, None] * error
        return np.asarray(np.minimum(found, np.array([0.0, 0.0, inf])))


def _logarithm(figures: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(figures, SMALLEST_LOSS)))


def _bracket(grid: FloatArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Index of the grid's point below each value, and how far it lies towards the next, shape (…, 1, 1)."""
    row = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    width = np.maximum(grid[row + 1] - grid[row], 1e-9)
    return row, np.clip((values - grid[row]) / width, 0.0, 1.0)[:, None, None]


def geometric_grid(least: int, most: int, count: int) -> FloatArray:
    """`count` whole numbers, in equal ratios from the least to the most; some may be equal."""
    return np.asarray(np.round(np.geomspace(least, max(least, most), count)))


def spaces_of(problem: ThresholdProblem) -> list[Space]:
    """The space of the ECN threshold S and the margin M of each queue; raises UserInputError where not
    even a packet below and above S fits.
    """
    given = problem.shared_limit_packets
    floors = [entry.least_threshold_packets for entry in problem.objectives]
    margins = [entry.least_margin_packets for entry in problem.objectives]
    room = problem.buffer_packets if given is None else problem.room_packets(given)
    caps = [entry.most_threshold_packets for entry in problem.objectives]
    floors = [floor if cap is None else min(floor, cap) for floor, cap in zip(floors, caps, strict=True)]
    if problem.is_ordered:
        floors = list(accumulate(floors, max))
    needed = 2 * (len(floors) if given is None else 1)
    if room < needed:
        raise UserInputError(
            f"{len(floors)} gradient queues do not fit into {room} packets",
            where="buffer_packets",
            expected=f"at least {needed}",
        )
    caps = [None if cap is None else max(cap, floor) for cap, floor in zip(caps, floors, strict=True)]
    if problem.is_ordered:
        lowest = accumulate((inf if cap is None else cap for cap in reversed(caps)), min)
        caps = [None if cap == inf else int(cap) for cap in reversed(list(lowest))]
    # Room for bursts is certain up to a part of the buffer; beyond it costs what `objective.spread` says.
    wanted = sum(floors) + sum(margins) if given is None else max(floors) + max(margins)
    if wanted > room // CERTAIN_PART:
        floors = [max(1, entry * room // (CERTAIN_PART * wanted)) for entry in floors]
        margins = [max(1, entry * room // (CERTAIN_PART * wanted)) for entry in margins]
    spaces: list[Space] = []
    for floor, margin, cap in zip(floors, margins, caps, strict=True):
        most = room if given is not None else room - (sum(floors) + sum(margins)) + floor + margin
        spaces.append(
            Space(
                floor,
                margin,
                most if given is None else given,
                None if cap is None else max(cap, floor),
                given is not None,
                geometric_grid(floor, most - margin, GRID_THRESHOLDS if given is None else GRID_ALONE),
                geometric_grid(margin, most - floor, GRID_MARGINS if given is None else 1),
            )
        )
    return spaces
