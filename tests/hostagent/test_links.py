"""What the kernel has not taken yet: whose room it waits for, and whose memory it is."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.links import (
    BATCH_PACKETS,
    BATCHES,
    LONGEST_PAUSE_NS,
    SHORTEST_PAUSE_NS,
    TURN_BYTES,
    TURN_PACKETS,
    Link,
)
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


def packets_one_by_one(count: int) -> Bursts | None:
    """None: there is none."""
    one = one_packet()
    if not count:
        return None
    return replace(
        one,
        headers=np.repeat(one.headers, count),
        payload_offsets_bytes=np.repeat(one.payload_offsets_bytes, count),
        payload_bytes=np.repeat(one.payload_bytes, count),
        starts=np.arange(count + 1),
        paths=np.repeat(one.paths, count),
        tos=np.repeat(one.tos, count),
    )


class Once:
    """A connection that has this to send, and then nothing."""

    def __init__(self, bursts: Bursts | None) -> None:
        self._left = bursts

    def bursts(self, now_ns: int, maximum_packets: int) -> Bursts | None:
        found, self._left = self._left, None
        return found

    def markers_to_send(self, now_ns: int) -> list[Datagram]:
        return []

    def datagrams_to_send(self, now_ns: int) -> list[Datagram]:
        return []

    def next_timer_ns(self) -> None:
        return None


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


class Exhausted(TwoSockets):
    """Its sockets have room all the time; the device behind them takes one packet at each of these times."""

    def __init__(self, room_ns: list[int]) -> None:
        super().__init__()
        self.room_ns = room_ns
        self.now_ns = 0
        self.calls: list[int] = []
        """When it was asked."""
        self.left: list[int] = []
        """When a packet was taken."""

    def _taken(self, used: socket.socket, count: int) -> int:
        assert count
        self.calls.append(self.now_ns)
        taken = 0
        while taken < count and self.room_ns and self.room_ns[0] <= self.now_ns:
            self.room_ns.pop(0)
            self.left.append(self.now_ns)
            taken += 1
        self.blocked_socket = None
        return taken


class NoTimer:
    """A channel on which nothing is due."""

    def next_timer_ns(self) -> None:
        return None


@settings(max_examples=50)
@given(gaps_us=st.lists(st.integers(0, 60_000), min_size=1, max_size=30), late=st.integers(0, 5))
def test_where_no_socket_tells_of_room_it_is_tried_again_soon_but_not_all_the_time(
    gaps_us: list[int], late: int
) -> None:
    room_ns = (1000 * np.cumsum(gaps_us)).tolist()
    needed_ns = list(room_ns)
    late = min(late, len(room_ns))
    output = Exhausted(room_ns)
    link = Link(cast("ControlChannel", NoTimer()), "host2")
    link.sender = cast("Output", output)
    link.connection = cast("Connection", Once(packets_one_by_one(len(needed_ns) - late)))
    link.late = [Datagram(b"x", 0, 0)] * late
    while room_ns:
        link.send_small(output.now_ns)
        link.send_data(lambda: output.now_ns)
        assert not link.blocked_sockets
        link.rest_until_due()
        if room_ns:
            assert link.due_ns is not None
            assert link.due_ns > output.now_ns
            output.now_ns = link.due_ns
    assert link.rest is None
    assert not link.late
    assert link.pause.until_ns is None
    waited_ns = np.array(output.left) - np.array(needed_ns)
    # Packets leave in order, and each waits for a pause at the most.
    assert waited_ns.min() >= 0
    assert waited_ns.max() <= LONGEST_PAUSE_NS
    doublings = (LONGEST_PAUSE_NS // SHORTEST_PAUSE_NS).bit_length()
    most_calls = (output.now_ns // LONGEST_PAUSE_NS) + (doublings + 2) * (len(needed_ns) + 2)
    assert len(output.calls) <= most_calls


def test_nothing_is_tried_during_a_pause() -> None:
    link, output = sending(), Exhausted([10**9])
    link.sender = cast("Output", output)
    link.send_data(lambda: 0)
    link.late = [Datagram(b"x", 0, 0)]
    for now_ns in (1, SHORTEST_PAUSE_NS - 1):
        assert not link.send_data(partial(int, now_ns))
        link.send_small(now_ns)
    assert output.calls == [0]
    link.send_small(SHORTEST_PAUSE_NS)
    assert len(output.calls) == 2


@pytest.mark.parametrize("is_late", [True, False])
def test_pauses_begin_anew_when_something_has_left(is_late: bool) -> None:
    link, output = Link(NO_CHANNEL, "host2"), Exhausted([10**9] * 2)
    link.sender = cast("Output", output)
    link.connection = cast("Connection", Once(None if is_late else packets_one_by_one(3)))
    link.late = [Datagram(b"x", 0, 0)] * 2 * is_late

    def tried(now_ns: int) -> int | None:
        output.now_ns = now_ns
        link.send_small(now_ns)
        link.send_data(lambda: now_ns)
        until_ns = link.pause.until_ns
        return None if until_ns is None else until_ns - now_ns

    assert [tried(0), tried(10**8)] == [SHORTEST_PAUSE_NS, 2 * SHORTEST_PAUSE_NS]
    assert tried(10**9) == (None if is_late else SHORTEST_PAUSE_NS)
    output.room_ns = [2 * 10**9]
    link.late = [Datagram(b"x", 0, 0)] * is_late
    assert tried(10**9 + 10**8) == (1 if is_late else 2) * SHORTEST_PAUSE_NS


def test_a_pause_is_not_spent_asking_what_is_due() -> None:
    """A timer of the connection's that has passed is for what waits for the same room."""

    class Overdue(Once):
        def next_timer_ns(self) -> int:  # type: ignore[override]  # others have none
            return 5

    class Silent:
        def next_timer_ns(self) -> None:
            return None

    link = Link(cast("ControlChannel", Silent()), "host2", cast("Connection", Overdue(None)))
    link.rest_until_due()
    assert link.due_ns == 5
    link.pause.begin(1_000_000)
    link.rest_until_due()
    assert link.due_ns == 1_000_000 + SHORTEST_PAUSE_NS
