"""Distances, dispersion and compaction against what is known of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.traffic.statistics import (
    MOST_SUPPORT_POINTS,
    compact,
    dispersion,
    exponential_distance,
    limit_of,
    size_distances,
)


def test_p_values_of_exponential_gaps_are_uniform() -> None:
    draw = np.random.default_rng(1)
    p_values = np.array([exponential_distance(draw.exponential(3.0, 200))[1] for _ in range(1500)])
    for level in (0.01, 0.05, 0.15):
        expected = 4 * np.sqrt(level * (1 - level) / len(p_values))
        assert np.mean(p_values <= level) == pytest.approx(level, abs=expected)


def test_other_gaps_are_found_out() -> None:
    draw = np.random.default_rng(1)
    for gaps in (np.ones(500), draw.uniform(0, 1, 500), draw.pareto(1.5, 500)):
        distance, p_value = exponential_distance(gaps)
        assert distance > 0.1
        assert p_value < 0.001


def test_distance_to_the_exponential_by_hand() -> None:
    distance, _ = exponential_distance(np.array([1.0, 3.0]))
    # F(1) = 1 - e^(-1/2), F(3) = 1 - e^(-3/2) against steps at 1/2 and 1
    assert distance == pytest.approx(max(1 - np.exp(-0.5), 0.5 - (1 - np.exp(-0.5)), 0.5 - np.exp(-1.5)))


def test_sizes_have_the_distance_zero_to_their_own_kind() -> None:
    fixed, _ = size_distances(np.array([7]), np.array([1.0]))
    assert fixed == 0
    sizes = np.arange(1, 400)
    shares = 0.8 ** (sizes - 1) * 0.2
    fixed, geometric = size_distances(sizes, shares / shares.sum())
    assert geometric == pytest.approx(0, abs=1e-9)
    assert fixed > 0.4


def test_dispersion_of_steady_and_of_poisson_packets() -> None:
    steady = np.arange(10_000, dtype=np.float64) + 0.5
    assert all(point.index == pytest.approx(0) for point in dispersion(steady, np.ones(10_000), 10_000))
    draw = np.random.default_rng(2)
    poisson = np.sort(draw.uniform(0, 10_000, 10_000))
    points = dispersion(poisson, np.full(10_000, 3.0), 10_000)
    assert points[0].window_seconds == pytest.approx(1)
    assert [point.windows for point in points[:3]] == [10_000, 5_000, 2_500]
    assert limit_of(points) == pytest.approx(3, rel=0.2)
    assert limit_of(()) is None


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=300, unique=True),
    seed=st.integers(0, 2**32 - 1),
)
def test_compacting_keeps_the_mean(sizes: list[int], seed: int) -> None:
    values = np.array(sorted(sizes))
    shares = np.random.default_rng(seed).pareto(1.2, len(values)) + 1e-6
    shares /= shares.sum()
    few, weights = compact(values, shares)
    assert len(few) <= MOST_SUPPORT_POINTS
    assert (np.diff(few) > 0).all()
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    assert few @ weights == pytest.approx(values @ shares, rel=1e-9)
    assert few.min() >= values.min()
    assert few.max() <= values.max()
