"""Repairs at once, in virtual time: order of packets, what counts as lost, what a peer may say."""

import itertools
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest

from mltswitch.hostagent.dataplane.binding import DataPlane, Fields, lib
from mltswitch.wire.headers import AGENT_VERSION, AgentFlag, AgentKind, ControlMessage
from tests.hostagent.dataplane.ends import MILLISECOND, SECOND, Carry, Ends, bits, gradients

COUNT = 40_000
PACKETS = 112
FOREVER = 1 << 30
MTU_1500, SMALL = 1472, 296
SLOW = Fields(kind=lib.MLT_BBR, cap_bps=20e6)
"""The packets of a tensor leave in 70 ms."""


class Packet(NamedTuple):
    tensor: int
    sequence: int
    flags: int
    path: int


def ends(*, rate: Fields | None = None, delay_ns: int = 500_000, **options: Any) -> Ends:
    fast = Fields(kind=lib.MLT_BBR, cap_bps=1e9)
    found = Ends(**{"repair": lib.MLT_AT_ONCE} | options, rate=rate or fast)
    found.delay_ns = delay_ns
    return found


def packet_of(datagram: bytes) -> Packet:
    tensor, _, _, path, sequence = struct.unpack_from(">IIHHI", datagram, 12)
    return Packet(tensor, sequence, datagram[2], path)


def bursts_of(found: Ends) -> list[list[Packet]]:
    """Data, as it left."""
    return [
        [packet_of(sent[at:]) for at in range(0, len(sent), output.segment_bytes)]
        for end, output, sent in found.outputs
        if end == 0 and sent[1] == AgentKind.DATA
    ]


def packets_of(found: Ends) -> list[Packet]:
    return [packet for burst in bursts_of(found) for packet in burst]


def losing(sequences: Iterable[int], times: int = 1) -> Carry:
    """The first so many times that each of these packets is sent."""
    left = Counter(dict.fromkeys(sequences, times))

    def carry(end: int, _: Any, datagram: bytes) -> bool:
        if end or datagram[1] != AgentKind.DATA:
            return True
        left[packet_of(datagram).sequence] -= 1
        return left[packet_of(datagram).sequence] < 0

    return carry


def losing_departures(numbers: range) -> Carry:
    """Data packets, counted as they leave."""
    count = itertools.count()
    return lambda end, _, datagram: bool(end or datagram[1] != AgentKind.DATA or next(count) not in numbers)


def exchange(two: Ends, count: int = COUNT, policy: Fields | None = None, **options: Any) -> tuple[Any, Any]:
    """Results of one tensor; what arrived is as it was sent, and what is missing is 0."""
    data, memory = gradients(count), np.full(count, 7, np.float32)
    numbers = two.post(data, memory, policy=policy, **options)
    here, there = two.both(*numbers)
    if there.status == lib.MLT_OK:
        per_packet = there.elements_per_packet
        arrived = np.repeat(bits(DataPlane.arrived(there), there.packets), per_packet)[:count]
        assert np.array_equal(memory, np.where(arrived, data, 0))
    return here, there


# Queues


@pytest.mark.parametrize("critical", [{0, 111}, {3, 50, 77}])
def test_critical_packets_of_all_tensors_leave_first_and_each_once(critical: set[int]) -> None:
    two = ends()
    marks = bytes(np.packbits([number in critical for number in range(PACKETS)], bitorder="little"))
    options: dict[str, Any] = {"importance": lib.MLT_EDGES}
    if critical != {0, 111}:
        options = {"importance": lib.MLT_BY_BITMAP, "important": marks}
    pairs = [
        two.post(gradients(COUNT), np.zeros(COUNT, np.float32), tensor=tensor, priority=-tensor, **options)
        for tensor in (1, 2)
    ]
    results = [two.both(*pair) for pair in pairs]
    packets, first = packets_of(two), 2 * len(critical)
    assert len(packets) == len({packet[:2] for packet in packets}) == 2 * PACKETS  # nothing was lost
    assert Counter(packets[at].sequence for at in range(first)) == dict.fromkeys(critical, 2)
    assert [bool(packet.flags & AgentFlag.IMPORTANT) for packet in packets] == [
        at < first for at in range(2 * PACKETS)
    ]
    normal = PACKETS - len(critical)
    assert [packet.tensor for packet in packets[first:]] == [2] * normal + [1] * normal  # the lesser priority
    assert [there.important_packets for _, there in results] == [len(critical)] * 2  # by REGISTER


def test_no_normal_packet_is_repaired_before_all_have_left_but_a_critical_one_overtakes() -> None:
    two = ends(rate=SLOW)
    dropped = {0, *range(10, 40, 3)}
    two.carry = losing(dropped)
    here, there = exchange(two, importance=lib.MLT_EDGES, burst_packets=4)
    assert (here.resent_packets, here.needless_packets, there.duplicate_packets) == (11, 0, 0)
    packets = packets_of(two)
    again = [at for at, packet in enumerate(packets) if packet.flags & AgentFlag.RETRANSMISSION]
    assert {packets[at].sequence for at in again} == dropped
    assert (packets[again[0]].sequence, packets[again[0]].flags & AgentFlag.IMPORTANT) == (
        0,
        AgentFlag.IMPORTANT,
    )
    assert again[0] < PACKETS // 2
    assert again[1:] == list(range(PACKETS + 1, PACKETS + 11))


@pytest.mark.parametrize("is_front", [False, True])
def test_repairs_wait_for_new_packets_of_their_tensor_and_of_front_layers_alone(is_front: bool) -> None:
    """Who sends tensor after tensor always has new packets; one that is posted before the loss is known
    overtakes its repair where it is of a layer further in front."""
    two = ends(rate=SLOW)
    two.carry = losing_departures(range(PACKETS - 8, PACKETS - 7))
    options: dict[str, Any] = {"importance": lib.MLT_NONE_IMPORTANT, "burst_packets": 1}
    memory = np.zeros(COUNT, np.float32)
    first = two.post(gradients(COUNT), memory, tensor=1, priority=int(is_front), **options)
    two.run(lambda: len(packets_of(two)) >= PACKETS)
    second = two.post(gradients(COUNT), memory.copy(), tensor=2, priority=0, **options)
    for pair in (first, second):
        two.both(*pair)
    packets = packets_of(two)
    [again] = [at for at, packet in enumerate(packets) if packet.flags & AgentFlag.RETRANSMISSION]
    assert packets[again].tensor == 1
    assert again == 2 * PACKETS if is_front else PACKETS <= again < PACKETS + PACKETS // 2


@pytest.mark.parametrize(("datagram_bytes", "packets"), [(SMALL, 20), (MTU_1500, 20), (9000, 3)])
def test_no_burst_is_longer_than_the_paper_allows(datagram_bytes: int, packets: int) -> None:
    two = ends(datagram_bytes=datagram_bytes)
    exchange(two, 200_000, importance=lib.MLT_NONE_IMPORTANT)
    assert max(len(burst) for burst in bursts_of(two)) == packets
    assert all(len(sent) <= 30_000 for _, _, sent in two.outputs)


# Losses


def header(two: Ends, kind: AgentKind, path: int = 0) -> bytes:
    """Of a datagram to end 0 that nobody has sent."""
    fields = (AGENT_VERSION, kind, 0, 0, two.tokens[0], 1, 0, 0, path, 1, 0, two.now_ns + SECOND)
    return struct.pack(">BBBBQIIHHIIQ", *fields)


def selective(two: Ends, *pieces: tuple[int, int, Iterable[int]], path: int = 0, more: bytes = b"") -> None:
    """End 0 hears an acknowledgement: tensors, numbers of pieces, and bits in them."""
    fields = (
        AGENT_VERSION,
        AgentKind.SELECTIVE,
        0,
        0,
        two.tokens[0],
        0,
        0,
        0,
        path,
        0,
        0,
        two.now_ns + SECOND,
    )
    datagram = struct.pack(">BBBBQIIHHIIQ", *fields) + bytes(20)
    for tensor, number, named in pieces:
        marks = sum(1 << bit for bit in named).to_bytes(16, "little")
        datagram += struct.pack(">III16s", tensor, 0, number, marks)
    two.planes[0].feed(datagram + more, two.now_ns)
    two.run(lambda: True)


def sent_into_silence(paths: int, packets: int, **options: Any) -> tuple[Ends, int]:
    """Small packets have left, each path's in bursts of four; no data and no acknowledgement arrives."""
    two = ends(datagram_bytes=SMALL, paths=paths)
    two.carry = lambda _, __, datagram: datagram[1] == AgentKind.CONTROL
    data = gradients(64 * packets)
    sent, _ = two.post(data, np.zeros_like(data), importance=lib.MLT_NONE_IMPORTANT, **options)
    two.run(lambda: len(packets_of(two)) >= min(packets, 16))
    return two, sent


@pytest.mark.parametrize(
    ("paths", "named", "lost"),
    [
        (1, {1: 3}, {0}),
        (1, {1: 2}, set()),
        (1, {1: 2, 3: 1}, {0}),
        (1, {2: 3}, {0, 1}),
        (1, {0: 3}, set()),  # of the burst itself
        (2, {1: 4, 3: 4}, set()),  # of the other path: bursts take them in turn
        (2, {2: 3}, {0}),
        (2, {2: 2, 3: 3}, {1}),
    ],
)
def test_three_packets_of_a_later_burst_on_the_same_path_prove_a_loss(
    paths: int, named: dict[int, int], lost: set[int]
) -> None:
    two, sent = sent_into_silence(paths, 16, burst_packets=4)
    bursts = bursts_of(two)
    assert [burst[0].path for burst in bursts] == [at % paths for at in range(4)]
    marks = [packet.sequence for at, count in named.items() for packet in bursts[at][:count]]
    selective(two, (1, 0, marks))
    again = packets_of(two)[16:]
    expected = {packet.sequence for at in lost for packet in bursts[at]} - set(marks)
    assert sorted(packet.sequence for packet in again) == sorted(expected)
    assert all(packet.flags & AgentFlag.RETRANSMISSION for packet in again)
    assert two.planes[0].result(sent).arrived_packets == len(marks)
    assert two.planes[0].flow_statistics(two.tokens[0]).refused == 0


def test_the_tail_is_repaired_by_time_and_not_at_the_deadline() -> None:
    two = ends()
    two.carry = losing_departures(range(PACKETS - 5, PACKETS))
    here, there = exchange(two, burst_packets=1)
    assert here.resent_packets == 5
    assert there.ended_ns - there.posted_ns < 15 * MILLISECOND


@pytest.mark.parametrize("acknowledgements", [1, 2])
def test_any_acknowledgements_that_are_lost_cost_nothing(acknowledgements: int) -> None:
    """One, or two in a row, wherever they are."""
    seen, kept = FOREVER, 0

    def carry(end: int, _: Any, datagram: bytes) -> bool:
        nonlocal seen
        is_one = end == 1 and datagram[1] == AgentKind.SELECTIVE
        seen += is_one
        return not (is_one and kept < seen <= kept + acknowledgements)

    while kept < seen:
        two, seen = ends(), 0
        two.carry = carry
        here, there = exchange(two, 4 * COUNT, burst_packets=4)
        assert (here.resent_packets, there.duplicate_packets) == (0, 0), kept
        kept += 1
    assert kept > 10


def test_hundreds_of_bursts_on_their_way_are_told_apart() -> None:
    two = ends(delay_ns=50 * MILLISECOND)
    two.carry = losing(range(3, 1000, 50))
    here, there = exchange(two, 9 * COUNT, burst_packets=1, importance=lib.MLT_NONE_IMPORTANT)
    assert (here.resent_packets, here.needless_packets, there.duplicate_packets) == (20, 0, 0)


def test_packets_that_are_only_late_make_a_flow_patient() -> None:
    two = ends(rate=Fields(kind=lib.MLT_BBR, cap_bps=100e6))

    def carry(end: int, _: Any, datagram: bytes) -> bool:
        is_late = end == 0 and datagram[1] == AgentKind.DATA and packet_of(datagram).sequence % 9 == 4
        two.delay_ns = 1_200_000 if is_late else 500_000
        return True

    two.carry = carry
    needless = [exchange(two, round_=number, burst_packets=1)[0].needless_packets for number in range(8)]
    assert needless[0] > 0
    assert sum(needless[4:]) < sum(needless[:4])
    assert two.planes[0].flow_statistics(two.tokens[0]).needless_packets == sum(needless)


@pytest.mark.parametrize("keys", [False, True])
def test_one_path_that_loses_everything_and_order_that_means_nothing(keys: bool) -> None:
    two = ends(paths=4, keys=keys)
    random = np.random.default_rng(1)

    def carry(end: int, output: Any, _: bytes) -> bool:
        two.delay_ns = int(random.integers(100_000, 20 * MILLISECOND))  # a tensor leaves in 2
        return bool(output.path != 1)

    two.carry = carry
    for number in range(3):
        here, there = exchange(two, round_=number, importance=lib.MLT_EDGES, burst_packets=2)
        assert (here.status, there.ending) == (lib.MLT_OK, lib.MLT_COMPLETE)
        assert here.by_path[1] == 0 or number < 2  # it is found to be dead


# What a peer may say


@pytest.mark.parametrize(
    ("pieces", "more", "refused"),
    [
        ([(1, 0, {127})], b"", 1),  # 112 packets
        ([(1, 1, {0})], b"", 1),
        ([(1, 1 << 25, {0})], b"", 1),
        ([], bytes(27), 1),
        ([(2, 0, {0})], b"", 0),  # a transfer that may be over
    ],
)
def test_packets_that_there_are_not_are_named_in_vain(pieces: Any, more: bytes, refused: int) -> None:
    two, sent = sent_into_silence(1, PACKETS)
    before = len(packets_of(two))
    selective(two, *pieces, more=more)
    assert two.planes[0].flow_statistics(two.tokens[0]).refused == refused
    assert two.planes[0].result(sent).arrived_packets == 0
    assert len(packets_of(two)) == before


@pytest.mark.parametrize("wrong", [PACKETS, 127])
def test_what_comes_with_a_name_that_cannot_be_changes_nothing(wrong: int) -> None:
    two, sent = sent_into_silence(1, PACKETS)
    selective(two, (1, 0, {packets_of(two)[0].sequence, wrong}))
    assert two.planes[0].flow_statistics(two.tokens[0]).refused == 1
    assert two.planes[0].result(sent).arrived_packets == 0


def test_packets_that_were_never_sent_are_named_in_vain() -> None:
    two, sent = sent_into_silence(1, 1000)
    waiting = {at for at in range(128) if at not in {packet.sequence for packet in packets_of(two)}}
    assert waiting
    selective(two, (1, 0, waiting))
    assert two.planes[0].flow_statistics(two.tokens[0]).refused == 1
    assert two.planes[0].result(sent).arrived_packets == 0
    two.carry = lambda *_: True
    two.run(lambda: two.planes[0].wait(sent, 0) is not None)
    assert two.planes[0].result(sent).status == lib.MLT_OK


def test_an_acknowledgement_of_an_earlier_round_of_the_same_number_names_nothing() -> None:
    two = ends()
    kept: list[bytes] = []

    def keep(end: int, _: Any, datagram: bytes) -> bool:
        if end == 1 and datagram[1] == AgentKind.SELECTIVE:
            kept.append(datagram)
        return True

    two.carry = keep
    exchange(two)
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    two.carry = losing_departures(range(3))
    before = len(packets_of(two))
    sent, received = two.post(data, memory)
    two.run(lambda: len(packets_of(two)) > before)
    two.planes[0].feed(kept[-1], two.now_ns)
    here, there = two.both(sent, received)
    assert (here.status, there.status) == (lib.MLT_OK, lib.MLT_OK)
    assert np.array_equal(data, memory)
    assert here.resent_packets == 3


def message(kind: ControlMessage, *numbers: int, form: str) -> bytes:
    """Of tensor 1 in round 0."""
    body = struct.pack(f">II{form}", 1, 0, *numbers)
    return struct.pack(">BBH", kind, 0, len(body)) + body


HOUR_NS = 3600 * SECOND
NO_BITMAP = message(ControlMessage.BITMAP, 1, 0, 0, form="IIQ")
ASKS = message(ControlMessage.STATUS_REQUEST, 1, 2, 1, form="IIQ")


def register(important: int, *network: int) -> bytes:
    return message(ControlMessage.REGISTER, important, *network, form="I" + "Q" * len(network))


@pytest.mark.parametrize(
    ("repair", "end", "added", "is_right"),
    [
        (lib.MLT_AT_ONCE, 0, register(2), True),
        (lib.MLT_AT_ONCE, 0, register(PACKETS, MILLISECOND, 10**9), True),
        (lib.MLT_AT_ONCE, 0, register(2, HOUR_NS, 1), True),
        (lib.MLT_AT_ONCE, 0, register(PACKETS + 1), False),
        (lib.MLT_AT_ONCE, 0, register(1), False),  # two have arrived
        (lib.MLT_AT_ONCE, 0, register(2, 0, 10**9), False),
        (lib.MLT_AT_ONCE, 0, register(2, MILLISECOND, 0), False),
        (lib.MLT_AT_ONCE, 0, register(2, HOUR_NS + 1, 10**9), False),
        (lib.MLT_AT_ONCE, 0, register(2, 1 << 63, 10**9), False),
        (lib.MLT_AT_ONCE, 0, register(2, MILLISECOND), False),  # half of it
        (lib.MLT_AT_ONCE, 0, ASKS, False),
        (lib.MLT_AT_ONCE, 1, NO_BITMAP, False),
        (lib.MLT_IN_PASSES, 0, register(2), False),
    ],
)
def test_messages_that_break_the_protocol_end_the_flow(
    repair: int, end: int, added: bytes, is_right: bool
) -> None:
    """One comes with what a peer first says of the tensor, when its critical packets are there."""
    two = ends(repair=repair, rate=SLOW)
    is_told, keep = False, losing({5}, FOREVER)

    def carry(sender: int, output: Any, datagram: bytes) -> bool:
        nonlocal is_told
        is_first = datagram[1] == AgentKind.CONTROL and packet_of(datagram).sequence == 1 and sender == end
        if is_first and not is_told:
            two.fly(3 * MILLISECOND, end, output, datagram + added)
            is_told = True
        return not is_first and (is_told or keep(sender, output, datagram))

    two.carry = carry
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    number = two.post(data, memory, importance=lib.MLT_EDGES)[1 - end]
    two.run(lambda: two.planes[1 - end].wait(number, 0) is not None)
    result, event = two.planes[1 - end].result(number), two.planes[1 - end].next_event()
    assert is_told
    if is_right:
        assert (result.status, event) == (lib.MLT_OK, None)
        assert np.array_equal(data, memory)
    else:
        assert (result.status, event.kind) == (lib.MLT_PROTOCOL, lib.MLT_EVENT_PROTOCOL)


@pytest.mark.parametrize(
    ("repair", "kind"), [(lib.MLT_IN_PASSES, AgentKind.SELECTIVE), (lib.MLT_AT_ONCE, AgentKind.PROBE)]
)
def test_datagrams_of_the_other_way_of_repair_are_refused(repair: int, kind: AgentKind) -> None:
    two = ends(repair=repair)
    exchange(two)
    datagram = header(two, kind) + bytes(20 if kind is AgentKind.SELECTIVE else 0)
    two.planes[0].feed(datagram, two.now_ns)
    two.run(lambda: True)
    assert two.planes[0].flow_statistics(two.tokens[0]).refused == 1
