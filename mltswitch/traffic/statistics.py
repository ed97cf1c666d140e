"""Statistics of arrival processes: dispersion of counts, distances between distributions."""

from math import exp, log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.traffic.document import DispersionPoint

Values = NDArray[np.float64]

FEWEST_WINDOWS: Final = 50
"""The fewest windows for a dispersion; the variance of fewer counts is off by over 20 % (error sqrt(2 /
windows))."""
LIMIT_WINDOWS: Final = 200
"""The fewest windows for the dispersion over long windows, whose error is then 10 %."""
MOST_BASE_WINDOWS: Final = 2**22
EXPONENTIAL_TABLE: Final = ((0.926, 0.15), (0.990, 0.10), (1.094, 0.05), (1.190, 0.025), (1.308, 0.01))
"""Modified Kolmogorov-Smirnov statistic of an exponential of unknown mean → p (Stephens, JASA 69, 1974)."""
MOST_SUPPORT_POINTS: Final = 64


def dispersion(
    times_seconds: Values, weights: Values, duration_seconds: float
) -> tuple[DispersionPoint, ...]:
    """Index of dispersion at windows from the mean packet distance upwards, each twice as long as the one
    before."""
    count = int(np.clip(len(times_seconds), 1, MOST_BASE_WINDOWS))
    base = duration_seconds / count
    places = np.minimum((times_seconds / base).astype(np.int64), count - 1)
    counts = np.bincount(places, weights=weights, minlength=count)
    found = []
    window = base
    while len(counts) >= FEWEST_WINDOWS:
        index = float(counts.var() / counts.mean())
        found.append(DispersionPoint(window_seconds=window, index=index, windows=len(counts)))
        even = counts[: len(counts) // 2 * 2]
        counts = even[::2] + even[1::2]
        window *= 2
    return tuple(found)


def long_windows(found: tuple[DispersionPoint, ...]) -> tuple[DispersionPoint, ...]:
    """The dispersion of the two longest windows of which there are enough."""
    enough = tuple(entry for entry in found if entry.windows >= LIMIT_WINDOWS)
    return (enough or found)[-2:]


def limit_of(found: tuple[DispersionPoint, ...]) -> float | None:
    """Index of dispersion over long windows; None: there are no windows."""
    longest = long_windows(found)
    return sum(entry.index for entry in longest) / len(longest) if longest else None


def exponential_distance(gaps: Values) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of gaps to the exponential distribution of their mean, and its p-value."""
    ordered = np.sort(gaps)
    count = len(ordered)
    expected = -np.expm1(-ordered / ordered.mean())
    steps = np.arange(count + 1) / count
    distance = float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))
    modified = (distance - 0.2 / count) * (sqrt(count) + 0.26 + 0.5 / sqrt(count))
    return distance, _probability(modified)


def _probability(statistic: float) -> float:
    """From the table, whose logarithm is nearly linear in the square; beyond its ends the line goes on."""
    squares = [point**2 for point, _ in EXPONENTIAL_TABLE]
    logarithms = [log(probability) for _, probability in EXPONENTIAL_TABLE]
    square = max(statistic, 0.0) ** 2
    place = min(max(int(np.searchsorted(squares, square)), 1), len(squares) - 1)
    slope = (logarithms[place] - logarithms[place - 1]) / (squares[place] - squares[place - 1])
    return min(1.0, exp(max(logarithms[place] + slope * (square - squares[place]), -700.0)))


def size_distances(sizes: NDArray[np.int64], probabilities: Values) -> tuple[float, float]:
    """Kolmogorov-Smirnov distances of burst sizes to one fixed size, and to the geometric of their mean."""
    measured = np.cumsum(probabilities)
    mean = float(sizes @ probabilities)
    below = np.concatenate(([0.0], measured[:-1]))
    typical = int(sizes[np.searchsorted(measured, 0.5)])
    fixed = float(np.where(sizes < typical, measured, 1 - measured).max())
    stay = 1 - 1 / mean
    # the geometric rises at every size, the measured one only at those that occurred
    geometric = max(
        float(np.abs(measured - (1 - stay**sizes)).max()),
        float(np.abs(below - (1 - stay ** (sizes - 1))).max()),
    )
    return fixed, geometric


def compact(sizes: NDArray[np.int64], probabilities: Values) -> tuple[NDArray[np.int64], Values]:
    """Sizes merged to at most 64 with the same mean, with their probabilities."""
    if len(sizes) <= MOST_SUPPORT_POINTS:
        return sizes, probabilities
    groups = MOST_SUPPORT_POINTS // 2
    # large bursts fill queues: weighed by packets and by their square, so that the tail keeps its shape
    packets = np.cumsum(probabilities * sizes)
    squares = np.cumsum(probabilities * sizes.astype(np.float64) ** 2)
    rank = (packets / packets[-1] + squares / squares[-1]) / 2
    group = np.minimum((rank * groups).astype(np.int64), groups - 1)
    shares = np.bincount(group, weights=probabilities, minlength=groups)
    sums = np.bincount(group, weights=probabilities * sizes, minlength=groups)
    used = shares > 0
    shares, means = shares[used], sums[used] / shares[used]
    low = np.floor(means).astype(np.int64)
    upper = shares * (means - low)
    points, where = np.unique(np.concatenate((low, low + 1)), return_inverse=True)
    weights: Values = np.bincount(where, weights=np.concatenate((shares - upper, upper))).astype(np.float64)
    kept = weights > 0
    return points[kept], weights[kept]
