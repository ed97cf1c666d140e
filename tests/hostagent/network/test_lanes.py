"""Short bursts by connected sockets: the same arrives, each path keeps its order, nothing is left open."""

import errno
import resource
import socket
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from ctypes import addressof
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.network import lanes as lanes_module
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network import sender as sender_module
from mltswitch.hostagent.network.lanes import LaneBudget, Lanes
from mltswitch.hostagent.network.outgoing import rest_of
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sender import LANES_BURST_PACKETS, BurstSender
from mltswitch.hostagent.network.sockets import PathSocket, open_socket
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram
from tests.hostagent.network.bursts import (
    bursts_of,
    datagrams_of,
    receive_all,
    some_bursts,
    tos_of,
)

pytestmark = pytest.mark.skipif(native.LIBRARY is None, reason=f"no compiled passes: {native.PROBLEM}")

ALIASES = ("127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14")
TENSOR = np.random.default_rng(3).integers(0, 256, 200_000, np.uint8)
SO_NO_CHECK = 11


@pytest.fixture(scope="module")
def receiver() -> Iterator[DatagramReceiver]:
    opened = open_socket(ALIASES, 0)
    yield DatagramReceiver(opened.socket)
    opened.socket.close()


@pytest.fixture(scope="module")
def source() -> Iterator[socket.socket]:
    opened = open_socket(("127.0.0.1",), 0)
    yield opened.socket
    opened.socket.close()


def paths_to(receiver: DatagramReceiver, source: socket.socket) -> Mapping[int, PathSocket]:
    port = receiver._socket.getsockname()[1]
    return {path: PathSocket(source, alias, port) for path, alias in enumerate(ALIASES)}


@contextmanager
def sending(paths: Mapping[int, PathSocket], budget: LaneBudget) -> Iterator[BurstSender]:
    sender = BurstSender(paths, lanes=budget)
    try:
        yield sender
    finally:
        sender.close(lambda descriptor: None)


def lanes_of(sender: BurstSender) -> Lanes:
    assert sender._lanes is not None
    return sender._lanes


def of_two_kinds(bursts: Bursts) -> Bursts:
    """Important bursts and others, of one class."""
    is_important = np.arange(len(bursts.tos)) // len(ALIASES) % 2
    return replace(bursts, tos=np.where(is_important, 0x8A, 0x88).astype(np.uint8))


def short(packets: int, lengths: Sequence[int] = (1,), body_bytes: int = 1000) -> Bursts:
    """On four paths, of two kinds."""
    return of_two_kinds(bursts_of(TENSOR[: packets * body_bytes], body_bytes, lengths, range(4)))


def expected(bursts: Bursts) -> Counter[tuple[bytes, int]]:
    return Counter(zip(datagrams_of(bursts), tos_of(bursts), strict=True))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bursts=some_bursts().map(of_two_kinds))
def test_what_is_sent_arrives(receiver: DatagramReceiver, source: socket.socket, bursts: Bursts) -> None:
    with sending(paths_to(receiver, source), LaneBudget(100)) as sender:
        assert sender.send(bursts) == bursts.packet_count
        assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
        assert sender.counters.packets == bursts.packet_count
        assert sender.refusals() == ()
        assert sender.blocked_socket is None


def test_each_path_has_a_socket_that_knows_where_it_leads(
    receiver: DatagramReceiver, source: socket.socket
) -> None:
    paths = paths_to(receiver, source)
    with sending(paths, LaneBudget(100)) as sender:
        bursts = short(200)
        sender.send(bursts)
        receive_all(receiver, bursts.packet_count)
        lanes = lanes_of(sender)
        assert [entry.getpeername()[0] for entry in lanes.sockets] == list(ALIASES)
        assert {entry.getsockname()[0] for entry in lanes.sockets} == {"127.0.0.1"}
        assert all(
            entry.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) in {0x88, 0x8A} for entry in lanes.sockets
        )
        found = lanes.of(bursts.paths, bursts.tos)
        assert found is not None
        assert len(set(found.tolist())) == 8
        assert lanes.socket_of[found].tolist() == bursts.paths.tolist()


def test_nothing_that_is_sent_to_them_is_kept(receiver: DatagramReceiver, source: socket.socket) -> None:
    with sending(paths_to(receiver, source), LaneBudget(100)) as sender:
        sender.send(short(8))
        receive_all(receiver, 8)
        for entry in lanes_of(sender).sockets:
            receiver._socket.sendto(b"for nobody", entry.getsockname())
            with pytest.raises(BlockingIOError):
                entry.recv(100)


def test_markers_stay_behind_the_data_of_their_path(
    receiver: DatagramReceiver, source: socket.socket
) -> None:
    with sending(paths_to(receiver, source), LaneBudget(100)) as sender:
        marker = Datagram(bytes(60), 2, 0x8A, follows_data=True)
        other = Datagram(bytes(61), 2, 0xA0)
        for bursts, is_by_lane in ((short(8), True), (short(80, [20]), False)):
            sender.send(bursts)
            receive_all(receiver, bursts.packet_count)
            assert sender.send_datagrams([marker, other]) == 2
            ports: dict[int, int] = {}
            while len(ports) < 2:
                payload, _, _, (_, port) = receiver._socket.recvmsg(100)
                ports[len(payload)] = port
            lane = lanes_of(sender).socket_on(2)
            assert lane is not None
            assert ports[61] == source.getsockname()[1]
            assert ports[60] == (lane if is_by_lane else source).getsockname()[1]


def test_a_full_lane_holds_up_what_is_behind_it(
    receiver: DatagramReceiver, source: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sending(paths_to(receiver, source), LaneBudget(100)) as sender:
        bursts = short(40)
        sender.send(bursts)
        receive_all(receiver, 40)
        full = lanes_of(sender).socket_on(2)
        monkeypatch.setattr(sender_module, "send_space_bytes", lambda entry: 0 if entry is full else 1 << 30)
        assert sender.send(bursts) == 2, "the first on path 2 is the third"
        assert sender.blocked_socket is full
        assert Counter(receive_all(receiver, 2)) == Counter(list(expected(bursts).elements())[:2])
        monkeypatch.setattr(sender_module, "send_space_bytes", lambda entry: 1 << 30)
        assert sender.send(rest_of(bursts, 2)) == 38
        assert sender.blocked_socket is None
        assert Counter(receive_all(receiver, 38)) == expected(rest_of(bursts, 2))
        assert sender.refusals() == ()


def test_a_path_keeps_the_order_of_each_kind(receiver: DatagramReceiver, source: socket.socket) -> None:
    with sending(paths_to(receiver, source), LaneBudget(100)) as sender:
        bursts = short(1500, [1, 2, 1], 100)
        sender.send(bursts)
        assert len(lanes_of(sender).socket_of) == 8
        lane = np.repeat(bursts.paths * 256 + bursts.tos, bursts.starts[1:] - bursts.starts[:-1])
        sent: dict[int, list[bytes]] = defaultdict(list)
        lane_of = {}
        for number, payload in zip(lane.tolist(), datagrams_of(bursts), strict=True):
            sent[number].append(payload)
            lane_of[payload] = number
        came: dict[int, list[bytes]] = defaultdict(list)
        for payload, _ in receive_all(receiver, bursts.packet_count):
            came[lane_of[payload]].append(payload)
        assert came == sent


def test_ipv6() -> None:
    opened, own = open_socket(("::1",), 0), open_socket(("::1",), 0)
    with opened.socket, own.socket:
        receiver = DatagramReceiver(opened.socket)
        paths = {0: PathSocket(own.socket, "::1", opened.port)}
        with sending(paths, LaneBudget(9)) as sender:
            bursts = of_two_kinds(bursts_of(TENSOR[:50_000], 1200, [2], [0], tags=True))
            assert sender.send(bursts) == bursts.packet_count
            assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
            assert lanes_of(sender).sockets


def test_long_bursts_need_none(receiver: DatagramReceiver, source: socket.socket) -> None:
    with sending(paths_to(receiver, source), LaneBudget(9)) as sender:
        bursts = short(200, [LANES_BURST_PACKETS + 1])
        assert sender.send(bursts) == bursts.packet_count
        assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
        assert not lanes_of(sender).sockets


def test_without_enough_sockets_the_one_of_all_paths_sends(
    receiver: DatagramReceiver, source: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bursts = short(200)
    budget = LaneBudget(3)
    with sending(paths_to(receiver, source), budget) as sender:
        assert sender.send(bursts) == bursts.packet_count
        assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
        assert (len(lanes_of(sender).sockets), budget.left) == (3, 0)
    assert budget.left == 3
    budget.left = 4
    monkeypatch.setattr(lanes_module, "MOST_LANES", 6)
    with sending(paths_to(receiver, source), budget) as sender:
        assert sender.send(bursts) == bursts.packet_count
        assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
        assert (len(lanes_of(sender).socket_of), budget.left) == (6, 1)


def test_closing_leaves_nothing_open(receiver: DatagramReceiver, source: socket.socket) -> None:
    sender = BurstSender(paths_to(receiver, source), lanes=LaneBudget(99))
    bursts = short(200)
    sender.send(bursts)
    opened = list(lanes_of(sender).sockets)
    assert opened
    descriptors, left = [entry.fileno() for entry in opened], list[int]()
    sender.close(left.append)
    sender.close(left.append)
    assert left == descriptors
    assert {entry.fileno() for entry in opened} == {-1}
    assert source.fileno() >= 0
    assert sender.send(bursts) == bursts.packet_count, "by the socket that is not its own"
    assert not lanes_of(sender).sockets
    receive_all(receiver, 2 * bursts.packet_count)


def test_where_nothing_may_be_sent_is_reported_as_ever(
    receiver: DatagramReceiver, source: socket.socket
) -> None:
    paths = dict(paths_to(receiver, source))
    paths[2] = replace(paths[2], address="255.255.255.255")  # EACCES: no permission to broadcast
    bursts = short(80)
    with sending(paths, LaneBudget(99)) as sender:
        assert sender.send(bursts) == bursts.packet_count
        assert len(receive_all(receiver, 60)) == 60
        assert [(entry.path, entry.error, entry.packets) for entry in sender.refusals()] == [
            (2, errno.EACCES, 20)
        ]


def test_who_does_not_listen_costs_nobody_a_packet(receiver: DatagramReceiver, source: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind((ALIASES[1], 0))
        port = gone.getsockname()[1]
    paths = dict(paths_to(receiver, source))
    paths[1] = replace(paths[1], port=port)
    bursts = short(80)
    with sending(paths, LaneBudget(99)) as sender:
        for _ in range(5):
            assert sender.send(bursts) == bursts.packet_count
            assert len(receive_all(receiver, 60)) == 60
        assert lanes_of(sender).of(bursts.paths, bursts.tos) is not None, "a lane has been given up"
        assert sender.refusals() == ()
        assert sender.counters.packets == 5 * bursts.packet_count


def test_a_lane_that_fails_is_left_and_its_packets_are_sent_without(
    receiver: DatagramReceiver, source: socket.socket
) -> None:
    with sending(paths_to(receiver, source), LaneBudget(99)) as sender:
        bursts = short(200, [4])
        sender.send(bursts)
        receive_all(receiver, bursts.packet_count)
        failing = lanes_of(sender).sockets[0]
        failing.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)  # then the kernel does not cut bursts
        for _ in range(2):
            assert sender.send(bursts) == bursts.packet_count
            assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
        assert sender.refusals() == ()
        assert sender.blocked_socket is None
        assert all(sender.is_segmenting(path) for path in range(4)), "the socket of all paths does"


class Queue:
    """A connected pair of this machine; the receiving end takes a few at a time."""

    def __init__(self, folder: Path, name: str) -> None:
        self.receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.receiver.bind(str(folder / name))
        self.sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.sender.connect(str(folder / name))

    def received(self) -> list[int]:
        found = []
        while True:
            try:
                found.append(int.from_bytes(self.receiver.recv(1 << 16)[:8], "little"))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


def numbered(count: int) -> tuple[NDArray[np.void], list[NDArray[np.generic]]]:
    """Messages that say their number; the second control message alone would be sent, and is empty."""
    numbers, bodies = np.arange(count), np.zeros((count, 100), np.uint8)
    vectors = np.zeros((count, 2), libc.VECTOR)
    vectors["base"][:, 0], vectors["length"][:, 0] = libc.address_of(numbers) + 8 * numbers, 8
    vectors["base"][:, 1], vectors["length"][:, 1] = libc.address_of(bodies) + 100 * numbers, 100
    messages = np.zeros(count, libc.MESSAGE)
    messages["name"], messages["name_length"] = 1, 16  # nobody may look at it
    messages["vectors"] = vectors.ctypes.data + np.arange(count) * vectors.strides[0]
    messages["vector_count"] = 2
    messages["control_length"] = libc.CONTROL.itemsize
    return messages, [numbers, bodies, vectors]


class Given:
    """Sockets with lanes of two bytes each, which here are priorities."""

    def __init__(self, sockets: Sequence[socket.socket], kind: int = socket.SO_PRIORITY) -> None:
        self.descriptors = np.array([entry.fileno() for entry in sockets], np.int32)
        self.bytes = np.full(len(sockets), -1, np.int32)
        self.socket_of = np.repeat(np.arange(len(sockets), dtype=np.int32), 2)
        self.byte_of = np.resize(np.array([1, 2], np.int32), 2 * len(sockets))
        self.arrays = native.LaneArrays(
            self.descriptors.ctypes.data,
            self.bytes.ctypes.data,
            self.socket_of.ctypes.data,
            self.byte_of.ctypes.data,
            len(self.socket_of),
            socket.SOL_SOCKET,
            kind,
        )

    def send(self, lane_of: NDArray[np.int64], count: int) -> tuple[int, NDArray[np.int64]]:
        """What it returned, and the errors."""
        assert native.LIBRARY is not None
        messages, _kept = numbered(count)
        errors = np.zeros(count, np.int64)
        failed = native.LIBRARY.mlt_send_in_lanes(
            addressof(self.arrays), lane_of.ctypes.data, messages.ctypes.data, count, 2, errors.ctypes.data
        )
        return failed, errors


@pytest.mark.parametrize("count", [1, 5, 128, 129, 300])
def test_a_full_lane_fails_what_it_cannot_take_and_nothing_else(tmp_path: Path, count: int) -> None:
    lane_of = np.random.default_rng(count).integers(0, 6, count)
    with closing(Queue(tmp_path, "a")) as one, closing(Queue(tmp_path, "b")) as other:
        one.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # a message or two
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as alone:  # not connected: ENOTCONN
            failed, errors = Given([one.sender, other.sender, alone]).send(lane_of, count)
        assert failed == np.count_nonzero(errors)
        for number, queue in enumerate((one, other)):
            came = queue.received()
            for lane in (2 * number, 2 * number + 1):
                ours = np.flatnonzero(lane_of == lane)
                assert [entry for entry in came if lane_of[entry] == lane] == ours[errors[ours] == 0].tolist()
                assert set(errors[ours].tolist()) <= {0, errno.EAGAIN}
        assert set(errors[lane_of >= 4].tolist()) <= {errno.ENOTCONN}
        assert count < 100 or set(errors.tolist()) == {0, errno.EAGAIN, errno.ENOTCONN}


def test_a_socket_has_the_byte_of_the_lane_that_sends(tmp_path: Path) -> None:
    with closing(Queue(tmp_path, "a")) as one, closing(Queue(tmp_path, "b")) as other:
        given = Given([one.sender, other.sender])
        for lane_of, expected_bytes in (([0], [1, -1]), ([3, 1], [2, 2]), ([1, 0, 3], [1, 2])):
            failed, _ = given.send(np.array(lane_of), len(lane_of))
            assert failed == 0
            assert given.bytes.tolist() == expected_bytes
            for entry, byte in zip((one, other), expected_bytes, strict=True):
                if byte > 0:
                    assert entry.sender.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == byte


def test_without_its_byte_nothing_of_a_lane_is_sent(tmp_path: Path) -> None:
    with closing(Queue(tmp_path, "a")) as queue:
        given = Given([queue.sender], kind=9999)
        failed, errors = given.send(np.array([0, 1, 0]), 3)
        assert failed == 3
        assert set(errors.tolist()) == {errno.ENOPROTOOPT}
        assert queue.received() == []


@pytest.mark.parametrize("wrong", [-1, 2, 2**40])
def test_a_lane_that_is_not_there_sends_nothing(tmp_path: Path, wrong: int) -> None:
    with closing(Queue(tmp_path, "a")) as queue:
        failed, _ = Given([queue.sender]).send(np.array([0, 0, wrong]), 3)
        assert failed == -1
        assert queue.received() == []


@pytest.mark.parametrize(
    ("soft", "expected"), [(100, 25), (1024, 256), (1 << 20, 512), (resource.RLIM_INFINITY, 512)]
)
def test_a_budget_is_a_part_of_what_the_process_may_open(
    soft: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert LaneBudget.of_process().left == expected
