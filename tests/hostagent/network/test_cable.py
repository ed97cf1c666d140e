"""Between two hosts: aliases, sockets of their own for paths, full queues, segments on the cable."""

import errno
import select
import socket
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

from mltswitch.hostagent.network.features import egress
from mltswitch.hostagent.network.outgoing import Refusal, rest_of
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sender import BurstSender
from mltswitch.hostagent.network.sockets import PathSocket, open_path_sockets, open_socket, set_segments
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram
from tests.hostagent.namespaces import INTERFACE, PATHS, TwoHosts
from tests.hostagent.network.bursts import (
    WAITING_SECONDS,
    bursts_of,
    contents,
    datagrams_of,
    receive_all,
    tos_of,
)

pytestmark = pytest.mark.root

TENSOR = np.random.default_rng(5).integers(0, 256, 1_000_001, np.uint8)
RATE_MBIT = 50


def expected(bursts: Bursts) -> Counter[tuple[bytes, int]]:
    return Counter(zip(datagrams_of(bursts), tos_of(bursts), strict=True))


@pytest.mark.parametrize("lengths", [[1], [4], [16], [45], [1, 16, 45, 100]])
@pytest.mark.parametrize("version", [4, 6])
def test_a_tensor_over_four_aliases(cabled: TwoHosts, version: int, lengths: list[int]) -> None:
    one, other = cabled.one, cabled.other
    aliases, own = (other.aliases, one.address) if version == 4 else (other.aliases6, one.address6)
    with other.entered():
        target = open_socket(aliases, 18515)
    with one.entered():
        source = open_socket((own,), 18515)
    with target.socket, source.socket:
        receiver = DatagramReceiver(target.socket)
        sender = BurstSender(
            {path: PathSocket(source.socket, alias, 18515) for path, alias in enumerate(aliases)}
        )
        bursts = bursts_of(TENSOR, 1392, lengths, range(PATHS), tags=True)
        assert sender.send(bursts) == bursts.packet_count
        assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)
        assert receiver.kernel_drops() == 0


@pytest.mark.parametrize("sockets", [1, PATHS])
@pytest.mark.parametrize("length", [1, 40])
def test_a_full_queue_is_waited_for(cabled: TwoHosts, sockets: int, length: int) -> None:
    one, other = cabled.one, cabled.other
    one.run("tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", f"{RATE_MBIT}mbit",
            "burst", "70000", "limit", "100000000")  # fmt: skip
    with ExitStack() as stack:
        stack.callback(one.run, "tc", "qdisc", "del", "dev", INTERFACE, "root")
        with other.entered():
            target = stack.enter_context(open_socket(other.aliases, 18515).socket)
        with one.entered():
            sources = [
                stack.enter_context(open_socket((one.address,), 0, send_buffer_bytes=60_000).socket)
                for _ in range(sockets)
            ]
        paths = {path: PathSocket(sources[path % sockets], other.alias(path), 18515) for path in range(PATHS)}
        sender, receiver = BurstSender(paths), DatagramReceiver(target)
        bursts = bursts_of(TENSOR[:700_000], 1400, [length], [0, 1, 1, 2, 3])
        rest, calls = bursts, 0
        while (taken := sender.send(rest)) < rest.packet_count:
            blocked = sender.blocked_socket
            assert blocked in sources
            assert select.select([], [blocked], [], 5)[1]
            rest = rest_of(rest, taken) if taken else rest
            calls += 1
        # The sockets hold 240 of the 500 packets, and no more fit however late a busy machine comes back.
        assert calls > 1
        assert sender.refusals() == ()
        assert Counter(receive_all(receiver, bursts.packet_count)) == expected(bursts)


def test_each_path_has_its_source_port(cabled: TwoHosts) -> None:
    one, other = cabled.one, cabled.other
    with ExitStack() as stack:
        with other.entered():
            target = stack.enter_context(open_socket((other.address,), 18515).socket)
        target.settimeout(WAITING_SECONDS)
        with one.entered():
            sources = open_path_sockets([one.address] * PATHS, [0] * PATHS)
        for entry in sources:
            stack.enter_context(entry.socket)
        sender = BurstSender(
            {path: PathSocket(entry.socket, other.address, 18515) for path, entry in enumerate(sources)}
        )
        bursts = bursts_of(TENSOR[:40_000], 1000, [1], [0, 1, 2, 3])
        bursts.headers["path"] = bursts.paths
        assert sender.send(bursts) == 40
        ports: Counter[tuple[int, int]] = Counter()
        for _ in range(40):
            payload, address = target.recvfrom(2000)
            ports[int.from_bytes(payload[22:24], "big"), address[1]] += 1
        assert ports == Counter({(path, entry.port): 10 for path, entry in enumerate(sources)})


def test_no_route_is_a_loss_that_is_reported(cabled: TwoHosts) -> None:
    one, other = cabled.one, cabled.other
    with other.entered():
        target = open_socket(other.aliases, 18515).socket
    with target, one.entered(), open_socket((one.address,), 0).socket as source:
        sender = BurstSender(
            {0: PathSocket(source, other.alias(0), 18515), 1: PathSocket(source, "192.0.2.1", 18515)}
        )
        bursts = bursts_of(TENSOR[:100_000], 1000, [10], [0, 1])
        assert sender.send(bursts) == 100
        assert sender.refusals() == (Refusal(1, errno.ENETUNREACH, 50),)
        assert len(receive_all(DatagramReceiver(target), 50)) == 50


@pytest.mark.parametrize("length", [1, 10])
def test_a_packet_longer_than_the_link_is_reported(cabled: TwoHosts, length: int) -> None:
    one, other = cabled.one, cabled.other
    with one.entered(), open_socket((one.address,), 0).socket as source:
        sender = BurstSender({0: PathSocket(source, other.alias(0), 18515)})
        assert sender.send(bursts_of(TENSOR[:40_000], 2000, [length], [0])) == 20
        assert sender.refusals() == (Refusal(0, errno.EMSGSIZE, 20),)


def test_segments_are_on_the_cable(cabled: TwoHosts) -> None:
    """RFC 8754: a routing header of type 4, sent to its first segment."""
    one, other = cabled.one, cabled.other
    with one.entered():
        opened = open_path_sockets([one.address6] * 2, [0, 0])
        with_segments, without = opened[0].socket, opened[1].socket
        set_segments(with_segments, [other.alias6(2)])
    with other.entered():
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x86DD))
        listener.bind((INTERFACE, 0x86DD))
    listener.settimeout(5)
    sender = BurstSender(
        {
            0: PathSocket(with_segments, other.address6, 18515),
            1: PathSocket(without, other.address6, 18515),
        }
    )
    bursts = bursts_of(TENSOR[:1000], 1000, [1], [0])
    assert sender.send(bursts) == 1
    while (packet := listener.recv(2000))[6] != 43:
        pass
    assert socket.inet_ntop(socket.AF_INET6, packet[24:40]) == other.alias6(2)
    routing = packet[40 : 40 + 40]
    assert (routing[1], routing[2], routing[3], routing[4]) == (4, 4, 1, 1)
    assert socket.inet_ntop(socket.AF_INET6, routing[8:24]) == other.address6
    assert packet[80 + 8 :] == bursts.datagram(0)
    assert sender.send_datagrams([Datagram(bytes(50), 1, 0)]) == 1
    while (packet := listener.recv(2000))[6] != socket.IPPROTO_UDP:
        pass
    assert packet[48:] == bytes(50)


def test_datagrams_to_other_addresses_of_the_host_stay_out(cabled: TwoHosts) -> None:
    one, other = cabled.one, cabled.other
    with other.entered():
        target = open_socket(other.aliases[:2], 18516).socket
    with one.entered():
        source = open_socket((one.address,), 0).socket
    with target, source:
        receiver = DatagramReceiver(target)
        for path in reversed(range(PATHS)):  # what goes on the cable last is waited for
            source.sendto(bytes([path]) * 40, (other.alias(path), 18516))
        assert sorted(receive_all(receiver, 2)) == [(bytes(40), 0), (b"\1" * 40, 0)]
        assert contents(receiver.receive()) == []


def test_the_way_to_the_other_host(cabled: TwoHosts) -> None:
    one, other = cabled.one, cabled.other
    with one.entered():
        found = egress(other.alias(2))
        found6 = egress(other.alias6(2))
    assert (found.interface, found.source, found.mtu_bytes) == (INTERFACE, one.alias(2), 1500)
    assert (found6.interface, found6.source, found6.mtu_bytes) == (INTERFACE, one.alias6(2), 1500)
    assert not found.kernel_paces
    one.run("tc", "qdisc", "add", "dev", INTERFACE, "root", "handle", "1:", "pfifo")
    try:
        with one.entered():
            assert [entry.kind for entry in egress(other.alias(2)).disciplines] == ["pfifo"]
    finally:
        one.run("tc", "qdisc", "del", "dev", INTERFACE, "root")
