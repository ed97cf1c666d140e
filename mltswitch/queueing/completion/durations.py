"""How long a class waits for its turn, and how many bursts arrive meanwhile.

A duration is one packet time followed by the busy period of the classes above, which the packets that
arrived meanwhile began. It is known by the transform of that busy period.
"""

from dataclasses import dataclass
from math import exp
from typing import Protocol

import numpy as np

from mltswitch.queueing.completion.rational import ComplexArray, FloatArray, Rational

NEGLIGIBLE = 1e-17
MOMENT_STEPS = 4
SHOWING = 0.05
"""Distance from s = 0 at which moments are read off the transform, in units of E T / E T^2."""


class Duration(Protocol):
    """A random time, in packet times."""

    @property
    def mean(self) -> float:
        """The mean duration in packet times, which may be infinite for practical purposes."""
        ...

    def moments(self) -> tuple[float, float]:
        """The second and third moment, E T^2 and E T^3, of the duration T."""
        ...

    def transform(self, points: ComplexArray) -> ComplexArray:
        """The Laplace transform E exp(-s T) of the duration T at each point s."""
        ...

    def counts(self, rate: float, points: ComplexArray, most: int) -> ComplexArray:
        """E[exp(-s T); k Poisson arrivals at this rate during T], a row for each s, k = 0 … most."""
        ...


@dataclass(frozen=True, slots=True)
class Slot:
    """A duration of exactly one packet time, which is what the highest class waits for."""

    mean: float = 1.0

    def moments(self) -> tuple[float, float]:
        """The second and third moment of the constant 1, both 1."""
        return 1.0, 1.0

    def transform(self, points: ComplexArray) -> ComplexArray:
        """The transform exp(-s) of one packet time at each point s."""
        return np.asarray(np.exp(-points))

    def counts(self, rate: float, points: ComplexArray, most: int) -> ComplexArray:
        """Poisson weights of 0 … most arrivals during one packet time, a row for each s."""
        return np.asarray(np.exp(-points)[:, None] * poisson(rate, most))


@dataclass(frozen=True, slots=True)
class BusySlot:
    """A duration of one packet time and of the busy period of higher classes that follows it."""

    mean: float
    busy: Rational
    """Transform of the busy period alone, without the packet time before it."""

    def moments(self) -> tuple[float, float]:
        """E T^2 and E T^3 of this duration T, in packet times squared and cubed, read near s = 0.

        2 / s · (mean - (1 - transform) / s) = E T^2 - s E T^3 / 3 + …, at s where both terms show. The poles
        themselves would not do: at s = 0 they magnify what the approximation is off by.
        """
        # In units of the mean, which may be huge: E T^2 = ratio · mean^2.
        ratio = 1.0
        for _ in range(MOMENT_STEPS):
            step = SHOWING / (ratio * self.mean)
            near, far = self._curvature(step), self._curvature(2 * step)
            ratio = max(1.0, (2 * near - far) / self.mean**2)
        second = ratio * self.mean**2
        return second, max(ratio * second * self.mean, 3 * (near - far) / step)

    def _curvature(self, point: float) -> float:
        value = float(self.transform(np.array([point], dtype=complex))[0].real)
        return 2 / point * (self.mean - (1 - value) / point)

    def transform(self, points: ComplexArray) -> ComplexArray:
        """The transform at each point: that of the packet time multiplied by that of the busy period."""
        return np.asarray(np.exp(-points) * self.busy.at(points))

    def counts(self, rate: float, points: ComplexArray, most: int) -> ComplexArray:
        """Weights of 0 … most arrivals in packet time and busy period together, a row for each s."""
        later = self.busy_counts(rate, points, most)
        total = np.zeros_like(later)
        for count, share in enumerate(poisson(rate, most)):
            if share < NEGLIGIBLE and count > rate:
                break
            total[:, count:] += share * later[:, : most + 1 - count]
        return np.asarray(np.exp(-points)[:, None] * total)

    def busy_counts(self, rate: float, points: ComplexArray, most: int) -> ComplexArray:
        """Weights of 0 … most arrivals in the busy period alone, geometric for each pole, which is an
        exponential phase."""
        away = points[:, None] + rate - self.busy.poles
        terms = np.empty((*away.shape, most + 1), dtype=complex)
        terms[:, :, 0] = self.busy.residues / away
        terms[:, :, 1:] = (rate / away)[:, :, None]
        counts = terms.cumprod(axis=2).sum(axis=1)
        counts[:, 0] += self.busy.constant
        return np.asarray(counts)


def poisson(mean: float, most: int) -> FloatArray:
    """Poisson probabilities of 0 … most arrivals at this mean."""
    shares = np.empty(most + 1)
    share = exp(-mean)
    for count in range(most + 1):
        shares[count] = share
        share *= mean / (count + 1)
    return shares
