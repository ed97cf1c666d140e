"""Early ends of receives that repair at once, in virtual time: LT, percentage, deadline, bounds, bubbles."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.dataplane.binding import DataPlane, Fields, lib
from mltswitch.wire.headers import AgentKind
from tests.hostagent.dataplane.ends import MILLISECOND, SECOND, gradients
from tests.hostagent.dataplane.test_ltp import (
    COUNT,
    FOREVER,
    PACKETS,
    SLOW,
    ends,
    exchange,
    losing,
    packet_of,
)


def gathered(lt_ns: int = 0, percentage: float = 0.8, **more: Any) -> Fields:
    """In gather 1: 20 ms of slack, and 70 % at least."""
    gather = {"number": 1, "percentage": percentage, "lt_ns": lt_ns, "slack_ns": 20 * MILLISECOND}
    return {"stop_rule": lib.MLT_GATHERED, "loss_bound": 0.3, "important_bound": 0, "gather": gather} | more


def elapsed_ms(result: Any) -> float:
    return float(result.ended_ns - result.first_ns) / MILLISECOND


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    ("lost", "ending", "least_ms", "most_ms"),
    [
        (0.1, lib.MLT_AT_PERCENTAGE, 40, 45),
        (0.25, lib.MLT_AT_DEADLINE, 60, 65),
        (0.0, lib.MLT_COMPLETE, 0, 39),
    ],
)
def test_a_link_closes_by_time_and_share(
    lost: float, ending: int, least_ms: int, most_ms: int, times: int
) -> None:
    """Packets that never arrive: all is waited for until LT, 80 % from there, the bound from the deadline.

    Packets that come several times count once.
    """
    two = ends()
    keep = losing(range(1, 1 + int(lost * PACKETS)), FOREVER)

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        if not keep(end, output, datagram):
            return False
        for copy in range(1, times):
            two.fly(two.delay_ns + copy, end, output, datagram)
        return True

    two.carry = carry
    here, there = exchange(two, policy=gathered(40 * MILLISECOND), importance=lib.MLT_EDGES)
    assert (here.ending, there.ending) == (ending, ending)
    assert least_ms <= elapsed_ms(there) <= most_ms
    assert there.packets - there.arrived_packets == int(lost * PACKETS)
    assert (there.lt_ns, there.deadline_ns) == (40 * MILLISECOND, 60 * MILLISECOND)


def test_below_its_bound_a_receive_fails_by_name() -> None:
    two = ends()
    two.carry = losing(range(1, 60), FOREVER)
    policy = gathered(MILLISECOND, hard_ns=200 * MILLISECOND)
    here, there = exchange(two, policy=policy, importance=lib.MLT_EDGES)
    assert (here.status, there.status) == (lib.MLT_PEER_DEADLINE, lib.MLT_DEADLINE)
    assert "53 of 112 packets" in DataPlane.text(there)
    assert elapsed_ms(there) > 190


@pytest.mark.parametrize("what", ["packet", "count"])
def test_critical_packets_hold_a_receive_open_behind_its_deadline(what: str) -> None:
    """One of them is missing; or all of them, and nobody has said how many they are."""
    two = ends()
    until_ns = two.now_ns + 150 * MILLISECOND
    keep = losing({7}, FOREVER)

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        is_data, number = datagram[1] == AgentKind.DATA, packet_of(datagram).sequence
        is_held = is_data and number in ({0} if what == "packet" else {0, PACKETS - 1})
        is_held |= what == "count" and datagram[1] == AgentKind.CONTROL
        if end == 0 and is_held and two.now_ns < until_ns:
            return False
        return keep(end, output, datagram)

    two.carry = carry
    _, there = exchange(two, policy=gathered(MILLISECOND), importance=lib.MLT_EDGES)
    assert (there.ending, there.arrived_packets) == (lib.MLT_AT_DEADLINE, PACKETS - 1)
    assert there.ended_ns > until_ns


def linked(lts_ms: list[int], lost: list[float], closes_ms: int = 0) -> list[Any]:
    """Results of one gather, whose links have these LTs and lose these shares; 1: it never begins.

    The last one's flow may close.
    """
    two = ends(links=len(lts_ms))
    at = {tokens[0]: share for tokens, share in zip(two.links, lost, strict=True)}

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        is_data = end == 0 and datagram[1] == AgentKind.DATA
        is_dead = end == 0 and at[output.flow] == 1
        return not is_dead and not (is_data and 0 < packet_of(datagram).sequence <= at[output.flow] * PACKETS)

    two.carry = carry
    data, received = gradients(COUNT), []
    for link, lt_ms in enumerate(lts_ms):
        policy = gathered(lt_ms * MILLISECOND, hard_ns=500 * MILLISECOND)
        numbers = two.post(
            data, np.zeros(COUNT, np.float32), policy=policy, link=link, importance=lib.MLT_EDGES
        )
        received.append(numbers[1])
    if closes_ms:
        two.run(lambda: two.now_ns >= SECOND + closes_ms * MILLISECOND)
        two.planes[1].close_flow(two.links[-1][1])
    results: dict[int, Any] = {}

    def are_done() -> bool:
        for number in received:
            if number not in results and (result := two.planes[1].wait(number, 0)) is not None:
                results[number] = result
        return len(results) == len(received)

    two.run(are_done)
    return [results[number] for number in received]


QUARTER = 0.25
"""Of the packets lost: too few for the percentage, enough for the bound."""


@pytest.mark.parametrize(
    ("lts_ms", "lost", "ended_ms"),
    [
        ([10, 20, 40], [QUARTER] * 3, [60, 60, 60]),  # the longest LT, and the slack
        ([10, 20, 40], [0.1, QUARTER, 0.1], [10, 60, 40]),
        ([10, 10, 300], [QUARTER] * 3, [60, 60, 300]),  # four medians; who claims more waits himself
        ([10, 300], [QUARTER] * 2, [60, 300]),
        ([10, 10, 0], [QUARTER, QUARTER, 0], [60, 60, None]),  # not known
        ([10, 20, 40], [QUARTER, QUARTER, 1], [60, 60, None]),  # never begins
        ([10, 10, 0], [QUARTER, QUARTER, 1], [60, 60, None]),
    ],
)
def test_links_of_a_gather_share_its_deadline(
    lts_ms: list[int], lost: list[float], ended_ms: list[int | None]
) -> None:
    for result, share, expected in zip(linked(lts_ms, lost), lost, ended_ms, strict=True):
        if share == 1:
            assert result.status == lib.MLT_DEADLINE
            assert "0 of 112 packets" in DataPlane.text(result)
            assert result.ended_ns - result.posted_ns < 501 * MILLISECOND
            continue
        assert result.status == lib.MLT_OK
        if expected is None:
            assert result.ending == lib.MLT_COMPLETE
        else:
            assert expected <= elapsed_ms(result) < expected + 3


@pytest.mark.parametrize(("closes_ms", "ended_ms"), [(5, 30), (15, 30), (45, 44)])
def test_a_flow_that_closes_fails_alone_and_delays_nobody(closes_ms: int, ended_ms: int) -> None:
    *others, closed = linked([10, 10, 40], [QUARTER] * 3, closes_ms)
    assert closed.status == lib.MLT_FLOW_CLOSED
    for result in others:
        assert (result.status, result.ending) == (lib.MLT_OK, lib.MLT_AT_DEADLINE)
        assert ended_ms <= elapsed_ms(result) < ended_ms + 3


def test_what_joins_a_link_does_not_end_it_before_its_lt() -> None:
    two = ends()
    two.carry = losing(range(1, 12), FOREVER)
    data, memory = gradients(COUNT), np.zeros((2, COUNT), np.float32)
    policy = gathered(40 * MILLISECOND)
    numbers = [two.post(data, memory[0], policy=policy, importance=lib.MLT_EDGES)]
    two.run(lambda: two.now_ns >= SECOND + 20 * MILLISECOND)
    numbers.append(two.post(data, memory[1], tensor=2, policy=policy, importance=lib.MLT_EDGES))
    first, second = (two.both(*pair)[1] for pair in numbers)
    assert (first.ending, second.ending) == (lib.MLT_AT_PERCENTAGE, lib.MLT_AT_PERCENTAGE)
    assert 40 <= elapsed_ms(first) < 43
    assert second.ended_ns == first.ended_ns  # one link has one clock


def test_an_lt_of_what_the_sender_registers() -> None:
    """It is told while the first round goes on."""
    two = ends(rate=SLOW)
    two.carry = losing(range(1, 11), FOREVER)
    for number in range(3):
        _, there = exchange(
            two, round_=number, policy=gathered(lib.MLT_LT_REGISTERED), importance=lib.MLT_EDGES
        )
        told = two.planes[1].flow_statistics(two.tokens[1])
        assert 990_000 < told.peer_base_rtt_ns < 2_000_000
        assert told.peer_bandwidth_bps > 1e6
        expected_ns = 1.5 * told.peer_base_rtt_ns + 4 * COUNT * 8 * SECOND / told.peer_bandwidth_bps
        assert there.lt_ns == pytest.approx(expected_ns, abs=2)
        known = two.planes[0].flow_statistics(two.tokens[0])
        assert told.peer_bandwidth_bps == pytest.approx(known.bandwidth_bps, rel=0.1)
        assert there.ending in {lib.MLT_AT_PERCENTAGE, lib.MLT_AT_DEADLINE}
        assert there.ended_ns - there.first_ns >= there.lt_ns


@pytest.mark.parametrize("next_round", [0, 1])
def test_a_tensor_may_begin_anew_while_the_end_of_its_last_round_crosses_data(next_round: int) -> None:
    """Packets of it come late, too."""
    two = ends(rate=SLOW, delay_ns=5 * MILLISECOND)
    is_first = True

    def carry(end: int, _: Any, datagram: bytes) -> bool:
        is_late = is_first and datagram[1] == AgentKind.DATA and packet_of(datagram).sequence % 9 == 4
        two.delay_ns = (60 if is_late else 5) * MILLISECOND
        return True

    two.carry = carry
    policy = gathered(50 * MILLISECOND, 0.5, loss_bound=0.5)
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    sent, received = two.post(data, memory, policy=policy, importance=lib.MLT_EDGES, burst_packets=1)
    two.run(lambda: two.planes[1].wait(received, 0) is not None)
    first = two.planes[1].result(received)
    assert (first.ending, two.planes[0].wait(sent, 0)) == (lib.MLT_AT_PERCENTAGE, None)
    is_first, again = False, gradients(COUNT, 2)
    memory[:] = 0
    received = two.receive(memory, round_=next_round)
    two.run(lambda: two.planes[0].wait(sent, 0) is not None)
    here, there = two.both(two.send(again, round_=next_round, importance=lib.MLT_EDGES), received)
    assert (here.status, there.status, there.ending) == (lib.MLT_OK, lib.MLT_OK, lib.MLT_COMPLETE)
    assert np.array_equal(memory, again)


def test_a_blackout_longer_than_lt_ends_within_the_bound() -> None:
    two = ends(rate=SLOW)
    dark_ns = two.now_ns + 10 * MILLISECOND
    light_ns = dark_ns + 90 * MILLISECOND
    two.carry = lambda *_: not dark_ns <= two.now_ns < light_ns
    _, there = exchange(two, policy=gathered(20 * MILLISECOND), importance=lib.MLT_EDGES)
    assert there.ending == lib.MLT_AT_DEADLINE
    assert there.ended_ns > light_ns
    assert 0.7 * PACKETS <= there.arrived_packets < 0.8 * PACKETS


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([np.int8, np.int16, np.float32, np.float64]),
    st.integers(lib.MLT_LEAST_DATAGRAM_BYTES, 2000),
    st.integers(1, 5000),
    st.floats(0, 1),
)
def test_bubbles_hold_whole_elements_and_read_as_zero(
    kind: Any, datagram_bytes: int, count: int, lost: float
) -> None:
    two = ends(datagram_bytes=datagram_bytes)
    random = np.random.default_rng(count)
    two.carry = lambda _, __, datagram: datagram[1] != AgentKind.DATA or bool(random.random() >= lost)
    size = np.dtype(kind).itemsize
    data = random.integers(1, 256, count * size, np.uint8)
    memory = np.full(count * size, 7, np.uint8)
    policy = gathered(MILLISECOND, loss_bound=1, important_bound=1, hard_ns=30 * MILLISECOND)
    two.both(*two.post(data.view(kind), memory.view(kind), policy=policy | {"at_hard_time": lib.MLT_TAKE}))
    rows, sent = memory.reshape(count, size), data.reshape(count, size)
    is_there = (rows == sent).all(axis=1)
    assert not rows[~is_there].any()
