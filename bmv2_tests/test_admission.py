"""Dropping and marking: every code point below, at and above S and L, in every kind of queue."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from scapy.layers.inet import IP, IPOption
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from bmv2_tests.packets import (
    BACKGROUND_QUEUE,
    CONTROL_LIMIT_BYTES,
    CONTROL_QUEUE,
    FRAME_BYTES,
    LIMIT_BYTES,
    POLICED_QUEUE,
    SELECTIVE_QUEUES,
    THRESHOLD_BYTES,
    ipv4,
    ipv6,
    plug,
    selective_line,
)
from bmv2_tests.switch import AnySwitch, patiently, place
from mltswitch.p4.switch import Count
from mltswitch.wire import Ecn

S, L = THRESHOLD_BYTES, LIMIT_BYTES
FORWARDED, MARKED = "forwarded_unmarked", "forwarded_marked"
UNIMPORTANT, AT_LIMIT = "dropped_unimportant", "dropped_limit"
PORT = 2
COUNTERS = (FORWARDED, MARKED, UNIMPORTANT, AT_LIMIT)

# Waiting bytes → what happens to Not-ECT, and to what is ECN-capable (MLT, section 5.2).
SELECTIVE = {
    0: (FORWARDED, FORWARDED),
    S - 1: (FORWARDED, FORWARDED),
    S: (UNIMPORTANT, MARKED),
    S + 1: (UNIMPORTANT, MARKED),
    L - 1: (UNIMPORTANT, MARKED),
    L: (AT_LIMIT, AT_LIMIT),
    L + 1: (AT_LIMIT, AT_LIMIT),
    2**32 - 1: (AT_LIMIT, AT_LIMIT),
}
EXEMPT = {
    0: (FORWARDED, FORWARDED),
    S: (FORWARDED, FORWARDED),
    CONTROL_LIMIT_BYTES - 1: (FORWARDED, FORWARDED),
    CONTROL_LIMIT_BYTES: (AT_LIMIT, AT_LIMIT),
}
TABLE = [
    *((queue, waiting, fates) for queue in SELECTIVE_QUEUES for waiting, fates in SELECTIVE.items()),
    *((CONTROL_QUEUE, waiting, fates) for waiting, fates in EXEMPT.items()),
    *(
        (POLICED_QUEUE, waiting, (fates[0], fates[0]))
        for waiting, fates in ((0, (FORWARDED,)), (L, (AT_LIMIT,)))
    ),
    (BACKGROUND_QUEUE, L, (FORWARDED, FORWARDED)),
]


def outcome(switch: AnySwitch, frame: bytes, queue: int, waiting: int) -> tuple[list[str], list[bytes]]:
    """Counters that went up, and what came out, for a packet that finds so many bytes waiting."""
    switch.set_waiting(PORT, queue, waiting)
    before = switch.counts(PORT, queue)
    came = [frame for _, frame in switch.exchange(frame)]
    after = switch.counts(PORT, queue)
    barriers = int(queue == BACKGROUND_QUEUE)
    after["arrived"] -= barriers
    after[FORWARDED] -= barriers
    assert after["arrived"] == before["arrived"] + 1
    return [name for name in COUNTERS if after[name] > before[name]], came


@pytest.mark.parametrize("packet", [ipv4, ipv6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize(("queue", "waiting", "fates"), TABLE)
def test_every_code_point_meets_its_fate(
    switch: AnySwitch, packet: object, queue: int, waiting: int, fates: tuple[str, str]
) -> None:
    assert callable(packet)
    for ecn in Ecn:
        fate = fates[ecn.is_capable]
        counted, came = outcome(switch, packet(PORT, queue=queue, ecn=ecn), queue, waiting)
        assert counted == [fate], (ecn, waiting)
        assert len(came) == (fate in (FORWARDED, MARKED))
        for frame in came:
            sent = Ether(frame)
            traffic_class = sent[IP].tos if IP in sent else sent[IPv6].tc
            assert traffic_class & 3 == (Ecn.CE if fate == MARKED else ecn)


@pytest.mark.parametrize(("options", "ecn"), [*product(([], [b"\1" * 4]), (Ecn.ECT_0, Ecn.ECT_1))])
def test_a_marked_packet_has_a_right_checksum(switch: AnySwitch, options: list[bytes], ecn: Ecn) -> None:
    frame = ipv4(PORT, ecn=ecn, options=[IPOption(text) for text in options])
    _, came = outcome(switch, frame, 5, S)
    sent = Ether(came[0])
    checksum = sent[IP].chksum
    del sent[IP].chksum
    assert Ether(bytes(sent))[IP].chksum == checksum


def test_counters_count_packets_and_bytes_and_add_up(switch: AnySwitch) -> None:
    for waiting in (0, S, L):
        for ecn in Ecn:
            outcome(switch, ipv4(PORT, ecn=ecn, size_bytes=500 + ecn), 5, waiting)
    counters = switch.control.counters()[PORT, 5]
    assert counters.arrived == Count(12, 3 * 2000 + 3 * (0 + 1 + 2 + 3))
    assert [getattr(counters, name).packets for name in COUNTERS] == [4, 3, 1, 4]


def test_other_queues_and_ports_do_not_matter(switch: AnySwitch) -> None:
    for port, queue in product((1, 2, 3, 4), SELECTIVE_QUEUES):
        if (port, queue) != (PORT, 5):
            switch.set_waiting(port, queue, L)
    assert outcome(switch, ipv4(PORT), 5, S - 1)[0] == [FORWARDED]


def test_byte_counts_may_wrap(switch: AnySwitch) -> None:
    for waiting, fate in ((S - 1, FORWARDED), (S, UNIMPORTANT), (L, AT_LIMIT)):
        switch.set_waiting(PORT, 5, waiting, admitted=waiting // 2)
        before = switch.counts(PORT, 5)[fate]
        switch.exchange(ipv4(PORT))
        assert switch.counts(PORT, 5)[fate] == before + 1


def test_thresholds_change_at_run_time_and_nothing_else(switch: AnySwitch) -> None:
    def change(threshold: int, limit: int) -> None:
        switch.control.write([selective_line("table_modify_match", PORT, 5, threshold, limit)])

    assert outcome(switch, ipv4(PORT), 5, S)[0] == [UNIMPORTANT]
    change(S + 1, L)
    assert outcome(switch, ipv4(PORT), 5, S)[0] == [FORWARDED]
    change(0, L)
    assert outcome(switch, ipv4(PORT), 5, 0)[0] == [UNIMPORTANT]
    change(0, 0)
    assert outcome(switch, ipv4(PORT, ecn=Ecn.CE), 5, 0)[0] == [AT_LIMIT]
    switch.control.write([f"table_modify_match queues set_limit {PORT} 5 => {L} 0 {FRAME_BYTES}"])
    assert outcome(switch, ipv4(PORT), 5, L - 1)[0] == [FORWARDED]
    assert sum(switch.counts(PORT, 5)[name] for name in COUNTERS) == 5
    switch.control.write([f"table_delete_match queues {PORT} 5"])
    assert switch.exchange(ipv4(PORT)) == []
    assert switch.refused() == {"no_queue": 1}


def test_a_change_while_packets_wait_counts_them(switch: AnySwitch) -> None:
    """They wait through the change; the new threshold is compared with all of them."""
    patiently(lambda: _change_while_held(switch))


def _change_while_held(switch: AnySwitch) -> None:
    before = switch.counts(PORT, 5)
    with switch.held([(PORT, 5)]) as hold:
        switch.set_waiting(PORT, 5, 0)
        for number in range(10):
            switch.ends[1].send(ipv4(PORT, size_bytes=200, number=number))
        hold.settle()
        switch.control.write([selective_line("table_modify_match", PORT, 5, 2001)])
        for number in (10, 11):
            switch.ends[1].send(ipv4(PORT, size_bytes=200, number=number))
        hold.settle()
        came = hold.release()
    after = switch.counts(PORT, 5)
    assert len(came) == 11
    assert after[UNIMPORTANT] - before[UNIMPORTANT] == 1
    switch.control.write([selective_line("table_modify_match", PORT, 5)])


def test_the_policer_drops_what_exceeds_it_and_only_in_its_queue(switch: AnySwitch) -> None:
    switch.control.write([f"meter_set_rates policers {place(PORT, POLICED_QUEUE)} 0:1000 0:1000"])
    frames = [ipv4(PORT, queue=POLICED_QUEUE, size_bytes=300, number=number) for number in range(5)]
    assert len(switch.exchange_all(frames)) == 3
    assert switch.counts(PORT, POLICED_QUEUE) == {
        "arrived": 5,
        FORWARDED: 3,
        MARKED: 0,
        UNIMPORTANT: 0,
        AT_LIMIT: 2,
    }
    # What is left of the bucket, to the byte.
    assert len(switch.exchange(ipv4(PORT, queue=POLICED_QUEUE, size_bytes=101))) == 0
    assert len(switch.exchange(ipv4(PORT, queue=POLICED_QUEUE, size_bytes=100))) == 1
    assert len(switch.exchange(ipv4(3, queue=POLICED_QUEUE))) == 1


def test_what_the_full_queue_drops_takes_nothing_from_the_policer(switch: AnySwitch) -> None:
    switch.control.write([f"meter_set_rates policers {place(PORT, POLICED_QUEUE)} 0:1000 0:1000"])
    frames = [ipv4(PORT, queue=POLICED_QUEUE, size_bytes=300, number=number) for number in range(3)]
    switch.set_waiting(PORT, POLICED_QUEUE, L)
    assert switch.exchange_all(frames) == []
    switch.set_waiting(PORT, POLICED_QUEUE, 0)
    assert len(switch.exchange_all(frames)) == 3


def test_a_policer_that_is_set_does_not_touch_queues_without_one(switch: AnySwitch) -> None:
    switch.control.write([f"meter_set_rates policers {place(PORT, CONTROL_QUEUE)} 0:0 0:0"])
    assert len(switch.exchange(ipv4(PORT, queue=CONTROL_QUEUE))) == 1


CASES = [
    (waiting, ecn, packet)
    for waiting in (S // 2, S - 1, S, S + 1, L - 1, L, L + 1)
    for ecn in Ecn
    for packet in (ipv4, ipv6)
]
PLACES = [(port, queue) for port in (2, 3, 4) for queue in SELECTIVE_QUEUES]


@pytest.mark.parametrize(
    "cases",
    [CASES[first : first + len(PLACES)] for first in range(0, len(CASES), len(PLACES))],
    ids=lambda cases: str(cases[0][0]),
)
def test_queues_that_are_filled_decide_by_what_really_waits(
    switch: AnySwitch, cases: Sequence[tuple[int, Ecn, Callable[..., bytes]]]
) -> None:
    """One case a queue, and no register is written: each length is what was sent and has not left."""
    patiently(lambda: _decide_in_filled_queues(switch, cases))


def _decide_in_filled_queues(
    switch: AnySwitch, cases: Sequence[tuple[int, Ecn, Callable[..., bytes]]]
) -> None:
    by_place = dict(zip(PLACES, cases, strict=False))
    fillers = {
        where: [
            ipv4(where[0], queue=where[1], ecn=Ecn.ECT_0, size_bytes=size_bytes)
            for size_bytes in _sizes(waiting - len(plug(*where, 1)))
        ]
        for where, (waiting, _, _) in by_place.items()
    }
    probes = [packet(port, queue=queue, ecn=ecn) for (port, queue), (_, ecn, packet) in by_place.items()]
    with switch.held(list(by_place)) as hold:
        for frames in fillers.values():
            for frame in frames:
                switch.ends[1].send(frame)
        hold.settle()
        before = switch.control.counters()
        for frame in probes:
            switch.ends[1].send(frame)
        hold.settle()
        after = switch.control.counters()
        hold.settle()
        hold.release()
    for where, (waiting, ecn, _) in by_place.items():
        fates = {
            name: getattr(after[where], name).packets - getattr(before[where], name).packets
            for name in COUNTERS
        }
        index = 0 if waiting < S else 1 if waiting < L else 2
        fate = (FORWARDED, MARKED if ecn.is_capable else UNIMPORTANT, AT_LIMIT)[index]
        assert fates == dict.fromkeys(COUNTERS, 0) | {fate: 1}, (where, waiting, ecn)


def _sizes(size_bytes: int) -> list[int]:
    """Of frames that together have so many bytes, none too short for a number."""
    number = -(-size_bytes // 1400)
    return [size_bytes // number + (index < size_bytes % number) for index in range(number)]


@pytest.mark.parametrize("size_bytes", [64, 333, 1500])
def test_the_limit_is_overshot_by_less_than_a_packet(switch: AnySwitch, size_bytes: int) -> None:
    """Nothing leaves, so the length of the queue is what was admitted."""
    unimportant, important = patiently(lambda: _fill_up(switch, size_bytes))
    assert S <= unimportant < S + size_bytes
    assert L <= important < L + size_bytes


def _fill_up(switch: AnySwitch, size_bytes: int) -> tuple[int, int]:
    """Waiting bytes after many packets of Not-ECT, and after many of ECT(0) behind them."""
    waiting = []
    with switch.held([(PORT, 5)]) as hold:
        switch.set_waiting(PORT, 5, 0)
        for ecn in (Ecn.NOT_ECT, Ecn.ECT_0):
            for number in range(L // size_bytes + 2):
                switch.ends[1].send(ipv4(PORT, ecn=ecn, size_bytes=size_bytes, number=number))
            hold.settle()
            waiting.append(switch.waiting(PORT, 5))
        hold.settle()
        came = hold.release()
    assert len(came) * size_bytes == waiting[1]
    assert switch.waiting(PORT, 5) == 0
    return waiting[0], waiting[1]
