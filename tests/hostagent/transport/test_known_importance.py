"""How many packets were important: told where it is exactly known, at both ends."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import Bursts, DatagramGrid
from mltswitch.hostagent.transport.interfaces import Direction, TransferDone, TransferKey, TransferStatistics
from mltswitch.hostagent.transport.settings import ConnectionSettings
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk, tensor

PACKETS = 40
PACKET_ELEMENTS = 358
IMPORTANT = 14
CHUNK_PACKETS = 16
"""Prepared, and tagged, at once."""


class EveryThird:
    """0, 3, 6 …"""

    def mark(self, tensor: TensorView, layout: PacketLayout) -> "EveryThird":
        return self

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        return np.equal(np.arange(first, last) % 3, 0)


def begun(loss_bound: float = 0.0) -> tuple[Connection, Connection]:
    """A sender whose tensor may leave."""
    chunks = ConnectionSettings(chunk_packets=CHUNK_PACKETS, least_chunk_packets=CHUNK_PACKETS)
    sender, receiver = connection(1, chunks), connection(2)
    talk(sender, receiver)
    elements = tensor(PACKETS * PACKET_ELEMENTS)
    receiver.receive(replace(incoming(5), tensor=elements, loss_bound=loss_bound), 1)
    sender.send(outgoing(5, tensor=elements, policy=EveryThird()), 1)
    talk(sender, receiver)
    return sender, receiver


def hear(receiver: Connection, bursts: Bursts, chosen: Sequence[int], *, together: bool) -> None:
    """Hand over these packets, one by one or all at once."""
    grids = []
    for packet in chosen:
        memory = np.frombuffer(bursts.datagram(packet), np.uint8)
        tos = bursts.tos[packet : packet + 1]  # bursts of one packet
        grids.append(DatagramGrid(memory, 0, 1, memory.size, 1, memory.size, tos))
    for each in [grids] if together else [[grid] for grid in grids]:
        receiver.datagrams_received(each, 1)


def statistics(end: Connection) -> TransferStatistics:
    (done,) = [event for event in end.events() if isinstance(event, TransferDone)]
    assert done.statistics is not None
    return done.statistics


def everything(sender: Connection, receiver: Connection, *, together: bool) -> None:
    """All packets leave and arrive; the sender's probe does not."""
    left = 0
    while left < PACKETS:
        bursts = sender.bursts(1, 100)
        assert bursts is not None
        left += bursts.packet_count
        hear(receiver, bursts, range(bursts.packet_count), together=together)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_receiver_that_has_all_knows_it(
    monkeypatch: pytest.MonkeyPatch, together: bool, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "LIBRARY", None)
    sender, receiver = begun()
    everything(sender, receiver, together=together)
    found = statistics(receiver)
    assert found.probes == 0
    assert found.important_packets == found.important_received == IMPORTANT
    assert found.important_missing_share == 0


def test_a_sender_that_has_tagged_all_knows_it_without_a_probe() -> None:
    sender, receiver = begun(loss_bound=0.25)
    left = 0
    while left < 2 * CHUNK_PACKETS:
        bursts = sender.bursts(1, 100)
        assert bursts is not None
        left += bursts.packet_count
        hear(receiver, bursts, range(bursts.packet_count), together=True)
    assert left == 2 * CHUNK_PACKETS, "30 of 40 are enough"
    last = sender.bursts(1, 1)
    assert last is not None
    assert last.packet_count == 1
    sender.control_received(receiver.control_to_send(), 1)
    here, there = statistics(sender), statistics(receiver)
    assert here.probes == 0
    assert here.important_packets == IMPORTANT
    assert here.important_received == there.important_received
    assert there.important_packets is None, "nobody has told it"


def test_before_that_nobody_knows() -> None:
    sender, _ = begun()
    bursts = sender.bursts(1, CHUNK_PACKETS)
    assert bursts is not None
    sender.cancel(TransferKey(5, 1), Direction.SEND, "no more", 1)
    assert statistics(sender).important_packets is None


def test_an_incomplete_receiver_that_was_asked_knows_what_the_probe_said() -> None:
    sender, receiver = begun(loss_bound=0.25)
    left = 0
    while left < PACKETS:
        bursts = sender.bursts(1, 100)
        assert bursts is not None
        left += bursts.packet_count
    receiver.control_received(sender.control_to_send(), 1)
    receiver.timer(10**9)
    talk(sender, receiver, 10**9)
    receiver.cancel(TransferKey(5, 1), Direction.RECEIVE, "no more", 1)
    assert statistics(receiver).important_packets == IMPORTANT
