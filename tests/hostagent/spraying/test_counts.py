"""What acknowledgements say of one path, and what they may not say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.spraying.counts import MAXIMUM_CALLS, Answer, PathCounts
from mltswitch.hostagent.spraying.settings import MILLISECOND, SprayingSettings

SETTINGS = SprayingSettings()
NEW, STALE, REFUSED = Answer.NEW, Answer.STALE, Answer.REFUSED


def counts_after(*calls: tuple[int, int]) -> PathCounts:
    """(time, packets), of 1,000 bytes each."""
    counts = PathCounts(SETTINGS)
    for sent_ns, packets in calls:
        counts.sent(packets, 1000 * packets, sent_ns)
    return counts


def test_in_flight_is_what_left_after_the_echo() -> None:
    counts = counts_after((10, 5), (20, 7), (30, 9))
    assert counts.in_flight_bytes == 21_000
    assert counts.acknowledged(20, 12, 3, 4, 40) is NEW
    assert (counts.in_flight_bytes, counts.acknowledged_packets, counts.marked_packets) == (9_000, 12, 3)
    assert counts.acknowledged(30, 15, 3, 4, 41) is NEW
    assert counts.in_flight_bytes == 0
    assert counts.waiting_since_ns is None


def test_packets_of_one_call_are_acknowledged_step_by_step() -> None:
    counts = counts_after((10, 50))
    for received in (10, 20, 50):
        assert counts.acknowledged(10, received, 0, 5, 20) is NEW
    assert counts.acknowledged_packets == 50
    assert counts.acknowledged(10, 50, 0, 5, 21) is STALE


def test_calls_at_the_same_time_are_one() -> None:
    counts = counts_after((10, 5), (10, 5), (20, 1))
    assert counts.acknowledged(10, 10, 0, 5, 20) is NEW
    assert counts.in_flight_bytes == 1_000


def test_a_second_call_at_the_time_that_was_just_echoed() -> None:
    counts = counts_after((10, 5))
    assert counts.acknowledged(10, 5, 0, 0, 10) is NEW
    counts.sent(3, 3_000, 10)
    assert counts.in_flight_bytes == 3_000
    assert counts.acknowledged(10, 8, 0, 0, 11) is NEW
    assert counts.in_flight_bytes == 0


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ((41, 12, 0), REFUSED),  # echoes the future
        ((25, 12, 0), REFUSED),  # echoes what never left
        ((5, 3, 0), STALE),  # before anything: overtaken
        ((30, 43, 0), REFUSED),  # more than twice what was sent
        ((30, 15, 9), REFUSED),  # more marked than arrived
        ((30, 9, 0), REFUSED),  # a newer echo, a smaller count
        ((20, 12, 0), STALE),  # says nothing new
        ((20, 9, 0), STALE),  # overtaken
        ((10, 5, 0), STALE),  # overtaken
        ((30, 21, 5), NEW),
    ],
)
def test_what_contradicts_is_refused_and_counted(arguments: tuple[int, int, int], answer: Answer) -> None:
    counts = counts_after((10, 5), (20, 7), (30, 9))
    assert counts.acknowledged(20, 12, 0, 4, 35) is NEW
    under_way = counts.in_flight_bytes
    assert counts.acknowledged(*arguments, 4, 40) is answer
    if answer is not NEW:
        assert (counts.in_flight_bytes, counts.acknowledged_packets, counts.marked_packets) == (
            under_way,
            12,
            0,
        )
    assert (counts.refused, counts.stale) == (answer is REFUSED, answer is STALE)


def test_one_wrong_count_does_not_spoil_those_after_it() -> None:
    """A count that was too high makes the next one look as if it fell: from there on differences count."""
    counts = counts_after((10, 100), (20, 100))
    assert counts.acknowledged(10, 150, 0, 4, 30) is NEW
    assert counts.acknowledged(20, 110, 0, 4, 31) is REFUSED
    counts.sent(100, 100_000, 40)
    assert counts.acknowledged(40, 250, 0, 4, 50) is NEW
    assert counts.in_flight_bytes == 0


def test_counts_go_round_at_two_to_the_32() -> None:
    counts = PathCounts(SETTINGS)
    step, total = 2**31 - 1, 0
    for call in range(1, 6):
        counts.sent(step, step, 10 * call)
        total += step
        arrived = total - 7 * call
        marked = 3 * call * 2**20
        assert counts.acknowledged(10 * call, arrived % 2**32, marked % 2**32, 1, 10 * call + 5) is NEW
        assert (counts.acknowledged_packets, counts.marked_packets) == (arrived, marked)
    assert total > 2**33
    assert counts.refused == counts.stale == 0


@pytest.mark.parametrize("delay_ns", [0, -5, 26, 10**15])
def test_a_delay_that_cannot_be_is_not_measured(delay_ns: int) -> None:
    counts = counts_after((10, 5))
    assert counts.acknowledged(10, 5, 0, delay_ns, 35) is NEW
    assert counts.round_trip_ns is None


def test_round_trips_are_smoothed() -> None:
    counts = counts_after((0, 1), (1, 1))
    counts.acknowledged(0, 1, 0, 40 * MILLISECOND, 40 * MILLISECOND)
    assert counts.round_trip_ns == 40 * MILLISECOND
    assert counts.answer_ns == 120 * MILLISECOND
    counts.acknowledged(1, 2, 0, 32 * MILLISECOND, 60 * MILLISECOND)
    assert counts.round_trip_ns == 39 * MILLISECOND


def test_what_is_given_up_is_not_under_way_and_may_still_come() -> None:
    counts = counts_after((10, 5), (20, 7), (30, 9))
    counts.give_up(20)
    assert (counts.in_flight_bytes, counts.lost_packets, counts.under_way_since_ns) == (9_000, 12, 30)
    assert counts.waiting_since_ns == 10
    assert counts.acknowledged(20, 12, 0, 4, 40) is NEW
    assert (counts.in_flight_bytes, counts.lost_packets) == (9_000, 0)
    counts.give_up(100)
    assert (counts.in_flight_bytes, counts.lost_packets, counts.under_way_since_ns) == (0, 9, None)
    counts.sent(2, 2_000, 100)
    assert counts.in_flight_bytes == 2_000


def test_memory_is_bounded_where_nothing_is_ever_answered() -> None:
    counts = PathCounts(SETTINGS)
    for sent_ns in range(2 * MAXIMUM_CALLS):
        counts.sent(1, 1000, sent_ns)
    assert counts.in_flight_bytes == MAXIMUM_CALLS * 1000
    assert counts.waiting_since_ns == MAXIMUM_CALLS
    assert counts.acknowledged(MAXIMUM_CALLS - 1, 5, 0, 4, 10**6) is REFUSED
    assert counts.acknowledged(2 * MAXIMUM_CALLS - 1, 5, 0, 4, 10**6) is NEW
    assert counts.in_flight_bytes == 0


@pytest.mark.parametrize("seed", range(8))
def test_lost_packets_are_counted_though_some_come_late(seed: int) -> None:
    """Packets of lower classes come 3 ms later than others: their being missing is no loss."""
    random = np.random.default_rng(seed)
    counts = PathCounts(SETTINGS)
    arrivals: list[tuple[int, int]] = []
    lost = 0
    for call in range(1, 2001):
        sent_ns = call * 100_000
        counts.sent(20, 20_000, sent_ns)
        gone = int(random.binomial(20, 0.03))
        late = int(random.binomial(20 - gone, 0.3))
        lost += gone
        arrivals += [(sent_ns + 200_000, 20 - gone - late), (sent_ns + 3_200_000, late)]
    received = 0
    for now_ns, packets in sorted(arrivals):
        received += packets
        newest_ns = min((now_ns - 200_000) // 100_000 * 100_000, 200_000_000)
        counts.acknowledged(newest_ns, received, 0, 400_000, now_ns + 200_000)
    assert counts.settled_packets > 0.9 * counts.sent_packets
    expected = lost * counts.settled_packets / counts.sent_packets
    # What is on its way late (30 % of 3 ms) looks missing at all times: it is no loss, but a constant.
    assert 0 <= counts.lost_packets - expected <= 20 * 30 * 0.3 + 4 * np.sqrt(expected)


@pytest.mark.parametrize("doubled", [0.05, 1.0])
def test_doubled_packets_keep_a_path_alive(doubled: float) -> None:
    random = np.random.default_rng(1)
    counts = PathCounts(SETTINGS)
    received = 0
    for call in range(1, 500):
        counts.sent(20, 20_000, call * MILLISECOND)
        received += 20 + int(random.binomial(20, doubled))
        answer = counts.acknowledged(call * MILLISECOND, received, 0, 1000, call * MILLISECOND + 1000)
        assert answer is NEW
    assert counts.acknowledged_packets == counts.sent_packets
    assert counts.lost_packets == 0


@pytest.mark.parametrize("doubled", [0.05, 0.3, 1.0])
def test_packets_that_were_doubled_hide_no_later_losses(doubled: float) -> None:
    random = np.random.default_rng(2)
    counts = PathCounts(SETTINGS)
    received = lost = 0
    for call in range(1, 1001):
        counts.sent(20, 20_000, call * MILLISECOND)
        gone = int(random.binomial(20, 0.1)) if call > 500 else 0
        lost += gone
        received += 20 - gone + (int(random.binomial(20, doubled)) if call <= 500 else 0)
        counts.acknowledged(call * MILLISECOND, received, 0, 1000, call * MILLISECOND + 1000)
    for after in (1, 2):  # what is missing then is no more on its way
        counts.sent(1, 1000, (1000 + 50 * after) * MILLISECOND)
        now_ns = (1001 + 50 * after) * MILLISECOND
        counts.acknowledged(now_ns - MILLISECOND, received + after, 0, 1000, now_ns)
    assert lost > 800, "a test without losses"
    assert counts.acknowledged_packets == counts.sent_packets - lost
    assert counts.lost_packets == lost


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=30)
)
def test_nothing_that_a_peer_says_breaks_the_books(said: list[tuple[int, int, int]]) -> None:
    counts = PathCounts(SETTINGS)
    for now_ns, (echoed_ns, received, marked) in enumerate(said, start=1):
        counts.sent(3, 3000, now_ns)
        counts.acknowledged(echoed_ns, received, marked, 1, now_ns)
        assert 0 <= counts.in_flight_bytes <= counts.sent_bytes
        assert 0 <= counts.acknowledged_packets <= counts.sent_packets
        assert 0 <= counts.marked_packets <= 2 * counts.sent_packets
        assert counts.settled_packets <= counts.sent_packets
        assert counts.lost_packets <= counts.sent_packets
    counts.give_up(len(said))
    assert counts.in_flight_bytes == 0
