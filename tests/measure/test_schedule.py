"""Arrival processes: rates, bursts, reproducibility."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.measure.schedule import Flow, poisson_bursts
from mltswitch.queueing import Importance


def test_rates_and_shares_are_as_asked() -> None:
    flows = [Flow(0, 1000, 8, 0.5), Flow(3, 3000, 1, 0.2)]
    schedule = poisson_bursts(flows, 20.0, seed=1)
    counts = np.bincount(schedule.class_index, minlength=4)
    assert counts[0] == pytest.approx(20_000, rel=0.1)
    assert counts[3] == pytest.approx(60_000, rel=0.05)
    assert schedule.is_important[schedule.class_index == 3].mean() == pytest.approx(0.8, abs=0.02)


@settings(max_examples=30)
@given(
    rate=st.floats(10, 2000), burst=st.integers(1, 45), seconds=st.floats(0.1, 5), seed=st.integers(0, 2**31)
)
def test_bursts_stay_together(rate: float, burst: int, seconds: float, seed: int) -> None:
    schedule = poisson_bursts([Flow(0, rate, burst, 0.5)], seconds, seed)
    assert len(schedule) % burst == 0
    starts = schedule.time_seconds.reshape(-1, burst)
    assert (starts == starts[:, :1]).all()
    assert (np.diff(schedule.time_seconds) >= 0).all()
    assert ((schedule.time_seconds >= 0) & (schedule.time_seconds <= seconds)).all()
    again = poisson_bursts([Flow(0, rate, burst, 0.5)], seconds, seed)
    assert np.array_equal(schedule.time_seconds, again.time_seconds)
    assert np.array_equal(schedule.is_important, again.is_important)
    assert (schedule.turn.reshape(-1, burst) == np.arange(len(starts))[:, None]).all()


@pytest.mark.parametrize(("importance", "mixed"), [("packet", True), ("burst", False)])
def test_importance_is_drawn_per_packet_or_per_burst(importance: Importance, mixed: bool) -> None:
    schedule = poisson_bursts([Flow(0, 2000.0, 8, 0.3, importance)], 5.0, seed=2)
    important = schedule.is_important.reshape(-1, 8)
    assert (important != important[:, :1]).any() == mixed
    assert important.mean() == pytest.approx(0.7, abs=0.05)


def test_another_seed_gives_other_arrivals() -> None:
    flows = [Flow(0, 500, 4, 0.5)]
    one, two = (poisson_bursts(flows, 2.0, seed).time_seconds for seed in (1, 2))
    assert len(one) != len(two) or not np.array_equal(one, two)
