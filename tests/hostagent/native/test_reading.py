"""Sockets read by compiled passes, which take packets in on the way, against numpy's way."""

import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent import arrivals, native
from mltswitch.hostagent.arrivals import Arrivals
from mltswitch.hostagent.errors import PeerUnreachableError
from mltswitch.hostagent.network import libc, receiver
from mltswitch.hostagent.network.sockets import open_socket
from mltswitch.hostagent.transport.compiled import TRANSFERS, Registry, Taken
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.interfaces import Direction, Incoming, TransferDone, TransferKey
from mltswitch.wire import AgentHeader, AgentKind, ElementType
from mltswitch.wire.codec import struct_of
from mltswitch.wire.headers import ACKNOWLEDGEMENT
from tests.hostagent.native.passes import needs_passes, without_passes
from tests.hostagent.native.test_passes import (
    NOW_NS,
    PAYLOAD_BYTES,
    SIZES_BYTES,
    TENSORS,
    datagrams,
)
from tests.hostagent.transport.ends import connection, incoming, talk

PEERS = (2, 3)
"""Numbers of the connections that share a socket, and their flow tokens."""
ECN_CE = 3

Message = tuple[list[bytes], int]
"""Datagrams that leave as one, and their DSCP/ECN byte."""


class Host:
    """Connections whose datagrams come to one socket, which is read as an engine does it."""

    def __init__(self, *, authenticate: bool = False) -> None:
        self.registry = None if native.LIBRARY is None else Registry(native.LIBRARY)
        self.connections: dict[int, Connection] = {}
        for number in PEERS:
            there, here = connection(1, payload_bytes=PAYLOAD_BYTES), self._end(number, authenticate)
            talk(there, here)
            self.connections[number] = here
        self.opened = open_socket(("127.0.0.1",), 0)
        self.arrivals = Arrivals([self.opened], self.registry)
        self.left: list[DatagramGrid] = []
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def _end(self, number: int, authenticate: bool) -> Connection:
        return connection(
            number, payload_bytes=PAYLOAD_BYTES, registry=self.registry, authenticate=authenticate
        )

    def post(self, number: int, tensor: int, round_number: int = 1) -> Incoming:
        posted = incoming(tensor, round_number)
        self.connections[number].receive(posted, 1)
        return posted

    def send(self, messages: Sequence[Message]) -> None:
        for parts, tos in messages:
            controls = [(socket.IPPROTO_IP, libc.IP_TOS, struct.pack("=i", tos))]
            if len(parts) > 1:
                size = struct.pack("=H", len(parts[0]))
                controls.append((libc.SOL_UDP, libc.UDP_SEGMENT, size))
            self._sender.sendmsg(parts, controls, 0, ("127.0.0.1", self.opened.port))

    def read(self) -> int:
        return self.arrivals.read(self._hand_over, lambda: None)

    def _hand_over(self, token: int, left: Sequence[DatagramGrid], taken: Taken, now_ns: int) -> None:
        self.left += left
        if token in self.connections:
            self.connections[token].datagrams_read(left, taken, now_ns)


def packet(number: int, tensor: int, sequence: int = 0, round_number: int = 1) -> bytes:
    header = AgentHeader(
        AgentKind.DATA, 0, ElementType.FLOAT32, number, tensor, round_number, 0, 0, sequence, 16 * sequence, 5
    )
    return header.encode() + bytes([1 + sequence]) * SIZES_BYTES[sequence == 6]


def whole(number: int, tensor: int) -> list[Message]:
    """A tensor in one message."""
    return [([packet(number, tensor, sequence) for sequence in range(7)], 0)]


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Of datagrams of one sender most of which are right, the last of them shorter or not."""
    tensor, size_bytes = draw(st.sampled_from(TENSORS)), SIZES_BYTES[False]
    parts = [draw(datagrams(tensor, False, size_bytes)) for _ in range(draw(st.integers(0, 4)))]
    last_bytes = draw(st.sampled_from([size_bytes, SIZES_BYTES[True], SIZES_BYTES[True], 0, 12]))
    last = draw(datagrams(tensor, last_bytes == SIZES_BYTES[True], last_bytes))
    token = draw(st.sampled_from([*PEERS, *PEERS, *PEERS, 9])).to_bytes(8, "big")
    parts = [part[:4] + token + part[12:] for part in [*parts, last]]
    parts[-1] = parts[-1][: draw(st.sampled_from([len(last)] * 8 + [8, 39]))]
    return parts, draw(st.integers(0, 255))


def seen(sent: Sequence[Message], *, coalescing: bool) -> list[Any]:
    """What can be told of connections that have read it, but for times."""
    host = Host()
    posted = [host.post(number, tensor) for number in PEERS for tensor in TENSORS]
    if not coalescing:
        host.opened.socket.setsockopt(libc.SOL_UDP, libc.UDP_GRO, 0)
    host.send(sent)
    read = host.read()
    found: list[Any] = [read, [each.tensor.data.tobytes() for each in posted]]
    counters = host.arrivals.receivers[0].counters
    found.append((counters.messages, counters.short, counters.truncated, counters.errors))
    for each in host.connections.values():
        found.append(each.traffic())
        ended = [event for event in each.events() if isinstance(event, TransferDone)]
        found.append(
            [repr(replace(event, statistics=replace(event.statistics, seconds=0))) for event in ended]
        )
        answers = [answer.payload for answer in each.datagrams_to_send(NOW_NS * 10**9)]
        fields = [
            struct_of(ACKNOWLEDGEMENT).unpack(answer[-ACKNOWLEDGEMENT.size_bytes :]) for answer in answers
        ]
        found.append([(echoed, received, marked) for echoed, _, received, marked in fields])
    return found


@needs_passes
@settings(max_examples=60, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=6), st.booleans())
def test_whatever_is_read_is_taken_in_alike(sent: list[Message], coalescing: bool) -> None:
    compiled = seen(sent, coalescing=coalescing)
    with without_passes():
        assert seen(sent, coalescing=coalescing) == compiled


@needs_passes
def test_tensors_of_several_peers_come_through_one_socket_and_nothing_is_left() -> None:
    host = Host()
    posted = {(number, tensor): host.post(number, tensor) for number in PEERS for tensor in TENSORS}
    for key in posted:
        host.send(whole(*key))
    assert host.read() == 7 * len(posted)
    expected = b"".join(packet(2, 3, sequence)[40:] for sequence in range(7))
    assert {each.tensor.data.tobytes() for each in posted.values()} == {expected}
    assert host.left == []


@needs_passes
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "other", [packet(2, 9), packet(9, 3), b"\2" + packet(2, 3)[1:], packet(2, 3, round_number=2)]
)
def test_of_a_message_all_is_taken_in_or_nothing(place: int, other: bytes) -> None:
    host = Host()
    posted = host.post(2, 3)
    parts = [packet(2, 3, sequence) for sequence in range(3)]
    parts[place] = other
    memory = np.frombuffer(bytearray(b"".join(parts)), np.uint8)
    grid = DatagramGrid(memory, 0, 1, memory.size, 3, memory.size // 3, np.zeros(1, np.uint8))
    assert host.registry is not None
    left, taken = host.registry.take([grid], 5)
    assert ([each.datagram_count for each in left], taken, host.registry.datagrams) == ([3], {}, 0)
    assert not posted.tensor.data.any()
    host.connections[2].datagrams_received([grid], 5)
    assert np.count_nonzero(posted.tensor.data) == 2 * SIZES_BYTES[False]


@needs_passes
@pytest.mark.parametrize(
    "end",
    [
        lambda here: here.cancel(TransferKey(3, 1), Direction.RECEIVE, "no more", 5),
        lambda here: here.close("enough", 5),
        lambda here: here.control_ended(PeerUnreachableError("gone"), 5),
        lambda here: here.timer(10**13),  # its deadline
    ],
)
def test_nothing_is_written_for_a_tensor_that_has_ended(end: Callable[[Connection], None]) -> None:
    host = Host()
    posted, other = host.post(2, 3), host.post(3, 3)
    host.send([([packet(2, 3)], 0)])
    assert host.read() == 1
    assert posted.tensor.data.any()
    end(host.connections[2])
    posted.tensor.data[:] = 0
    host.send([*whole(2, 3), *whole(3, 3)])
    assert host.read() == 14
    assert not posted.tensor.data.any()
    assert other.tensor.data.all()


@needs_passes
def test_a_tensor_that_is_complete_is_the_users_again() -> None:
    host = Host()
    posted = host.post(2, 3)
    host.send(whole(2, 3))
    host.read()
    (done,) = [event for event in host.connections[2].events() if isinstance(event, TransferDone)]
    assert done.error is None
    posted.tensor.data[:] = 0
    host.send(whole(2, 3))
    host.read()
    assert not posted.tensor.data.any()
    assert host.connections[2].late_packets == 7


@needs_passes
@pytest.mark.parametrize("length", [1, 20, 39, 40])
def test_a_message_that_ends_with_too_little_is_left(length: int) -> None:
    host = Host()
    host.post(2, 3)
    host.send([([packet(2, 3), packet(2, 3)], 0)])
    assert host.read() == 2
    host.send([([packet(2, 3), packet(2, 3, 1)[:length]], 0)])  # over what was a packet
    host.read()
    assert sum(grid.datagram_count for grid in host.left) == 1 + (length == 40)
    assert host.arrivals.receivers[0].counters.short == (length < 40)
    assert host.connections[2].traffic().arrived_by_path == (3,)


@needs_passes
def test_what_was_truncated_is_left() -> None:
    host = Host()
    posted = host.post(2, 3)
    reader = host.arrivals.receivers[0]
    vectors, _ = reader._keep
    assert isinstance(vectors, np.ndarray)
    vectors["length"][0] = 40 + SIZES_BYTES[True]  # as long as a last packet
    host.send([([packet(2, 3, 6) + b"more"], 0)])
    assert host.read() == 0
    assert not posted.tensor.data.any()
    assert reader.counters.truncated == 1


@needs_passes
def test_what_should_carry_tags_is_left() -> None:
    host = Host(authenticate=True)
    posted = host.post(2, 3)
    host.send(whole(2, 3))
    assert host.read() == 7
    assert not posted.tensor.data.any()
    assert host.connections[2].dropped_datagrams == 7


@needs_passes
def test_many_tensors_that_end_in_any_order() -> None:
    host, random = Host(), Random(1)  # noqa: S311  (one seed, one test)
    posted = {tensor: host.post(2, tensor) for tensor in range(3 * TRANSFERS)}
    order = list(posted)
    while order:
        random.shuffle(order)
        host.send([([packet(2, tensor)], 0) for tensor in order[:50]])
        assert host.read() == len(order[:50])
        written = {tensor for tensor, each in posted.items() if each.tensor.data.any()}
        assert written == set(order[:50])
        for tensor in order[:50]:
            host.connections[2].cancel(TransferKey(tensor, 1), Direction.RECEIVE, "no more", 5)
            posted[tensor].tensor.data[:] = 0
        order = order[50:]
    assert host.left == []


@pytest.mark.parametrize("is_compiled", [pytest.param(True, marks=needs_passes), False])
def test_what_a_turn_leaves_has_arrived_later_than_it_says(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "LIBRARY", None)
    monkeypatch.setattr(arrivals, "CALLS", 1)
    for name in ("READ_BYTES", "BATCH_BYTES", "COMPILED_BATCH_BYTES"):
        monkeypatch.setattr(receiver, name, 4000)
    host = Host()
    host.post(2, 3)
    host.send([([packet(number, 3)], ECN_CE) for number in (2, 9)] * 100)
    read = host.read()
    assert 32 <= read < 200
    assert host.arrivals.has_more
    read_until_ns = host.arrivals.read_until_ns
    host.left.clear()
    while host.arrivals.has_more:
        read += host.read()
    assert read == 200
    later_ns = [grid.arrived_ns.min() for grid in host.left if grid.arrived_ns is not None]
    assert min(later_ns) >= read_until_ns
    assert host.connections[2].traffic().marked_by_path == (100,)


def test_sockets_that_are_empty_are_read_until_now() -> None:
    host = Host()
    before_ns = host.arrivals.read_until_ns
    assert host.read() == 0
    assert not host.arrivals.has_more
    assert host.arrivals.read_until_ns > before_ns
