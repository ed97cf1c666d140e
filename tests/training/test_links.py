"""Rates of links by what arrives on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.training.links import Arrival, Links

SECOND = 1_000_000_000


def test_idle_time_and_what_is_side_by_side_count_once() -> None:
    links = Links(probe_bytes=1_000, probe_pieces=3)
    links.arrived(Arrival(1, 1_000, 0, SECOND))
    links.arrived(Arrival(1, 1_000, 0, 2 * SECOND))
    assert links.rates_bps([]) == {}, "two pieces"
    links.arrived(Arrival(1, 1_000, 8 * SECOND, 9 * SECOND))
    assert links.rates_bps([]) == {1: 8 * 1_000.0}
    assert links.rates_bps([]) == {}, "nothing new"


def test_what_has_come_of_open_pieces_counts_and_is_not_counted_again() -> None:
    links = Links(probe_bytes=1, probe_pieces=1)
    assert links.rates_bps([Arrival(2, 500, 1, SECOND), Arrival(2, 0, 0, 0)]) == pytest.approx({2: 4_000})
    assert links.rates_bps([Arrival(2, 1_500, 1, 2 * SECOND)]) == pytest.approx({2: 8_000})
    links.arrived(Arrival(2, 2_000, 1, 3 * SECOND))
    assert links.rates_bps([]) == pytest.approx({2: 4_000})


def test_packets_that_come_in_bunches_have_one_time() -> None:
    """Alone they tell nothing; close behind each other all but the first do."""
    links = Links(probe_bytes=1, probe_pieces=1)
    links.arrived(Arrival(0, 10_000, SECOND, SECOND))
    assert links.rates_bps([]) == {}
    for number in range(1_001):
        links.arrived(
            Arrival(0, 1_000, (10_000 + number) * SECOND // 1_000, (10_000 + number) * SECOND // 1_000)
        )
    assert links.rates_bps([])[0] == pytest.approx(8_000_000, rel=2e-3)


def test_after_a_fault_all_is_counted_anew() -> None:
    links = Links(probe_bytes=1, probe_pieces=1)
    links.rates_bps([Arrival(0, 16_000, 1, SECOND)])
    links.clear()
    links.arrived(Arrival(0, 18_000, 2 * SECOND, 3 * SECOND))
    assert links.rates_bps([])[0] == 8 * 18_000


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=40),
    st.sets(st.integers(0, 39)),
)
def test_a_full_link_has_its_rate_however_pieces_lie(pieces: list[tuple[int, int]], looks: set[int]) -> None:
    """Pieces follow each other at 1,000 byte/s, with pauses; somebody looks in the middle of some."""
    links, now_ns = Links(probe_bytes=1, probe_pieces=1), 0
    for number, (seconds, pause) in enumerate(pieces):
        first, now_ns = now_ns + pause * SECOND, now_ns + (pause + seconds) * SECOND
        if number in looks:
            half = Arrival(5, 500 * seconds, first, (first + now_ns) // 2)
            assert links.rates_bps([half]).get(5, 8_000) == pytest.approx(8_000)
        links.arrived(Arrival(5, 1_000 * seconds, first, now_ns))
    assert links.rates_bps([]).get(5, 8_000) == pytest.approx(8_000)
