"""Transforms and what is read off their approximation."""

from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.queueing.completion.durations import BusySlot, poisson
from mltswitch.queueing.completion.rational import circle, fit


def inside(centre: float) -> np.ndarray[tuple[int], np.dtype[np.complex128]]:
    radii, angles = np.meshgrid(np.linspace(0.05, 0.95, 7), np.linspace(0, np.pi, 9))
    return np.asarray((centre * (1 + radii * np.exp(1j * angles))).ravel())


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 2), st.lists(st.floats(0.2, 40), min_size=1, max_size=6))
def test_mixtures_of_exponentials_are_met_inside_the_circle(centre: float, means: list[float]) -> None:
    def transform(
        points: np.ndarray[tuple[int], np.dtype[np.complex128]],
    ) -> np.ndarray[tuple[int], np.dtype[np.complex128]]:
        return np.asarray(sum(1 / (1 + mean * points) for mean in means) / len(means))

    points = circle(centre)
    (found,) = fit(points, [transform(points)])
    assert np.abs(found.at(inside(centre)) - transform(inside(centre))).max() < 1e-7


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 2), st.floats(0, 5))
def test_fixed_times_are_met_inside_the_circle(centre: float, length: float) -> None:
    """No poles at all: the hardest case, which the busy periods behind a slot never are."""
    points = circle(centre)
    (found,) = fit(points, [np.exp(-length * points)])
    assert np.abs(found.at(inside(centre)) - np.exp(-length * inside(centre))).max() < 1e-4


def test_arrivals_in_an_exponential_time_are_geometric() -> None:
    points = circle(0.5)
    (busy,) = fit(points, [1 / (1 + 4 * points)])
    counts = BusySlot(5.0, busy).busy_counts(0.25, np.zeros(1, dtype=complex), 12)[0].real
    assert counts == pytest.approx([0.5 ** (count + 1) for count in range(13)], abs=1e-8)


def test_moments_are_those_of_slot_and_busy_period() -> None:
    points = circle(0.5)
    (busy,) = fit(points, [1 / (1 + 4 * points)])
    second, third = BusySlot(5.0, busy).moments()
    # 1 + X, X exponential with mean 4: E X^2 = 32, E X^3 = 384.
    assert second == pytest.approx(1 + 8 + 32, rel=0.02)
    assert third == pytest.approx(1 + 12 + 96 + 384, rel=0.1)


def test_poisson_probabilities() -> None:
    assert poisson(0.7, 3) == pytest.approx([exp(-0.7) * share for share in (1, 0.7, 0.245, 0.343 / 6)])
