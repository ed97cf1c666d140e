"""Of acknowledgements read together every round trip counts, and the last word of each call."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.transport.acknowledgements import Acknowledgements
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.intake import groups
from mltswitch.hostagent.transport.interfaces import RateController, Sprayer
from mltswitch.hostagent.transport.rate import RateSettings, Timely
from mltswitch.wire import AgentHeader, AgentKind
from mltswitch.wire.codec import struct_of
from mltswitch.wire.headers import ACKNOWLEDGEMENT
from tests.hostagent.transport.ends import connection, talk

LONGEST_NS = 1_000_000
MILLISECOND = 1_000_000
TOKEN = 77
PACKET_BYTES = 1_500


class Heard:
    """Stands in for a rate controller and for a sprayer, by which of their arguments come."""

    def __init__(self) -> None:
        self.round_trips_ns: list[int] = []
        self.words: list[tuple[int, ...]] = []

    def acknowledged(self, *word: int) -> None:
        if len(word) == 2:
            self.round_trips_ns.append(word[0])
        else:
            self.words.append(word)


def together(heard: Heard) -> tuple[Acknowledgements, Sprayer]:
    return Acknowledgements(cast("RateController", heard), LONGEST_NS), cast("Sprayer", heard)


def test_each_call_of_a_path_is_told_once_in_the_order_of_leaving() -> None:
    heard = Heard()
    acknowledgements, sprayer = together(heard)
    for path, arrived_ns, answer in (
        (1, 1_500, (1_000, 100, 7, 1)),
        (0, 2_600, (2_000, 200, 20, 2)),
        (1, 3_700, (3_000, 300, 30, 3)),
        (0, 2_900, (1_500, 100, 15, 0)),  # overtaken
        (1, 3_800, (3_000, 400, 31, 3)),  # the same call's second half
    ):
        acknowledgements.add(path, arrived_ns, answer, 9_000)
    assert heard.round_trips_ns == [400, 400, 400, 1_300, 400]
    assert heard.words == []
    acknowledgements.tell(sprayer, 9_000)
    assert heard.words == [
        (1, 1_000, 7, 1, 400, 9_000),
        (0, 1_500, 15, 0, 1_300, 9_000),
        (0, 2_000, 20, 2, 400, 9_000),
        (1, 3_000, 31, 3, 400, 9_000),
    ]
    acknowledgements.tell(sprayer, 9_001)
    assert len(heard.words) == 4


@pytest.mark.parametrize("counts", [(90, 100), (100, 90), (2**32 - 5, 100), (100, 2**32 - 5)])
def test_of_one_call_the_highest_count_is_told_whatever_came_last(counts: tuple[int, int]) -> None:
    heard = Heard()
    acknowledgements, sprayer = together(heard)
    for received in counts:
        acknowledgements.add(0, 2_000, (1_000, 0, received, 0), 3_000)
    acknowledgements.tell(sprayer, 3_000)
    assert heard.words == [(0, 1_000, 100, 0, 1_000, 3_000)]


def test_impossible_round_trips_do_not_reach_the_rate() -> None:
    heard = Heard()
    acknowledgements, _ = together(heard)
    for arrived_ns, held_ns in ((5_000, 0), (5_000, 1), (5_001 + LONGEST_NS, 0), (5_000 + LONGEST_NS, 0)):
        acknowledgements.add(0, arrived_ns, (5_000, held_ns, 1, 0), 6_000_000)
    assert heard.round_trips_ns == [LONGEST_NS]


def test_nothing_waits_for_a_sprayer_that_comes_later() -> None:
    heard = Heard()
    acknowledgements, sprayer = together(heard)
    acknowledgements.add(0, 2_000, (1_000, 0, 1, 0), 3_000)
    acknowledgements.tell(None, 3_000)
    acknowledgements.tell(sprayer, 4_000)
    assert heard.words == []


@given(st.integers(20, 300), st.integers(2, 6), st.integers(0, 9))
def test_a_sprayer_that_reads_rarely_sees_no_loss_where_there_is_none(
    packets: int, calls_a_read: int, held_back: int
) -> None:
    """Each read ends in the middle of a call, whose other packets are still under way."""
    sprayer = PathSprayer(1, seed=1)
    acknowledgements = Acknowledgements(cast("RateController", Heard()), LONGEST_NS)
    sent_ns: list[int] = []
    told = now_ns = 0
    for read in range(100):
        for _ in range(calls_a_read):
            now_ns += MILLISECOND
            sprayer.sent(np.array([0]), np.array([packets]), np.array([packets * PACKET_BYTES]), now_ns)
            sent_ns.append(now_ns)
        arrived = len(sent_ns) * packets - (packets // 2 + held_back if read < 99 else 0)
        for received in range(told + 10, arrived + 1, 10):
            echoed_ns = sent_ns[(received - 1) // packets]
            acknowledgements.add(0, now_ns + 1, (echoed_ns, 0, received, 0), now_ns + 1)
            told = received
        acknowledgements.tell(sprayer, now_ns + 1)
    (found,) = sprayer.statistics()
    assert found.lost_packets == 0
    assert found.loss_share in (None, 0.0)
    assert found.refused_acknowledgements == 0


def test_a_contradiction_hides_no_other_call() -> None:
    sprayer = PathSprayer(1, seed=1)
    sprayer.sent(np.array([0]), np.array([100]), np.array([100 * PACKET_BYTES]), 1_000)
    acknowledgements = Acknowledgements(cast("RateController", Heard()), LONGEST_NS)
    acknowledgements.add(0, 3_000, (1_000, 0, 100, 0), 3_000)
    acknowledgements.add(0, 3_000, (1 << 62, 0, 4_000, 0), 3_000)
    acknowledgements.tell(sprayer, 3_000)
    (found,) = sprayer.statistics()
    assert (found.acknowledged_packets, found.refused_acknowledgements) == (100, 1)
    assert sprayer.in_flight_bytes == 0


def acknowledgement(
    path: int, echoed_ns: int, received: int, excess: bytes = b"", token: int = TOKEN
) -> bytes:
    header = AgentHeader(AgentKind.ACKNOWLEDGEMENT, 0, 0, token, 0, 0, 0, path, received, 0, 50_000).encode()
    return header + struct_of(ACKNOWLEDGEMENT).pack(echoed_ns, 0, received, 0) + excess


def grid(datagrams: list[bytes], arrived_ns: int) -> DatagramGrid:
    memory, count = np.frombuffer(b"".join(datagrams), np.uint8), len(datagrams)
    size_bytes = len(datagrams[0])
    tos, arrivals = np.zeros(count, np.uint8), np.full(count, arrived_ns)
    return DatagramGrid(memory, 0, count, size_bytes, 1, size_bytes, tos, arrivals)


def test_a_group_knows_when_each_part_arrived_and_which_are_none() -> None:
    heard = Heard()
    acknowledgements, sprayer = together(heard)
    grids = [
        grid([acknowledgement(0, 1_000, 5), acknowledgement(1, 1_000, 6)], 1_400),
        grid([acknowledgement(0, 2_000, 9, excess=b"more")] * 3, 2_500),
        grid([acknowledgement(0, 2_000, 7)], 2_600),
    ]
    (group,) = groups(grids, TOKEN, None, 9_000)
    assert acknowledgements.add_group(group, 9_000) == 3
    acknowledgements.tell(sprayer, 9_000)
    assert heard.words == [
        (0, 1_000, 5, 0, 400, 9_000),
        (1, 1_000, 6, 0, 400, 9_000),
        (0, 2_000, 7, 0, 600, 9_000),
    ]


@pytest.mark.parametrize("count", [1, 20])
def test_a_connection_slows_down_by_round_trips_and_counts_what_is_none(count: int) -> None:
    settings = replace(RateSettings.for_network(10e9, queue_bytes=0), learns_base=False)
    sender, receiver = connection(1, rate=Timely(settings)), connection(2)
    talk(sender, receiver, 1_000)
    before_bps = sender.rate_bps
    token = sender.receive_token
    for number in range(1, 50):
        now_ns = number * 100 * MILLISECOND
        true_one, false_one = (
            acknowledgement(0, now_ns - 50 * MILLISECOND, number, excess, token) for excess in (b"", b"x")
        )
        arrived = [grid([true_one] * count, now_ns), grid([false_one] * count, now_ns)]
        sender.datagrams_received(arrived, now_ns)
    assert sender.rate_bps < before_bps / 2
    assert sender.dropped_datagrams == 49 * count
