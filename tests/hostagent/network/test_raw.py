"""Frames with a source route: what is on the cable, and what a receiver makes of them without the route."""

import errno
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.links import Pause
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.outgoing import Refusal, rest_of
from mltswitch.hostagent.network.raw import RoutedPath, SourceRouteSender, open_packet_socket
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sockets import open_socket
from mltswitch.hostagent.network.waiting import Waiter
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram
from mltswitch.wire import ETHERTYPE_IPV4, ETHERTYPE_SOURCE_ROUTE, SourceRoute
from tests.hostagent.namespaces import INTERFACE, TwoHosts
from tests.hostagent.network.bursts import bursts_of, datagrams_of, receive_all, some_bursts, tos_of

ROUTES = {0: (1,), 1: (2, 3), 2: (4, 5, 6), 3: tuple(range(1, 9))}
SOURCE_PORT = 18600
LONGEST_BODY_BYTES = 1500 - (4 + 2 * 8) - 28 - 40 - 16
"""With the longest route, IPv4 and UDP, our header and a tag, of what the link carries."""
TENSOR = np.random.default_rng(4).integers(0, 256, 50_000, np.uint8)


@dataclass
class Cable:
    """A sender at one end, at the other what a switch would see and what a host receives."""

    sender: SourceRouteSender
    switch: socket.socket
    egress: socket.socket
    receiver: DatagramReceiver

    def frames(self, count: int) -> list[bytes]:
        """That many frames with a source route."""
        found: list[bytes] = []
        while len(found) < count:
            frame = self.switch.recv(65536)
            if int.from_bytes(frame[12:14], "big") == ETHERTYPE_SOURCE_ROUTE:
                found.append(frame)
        return found

    def pop(self, frame: bytes) -> tuple[int, ...]:
        """Send the frame on without its route, as the last switch does; the route."""
        route = SourceRoute.decode(frame[14:])
        self.egress.send(frame[:12] + route.ether_type.to_bytes(2, "big") + frame[14 + route.size_bytes :])
        return route.ports


@pytest.fixture(scope="module")
def cable(cabled: TwoHosts) -> Iterator[Cable]:
    one, other = cabled.one, cabled.other
    with other.entered():
        opened = open_socket(other.aliases, 0)
        switch = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_SOURCE_ROUTE))
        switch.bind((INTERFACE, ETHERTYPE_SOURCE_ROUTE))
        switch.settimeout(5)
        switch.setsockopt(socket.SOL_SOCKET, libc.SO_RCVBUFFORCE, 16 << 20)
    paths = {
        path: RoutedPath(ports, other.hardware_address, other.alias(path), opened.port)
        for path, ports in ROUTES.items()
    }
    with one.entered():
        packets, egress = open_packet_socket(INTERFACE), open_packet_socket(INTERFACE)
    egress.setblocking(True)
    yield Cable(
        SourceRouteSender(packets, one.address, SOURCE_PORT, paths),
        switch,
        egress,
        DatagramReceiver(opened.socket),
    )
    for entry in (opened.socket, switch, packets, egress):
        entry.close()


@pytest.mark.root
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bursts=some_bursts(longest_bytes=LONGEST_BODY_BYTES))
def test_behind_the_route_is_what_a_host_takes(cable: Cable, bursts: Bursts) -> None:
    """The kernel at the receiver checks both checksums."""
    assert cable.sender.send(bursts) == bursts.packet_count
    frames = cable.frames(bursts.packet_count)
    paths = np.repeat(bursts.paths, np.diff(bursts.starts)).tolist()
    assert [cable.pop(frame) for frame in frames] == [ROUTES[path] for path in paths]
    found = Counter(receive_all(cable.receiver, bursts.packet_count))
    assert found == Counter(zip(datagrams_of(bursts), tos_of(bursts), strict=True))


@pytest.mark.root
def test_a_frame_byte_by_byte(cable: Cable, cabled: TwoHosts) -> None:
    assert cable.sender.send_datagrams([Datagram(bytes(range(60)), 1, 0xB9)]) == 1
    (frame,) = cable.frames(1)
    assert frame[:6].hex(":") == cabled.other.hardware_address
    assert frame[6:12].hex(":") == cabled.one.hardware_address
    route = SourceRoute((2, 3), ETHERTYPE_IPV4)
    assert frame[12:22] == b"\x88\xb5" + route.encode()
    ip, udp, payload = frame[22:42], frame[42:50], frame[50:]
    assert ip[:10].hex() == "45b9005800004000" + "4011"
    assert socket.inet_ntoa(ip[12:16]) == cabled.one.address
    assert socket.inet_ntoa(ip[16:20]) == cabled.other.alias(1)
    assert int.from_bytes(udp[:2], "big") == SOURCE_PORT
    assert int.from_bytes(udp[4:6], "big") == 68
    assert payload == bytes(range(60))


@pytest.mark.root
def test_a_checksum_is_never_zero(cable: Cable) -> None:
    """0 would say that there is none; found by trying payloads until the sum is that of no checksum."""
    datagrams = [Datagram(bytes(58) + number.to_bytes(2, "big"), 0, 0) for number in range(65536)]
    seen = set()
    for first in range(0, len(datagrams), 4096):
        some = datagrams[first : first + 4096 : 1]
        content = np.frombuffer(b"".join(entry.payload for entry in some), np.uint8)
        headers = content.reshape(-1, 60)[:, :40].copy().view(bursts_of(TENSOR, 1000, [1], [0]).headers.dtype)
        bursts = Bursts(
            headers=headers.reshape(-1),
            tensor=content,
            payload_offsets_bytes=np.arange(len(some)) * 60 + 40,
            payload_bytes=np.full(len(some), 20),
            starts=np.arange(len(some) + 1),
            paths=np.zeros(len(some), np.int64),
            tos=np.zeros(len(some), np.uint8),
        )
        frames = cable.sender._frames(bursts, bursts.paths, bursts.tos)
        seen |= set(frames[:, 62:64].copy().view(">u2").ravel().tolist())
    assert seen == set(range(1, 65536))


@pytest.mark.root
def test_a_packet_longer_than_the_link_is_reported(cable: Cable) -> None:
    bursts = bursts_of(TENSOR[:10_000], 2000, [1], [0, 1])
    assert cable.sender.send(bursts) == 5
    assert cable.sender.refusals() == (Refusal(0, errno.EMSGSIZE, 3), Refusal(1, errno.EMSGSIZE, 2))


@pytest.mark.root
def test_a_full_queue_of_the_device_takes_the_rest_a_little_later(cable: Cable, cabled: TwoHosts) -> None:
    """What it drops is known at once, and no socket tells when it has room again."""
    cabled.one.run("tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", "20mbit",
                   "burst", "3000", "limit", "6000")  # fmt: skip
    try:
        bursts = bursts_of(TENSOR, 1000, [1], [0, 1])
        rest, pause, pauses = bursts, Pause(), 0
        with Waiter() as waiter:
            while (taken := cable.sender.send(rest)) < rest.packet_count:
                assert cable.sender.blocked_socket is None
                if taken:
                    pause.end()
                    rest = rest_of(rest, taken)
                now_ns = time.monotonic_ns()
                pause.begin(now_ns)
                assert pause.until_ns is not None
                waiter.wait(pause.until_ns - now_ns)
                pauses += 1
        found = [frame[-1040:] for frame in cable.frames(bursts.packet_count)]
    finally:
        cabled.one.run("tc", "qdisc", "del", "dev", INTERFACE, "root")
    assert found == datagrams_of(bursts)
    assert cable.sender.refusals() == ()
    assert 0 < pauses <= 10 * bursts.packet_count


@pytest.mark.root
def test_an_unknown_path(cable: Cable) -> None:
    with pytest.raises(ValueError, match="no destination for path 4"):
        cable.sender.send(bursts_of(TENSOR, 1000, [1], [4]))


@pytest.mark.root
def test_an_interface_that_is_not_there(cabled: TwoHosts) -> None:
    with pytest.raises(UserInputError, match="interface nowhere0: cannot be used: No such device"):
        open_packet_socket("nowhere0")


def test_without_the_privilege(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(MachineError, match="spray mode p4: frames with a source route need CAP_NET_RAW"):
        open_packet_socket("lo")


@pytest.mark.root
def test_without_the_privilege_one_line_says_what_to_do() -> None:
    program = (
        "from mltswitch.hostagent.network.raw import open_packet_socket\n"
        "from mltswitch.errors import MachineError\n"
        "try:\n    open_packet_socket('lo')\nexcept MachineError as error:\n    print(error)\n"
    )
    command = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    (line,) = done.stdout.splitlines()
    assert "spray mode p4: frames with a source route need CAP_NET_RAW" in line
    assert "AmbientCapabilities=CAP_NET_RAW" in line
    assert "setcap cap_net_raw+ep" in line


def test_the_route_takes_from_the_payload() -> None:
    assert RoutedPath((1, 2, 3), "02:00:00:00:00:01", "10.0.0.1", 1).payload_bytes(1500) == 1500 - 10 - 28
