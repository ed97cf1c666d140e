"""Confidence intervals over replications, and percentiles from the engine's delay bins."""

from math import atan, cos, pi, sin, sqrt

import numpy as np

from mltswitch.queueing.simulation.arrays import DELAY_BINS, DELAY_STEPS, Integers

CONFIDENCE = 0.95


def ratio_half_width(events: Integers, trials: Integers) -> float | None:
    """Half width of the 95 % confidence interval of sum(events) / sum(trials), one row a replication.

    Replications are independent, packets within one are not: the interval comes from the spread between them
    (Student's t of the ratio estimator). Without a single event that spread says nothing; the interval is
    then [0, 3 / trials], the rule of three.

    Returns:
        None where nothing was tried, or where events of a single replication have no spread.
    """
    total = int(trials.sum())
    if total == 0:
        return None
    if events.sum() == 0:
        return min(1.0, 3 / total)
    count = len(events)
    if count < 2:
        return None
    residuals = events - events.sum() / total * trials
    error = sqrt(float(np.sum(residuals**2)) / (count - 1) / count) / (total / count)
    return student_quantile(count - 1) * error


def student_quantile(degrees: int) -> float:
    """Student's t that is exceeded in absolute value with probability 1 - CONFIDENCE, by bisection."""
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _student_within(middle, degrees) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _student_within(value: float, degrees: int) -> float:
    """P(|t| <= value): the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = atan(value / sqrt(degrees))
    is_odd = degrees % 2 == 1
    term = cos(angle) if is_odd else 1.0
    total = 0.0
    for step in range(2 if is_odd else 1, degrees, 2):
        total += term
        term *= cos(angle) ** 2 * step / (step + 1)
    if is_odd:
        return (angle + sin(angle) * total) * 2 / pi
    return sin(angle) * total


def percentile(share: float, immediate: int, histogram: Integers) -> float:
    """The delay that this share of the packets does not exceed, linear within its bin.

    Args:
        share: 0.99, say.
        immediate: packets without any delay.
        histogram: the other packets by `engine.delay_bin`.
    """
    rank = share * (immediate + int(histogram.sum())) - immediate
    if rank <= 0:
        return 0.0
    cumulative = np.cumsum(histogram)
    index = int(np.searchsorted(cumulative, rank))
    within = 1 - (cumulative[index] - rank) / histogram[index]
    octave = max(0, index // DELAY_BINS - 1)
    width = 2.0**octave / DELAY_STEPS
    return float((index - octave * DELAY_BINS + within) * width)
