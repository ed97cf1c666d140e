"""A network namespace with cables in it, and the ends of cables that tests hold."""

import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

_CLONE_NEWNET: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)

# linux/if_packet.h
_SOL_PACKET: Final = 263
_PACKET_AUXDATA: Final = 8
_PACKET_IGNORE_OUTGOING: Final = 23
_TP_STATUS_VLAN_VALID: Final = 0x10
_AUXDATA: Final = struct.Struct("=IIIHHHH")
"""struct tpacket_auxdata: status, len, snaplen, mac, net, vlan_tci, vlan_tpid."""
_ETH_P_ALL: Final = 3
_SO_RCVBUFFORCE: Final = 33
_RECEIVE_BUFFER_BYTES: Final = 64 << 20
_MAXIMUM_FRAME_BYTES: Final = 65536
PATIENCE_SECONDS: Final = 120.0
"""Until what must come is given up; where it comes, nobody waits so long."""

# linux/sockios.h, linux/ethtool.h
_SIOCETHTOOL: Final = 0x8946
_SET_OFFLOADS: Final = (0x1F, 0x24, 0x2C)
"""Segmentation by the device, by the kernel; joining received segments."""


def run(*command: str) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Namespace:
    """Made when entered, gone with all in it when left; nothing but what tests send goes through it."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> "Namespace":
        run("ip", "netns", "add", self.name)
        # Else the kernel sends neighbour discovery and multicast reports of its own.
        self.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        self.run("ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        run("ip", "netns", "delete", self.name)

    def command(self, *command: str) -> list[str]:
        """A command as it runs in here."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, *command: str) -> str:
        """Output of a command that must succeed in here."""
        return run(*self.command(*command))

    def cable(self, one: str, other: str) -> None:
        """Two interfaces that are connected, and up."""
        self.run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
        for name in (one, other):
            self._switch_offloads_off(name)
            # One CPU receives: with several, what different threads sent may overtake each other.
            self.run("sh", "-c", f"echo 1 > /sys/class/net/{name}/queues/rx-0/rps_cpus")
            self.run("ip", "link", "set", name, "up")

    def _switch_offloads_off(self, interface: str) -> None:
        """Else libpcap makes each slot of BMv2's receive ring 64 KiB large, and 33 frames fill it."""
        with self.entered():
            control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with control:
            for command in _SET_OFFLOADS:
                value = array("I", (command, 0))
                request = struct.pack("16sP", interface.encode(), value.buffer_info()[0])
                fcntl.ioctl(control, _SIOCETHTOOL, request)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread in here; sockets opened meanwhile stay here (setns(2))."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        target = os.open(Path("/run/netns") / self.name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(target)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(target)
            os.close(own)


class End(Protocol):
    """One end of a cable."""

    def send(self, frame: bytes) -> None:
        """Send one frame."""

    def received(self) -> Iterator[bytes]:
        """All frames that wait."""


class CableEnd:
    """One end of a cable: whole frames in and out, tags included."""

    def __init__(self, namespace: Namespace, interface: str):
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        self._socket.bind((interface, _ETH_P_ALL))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """For select(2)."""
        return self._socket.fileno()

    def close(self) -> None:
        """No frame is seen any more."""
        self._socket.close()

    def send(self, frame: bytes) -> None:
        """Send one frame of at least 14 bytes; the kernel fills up shorter ones.

        Frames that the switch has not read yet hold the socket's send buffer: when it is full, wait for room.
        """
        while True:
            try:
                self._socket.send(frame)
            except BlockingIOError:
                _, ready, _ = select.select([], [self], [], PATIENCE_SECONDS)
                assert ready, f"the switch has read no frame for {PATIENCE_SECONDS:g} s"
            else:
                return

    def received(self) -> Iterator[bytes]:
        """All frames that wait."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    _MAXIMUM_FRAME_BYTES, socket.CMSG_SPACE(_AUXDATA.size)
                )
            except BlockingIOError:
                return
            yield _with_tag(data, ancillary)


def wait_for_frames(
    ends: Mapping[int, CableEnd], *, seconds: float = PATIENCE_SECONDS
) -> Iterator[tuple[int, bytes]]:
    """(port, frame) as they come, until the caller has enough; fails when `seconds` pass without any."""
    while True:
        ready = _readable(ends.values(), seconds)
        assert ready, f"no frame within {seconds:g} s"
        for port, end in ends.items():
            if end in ready:
                for frame in end.received():
                    yield port, frame


def frames_waiting(ends: Mapping[int, CableEnd]) -> list[tuple[int, bytes]]:
    """(port, frame) of all that has come already."""
    return [(port, frame) for port, end in ends.items() for frame in end.received()]


def wait_until(condition: object, what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Until a callable is true; fails after `seconds`."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.01)


def _readable(ends: Iterable[CableEnd], seconds: float) -> list[CableEnd]:
    ready, _, _ = select.select(list(ends), [], [], seconds)
    return ready


def _with_tag(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    """The frame with the outermost 802.1Q tag, which the kernel hands over beside it."""
    for level, kind, content in ancillary:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            status, _, _, _, _, tag, protocol = _AUXDATA.unpack(content[: _AUXDATA.size])
            if status & _TP_STATUS_VLAN_VALID:
                return data[:12] + struct.pack("!HH", protocol or 0x8100, tag) + data[12:]
    return data


def _enter(descriptor: int) -> None:
    assert _libc.setns(descriptor, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
