"""What completions say of how much has arrived, and that they say nothing of what never began."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import Bursts, DatagramGrid
from mltswitch.hostagent.transport.interfaces import Direction, TransferDone, TransferKey, TransferStatistics
from mltswitch.hostagent.transport.messages import Probe, encode_message
from mltswitch.hostagent.transport.settings import ConnectionSettings
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk, tensor

KEY = TransferKey(5, 1)
FULL_BYTES = 1432
LAST_BYTES = 32
ELEMENTS = (2 * FULL_BYTES + LAST_BYTES) // 4
"""Of three packets."""


def begun(chunk_packets: int = 16) -> tuple[Connection, Connection]:
    """One packet of three may be missing."""
    chunks = ConnectionSettings(chunk_packets=chunk_packets, least_chunk_packets=chunk_packets)
    sender, receiver = connection(1, chunks), connection(2)
    elements = tensor(ELEMENTS)
    receiver.receive(replace(incoming(KEY.tensor), tensor=elements, loss_bound=0.5), 1)
    sender.send(outgoing(KEY.tensor, tensor=elements), 1)
    talk(sender, receiver)
    return sender, receiver


def left(sender: Connection, packets: int, now_ns: int = 1) -> Bursts:
    bursts = sender.bursts(now_ns, packets)
    assert bursts is not None
    assert bursts.packet_count == packets
    return bursts


def hear(receiver: Connection, bursts: Bursts, chosen: Sequence[int], now_ns: int = 1) -> None:
    for packet in chosen:
        memory = np.frombuffer(bursts.datagram(packet), np.uint8)
        grid = DatagramGrid(memory, 0, 1, memory.size, 1, memory.size, bursts.tos[packet : packet + 1])
        receiver.datagrams_received([grid], now_ns)


def ended(end: Connection) -> TransferDone:
    (done,) = [event for event in end.events() if isinstance(event, TransferDone)]
    return done


def statistics(end: Connection) -> TransferStatistics:
    found = ended(end).statistics
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("arrives", "here_bytes", "there_bytes"),
    [
        # The sender is told that two are there, and not which.
        ([0, 1], FULL_BYTES + LAST_BYTES, 2 * FULL_BYTES),
        ([0, 2], FULL_BYTES + LAST_BYTES, FULL_BYTES + LAST_BYTES),
    ],
)
def test_bytes_and_not_packets_count(arrives: list[int], here_bytes: int, there_bytes: int) -> None:
    sender, receiver = begun()
    hear(receiver, left(sender, 3), arrives)
    talk(sender, receiver, 1001)
    here, there = statistics(sender), statistics(receiver)
    assert here.packets_received == there.packets_received == 2
    assert (here.bytes_received, there.bytes_received) == (here_bytes, there_bytes)
    assert here.goodput_bps == pytest.approx(here_bytes * 8 / here.seconds)


def test_a_last_packet_that_has_not_left_is_not_there() -> None:
    sender, receiver = begun(chunk_packets=2)
    hear(receiver, left(sender, 2), [0, 1])
    talk(sender, receiver)
    assert statistics(sender).bytes_received == statistics(receiver).bytes_received == 2 * FULL_BYTES


@pytest.mark.parametrize(
    ("first", "then", "expected_bytes"),
    [
        (2, [0], FULL_BYTES + LAST_BYTES),
        (0, [0, 1], 2 * FULL_BYTES + LAST_BYTES),
    ],
)
def test_what_the_sender_was_told_before_the_end_counts(
    first: int, then: list[int], expected_bytes: int
) -> None:
    """One packet arrives before the sender asks, others with the next pass."""
    sender, receiver = begun()
    hear(receiver, left(sender, 3), [first])
    talk(sender, receiver, 2)
    receiver.timer(10**9)
    talk(sender, receiver, 10**9)
    again = left(sender, 2, 10**9)
    memory = [np.frombuffer(again.datagram(packet), np.uint8) for packet in then]
    grids = [DatagramGrid(each, 0, 1, each.size, 1, each.size, again.tos[:1]) for each in memory]
    receiver.datagrams_received(grids, 10**9)
    talk(sender, receiver, 10**9)
    assert statistics(sender).bytes_received == statistics(receiver).bytes_received == expected_bytes


def test_a_sender_that_gives_up_tells_what_it_was_told() -> None:
    sender, receiver = begun()
    hear(receiver, left(sender, 3), [2])
    talk(sender, receiver, 2)
    receiver.timer(10**9)
    talk(sender, receiver, 10**9)
    sender.cancel(KEY, Direction.SEND, "no more", 10**9)
    found = statistics(sender)
    assert (found.packets_received, found.bytes_received) == (1, LAST_BYTES)


def never_begun(end: Connection) -> None:
    done = ended(end)
    assert (done.statistics, done.received, done.layout) == (None, None, None)


@pytest.mark.parametrize("is_greeted", [False, True])
@pytest.mark.parametrize("direction", list(Direction))
def test_a_transfer_that_the_other_end_never_posted_has_no_statistics(
    direction: Direction, is_greeted: bool
) -> None:
    end, peer = connection(1), connection(2)
    if is_greeted:
        talk(end, peer)
    if direction is Direction.SEND:
        end.send(outgoing(5, deadline_ns=1000), 1)
    else:
        end.receive(incoming(5, deadline_ns=1000), 1)
    if is_greeted:
        talk(end, peer)
    end.timer(1000)
    never_begun(end)


def test_ends_that_disagree_have_never_begun() -> None:
    sender, receiver = connection(1), connection(2)
    sender.send(outgoing(5, tensor=tensor(99)), 1)
    receiver.receive(incoming(5), 1)
    talk(sender, receiver)
    never_begun(sender)
    never_begun(receiver)


def test_whoever_was_asked_has_begun() -> None:
    """All packets were lost."""
    _, receiver = begun()
    receiver.control_received(encode_message(Probe(KEY, 1, 0)), 2)
    receiver.cancel(KEY, Direction.RECEIVE, "no more", 3)
    done = ended(receiver)
    assert done.statistics is not None
    assert (done.statistics.packets, done.statistics.bytes_received) == (3, 0)
    assert done.received is not None
    assert done.layout is not None
