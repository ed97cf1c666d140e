import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mltswitch.queueing.simulation import engine
from mltswitch.queueing.simulation.arrays import DELAY_BINS, DELAY_OCTAVES
from mltswitch.queueing.simulation.referee import percentile, ratio_half_width, student_quantile


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (9, 2.2622), (15, 2.1314), (30, 2.0423), (1000, 1.9623)],
)
def test_student_quantiles_are_those_of_the_tables(degrees: int, value: float) -> None:
    assert student_quantile(degrees) == pytest.approx(value, abs=1e-4)


def test_equal_replications_give_the_interval_of_a_mean() -> None:
    events, trials = np.array([10, 12, 14, 16]), np.full(4, 100)
    expected = 3.1824 * np.std(events / 100, ddof=1) / 2
    assert ratio_half_width(events, trials) == pytest.approx(expected, rel=1e-4)


def test_no_event_is_no_certainty() -> None:
    assert ratio_half_width(np.zeros(4, np.int64), np.full(4, 1000)) == pytest.approx(3 / 4000)
    assert ratio_half_width(np.zeros(4, np.int64), np.zeros(4, np.int64)) is None
    assert ratio_half_width(np.array([3]), np.array([10])) is None


@given(
    delays=st.lists(st.floats(0, 1e7), min_size=1, max_size=200), share=st.sampled_from([0.5, 0.99, 0.999])
)
@hypothesis_settings(deadline=None)  # the first call compiles
def test_percentiles_lie_beside_a_delay_that_was_seen(delays: list[float], share: float) -> None:
    histogram = np.zeros((DELAY_OCTAVES + 2) * DELAY_BINS, np.int64)
    for delay in delays:
        histogram[engine.delay_bin(delay)] += 1
    true = sorted(delays)[min(len(delays) - 1, int(np.ceil(share * len(delays))) - 1)]
    assert percentile(share, 0, histogram) == pytest.approx(true, abs=1 / 16, rel=2 / DELAY_BINS)


def test_packets_without_delay_come_first() -> None:
    histogram = np.zeros((DELAY_OCTAVES + 2) * DELAY_BINS, np.int64)
    histogram[engine.delay_bin(5.0)] = 10
    assert percentile(0.5, 90, histogram) == 0
    assert percentile(0.95, 90, histogram) == pytest.approx(5, abs=0.1)


def test_bins_hold_any_delay() -> None:
    assert engine.delay_bin(1e14) == (DELAY_OCTAVES + 2) * DELAY_BINS - 1
