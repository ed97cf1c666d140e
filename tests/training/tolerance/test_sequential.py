"""The confidence sequence: its coverage over all looks by simulation, and its form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.training.tolerance.sequential import (
    ALPHA,
    EFFECT_SPREAD,
    Interval,
    Verdict,
    interval,
    next_count,
    verdict,
)

RUNS = 600
LOOKS = range(2, 41)
ALLOWED = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS)
"""Three standard errors of the simulation above the promise."""
VALUES = st.lists(st.floats(-10, 10), min_size=2, max_size=20)


def missed(sample: "np.ndarray[tuple[int], np.dtype[np.float64]]", mean: float) -> bool:
    """Whether an interval misses the mean at any look."""
    return any(
        not found.low <= mean <= found.high for found in (interval(sample[:n].tolist()) for n in LOOKS)
    )


@pytest.mark.parametrize("kind", ["normal", "rounded", "skewed"])
def test_misses_at_any_look_are_as_rare_as_promised(kind: str) -> None:
    rng = np.random.default_rng(20231013)
    misses = 0
    for _ in range(RUNS):
        sample = rng.normal(0.1, 0.07, LOOKS[-1])
        mean = 0.1
        if kind == "rounded":  # logarithms of whole numbers of rounds
            sample = np.log(np.round(100 * np.exp(sample)) / 100)
        if kind == "skewed":
            sample = rng.lognormal(0, 0.4, LOOKS[-1])
            mean = math.exp(0.4**2 / 2)
        misses += missed(sample, mean)
    assert misses / RUNS <= ALLOWED


def test_a_wrong_verdict_is_as_rare_although_it_stops_when_it_is_clear() -> None:
    rng = np.random.default_rng(7)
    wrong = stopped = 0
    for _ in range(RUNS):
        sample = rng.normal(math.log1p(0.06), 0.06, 40)  # the truth lies just beyond the tolerance
        count = 5
        while True:
            found = verdict(interval(sample[:count].tolist()).as_growth(), 0.05)
            if found is not Verdict.UNCLEAR or count == 40:
                break
            count = next_count(count, 40)
        wrong += found is Verdict.TOLERATED
        stopped += found is not Verdict.UNCLEAR
    assert wrong / RUNS <= ALLOWED


def test_a_clear_difference_takes_few_seeds() -> None:
    rng = np.random.default_rng(3)
    counts = []
    for _ in range(200):
        sample = rng.normal(math.log1p(0.4), 0.06, 40)
        counts.append(
            next(n for n in LOOKS if verdict(interval(sample[:n].tolist()).as_growth(), 0.05) == "refused")
        )
    assert np.median(counts) <= 5


@given(values=VALUES)
def test_the_ends_are_where_the_martingale_reaches_its_bound(values: list[float]) -> None:
    found = interval(values)
    if not math.isfinite(found.low) or found.high - found.low < 1e-3:
        return
    n = len(values)
    for end in (found.low, found.high):
        rest = [value - end for value in values]
        share = math.fsum(rest) ** 2 / ((n + EFFECT_SPREAD) * math.fsum(each**2 for each in rest))
        martingale = math.sqrt(EFFECT_SPREAD / (n + EFFECT_SPREAD)) * (1 - share) ** (-n / 2)
        assert martingale == pytest.approx(1 / ALPHA, rel=1e-6)


@given(values=VALUES, shift=st.floats(-5, 5), scale=st.floats(0.01, 10))
def test_shifted_and_scaled_with_its_values(values: list[float], shift: float, scale: float) -> None:
    found, moved = interval(values), interval([scale * value + shift for value in values])
    assert moved.estimate == pytest.approx(scale * found.estimate + shift, abs=1e-6)
    if math.isfinite(found.low):
        assert moved.high - moved.low == pytest.approx(scale * (found.high - found.low), abs=1e-6)


def test_equal_values_are_no_certainty() -> None:
    assert interval([0.0] * 8).high == 0
    assert interval([0.0] * 8, least_deviation=0.01).high > 0.01
    assert interval([1.0]) == Interval(-math.inf, 1.0, math.inf)


def test_growth() -> None:
    assert Interval(0.0, math.log(2), 1e9).as_growth().estimate == pytest.approx(1)
    assert Interval(-math.inf, 0, math.inf).as_growth().low == -1
    assert verdict(Interval(-0.1, 0, 0.05), 0.05) is Verdict.TOLERATED
    assert verdict(Interval(0.06, 0.1, 0.2), 0.05) is Verdict.REFUSED
    assert verdict(Interval(0.0, 0.1, 0.2), 0.05) is Verdict.UNCLEAR


def test_counts_rise_to_the_most() -> None:
    counts = [5]
    while counts[-1] < 20:
        counts.append(next_count(counts[-1], 20))
    assert counts == [5, 7, 10, 15, 20]
