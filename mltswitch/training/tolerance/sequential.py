"""Confidence intervals valid at every sample size at once, so that a measurement may stop when it is clear.

The mean of normal values of unknown variance has the confidence sequence of the t-test with a normal mixture
over effect sizes: Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with
unknown variance" (arXiv 2310.03722, 2023), after Lai (1976). With S the sum and V the sum of squares of
n values less a mean m,

    E_n(m) = sqrt(c² / (n + c²)) · (1 - S² / ((n + c²) · V)) ** (-n / 2)

is a non-negative martingale of mean 1 where m is the true mean, so (Ville) it ever reaches 1 / alpha with
probability alpha at most. The interval is all m with E_n(m) < 1 / alpha. It is wider than Student's by a
half or so, and lets anybody look, stop, or add more values later.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ALPHA: Final = 0.05
"""Probability that an interval ever misses the true value."""
EFFECT_SPREAD: Final = 0.25
"""c²: the mixture's standard deviation of effects is 1 / c = 2, which serves 5 to 20 values best."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % confidence interval, infinite where too little is known."""

    low: float
    estimate: float
    high: float

    def as_growth(self) -> "Interval":
        """The interval of a quotient less 1, computed from this one of the quotient's logarithm."""
        return Interval(math.expm1(self.low), math.expm1(self.estimate), math.expm1(min(self.high, 700.0)))


class Verdict(StrEnum):
    """Whether extra rounds are within the tolerance, judged by their interval."""

    TOLERATED = "tolerated"
    """The interval lies below the tolerance."""
    REFUSED = "refused"
    """The interval lies above the tolerance."""
    UNCLEAR = "unclear"
    """The interval includes the tolerance."""


def interval(values: Sequence[float], least_deviation: float = 0.0, alpha: float = ALPHA) -> Interval:
    """The confidence interval of the mean of some values, valid at every sample size simultaneously.

    Args:
        values: Independent and roughly normal.
        least_deviation: Standard deviation that values have at least, of their rounding, say: equal values
            are no proof of certainty.
        alpha: Probability of missing the mean at any n.
    """
    count = len(values)
    mean = math.fsum(values) / count
    weight = count + EFFECT_SPREAD
    root = (alpha**2 * EFFECT_SPREAD / weight) ** (1 / count)
    share = (1 - root) * weight / count  # S² / (n · V) at the interval's ends
    if share >= 1 or count < 2:
        return Interval(-math.inf, mean, math.inf)
    variance = math.fsum((value - mean) ** 2 for value in values) / count
    reach = math.sqrt(max(variance, least_deviation**2) * share / (1 - share))
    return Interval(mean - reach, mean, mean + reach)


def verdict(extra_rounds: Interval, tolerance: float) -> Verdict:
    """Whether extra rounds are within the tolerance, as far as the interval tells."""
    if extra_rounds.high <= tolerance:
        return Verdict.TOLERATED
    return Verdict.REFUSED if extra_rounds.low > tolerance else Verdict.UNCLEAR


def next_count(count: int, most: int) -> int:
    """How many values to look at after `count` were not enough: half as many again."""
    return min(most, count + max(2, count // 2))
