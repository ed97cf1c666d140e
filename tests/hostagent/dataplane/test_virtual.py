"""Transfers in virtual time: what is promised of bounds, order, bitmaps, deadlines, messages and paths."""

import ctypes
import re
from collections import Counter
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.dataplane.binding import DataPlane, DataPlaneError, Fields, lib
from mltswitch.wire.headers import (
    ACKNOWLEDGEMENT,
    AGENT,
    AGENT_HEADER_BYTES,
    AGENT_VERSION,
    AUTHENTICATION_TAG_BYTES,
    MESSAGE,
    AgentFlag,
    AgentKind,
    ControlMessage,
    ElementType,
)
from tests.hostagent.dataplane.ends import MILLISECOND, SECOND, SOURCES, Ends, bits, completion, gradients

BOUND = completion(loss_bound=0.1)
PAPER = completion(loss_bound=0.1, stop_rule=lib.MLT_PAPER)


def still_due(ends: Ends) -> bool:
    return bool(ends.flying) or any(plane.next_timer() is not None for plane in ends.planes)


def number_at(data: bytes, name: str) -> int:
    """A field of the agent header."""
    for offset_bits, field in AGENT.with_offsets():
        if field.name == name:
            return int.from_bytes(data[offset_bits // 8 : (offset_bits + field.bits) // 8], "big")
    raise KeyError(name)


def test_what_the_paper_s_rule_leaves_out_is_spread_evenly() -> None:
    ends = Ends(datagram_bytes=296)
    elements, rounds = 64 * 1000, 100
    data, target = gradients(elements), np.zeros(elements, np.float32)
    missed = np.zeros(1000, np.int64)
    for round_ in range(rounds):
        sent, received = ends.both(*ends.post(data, target, policy=PAPER, round_=round_, burst_packets=4))
        missing = ~bits(DataPlane.arrived(received), 1000)
        assert np.array_equal(~missing, bits(DataPlane.arrived(sent), 1000))  # the sender was told
        assert not target.reshape(1000, 64)[missing].any()
        assert 50 <= missing.sum() <= 100
        missed += missing
    assert missed.max() <= 3 * missed.mean()
    first, *_, last = missed.reshape(4, 250).sum(axis=1)
    assert 0.8 < first / last < 1.25


def test_bursts_stay_whole_and_have_one_importance() -> None:
    ends = Ends()
    data, target = gradients(358 * 400), np.zeros(358 * 400, np.float32)
    ends.both(
        *ends.post(
            data,
            target,
            burst_packets=8,
            importance=lib.MLT_BY_MAGNITUDE,
            tos_important=0x42,
            tos_unimportant=0x40,
        )
    )
    lengths = Counter[int]()
    for _, output, datagrams in ends.outputs:
        if number_at(datagrams, "kind") != AgentKind.DATA:
            continue
        flags = {
            number_at(datagrams[at:], "flags") & AgentFlag.IMPORTANT
            for at in range(0, len(datagrams), output.segment_bytes)
        }
        assert flags == {output.tos >> 1 & 1}
        lengths[-(-len(datagrams) // output.segment_bytes)] += 1
    assert max(lengths) == 8
    assert lengths[8] > 0.75 * sum(lengths.values())


def test_a_patient_receive_takes_less_than_everything_only_after_the_pass() -> None:
    ends = Ends(paths=2)
    data, target = gradients(358 * 100), np.zeros(358 * 100, np.float32)
    lost = {5, 50, 99}
    ends.carry = lambda _, __, datagram: (
        number_at(datagram, "kind") != AgentKind.DATA or number_at(datagram, "sequence") not in lost
    )
    sent, received = ends.both(*ends.post(data, target, policy=BOUND))
    assert received.packets - received.arrived_packets == 3
    assert sent.passes == 1
    assert sent.is_partial
    assert set(np.flatnonzero(~bits(DataPlane.arrived(sent), 100)).tolist()) == lost


def test_what_is_missing_beyond_the_bound_is_sent_again_important_packets_first() -> None:
    ends = Ends()
    data, target = gradients(358 * 100), np.zeros(358 * 100, np.float32)
    important = bytes([0b00001111]) * 13
    ends.carry = lambda _, __, datagram: (
        number_at(datagram, "kind") != AgentKind.DATA
        or bool(number_at(datagram, "flags") & AgentFlag.RETRANSMISSION)
        or number_at(datagram, "sequence") % 2 == 0
    )
    options: dict[str, Any] = {"importance": lib.MLT_BY_BITMAP, "important": important, "burst_packets": 1}
    sent, received = ends.both(*ends.post(data, target, policy=BOUND, **options))
    again = [
        number_at(datagram, "flags") & AgentFlag.IMPORTANT
        for _, _, datagram in ends.outputs
        if number_at(datagram, "kind") == AgentKind.DATA
        and number_at(datagram, "flags") & AgentFlag.RETRANSMISSION
    ]
    assert again == sorted(again, reverse=True)
    assert len(again) == 50
    assert (received.passes, sent.passes) == (1, 2)
    assert np.array_equal(data, target)


def test_the_same_tensor_and_round_again_gets_nothing_of_the_first() -> None:
    ends = Ends(keys=True)
    first, second = gradients(358 * 50, 1), gradients(358 * 50, 2)
    target, again = np.zeros(358 * 50, np.float32), np.zeros(358 * 50, np.float32)
    ends.both(*ends.post(first, target))
    old = [(output, data) for end, output, data in ends.outputs if end == 0]
    sent, received = ends.post(second, again)
    for _ in range(200):
        for output, data in old:
            ends.planes[1].feed(data, ends.now_ns, segment_bytes=output.segment_bytes, tos=output.tos)
        old = old[len(old) // 2 :]
        ends.run(lambda: True)
    ends.both(sent, received)
    assert np.array_equal(second, again)


@pytest.mark.parametrize("is_announced", [True, False])
@pytest.mark.parametrize("how", ["finish", "cancel"])
@pytest.mark.parametrize("is_send_first", [True, False])
def test_a_receive_that_is_over_ends_its_send(is_announced: bool, how: str, is_send_first: bool) -> None:
    ends = Ends()
    data, target = gradients(358 * 10), np.ones(358 * 10, np.float32)
    ends.carry = lambda _, __, datagram: number_at(datagram, "kind") != AgentKind.DATA
    if is_send_first:
        sent = ends.send(data)
    received = ends.receive(target)
    if is_announced:
        ends.run(lambda: not ends.flying)
    ends.planes[1].finish(received) if how == "finish" else ends.planes[1].cancel(received, "enough")
    if not is_send_first:
        ends.run(lambda: ends.now_ns > SECOND + 10 * MILLISECOND or not still_due(ends))
        sent = ends.send(data)
    results = ends.both(sent, received, seconds=0.1)
    if how == "finish":
        assert [result.status for result in results] == [0, 0]
        assert not bits(DataPlane.arrived(results[0]), 10).any()
        assert not target.any()
    else:
        assert [result.status for result in results] == [lib.MLT_PEER_CANCELLED, lib.MLT_CANCELLED]
        assert DataPlane.text(results[0]) == "enough"
    ends.carry = lambda *_: True
    results = ends.both(*ends.post(data, target))
    assert [result.status for result in results] == [0, 0]
    assert np.array_equal(data, target)


def test_the_last_ends_are_remembered_and_older_ones_forgotten() -> None:
    ends = Ends()
    data, many = gradients(10), 3000
    for number in range(many):
        ends.planes[0].cancel(ends.send(data, tensor=number))
        ends.planes[1].cancel(ends.receive(np.zeros(10, np.float32), tensor=many + number))
    ends.run(lambda: not still_due(ends))
    forgotten, received = (ends.receive(np.zeros(10, np.float32), tensor=at) for at in (0, many - 1))
    results = ends.both(ends.send(data, tensor=many), received, seconds=0.1)
    assert [result.status for result in results] == [lib.MLT_PEER_CANCELLED] * 2
    assert ends.planes[1].wait(forgotten, 0) is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_ends_when_what_is_posted_next_meets(seed: int) -> None:
    ends = Ends(paths=2)
    random = np.random.default_rng(seed)
    ends.carry = lambda *_: bool(random.random() > 0.2)
    data, target = gradients(358 * 20), np.zeros(358 * 20, np.float32)
    posted: list[tuple[int, int]] = []
    for _ in range(300):
        tensor, end = int(random.integers(3)), int(random.integers(2))
        match random.integers(4):
            case 0 | 1:
                number = ends.receive(target.copy(), tensor=tensor) if end else ends.send(data, tensor=tensor)
                posted.append((end, number))
            case 2 if posted:
                end, number = posted.pop(int(random.integers(len(posted))))
                ends.planes[end].finish(number) if end else ends.planes[end].cancel(number)
            case 3 if posted:
                end, number = posted[int(random.integers(len(posted)))]
                ends.planes[end].cancel(number)
        if random.random() < 0.5:
            until_ns = ends.now_ns + int(random.integers(500_000))
            ends.run(lambda at_ns=until_ns: ends.now_ns >= at_ns or not still_due(ends))  # type: ignore[misc]
    for end, number in posted:
        ends.planes[end].cancel(number)
    ends.run(lambda: not still_due(ends))
    for tensor in range(3):
        sent, received = ends.post(data, target, tensor=tensor)
        ends.planes[0].step(ends.now_ns)
        if ends.planes[0].wait(sent, 0) is not None:  # it has met a receive of before
            sent = ends.send(data, tensor=tensor)
        for _ in range(2):
            assert [result.status for result in ends.both(sent, received)] == [0, 0]
            assert np.array_equal(data, target)
            target[:] = 0
            ends.run(lambda: not still_due(ends))
            sent, received = ends.post(data, target, tensor=tensor)
    while (event := ends.planes[0].next_event() or ends.planes[1].next_event()) is not None:
        assert event.kind != lib.MLT_EVENT_PROTOCOL


class _Allocated(ctypes.Structure):
    """struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t) for name in ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks"]
    ] + [(name, ctypes.c_size_t) for name in ["fsmblks", "uordblks", "fordblks", "keepcost"]]


def test_transfers_that_are_over_keep_no_memory() -> None:
    read = ctypes.CDLL(None).mallinfo2
    read.restype = _Allocated
    ends = Ends()
    data, target = gradients(10), np.zeros(10, np.float32)

    def exchange(rounds: int) -> int:
        for round_ in range(rounds):
            numbers = ends.post(data, target, round_=round_)
            ends.both(*numbers)
            for plane, number in zip(ends.planes, numbers, strict=True):
                plane.release(number)
            ends.outputs.clear()
        return int(read().uordblks)

    before = exchange(100)
    assert exchange(2000) - before < 50_000


def test_small_messages_arrive_in_order_and_wait_for_their_reader() -> None:
    ends = Ends(paths=2)
    random = np.random.default_rng(3)
    ends.carry = lambda *_: bool(random.random() > 0.2)
    said: list[bytes] = []
    while ends.planes[0].send_message(ends.tokens[0], message := b"%d" % len(said) * 50):
        said.append(message)
    assert len(said) > 100
    heard: list[bytes] = []

    def listen() -> bool:
        while (message := ends.planes[1].take_message(ends.tokens[1])) is not None:
            heard.append(message)
        return len(heard) >= len(said)

    ends.run(listen)
    assert heard == said
    ends.run(lambda: ends.planes[0].send_message(ends.tokens[0], b"room again"))


def test_a_dead_path_is_probed_by_short_transfers_too_and_its_silence_slows_nobody() -> None:
    ends = Ends(paths=2)
    ends.carry = lambda _, output, __: output.path != 1

    def exchange_for(seconds: float, state: int) -> float:
        """Until the path has this state: how long that took."""
        began_ns = ends.now_ns
        while ends.now_ns - began_ns < seconds * SECOND and statistics().path[1].state != state:
            data, target = gradients(3580), np.zeros(3580, np.float32)
            ends.both(*ends.post(data, target, burst_packets=1))
            ends.run(lambda: not still_due(ends))
            ends.now_ns += 30 * MILLISECOND
        return (ends.now_ns - began_ns) / SECOND

    def statistics() -> Any:
        return ends.planes[0].flow_statistics(ends.tokens[0])

    exchange_for(5, lib.MLT_PATH_DEAD)
    exchange_for(1, lib.MLT_PATH_USED)
    timeouts = statistics().timeouts
    exchange_for(5, lib.MLT_PATH_USED)
    assert statistics().path[1].state == lib.MLT_PATH_DEAD
    assert statistics().timeouts == timeouts
    ends.carry = lambda *_: True
    assert exchange_for(5, lib.MLT_PATH_USED) < 2


def test_a_gray_path_is_left() -> None:
    ends = Ends(paths=3)
    random = np.random.default_rng(5)
    ends.carry = lambda _, output, __: output.path != 1 or random.random() > 0.4
    for round_ in range(20):
        data, target = gradients(358 * 200), np.zeros(358 * 200, np.float32)
        ends.both(*ends.post(data, target, round_=round_, burst_packets=1))
        ends.now_ns += 10 * MILLISECOND
    assert ends.planes[0].flow_statistics(ends.tokens[0]).path[1].state == lib.MLT_PATH_GRAY


def test_weights_share_the_bursts() -> None:
    ends = Ends(paths=3)
    ends.planes[0].set_weights(ends.tokens[0], [2, 0, 1])
    sent, _ = ends.both(*ends.post(gradients(358 * 300), np.zeros(358 * 300, np.float32), burst_packets=1))
    assert sent.by_path[0] == pytest.approx(200, abs=2)
    assert (sent.by_path[1], sent.by_path[2]) == (0, 300 - sent.by_path[0])


def test_random_spraying_keeps_the_weights_but_not_the_turns() -> None:
    ends = Ends(paths=3, spray_random=True)
    ends.planes[0].set_weights(ends.tokens[0], [2, 0, 1])
    elements = 358 * 3000
    ends.both(*ends.post(gradients(elements), np.zeros(elements, np.float32), burst_packets=1))
    paths = [
        output.path
        for end, output, datagram in ends.outputs
        if end == 0 and number_at(datagram, "kind") == AgentKind.DATA
    ]
    assert paths.count(0) == pytest.approx(2000, abs=150)
    assert paths.count(1) == 0
    pairs = Counter(pairwise(paths))
    assert pairs[2, 2] == pytest.approx(333, abs=100)  # never, where they take turns


def test_a_send_gets_another_traffic_class_on_its_way() -> None:
    ends = Ends(rate=Fields(cap_bps=1e9))
    marks: dict[str, Any] = {"tos_important": 0x42, "tos_unimportant": 0x40, "burst_packets": 1}
    sent, received = ends.post(gradients(358 * 400), np.zeros(358 * 400, np.float32), **marks)
    ends.run(lambda: ends.planes[1].result(received).arrived_packets > 100)
    ends.planes[0].set_tos(sent, 0x22, 0x20)
    ends.both(sent, received)
    ends.planes[0].set_tos(sent, 0, 0)  # too late, and no error
    seen = [
        output.tos for _, output, datagram in ends.outputs if number_at(datagram, "kind") == AgentKind.DATA
    ]
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {0x42, 0x22}
    assert seen.count(0x22) > 100
    with pytest.raises(DataPlaneError, match="invalid"):
        ends.planes[1].set_tos(received, 0, 0)


def test_whoever_asks_is_told_once_of_the_end() -> None:
    ends = Ends()
    sent, received = ends.post(gradients(100), np.zeros(100, np.float32))
    assert not ends.planes[1].notify(received)
    assert not ends.planes[1].notify(received)
    ends.both(sent, received)
    assert ends.planes[0].notify(sent)
    assert ends.planes[0].next_event() is None
    event = ends.planes[1].next_event()
    assert (event.kind, event.transfer, event.value) == (lib.MLT_EVENT_DONE, received, lib.MLT_OK)
    assert ends.planes[1].next_event() is None
    ends.planes[0].release(sent)
    with pytest.raises(DataPlaneError, match="unknown"):
        ends.planes[0].notify(sent)


def test_no_end_is_lost_that_somebody_waits_for() -> None:
    ends = Ends()
    count = 5000
    common: dict[str, Any] = {"flow": ends.tokens[0], "element_count": 4, "element_type": 9, "notify": True}
    ends.planes[0].post_sends([Fields(elements=bytes(4), tensor=at, **common) for at in range(count)])
    ends.planes[0].close_flow(ends.tokens[0])
    ends.planes[0].step(ends.now_ns)
    told = set()
    while (event := ends.planes[0].next_event()) is not None:
        told.add(event.transfer)
    assert len(told) == count
    assert ends.planes[0].counters().lost_events == 0


def test_a_token_that_was_only_reserved_is_free_again() -> None:
    with DataPlane() as plane:
        for _ in range(70_000):  # more than there are flows
            plane.close_flow(plane.reserve())


def test_front_layers_first() -> None:
    ends = Ends(rate=Fields(cap_bps=1e9))
    back = ends.post(gradients(100_000), np.zeros(100_000, np.float32), tensor=1, priority=5)
    front = ends.post(gradients(100_000), np.zeros(100_000, np.float32), tensor=2, priority=0)
    ends.both(*front)
    assert ends.planes[1].wait(back[1], 0) is None
    ends.both(*back)


@pytest.mark.parametrize("cap_bps", [50e6, 1e9])
def test_the_cap_is_kept(cap_bps: float) -> None:
    ends = Ends(rate=Fields(cap_bps=cap_bps))
    elements = 358 * 500
    sent, received = ends.both(*ends.post(gradients(elements), np.zeros(elements, np.float32)))
    wire_ns = (sent.sent_bytes + 42 * sent.sent_packets) * 8 / cap_bps * SECOND
    assert 0.85 * wire_ns < received.ended_ns - sent.ready_ns < 1.1 * wire_ns + MILLISECOND


def test_a_route_that_becomes_longer_is_no_queue() -> None:
    ends = Ends(has_credit=True)
    elements = 358 * 2000
    bits = elements * 32
    for number, delay_ns in enumerate((50_000, 50_000, 2_000_000, 2_000_000)):
        ends.delay_ns = delay_ns
        sent, received = ends.both(
            *ends.post(gradients(elements), np.zeros(elements, np.float32), round_=number)
        )
    goodput_bps = bits * SECOND / (received.ended_ns - sent.ready_ns)
    assert goodput_bps > 0.3 * 1e9


@pytest.mark.parametrize("share", [0.05, 0.2, 0.3])
@pytest.mark.parametrize("delay_ns", [50_000, 300_000, MILLISECOND])
@pytest.mark.parametrize("seed", range(4))
def test_losses_that_a_lower_rate_does_not_change_do_not_slow_a_flow_to_nothing(
    share: float, delay_ns: int, seed: int
) -> None:
    ends = Ends(rate=Fields(cap_bps=1e9))
    ends.delay_ns = delay_ns
    chance = np.random.default_rng(seed)
    ends.carry = lambda *_: chance.random() >= share
    elements = 358 * 4000
    goodputs_bps = []
    for number in range(4):
        sent, received = ends.both(
            *ends.post(gradients(elements), np.zeros(elements, np.float32), round_=number)
        )
        assert sent.status == received.status == 0
        goodputs_bps.append(elements * 32 * SECOND / (received.ended_ns - sent.ready_ns))
    assert median(goodputs_bps) > 0.1 * 1e9


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("delay_ns", [100_000, MILLISECOND, 10 * MILLISECOND])
def test_bbr_fills_a_link_at_any_loss_and_keeps_its_queue_short(share: float, delay_ns: int) -> None:
    rate_bps = 100e6
    ends = Ends(rate=Fields(cap_bps=1e9, kind=lib.MLT_BBR))
    chance = np.random.default_rng(1)
    free_ns, carried_bits, longest_ns = 0.0, 0.0, 0.0
    begin_ns = ends.now_ns + max(20 * 2 * delay_ns, 100 * MILLISECOND)

    def port(end: int, _: Any, datagram: bytes) -> bool:
        nonlocal free_ns, carried_bits, longest_ns
        ends.delay_ns = delay_ns
        if chance.random() < share:
            return False
        if not end:
            bits = 8 * (len(datagram) + 42)
            free_ns = max(free_ns, ends.now_ns) + bits * SECOND / rate_bps
            ends.delay_ns += int(free_ns - ends.now_ns)
            if ends.now_ns > begin_ns:
                carried_bits += bits
                longest_ns = max(longest_ns, free_ns - ends.now_ns)
        return True

    ends.carry = port
    elements = 358 * 9_000
    _, received = ends.post(gradients(elements), np.zeros(elements, np.float32), burst_packets=2)
    ends.run(lambda: ends.planes[1].result(received).arrived_packets > 0.9 * (1 - share) * 9_000)
    assert carried_bits * SECOND / (ends.now_ns - begin_ns) > 0.9 * (1 - share) * rate_bps
    assert longest_ns < max(1.5 * 2 * delay_ns, 6 * MILLISECOND)


def test_bbr_answers_losses_without_losing_its_rate() -> None:
    """The pipe holds 3,400 packets, and nearly every acknowledgement tells of a loss."""
    rate_bps, share = 1e9, 0.05
    options = Fields(cap_bps=10e9, kind=lib.MLT_BBR, window_bytes=64 << 20)
    ends = Ends(rate=options, datagram_bytes=1472)
    chance = np.random.default_rng(1)
    free_ns, carried_bits, begin_ns = 0.0, 0.0, ends.now_ns + SECOND

    def port(end: int, _: Any, datagram: bytes) -> bool:
        nonlocal free_ns, carried_bits
        ends.delay_ns = 20 * MILLISECOND
        if chance.random() < share:
            return False
        if not end:
            bits = 8 * (len(datagram) + 42)
            free_ns = max(free_ns, ends.now_ns) + bits * SECOND / rate_bps
            ends.delay_ns += int(free_ns - ends.now_ns)
            carried_bits += bits * (ends.now_ns > begin_ns)
        return True

    ends.carry = port
    elements = 358 * 120_000
    _, received = ends.post(gradients(elements), np.zeros(elements, np.float32), burst_packets=16)
    ends.run(lambda: ends.planes[1].result(received).arrived_packets > 0.9 * (1 - share) * 120_000)
    assert carried_bits * SECOND / (ends.now_ns - begin_ns) > 0.6 * (1 - share) * rate_bps


def test_bbr_empties_no_queue_to_look_where_pauses_do_so() -> None:
    rate_bps, delay_ns = 20e6, 5 * MILLISECOND
    ends = Ends(rate=Fields(cap_bps=1e9, kind=lib.MLT_BBR))
    free_ns = 0.0

    def port(end: int, _: Any, datagram: bytes) -> bool:
        nonlocal free_ns
        ends.delay_ns = delay_ns
        if not end:
            free_ns = max(free_ns, ends.now_ns) + 8 * (len(datagram) + 42) * SECOND / rate_bps
            ends.delay_ns += int(free_ns - ends.now_ns)
        return True

    ends.carry = port
    elements, took_ns = 358 * 600, []
    for number in range(36):
        delay_ns += 250_000  # no round trip is as short as the least one was
        ends.now_ns += 50 * MILLISECOND
        began_ns = ends.now_ns
        buffer = np.zeros(elements, np.float32)
        ends.both(*ends.post(gradients(elements), buffer, round_=number, burst_packets=2))
        took_ns.append(ends.now_ns - began_ns)
    assert ends.now_ns > 12 * SECOND
    assert max(after / before for before, after in pairwise(took_ns)) < 1.25


def test_an_external_controller_hears_samples_and_sets_the_rate() -> None:
    ends = Ends(rate=Fields(kind=lib.MLT_EXTERNAL, rate_bps=1e9, sample_ns=MILLISECOND))
    elements = 358 * 500
    sent, received = ends.post(gradients(elements), np.zeros(elements, np.float32), burst_packets=2)
    ends.both(sent, received)
    samples, flights = [], []
    while (event := ends.planes[0].next_event()) is not None:
        if event.kind == lib.MLT_EVENT_SAMPLE:
            heard = event.sample
            samples.append((heard.delivered_packets, heard.least_rtt_ns))
            flights.append((heard.in_flight_bytes, heard.window_bytes))
    assert sum(delivered for delivered, _ in samples) > 200
    assert 90_000 <= min(rtt_ns for _, rtt_ns in samples) < 200_000
    assert 0 < max(in_flight for in_flight, _ in flights) <= max(window for _, window in flights)


def test_a_silent_peer_fails_what_is_open() -> None:
    ends = Ends()
    ends.carry = lambda *_: False
    sent, received = ends.both(*ends.post(gradients(100), np.zeros(100, np.float32)))
    assert [sent.status, received.status] == [lib.MLT_PEER_SILENT] * 2
    assert ends.planes[0].next_event().kind == lib.MLT_EVENT_SILENT


def test_silence_ends_when_it_is_said_to_end() -> None:
    ends, data = Ends(), (gradients(100), np.zeros(100, np.float32))
    ends.receive(np.zeros(100, np.float32), tensor=9)  # looks for silence begin with it
    ends.run(lambda: ends.now_ns > 300 * MILLISECOND)
    ends.both(*ends.post(*data))
    ends.carry = lambda *_: False
    _, received = ends.both(*ends.post(*data, round_=1))
    assert received.status == lib.MLT_PEER_SILENT
    assert 0.95 < (received.ended_ns - received.posted_ns) / (2 * SECOND) < 1.02  # as `Ends` has it


def test_a_host_that_slept_does_not_call_the_others_silent() -> None:
    ends = Ends()
    sent, received = ends.post(gradients(100), np.zeros(100, np.float32))
    for end in range(2):
        ends.planes[end].step(ends.now_ns)
    flights = [(end, *each) for end in range(2) for each in ends.planes[end].outputs()]
    ends.now_ns += 20 * SECOND  # both were stopped; what they had sent waits to be read
    for end in range(2):
        ends.planes[end].step(ends.now_ns)
    for end, output, data in flights:
        ends.fly(0, end, output, data)
    assert [each.status for each in ends.both(sent, received)] == [0, 0]


def test_closing_a_flow_fails_what_is_open_and_calls_are_refused_by_name() -> None:
    ends = Ends()
    sent, _ = ends.post(gradients(100), np.zeros(100, np.float32))
    with pytest.raises(DataPlaneError, match="busy"):
        ends.planes[0].release(sent)
    ends.planes[0].close_flow(ends.tokens[0])
    ends.planes[0].step(ends.now_ns)
    assert ends.planes[0].wait(sent, 0).status == lib.MLT_FLOW_CLOSED
    with pytest.raises(DataPlaneError, match="unknown"):
        ends.post(gradients(100), np.zeros(100, np.float32))
    ends.planes[0].release(sent)
    with pytest.raises(DataPlaneError, match="unknown"):
        ends.planes[0].release(sent)


def test_idle_flows_cost_nothing() -> None:
    ends = Ends()
    ends.both(*ends.post(gradients(100), np.zeros(100, np.float32)))
    ends.run(lambda: not still_due(ends))


def numbers_of(file: str) -> dict[str, int]:
    """Of the enumerations of a C file of the data plane."""
    text = (SOURCES / file).read_text(encoding="utf-8")
    return {name: int(number) for name, number in re.findall(r"^    (\w+) = (\d+),", text, re.MULTILINE)}


def test_numbers_are_those_of_the_wire_format() -> None:
    c, messages, face = numbers_of("wire.h"), numbers_of("messages.c"), numbers_of("dataplane.h")
    short = {"flow_token": "TOKEN", "sent_nanoseconds": "SENT", "echoed_nanoseconds": "ECHOED"} | {
        "held_nanoseconds": "HELD",
        "received_packets": "RECEIVED",
        "marked_packets": "MARKED",
    }
    for header, begin in ((AGENT, 0), (ACKNOWLEDGEMENT, AGENT.size_bytes)):
        for offset_bits, field in header.with_offsets():
            name = short.get(field.name, field.name.upper())
            assert c[f"{name}_OFFSET"] == begin + offset_bits // 8
    assert c["HEADER_BYTES"] == AGENT_HEADER_BYTES
    assert c["ACKNOWLEDGEMENT_BYTES"] == AGENT.size_bytes + ACKNOWLEDGEMENT.size_bytes
    assert (c["WIRE_VERSION"], c["TAG_BYTES"]) == (AGENT_VERSION, AUTHENTICATION_TAG_BYTES)
    assert numbers_of("internal.h")["MESSAGE_HEADER_BYTES"] == MESSAGE.size_bytes
    kinds: list[tuple[dict[str, int], str, Any]] = [
        (c, "KIND_", AgentKind),
        (c, "FLAG_", AgentFlag),
        (face, "MLT_", ElementType),
        (messages, "", ControlMessage),
    ]
    for found, prefix, kind in kinds:
        assert all(found[f"{prefix}{entry.name}"] == entry for entry in kind)
