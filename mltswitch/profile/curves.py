"""Piecewise-linear curves: extra training rounds over the loss ratio."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """Extra rounds over the loss ratio, linear between its points and beyond the last with the last slope.

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
    """The curve Σ weight · curve, exact: its points stand at the points of all parts."""
    pairs = list(parts)
    ratios = sorted({0.0, 1.0}.union(*(curve.loss_ratios for _, curve in pairs)))
    total = np.zeros(len(ratios))
    for weight, curve in pairs:
        total += weight * curve(ratios)
    return Curve(tuple(ratios), tuple(float(value) for value in total))
