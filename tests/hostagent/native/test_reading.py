"""Sockets read by compiled passes, which take packets in on the way, against numpy's way."""

import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
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
from mltswitch.hostagent.network.clocks import LONGEST_WAIT_NS, Clocks, Reading
from mltswitch.hostagent.network.sockets import open_socket
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.transport.compiled import ANSWERS, TRANSFERS, Registry, Taken
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.interfaces import (
    Direction,
    Incoming,
    TransferDone,
    TransferKey,
    TransferStatistics,
)
from mltswitch.wire import AgentHeader, AgentKind, ElementType
from mltswitch.wire.codec import struct_of
from mltswitch.wire.headers import ACKNOWLEDGEMENT, AGENT_VERSION
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


@pytest.fixture(params=[pytest.param(True, marks=needs_passes), False], ids=["compiled", "numpy"])
def is_compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(native, "LIBRARY", None)
    return bool(request.param)


class Listener(PathSprayer):
    """Keeps what acknowledgements say."""

    def __init__(self) -> None:
        super().__init__(1)
        self.heard: list[tuple[int, ...]] = []
        """Of each the path, the time that it echoes, both counts, and the delay."""

    def acknowledged(
        self,
        path: int,
        echoed_ns: int,
        received_packets: int,
        marked_packets: int,
        delay_ns: int,
        now_ns: int,
    ) -> None:
        self.heard.append((path, echoed_ns, received_packets, marked_packets, delay_ns))


class Host:
    """Connections whose datagrams come to one socket, which is read as an engine does it."""

    def __init__(self, *, authenticate: bool = False) -> None:
        self.registry = None if native.LIBRARY is None else Registry(native.LIBRARY)
        self.connections: dict[int, Connection] = {}
        self.listeners = {number: Listener() for number in PEERS}
        for number in PEERS:
            there, here = connection(1, payload_bytes=PAYLOAD_BYTES), self._end(number, authenticate)
            talk(there, here)
            here._sprayer = self.listeners[number]
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

    def heard(self, number: int) -> list[tuple[int, ...]]:
        """What acknowledgements said, sorted, but for times of arrival."""
        return sorted(entry[:-1] for entry in self.listeners[number].heard)

    @property
    def left_count(self) -> int:
        """Datagrams."""
        return sum(grid.datagram_count for grid in self.left)

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


def fields(number: int) -> tuple[int, int, int, int, int]:
    """Of an acknowledgement: path, echoed time, how long it was held, received and marked packets."""
    return 1 + number, 2**63 + number, 2**31 + 10_000 + number, 2**31 + 20_000 + number, 2**31 + number


def acknowledgement(
    token: int, number: int, version: int = AGENT_VERSION, kind: int = AgentKind.ACKNOWLEDGEMENT
) -> bytes:
    path, *body = fields(number)
    header = AgentHeader(kind, 0, 0, token, 0, 0, 0, path, 30_000 + number, 40_000, 50_000).encode()
    return bytes([version]) + header[1:] + struct_of(ACKNOWLEDGEMENT).pack(*body)


def told(numbers: Iterable[int]) -> list[tuple[int, ...]]:
    """What is heard of them."""
    found: list[tuple[int, ...]] = []
    for path, echoed_ns, _, received, marked in map(fields, numbers):
        found.append((path, echoed_ns, received, marked))
    return found


def arrivals_ns(host: Host, numbers: Iterable[int]) -> list[int]:
    """When these acknowledgements arrived, as their delays say."""
    held_ns = {path: held for path, _, held, _, _ in map(fields, numbers)}
    heard = [entry for listener in host.listeners.values() for entry in listener.heard]
    return [delay_ns + echoed_ns + held_ns[path] for path, echoed_ns, _, _, delay_ns in heard]


@st.composite
def answers(draw: st.DrawFn) -> Message:
    """Acknowledgements with one token, most of them right, the last of them shorter or not."""
    token, parts = draw(st.sampled_from([*PEERS, *PEERS, *PEERS, 9])), []
    for number in draw(st.lists(st.integers(0, 999), min_size=1, max_size=4)):
        version = draw(st.sampled_from([AGENT_VERSION] * 12 + [2]))
        kind = draw(st.sampled_from([AgentKind.ACKNOWLEDGEMENT] * 12 + [AgentKind.PROBE, 9]))
        parts.append(acknowledgement(token, number, version, kind))
    parts[-1] = parts[-1][: draw(st.sampled_from([60] * 8 + [20, 39, 40, 59]))]
    return parts, draw(st.integers(0, 255))


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


def _without_times(found: TransferStatistics | None) -> TransferStatistics | None:
    return None if found is None else replace(found, seconds=0)


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
    for number, each in host.connections.items():
        found += [each.traffic(), each.dropped_datagrams, host.heard(number)]
        ended = [event for event in each.events() if isinstance(event, TransferDone)]
        found.append([repr(replace(event, statistics=_without_times(event.statistics))) for event in ended])
        bodies = [
            answer.payload[-ACKNOWLEDGEMENT.size_bytes :] for answer in each.datagrams_to_send(NOW_NS * 10**9)
        ]
        said = [struct_of(ACKNOWLEDGEMENT).unpack(body) for body in bodies]
        found.append([(echoed, received, marked) for echoed, _, received, marked in said])
    return found


@needs_passes
@settings(max_examples=min(60, settings().max_examples), deadline=None)
@given(st.lists(messages() | answers(), min_size=1, max_size=6), st.booleans())
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
    host.send([*whole(2, 3), ([acknowledgement(2, 0)], 0)])
    assert host.read() == 8
    assert not posted.tensor.data.any()
    assert host.heard(2) == []
    assert host.connections[2].dropped_datagrams == 8


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


@pytest.mark.usefixtures("is_compiled")
def test_what_a_turn_leaves_has_arrived_later_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("coalescing", [True, False])
def test_acknowledgements_of_several_peers(coalescing: bool, is_compiled: bool) -> None:
    host = Host()
    if not coalescing:
        host.opened.socket.setsockopt(libc.SOL_UDP, libc.UDP_GRO, 0)
    sent = [(2, range(3)), (3, range(3, 4)), (2, range(4, 5)), (3, range(5, 7))]
    before_ns = time.monotonic_ns()
    host.send([([acknowledgement(token, number) for number in numbers], 0) for token, numbers in sent])
    after_ns = time.monotonic_ns()
    assert host.read() == 7
    assert host.left_count == (0 if is_compiled else 7)
    assert host.heard(2) == told([0, 1, 2, 4])
    assert host.heard(3) == told([3, 5, 6])
    found = arrivals_ns(host, range(7))
    # The clock of the day is slewed meanwhile, by less than a millisecond.
    assert before_ns - 10**6 <= min(found) <= max(found) <= after_ns + 10**6
    assert [each.dropped_datagrams for each in host.connections.values()] == [0, 0]


def grid_of(rows: Sequence[bytes], per_message: int, arrived_ns: list[int] | None) -> DatagramGrid:
    memory, messages, size = np.frombuffer(bytearray(b"".join(rows)), np.uint8), len(rows), len(rows[0])
    messages //= per_message
    tos = np.zeros(messages, np.uint8)
    times_ns = None if arrived_ns is None else np.array(arrived_ns)
    return DatagramGrid(memory, 0, messages, per_message * size, per_message, size, tos, times_ns)


@needs_passes
def test_what_a_pass_tells_of_acknowledgements() -> None:
    registry = Host().registry
    assert registry is not None
    in_pairs = grid_of(
        [acknowledgement(token, number) for number, token in enumerate([3, 3, 2, 2, 3, 3])], 2, [70, 80, 90]
    )
    alone = grid_of([acknowledgement(token, 6 + token) for token in (9, 2, 3)], 1, None)

    def answer(number: int, arrived_ns: int) -> list[int]:
        path, *others = fields(number)
        return [path, arrived_ns, *others]

    left, taken = registry.take([in_pairs, alone], 100)
    assert taken == {
        2: Taken([], [answer(2, 80), answer(3, 80), answer(8, 100)]),
        3: Taken([], [answer(0, 70), answer(1, 70), answer(4, 90), answer(5, 90), answer(9, 100)]),
    }
    assert registry.datagrams == 8
    assert [(grid.datagram_count, grid.flow_tokens().tolist()) for grid in left] == [(1, [9])]
    assert registry.take([alone.part(0, 1)], 100)[1] == {}
    assert registry.datagrams == 0


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "other",
    [
        acknowledgement(3, 7),
        acknowledgement(9, 7),
        acknowledgement(2, 7, version=AGENT_VERSION + 1),
        acknowledgement(2, 7, kind=AgentKind.PROBE),
        acknowledgement(2, 7, kind=9),
    ],
)
def test_of_a_message_all_acknowledgements_are_taken_in_or_none(
    place: int, other: bytes, is_compiled: bool
) -> None:
    host = Host()
    parts = [acknowledgement(2, number) for number in range(3)]
    parts[place] = other
    host.send([(parts, 0)])
    assert host.read() == host.left_count == 3
    assert host.registry is None or (host.registry.datagrams, host.registry.taken()) == (0, {})
    # A message is handed over to whom its first datagram belongs.
    handed_to = int.from_bytes(parts[0][4:12], "big")
    rest = [number for number in range(3) if number != place]
    assert host.heard(2) == (told(rest) if handed_to == 2 else [])
    assert host.heard(3) == (told([7]) if handed_to == 3 else [])
    assert [each.dropped_datagrams for each in host.connections.values()] == [
        handed_to == 2,
        2 * (handed_to == 3),
    ]


@pytest.mark.parametrize("length", [1, 20, 39, 40, 59])
def test_acknowledgements_that_end_with_too_little_are_left(length: int, is_compiled: bool) -> None:
    host = Host()
    parts = [acknowledgement(2, number) for number in range(6)]
    host.send([(parts[:3], 0)])
    assert host.read() == 3
    host.left.clear()
    host.send([([*parts[3:5], parts[5][:length]], 0)])  # over what was an acknowledgement
    assert host.read() == host.left_count == 2 + (length >= 40)
    assert host.heard(2) == told(range(5))
    assert host.arrivals.receivers[0].counters.short == (length < 40)
    assert host.connections[2].dropped_datagrams == (length >= 40)


@pytest.mark.parametrize(
    ("counts", "left"),
    [([64] * (ANSWERS // 64), 0), ([64] * (ANSWERS // 64) + [1], 1), ([61] * 18 + [1], 122)],
)
def test_more_acknowledgements_than_one_read_takes(counts: list[int], left: int, is_compiled: bool) -> None:
    host = Host()
    ends = np.cumsum(counts).tolist()
    numbers = [range(end - count, end) for end, count in zip(ends, counts, strict=True)]
    tokens = [PEERS[place % 2] for place in range(len(counts))]
    host.send(
        [
            ([acknowledgement(token, number) for number in some], 0)
            for token, some in zip(tokens, numbers, strict=True)
        ]
    )
    read = host.read()
    while host.arrivals.has_more:
        read += host.read()
    assert read == ends[-1]
    assert host.left_count == (left if is_compiled else read)
    for token, first in ((2, 0), (3, 1)):
        assert host.heard(token) == told(number for some in numbers[first::2] for number in some)
    host.left.clear()
    host.send([([acknowledgement(2, 5000)], 0)])  # there is room again
    assert host.read() == 1
    assert host.left_count == (not is_compiled)
    assert host.heard(2)[-1:] == told([5000])


def test_a_connection_that_has_ended_hears_nothing(is_compiled: bool) -> None:
    host = Host()
    host.connections[2].close("enough", 5)
    host.send([([acknowledgement(token, token)], 0) for token in (3, 2, 3)])
    assert host.read() == 3
    assert host.left_count == (1 if is_compiled else 3)
    assert host.heard(2) == []
    assert host.heard(3) == told([3])  # one word of a call and path counts


class OtherClocks(Clocks):
    """By which packets seem to have been stamped so much later."""

    def __init__(self, later_ns: int, longest_wait_ns: int) -> None:
        super().__init__()
        self._later_ns = later_ns
        self._longest_wait_ns = longest_wait_ns

    def read(self) -> Reading:
        ahead_ns, _, now_ns = super().read()
        return Reading(ahead_ns - self._later_ns, self._longest_wait_ns, now_ns)


HOUR_NS = 3600 * 10**9


def arrived_by(host: Host) -> list[int]:
    """When a packet that is left and an acknowledgement had arrived, and what the reader says of both."""
    left_ns = [int(grid.arrived_ns.min()) for grid in host.left if grid.arrived_ns is not None]
    return [*left_ns, *arrivals_ns(host, [0]), host.arrivals.receivers[0].newest_ns]


@pytest.mark.usefixtures("is_compiled")
@pytest.mark.parametrize(
    ("later_ns", "longest_wait_ns", "is_stamped"),
    [
        (HOUR_NS, LONGEST_WAIT_NS, True),
        (-HOUR_NS, LONGEST_WAIT_NS, True),
        (0, 0, True),  # the clock was set
        (0, LONGEST_WAIT_NS, False),
    ],
)
def test_what_cannot_be_has_arrived_now(later_ns: int, longest_wait_ns: int, is_stamped: bool) -> None:
    host = Host()
    host.arrivals.receivers[0]._clocks = OtherClocks(later_ns, longest_wait_ns)
    host.opened.socket.setsockopt(libc.SOL_SOCKET, libc.SO_TIMESTAMPNS, is_stamped)
    host.send([([packet(9, 3)], 0), ([acknowledgement(2, 0)], 0)])
    before_ns = time.monotonic_ns()
    assert host.read() == 2
    after_ns = time.monotonic_ns()
    found = arrived_by(host)
    assert len(found) >= 3
    assert before_ns <= min(found) <= max(found) <= after_ns


@pytest.mark.parametrize("step_ns", [-50_000_000, 50_000_000])
def test_when_the_clock_is_set_during_a_read_everything_has_arrived_now(step_ns: int) -> None:
    """After the clocks were read for it. Without compiled passes they are read when all has been stamped."""
    if native.LIBRARY is None:
        pytest.skip("there are no compiled passes")
    host = Host()
    host.arrivals.receivers[0]._clocks = OtherClocks(step_ns, LONGEST_WAIT_NS)
    host.send([([packet(9, 3)], 0), ([acknowledgement(2, 0)], 0)])
    before_ns = time.monotonic_ns()
    assert host.read() == 2
    after_ns = time.monotonic_ns()
    found = arrived_by(host)
    assert before_ns <= min(found) <= max(found) <= after_ns


@pytest.mark.usefixtures("is_compiled")
def test_what_has_waited_for_seconds_may_be() -> None:
    host, wait_ns = Host(), LONGEST_WAIT_NS // 2
    host.arrivals.receivers[0]._clocks = OtherClocks(-wait_ns, LONGEST_WAIT_NS)
    host.arrivals.receivers[0]._compiled.step_ns = 2 * wait_ns
    before_ns = time.monotonic_ns()
    host.send([([packet(9, 3)], 0), ([acknowledgement(2, 0)], 0)])
    after_ns = time.monotonic_ns()
    assert host.read() == 2
    found = arrived_by(host)
    # The clock of the day is slewed meanwhile, by less than a millisecond.
    assert before_ns - 10**6 <= min(found) + wait_ns <= max(found) + wait_ns <= after_ns + 10**6
