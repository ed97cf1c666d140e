"""Departure times follow each other at the rate, and what the kernel is told of them."""

import socket
import time

import numpy as np
import pytest

from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.departures import SPEED_UP, Departures, enable_departures
from mltswitch.hostagent.network.outgoing import Messages, Vectors, cut_for_segmentation
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sender import BurstSender
from mltswitch.hostagent.network.sockets import PathSocket, open_socket
from tests.hostagent.network.bursts import bursts_of, datagrams_of, receive_all

TENSOR = np.random.default_rng(1).integers(0, 256, 50_000, np.uint8)
HEADER_BYTES = 42
PACKETS = np.array([1, 2, 1])
SIZES = np.array([1500, 3000, 1500]) - PACKETS * HEADER_BYTES
"""Of UDP payload; 1,500 bytes a packet on the wire."""


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1000

    def __call__(self) -> int:
        return self.now_ns


def test_messages_follow_each_other_at_the_rate() -> None:
    clock, rates = Clock(), [8e9 / SPEED_UP]
    departures = Departures(lambda: rates[0], HEADER_BYTES, clock)
    assert departures.plan(SIZES, PACKETS).tolist() == [1000, 2500, 5500]
    departures.left(2)
    assert departures.plan(SIZES, PACKETS).tolist() == [5500, 7000, 10_000]
    departures.left(3)
    rates[0] /= 2
    assert departures.plan(SIZES, PACKETS).tolist() == [11_500, 14_500, 20_500]


def test_what_was_not_handed_over_takes_no_time() -> None:
    departures = Departures(lambda: 8e9 / SPEED_UP, HEADER_BYTES, Clock())
    departures.plan(SIZES, PACKETS)
    departures.left(0)
    assert departures.plan(SIZES[:1], PACKETS[:1]).tolist() == [1000]


def test_time_that_nothing_used_is_not_made_up_for() -> None:
    clock = Clock()
    departures = Departures(lambda: 8e9 / SPEED_UP, HEADER_BYTES, clock)
    departures.plan(SIZES, PACKETS)
    departures.left(3)
    clock.now_ns = 10**9
    assert departures.plan(SIZES, PACKETS)[0] == 10**9


@pytest.mark.parametrize("burst_packets", [1, 4])
def test_each_message_tells_its_time(burst_packets: int) -> None:
    """The control messages as CMSG_FIRSTHDR and CMSG_NXTHDR walk them (cmsg(3))."""
    bursts = bursts_of(TENSOR[:12_000], 1000, [burst_packets], [0])
    cut = cut_for_segmentation(bursts)
    messages = Messages(socket.IPPROTO_IP, libc.IP_TOS, 16, with_departures=True)
    times = np.arange(cut.count) + (1 << 40)
    messages.write(cut, np.zeros(cut.count, np.int64), Vectors(2), times)
    for message, packets in enumerate(cut.packets.tolist()):
        entry = messages._array[message]
        assert entry["control_length"] == (3 if packets > 1 else 2) * libc.CONTROL.itemsize
        first = messages._controls[message]
        assert first["type"].tolist() == [libc.IP_TOS, libc.SCM_TXTIME, libc.UDP_SEGMENT]
        assert first["level"].tolist() == [socket.IPPROTO_IP, socket.SOL_SOCKET, libc.SOL_UDP]
        assert int.from_bytes(first[1].tobytes()[16:24], "little") == times[message]


@pytest.mark.parametrize("burst_packets", [1, 7])
def test_the_kernel_takes_them_from_anybody(burst_packets: int) -> None:
    """Loopback has no fq: everything leaves at once, and arrives as it is."""
    receiver, sender = open_socket(("127.0.0.1",), 0), open_socket(("127.0.0.1",), 0)
    assert enable_departures(sender.socket)
    option = sender.socket.getsockopt(socket.SOL_SOCKET, libc.SO_TXTIME, 8)
    assert int.from_bytes(option[:4], "little") == time.CLOCK_MONOTONIC
    paths = {path: PathSocket(sender.socket, "127.0.0.1", receiver.port) for path in (0, 1)}
    output = BurstSender(paths, departures=Departures(lambda: 1e9, HEADER_BYTES))
    bursts = bursts_of(TENSOR[:30_000], 1000, [burst_packets], [0, 1])
    assert output.send(bursts) == bursts.packet_count
    got = receive_all(DatagramReceiver(receiver.socket), bursts.packet_count)
    assert sorted(payload for payload, _ in got) == sorted(datagrams_of(bursts))
    for entry in (receiver, sender):
        entry.socket.close()


def test_a_kernel_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "SO_TXTIME", 1001)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        assert not enable_departures(opened)
