"""Piecewise-linear curves: extra training rounds over the loss ratio."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

LEAST_FLOATS: Final = 2**1074
"""How many times the least positive float makes 1; every float is a whole multiple of that least one."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Extra training rounds as a function of the loss ratio: linear between points, and beyond the last with
    its slope.

    The first point is (0, 0); there are at least two, with rising loss ratios and non-decreasing rounds.
    """

    loss_ratios: tuple[float, ...]
    extra_rounds: tuple[float, ...]

    def __call__(self, loss: npt.ArrayLike) -> FloatArray:
        """Extra rounds, as a fraction of the rounds of lossless training, for loss ratios of any shape."""
        ratios = np.asarray(loss, dtype=np.float64)
        last, rounds = self.loss_ratios[-1], self.extra_rounds[-1]
        slope = (rounds - self.extra_rounds[-2]) / (last - self.loss_ratios[-2])
        inside = np.interp(ratios, self.loss_ratios, self.extra_rounds)
        return np.asarray(inside + slope * np.maximum(ratios - last, 0.0), dtype=np.float64)


def weighted_sum(parts: Iterable[tuple[float, Curve]]) -> Curve:
    """The curve Σ weight · curve for weights >= 0, exact: its points stand at the points of all parts.

    Sorts the points once and adds up slopes from left to right, O(n log n). Slopes are added as whole
    multiples of the least float, so that a steep part that ends leaves nothing behind.
    """
    changes: defaultdict[float, int] = defaultdict(int, {0.0: 0, 1.0: 0})
    for weight, curve in parts:
        before = 0
        for (ratio, rounds), (next_ratio, next_rounds) in pairwise(
            zip(curve.loss_ratios, curve.extra_rounds, strict=True)
        ):
            slope = _least_floats(weight * (next_rounds - rounds) / (next_ratio - ratio))
            changes[ratio] += slope - before
            before = slope
        changes[curve.loss_ratios[-1]] += 0
    ratios = sorted(changes)
    slopes = [total / LEAST_FLOATS for total in accumulate(changes[ratio] for ratio in ratios)]
    rises = [slope * (end - start) for slope, (start, end) in zip(slopes[:-1], pairwise(ratios), strict=True)]
    return Curve(tuple(ratios), tuple(accumulate(rises, initial=0.0)))


def _least_floats(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (LEAST_FLOATS // denominator)
