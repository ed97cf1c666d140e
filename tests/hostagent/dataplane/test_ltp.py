"""Repairs at once, in virtual time: order of packets, losses, what acknowledgements may say, early ends."""

import struct
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.dataplane.binding import lib
from mltswitch.wire.headers import AgentFlag, AgentKind
from tests.hostagent.dataplane.ends import MILLISECOND, SECOND, Ends, gradients

COUNT = 40_000
"""112 packets."""


def ends(**options: Any) -> Ends:
    found = Ends(repair=lib.MLT_AT_ONCE, rate={"kind": lib.MLT_BBR, "cap_bps": 1e9}, **options)
    found.delay_ns = 500_000
    return found


def data_packets(found: Ends) -> list[tuple[int, int, int]]:
    """Tensor, sequence and flags, as they left."""
    packets = []
    for end, output, sent in found.outputs:
        for at in range(0, len(sent), output.segment_bytes):
            datagram = sent[at : at + output.segment_bytes]
            if end == 0 and datagram[1] == AgentKind.DATA:
                tensor, _, _, _, sequence = struct.unpack_from(">IIHHI", datagram, 12)
                packets.append((tensor, sequence, datagram[2]))
    return packets


def test_critical_packets_of_all_tensors_leave_first_and_each_once() -> None:
    two = ends()
    pairs = []
    for tensor in (1, 2):
        options = {"importance": lib.MLT_EDGES, "priority": -tensor}
        pairs.append(two.post(gradients(COUNT), np.zeros(COUNT, np.float32), tensor=tensor, **options))
    for sent, received in pairs:
        two.both(sent, received)
    packets = data_packets(two)
    assert len(packets) == len({packet[:2] for packet in packets})  # nothing was lost
    assert {flags & AgentFlag.IMPORTANT for _, _, flags in packets[:4]} == {AgentFlag.IMPORTANT}
    assert not any(flags & AgentFlag.IMPORTANT for _, _, flags in packets[4:])
    assert [tensor for tensor, _, _ in packets[4:]] == [2] * 110 + [1] * 110  # the lesser priority first


def test_no_normal_packet_is_repaired_before_all_have_left_and_bursts_are_short() -> None:
    two = ends()
    dropped = set(range(10, 40, 3))

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        sequence = struct.unpack_from(">I", datagram, 24)[0]
        is_first = datagram[1] == AgentKind.DATA and sequence in dropped
        dropped.discard(sequence if is_first else -1)
        return not is_first

    two.carry = carry
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    here, there = two.both(*two.post(data, memory, importance=lib.MLT_EDGES))
    assert np.array_equal(data, memory)
    assert (here.resent_packets, here.needless_packets, there.duplicate_packets) == (10, 0, 0)
    flags = [flags & AgentFlag.RETRANSMISSION for _, _, flags in data_packets(two)]
    assert flags == sorted(flags)
    assert all(len(sent) <= 30_000 for _, _, sent in two.outputs)


@pytest.mark.parametrize("acknowledgements", [1, 2])
def test_acknowledgements_that_are_lost_cost_nothing(acknowledgements: int) -> None:
    two = ends()
    left = [acknowledgements]

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        is_one = end == 1 and datagram[1] == AgentKind.SELECTIVE and left[0] > 0
        left[0] -= is_one
        return not is_one

    two.carry = carry
    here, there = two.both(*two.post(gradients(COUNT), np.zeros(COUNT, np.float32)))
    assert (here.resent_packets, there.duplicate_packets) == (0, 0)


def test_the_tail_is_repaired_by_time_and_not_at_the_deadline() -> None:
    two = ends()
    left = [5]

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        sequence = struct.unpack_from(">I", datagram, 24)[0]
        is_tail = datagram[1] == AgentKind.DATA and sequence >= 107 and left[0] > 0
        left[0] -= is_tail
        return not is_tail

    two.carry = carry
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    _, there = two.both(*two.post(data, memory, burst_packets=1))
    assert np.array_equal(data, memory)
    assert there.ended_ns - there.posted_ns < 50 * MILLISECOND


def test_an_acknowledgement_of_an_earlier_round_of_the_same_number_names_nothing() -> None:
    two = ends()
    kept: list[tuple[Any, bytes]] = []

    def keep(end: int, output: Any, datagram: bytes) -> bool:
        if end == 1 and datagram[1] == AgentKind.SELECTIVE:
            kept.append((output, datagram))
        return True

    two.carry = keep
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    two.both(*two.post(data, memory))
    old = kept[-1][1]
    memory[:] = 0
    is_sent, left = [False], [3]

    def drop(end: int, output: Any, datagram: bytes) -> bool:
        if end == 0 and datagram[1] == AgentKind.DATA:
            is_sent[0] = True
            if left[0]:
                left[0] -= 1
                return False
        return True

    two.carry = drop
    sent, received = two.post(data, memory)
    two.run(lambda: is_sent[0])
    two.planes[0].feed(old, two.now_ns)
    here, there = two.both(sent, received)
    assert (here.status, there.status) == (lib.MLT_OK, lib.MLT_OK)
    assert np.array_equal(data, memory)
    assert here.resent_packets == 3


def test_what_was_never_sent_is_named_in_vain() -> None:
    two = ends()
    forged = [False]

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        if end == 0 and datagram[1] == AgentKind.DATA and not forged[0]:
            forged[0] = True
            head = bytearray(datagram[:40])
            head[1:3] = bytes((AgentKind.SELECTIVE, 0))
            head[4:12] = two.tokens[0].to_bytes(8, "big")
            head[32:40] = (two.now_ns + SECOND).to_bytes(8, "big")
            pieces = struct.pack(">III16s", 1, 0, 0, bytes([255] * 16)) + struct.pack(
                ">III16s", 1, 0, 9, bytes(16)
            )
            two.planes[0].feed(bytes(head) + bytes(20) + pieces, two.now_ns)
        return True

    two.carry = carry
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    here, _ = two.both(*two.post(data, memory, burst_packets=1))
    assert np.array_equal(data, memory)
    assert here.status == lib.MLT_OK
    assert two.planes[0].flow_statistics(two.tokens[0]).refused >= 1


def gathered(lt_ns: int = 0, percentage: float = 0.8, **more: Any) -> dict[str, Any]:
    gather = {"number": 1, "percentage": percentage, "lt_ns": lt_ns, "slack_ns": 20 * MILLISECOND}
    return {"stop_rule": lib.MLT_GATHERED, "loss_bound": 0.3, "important_bound": 0, "gather": gather} | more


@pytest.mark.parametrize(
    ("lost", "ending", "least_ms", "most_ms"),
    [
        (0.1, lib.MLT_AT_PERCENTAGE, 40, 45),
        (0.25, lib.MLT_AT_DEADLINE, 60, 65),
        (0.0, lib.MLT_COMPLETE, 0, 39),
    ],
)
def test_a_link_closes_by_time_and_share(lost: float, ending: int, least_ms: int, most_ms: int) -> None:
    """Packets that never arrive: all is waited for until LT, 80 % from there, the bound from the deadline."""
    two = ends()
    gone = set(range(1, 1 + int(lost * 112)))
    two.carry = lambda _, __, datagram: (
        not (datagram[1] == AgentKind.DATA and struct.unpack_from(">I", datagram, 24)[0] in gone)
    )
    data, memory = gradients(COUNT), np.zeros(COUNT, np.float32)
    policy = gathered(40 * MILLISECOND)
    here, there = two.both(*two.post(data, memory, policy=policy, importance=lib.MLT_EDGES))
    assert (here.ending, there.ending) == (ending, ending)
    assert least_ms * MILLISECOND <= there.ended_ns - there.first_ns <= most_ms * MILLISECOND
    assert there.packets - there.arrived_packets == len(gone)
    rows = memory.reshape(-1)[358 : 358 * (1 + len(gone))]
    assert not rows.any()


def test_below_its_bound_a_receive_fails_and_critical_packets_hold_it_open() -> None:
    two = ends()
    gone = set(range(1, 60))
    two.carry = lambda _, __, datagram: (
        not (datagram[1] == AgentKind.DATA and struct.unpack_from(">I", datagram, 24)[0] in gone)
    )
    policy = gathered(MILLISECOND, hard_ns=200 * MILLISECOND)
    options = {"importance": lib.MLT_EDGES}
    _, there = two.both(*two.post(gradients(COUNT), np.zeros(COUNT, np.float32), policy=policy, **options))
    assert there.status == lib.MLT_DEADLINE
    gone.clear()
    gone.add(0)  # the first packet is critical
    _, there = two.both(
        *two.post(gradients(COUNT), np.zeros(COUNT, np.float32), policy=policy, round_=1, **options)
    )
    assert there.status == lib.MLT_DEADLINE
    assert there.arrived_packets == 111
