"""Bursts through the real kernel on the loopback interface, and what is done when it does not take them."""

import errno
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.network import outgoing
from mltswitch.hostagent.network.outgoing import Refusal, rest_of
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sender import BurstSender
from mltswitch.hostagent.network.sockets import PathSocket, open_socket
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram
from tests.hostagent.native.passes import without_passes
from tests.hostagent.network.bursts import (
    bursts_of,
    datagrams_of,
    receive_all,
    some_bursts,
    tos_of,
)

SO_NO_CHECK = 11
ALIASES = ("127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14")
TENSOR = np.random.default_rng(3).integers(0, 256, 200_000, np.uint8)


@pytest.fixture(scope="module")
def receiver() -> Iterator[DatagramReceiver]:
    opened = open_socket(ALIASES, 0)
    yield DatagramReceiver(opened.socket)
    opened.socket.close()


def paths_to(receiver: DatagramReceiver, sockets: int = 1) -> Mapping[int, PathSocket]:
    port = receiver._socket.getsockname()[1]
    opened = [open_socket(("127.0.0.1",), 0).socket for _ in range(sockets)]
    return {path: PathSocket(opened[path % sockets], alias, port) for path, alias in enumerate(ALIASES)}


def expected(bursts: Bursts) -> Counter[tuple[bytes, int]]:
    return Counter(zip(datagrams_of(bursts), tos_of(bursts), strict=True))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("segmentation", [True, False])
@pytest.mark.parametrize("sockets", [1, 2, 4])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bursts=some_bursts())
def test_what_is_sent_arrives(
    receiver: DatagramReceiver, sockets: int, segmentation: bool, compiled: bool, bursts: Bursts
) -> None:
    paths = paths_to(receiver, sockets)
    sender = BurstSender(paths, segmentation=segmentation)
    with nullcontext() if compiled else without_passes():
        assert sender.send(bursts) == bursts.packet_count
    assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
    assert sender.counters.packets == bursts.packet_count
    assert sender.refusals() == ()
    assert sender.blocked_socket is None
    assert all(sender.is_segmenting(path) == segmentation for path in paths)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("sockets", [1, 2, 4])
@pytest.mark.parametrize("burst_packets", [1, 3, 40])
def test_bursts_leave_in_their_order(sockets: int, burst_packets: int, compiled: bool) -> None:
    """Whatever a system call could save: path after path is what the plan assumes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.bind(("0.0.0.0", 0))  # noqa: S104  (nothing but loopback leads here)
        plain.settimeout(5)
        port = plain.getsockname()[1]
        with ExitStack() as opened:
            own = [opened.enter_context(open_socket(("127.0.0.1",), 0).socket) for _ in range(sockets)]
            sender = BurstSender(
                {path: PathSocket(own[path % sockets], alias, port) for path, alias in enumerate(ALIASES)}
            )
            bursts = bursts_of(TENSOR[:60_000], 1000, [burst_packets], [0, 3, 1, 2, 2, 0])
            with nullcontext() if compiled else without_passes():
                assert sender.send(bursts) == 60
            found = [plain.recv(2000) for _ in range(60)]
    assert found == datagrams_of(bursts)


def test_ipv6() -> None:
    opened = open_socket(("::1",), 0)
    receiver = DatagramReceiver(opened.socket)
    sender = BurstSender({0: PathSocket(open_socket(("::1",), 0).socket, "::1", opened.port)})
    bursts = bursts_of(TENSOR[:50_000], 1200, [10], [0], tags=True)
    assert sender.send(bursts) == bursts.packet_count
    sender.send_datagrams([Datagram(bytes(60), 0, 0xB9)])
    found = Counter(receive_all(receiver, bursts.packet_count + 1))
    assert found == expected(bursts) + Counter([(bytes(60), 0xB9)])


def test_a_tensor_that_may_not_be_written_is_sent(receiver: DatagramReceiver) -> None:
    tensor = TENSOR[:10_000].copy()
    tensor.flags.writeable = False
    bursts = bursts_of(tensor, 1000, [4], [0])
    assert BurstSender(paths_to(receiver)).send(bursts) == 10
    assert Counter(receive_all(receiver, 10)) == expected(bursts)


def test_more_packets_than_ever_before(receiver: DatagramReceiver) -> None:
    sender = BurstSender(paths_to(receiver))
    for packets in (10, 1500, 3000, 7):
        bursts = bursts_of(TENSOR[: packets * 20], 20, [1], [0, 3])
        assert sender.send(bursts) == packets
        assert Counter(receive_all(receiver, packets)) == expected(bursts)


def test_small_datagrams(receiver: DatagramReceiver) -> None:
    sender = BurstSender(paths_to(receiver, 2))
    datagrams = [Datagram(bytes([number]) * 60, number % 4, number) for number in range(20)]
    assert sender.send_datagrams(datagrams) == 20
    found = receive_all(receiver, 20)
    assert Counter(found) == Counter((datagram.payload, datagram.tos) for datagram in datagrams)


@pytest.mark.parametrize("sockets", [1, 2])
def test_without_checksums_the_kernel_does_not_segment(receiver: DatagramReceiver, sockets: int) -> None:
    paths = paths_to(receiver, sockets)
    paths[0].socket.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    sender = BurstSender(paths)
    bursts = bursts_of(TENSOR, 1000, [10, 1, 30], range(4))
    assert sender.send(bursts) == bursts.packet_count
    assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
    assert [sender.is_segmenting(path) for path in range(4)] == [
        sockets == 2 and path % 2 == 1 for path in range(4)
    ]
    assert sender.refusals() == ()


def test_what_may_not_be_sent_is_lost_and_reported(receiver: DatagramReceiver) -> None:
    paths = dict(paths_to(receiver))
    paths[2] = replace(paths[2], address="255.255.255.255")  # EACCES: no permission to broadcast
    sender = BurstSender(paths)
    bursts = bursts_of(TENSOR, 1000, [7], range(4))
    assert sender.send(bursts) == bursts.packet_count
    lost = int(np.diff(bursts.starts)[bursts.paths == 2].sum())
    receive_all(receiver, bursts.packet_count - lost)
    assert sender.counters.refused_packets == lost
    assert sender.send_datagrams([Datagram(bytes(60), 2, 0)]) == 1
    assert sender.refusals() == (Refusal(2, errno.EACCES, lost + 1),)
    assert sender.refusals() == ()


def scripted(answers: Iterator[int]) -> Callable[[int, int, int, int], int]:
    """A kernel that takes some messages, or refuses, as told; afterwards it takes all."""
    real = outgoing.send_messages

    def send(descriptor: int, address: int, count: int, pieces: int) -> int:
        answer = next(answers, count)
        return answer if answer < 0 else real(descriptor, address, max(1, min(answer, count)), pieces)

    return send


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bursts=some_bursts(),
    answers=st.lists(
        st.one_of(st.integers(1, 20), st.sampled_from([-errno.EAGAIN, -errno.ENOBUFS, -errno.EINTR]))
    ),
)
def test_what_was_not_taken_is_offered_again(
    receiver: DatagramReceiver, bursts: Bursts, answers: list[int]
) -> None:
    sender = BurstSender(paths_to(receiver))
    rest, found = bursts, Counter[tuple[bytes, int]]()
    left = deque(answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outgoing, "send_messages", scripted(left.popleft() for _ in answers))
        while rest.packet_count:
            taken = sender.send(rest)
            if taken == rest.packet_count:
                assert sender.blocked_socket is None
            else:  # a socket tells of its own room alone
                answered = answers[len(answers) - len(left) - 1]
                assert (sender.blocked_socket is None) == (answered == -errno.ENOBUFS)
            found += Counter(receive_all(receiver, taken))
            rest = (
                rest_of(rest, taken) if taken < rest.packet_count else replace(rest, headers=rest.headers[:0])
            )
    assert found == expected(bursts)


def test_a_socket_that_fills_up_against_expectation_loses(
    receiver: DatagramReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several sockets, what others have sent cannot be taken back."""
    sender = BurstSender(paths_to(receiver, 2))
    bursts = bursts_of(TENSOR, 1000, [5], [0, 0, 0, 1])
    monkeypatch.setattr(outgoing, "send_messages", scripted(iter([1, -errno.ENOBUFS])))
    with without_passes():
        assert sender.send(bursts) == bursts.packet_count
    assert sender.refusals() == (Refusal(0, errno.ENOBUFS, 10),)
    receive_all(receiver, bursts.packet_count - 10)


@pytest.mark.parametrize("compiled", [True, False])
def test_what_one_of_several_sockets_may_not_send_stops_nobody(
    receiver: DatagramReceiver, compiled: bool
) -> None:
    paths = dict(paths_to(receiver, 2))
    paths[2] = replace(paths[2], address="255.255.255.255")  # EACCES: no permission to broadcast
    sender = BurstSender(paths)
    bursts = bursts_of(TENSOR, 1000, [7], [0, 2, 2, 1, 3])
    with nullcontext() if compiled else without_passes():
        assert sender.send(bursts) == bursts.packet_count
    lost = int(np.diff(bursts.starts)[bursts.paths == 2].sum())
    assert sender.refusals() == (Refusal(2, errno.EACCES, lost),)
    assert sender.counters.packets == bursts.packet_count - lost
    receive_all(receiver, bursts.packet_count - lost)


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM])
def test_a_full_small_datagram_is_offered_again(receiver: DatagramReceiver, error: int) -> None:
    class Full(socket.socket):
        def sendmsg(self, *_: object) -> int:
            raise OSError(error, "full")

    full = Full(socket.AF_INET, socket.SOCK_DGRAM)
    paths = dict(paths_to(receiver))
    paths[1] = replace(paths[1], socket=full)
    sender = BurstSender(paths)
    datagrams = [Datagram(bytes(60), path, 0) for path in (0, 1, 2)]
    assert sender.send_datagrams(datagrams) == 1
    assert sender.blocked_socket is (full if error == errno.EAGAIN else None)
    receive_all(receiver, 1)


@pytest.mark.parametrize("segmentation", [True, False])
@pytest.mark.parametrize("path", [-1, -9, 4, 9])
def test_an_unknown_path_is_refused(receiver: DatagramReceiver, path: int, segmentation: bool) -> None:
    sender = BurstSender(paths_to(receiver), segmentation=segmentation)
    with pytest.raises(ValueError, match=f"no destination for path {path}"):
        sender.send(bursts_of(TENSOR, 1000, [5], [0, path]))


def test_paths_need_not_be_all(receiver: DatagramReceiver) -> None:
    paths = paths_to(receiver)
    sender = BurstSender({1: paths[1], 3: paths[3]})
    with pytest.raises(ValueError, match="no destination for path 2"):
        sender.send(bursts_of(TENSOR, 1000, [5], [1, 2, 3]))
    bursts = bursts_of(TENSOR[:9000], 1000, [5], [1, 3])
    assert sender.send(bursts) == 9
    assert Counter(receive_all(receiver, 9)) == expected(bursts)


def test_a_closed_socket_is_an_error(receiver: DatagramReceiver) -> None:
    paths = paths_to(receiver)
    sender = BurstSender(paths)
    paths[0].socket.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        sender.send(bursts_of(TENSOR, 1000, [5], [0]))


def test_sockets_are_of_one_family(receiver: DatagramReceiver) -> None:
    paths = dict(paths_to(receiver))
    paths[1] = PathSocket(open_socket(("::1",), 0).socket, "::1", 9)
    with pytest.raises(ValueError, match="one address family"):
        BurstSender(paths)
    with pytest.raises(ValueError, match="one path or more"):
        BurstSender({})
