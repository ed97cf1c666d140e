"""What the kernel has not taken yet: whose room it waits for, and whose memory it is."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import cast

import numpy as np
import pytest

from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.links import BATCH_PACKETS, BATCHES, TURN_BYTES, TURN_PACKETS, Link
from mltswitch.hostagent.network.outgoing import Output, Refusal, SendCounters
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import AgentHeader, AgentKind
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk

NO_CHANNEL = cast("ControlChannel", None)


class TwoSockets:
    """Data goes by one socket, small datagrams by another; each takes nothing while it is full."""

    counters = SendCounters()

    def __init__(self) -> None:
        self.data, self.small = socket.socketpair()
        self.full: set[socket.socket] = set()
        self.blocked_socket: socket.socket | None = None

    def send(self, bursts: Bursts) -> int:
        return self._taken(self.data, bursts.packet_count)

    def send_datagrams(self, datagrams: Sequence[Datagram]) -> int:
        return self._taken(self.small, len(datagrams))

    def refusals(self) -> tuple[Refusal, ...]:
        return ()

    def _taken(self, used: socket.socket, count: int) -> int:
        self.blocked_socket = used if used in self.full else None
        return 0 if used in self.full else count


class Wire(TwoSockets):
    """The same, and tells in which order things leave."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[str | AgentKind] = []

    def send(self, bursts: Bursts) -> int:
        taken = super().send(bursts)
        self.left += ["data"] * (taken > 0)
        return taken

    def send_datagrams(self, datagrams: Sequence[Datagram]) -> int:
        taken = super().send_datagrams(datagrams)
        self.left += [AgentKind(AgentHeader.decode(entry.payload).kind) for entry in datagrams[:taken]]
        return taken


def sending() -> Link:
    """A link whose connection has packets to send."""
    sender, receiver = connection(1), connection(2)
    sender.send(outgoing(5, 3), 1)
    receiver.receive(incoming(5, 3), 1)
    talk(sender, receiver)
    return Link(NO_CHANNEL, "host2", sender)


def test_nothing_of_a_tensor_leaves_after_its_end() -> None:
    link = sending()
    assert link.connection is not None
    link.rest = link.connection.bursts(1, 10)
    assert link.rest is not None
    for other in (TransferKey(5, 2), TransferKey(4, 3)):
        link.forget(other)
        assert link.rest is not None
    link.forget(TransferKey(5, 3))
    assert link.rest is None


def test_markers_follow_the_data_that_they_end() -> None:
    link, output = sending(), Wire()
    link.sender = cast("Output", output)
    output.full = {output.data}
    assert not link.send_data(lambda: 1)
    assert link.rest is not None
    assert not output.left, "a marker has overtaken its data"
    output.full = {output.small}
    link.send_data(lambda: 1)
    assert output.left == ["data"]
    output.full = set()
    link.send_small(1)
    assert output.left == ["data", AgentKind.PROBE]


def test_others_get_their_turn_although_there_is_more_to_send() -> None:
    sender, receiver = connection(1), connection(2)
    for tensor in range(100):  # of one packet each, and an offer never has more than one tensor's
        sender.send(outgoing(tensor, 3), 1)
        receiver.receive(incoming(tensor, 3), 1)
    talk(sender, receiver)
    link, output = Link(NO_CHANNEL, "host2", sender), TwoSockets()
    link.sender = cast("Output", output)
    times_ns = count(1, 10**6)
    turns = 1
    while link.send_data(lambda: next(times_ns)):
        turns += 1
    assert turns == 1 + 100 // BATCHES
    assert sender.traffic().sent.packets == 100


class Endless:
    """A connection that always has this to send."""

    def __init__(self, bursts: Bursts) -> None:
        self.asked = 0
        self._bursts = bursts

    def bursts(self, now_ns: int, maximum_packets: int) -> Bursts:
        self.asked += 1
        return self._bursts

    def markers_to_send(self, now_ns: int) -> list[Datagram]:
        return []


def one_packet() -> Bursts:
    connection_with_some = sending().connection
    assert connection_with_some is not None
    bursts = connection_with_some.bursts(1, 1)
    assert bursts is not None
    return bursts


def times_asked(bursts: Bursts) -> int:
    """In one turn, by a link whose connection always has these."""
    endless = Endless(bursts)
    link = Link(NO_CHANNEL, "host2", cast("Connection", endless))
    link.sender = cast("Output", TwoSockets())
    assert link.send_data(lambda: 1)
    return endless.asked


def test_an_offer_is_a_chunk() -> None:
    assert ConnectionSettings().chunk_packets == BATCH_PACKETS


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
def test_a_turn_ends_with_so_many_packets(share: float) -> None:
    one = one_packet()
    found = times_asked(replace(one, headers=np.repeat(one.headers, round(TURN_PACKETS * share))))
    assert found == min(round(1 / share), BATCHES)


@pytest.mark.parametrize(("share", "times"), [(1.0, 1), (0.5, 2), (0.01, BATCHES)])
def test_a_turn_ends_with_so_many_bytes_too(share: float, times: int) -> None:
    found = times_asked(replace(one_packet(), payload_bytes=np.array([round(TURN_BYTES * share)])))
    assert found == times


def test_each_backlog_waits_for_its_own_socket() -> None:
    link, output = sending(), TwoSockets()
    link.sender = cast("Output", output)
    output.full = {output.data, output.small}
    link.late.append(Datagram(b"x", 0, 0))
    link.send_small(1)
    assert not link.send_data(lambda: 1)
    assert set(link.blocked_sockets) == {output.data, output.small}
    output.full = {output.small}
    link.send_data(lambda: 1)
    link.send_small(1)
    assert link.blocked_sockets == [output.small]
    link.is_awake, link.due_ns = False, None
    output.full = set()
    link.channel = cast("ControlChannel", output.data)  # a descriptor is all that it needs
    link.wake_if_due({output.small.fileno()}, 2)
    assert link.is_awake
    link.send_small(2)
    assert not link.blocked_sockets
