"""Two hosts in network namespaces with a middlebox between them that does to packets what it is told.

Each host's interface is one end of a TAP device; a thread carries Ethernet frames from one to the other, and
asks a rule about each. So DSCP, ECN, MTU and loss are what real packets of real sockets meet, whatever
queueing disciplines and packet filters the kernel has.
"""

import fcntl
import os
import select
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from mltswitch.lab.namespaces import NamespaceHandle
from tests.hostagent.namespaces import INTERFACE, Host, know, run_command, set_up

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x2, 0x1000
_ETHERNET_BYTES = 14
_UDP = 17
_NUMBERS = count()


@dataclass
class Packet:
    """An IP packet of UDP on one of the paths."""

    path: int
    sender: int
    """Place of the host: 1 or 2."""
    traffic_byte: int
    size_bytes: int
    number: int
    """Of this path and sender, from 0."""


Rule = Callable[[Packet], bool | int]
"""False: the packet is dropped. True: it passes. A number: it passes with this DSCP/ECN byte."""


@dataclass
class Middlebox:
    """Two hosts and what lies between them."""

    one: Host
    other: Host
    rule: Rule = lambda _: True
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    """Packets by path and sender."""

    def treat(self, frame: bytes, sender: int) -> bytes | None:
        """What comes out of a frame."""
        described = _described(frame, sender)
        if described is None:
            return frame
        place = described.path, sender
        described.number = self.counts.get(place, 0)
        self.counts[place] = described.number + 1
        verdict = self.rule(described)
        if verdict is True:
            return frame
        return None if verdict is False else _with_byte(frame, int(verdict))


@contextmanager
def middlebox(mtu: int = 1500) -> Iterator[Middlebox]:
    """Made when entered, gone with all in it when left."""
    prefix = f"mltdoctor-{os.getpid()}-{next(_NUMBERS)}"
    hosts = [Host(NamespaceHandle(f"{prefix}-{place}"), place) for place in (1, 2)]
    taps: list[int] = []
    ended = threading.Event()
    box = Middlebox(hosts[0], hosts[1])
    carrier = threading.Thread(target=lambda: _carry(box, taps, ended))
    try:
        for host in hosts:
            run_command("ip", "netns", "add", host.namespace.name)
            with host.entered():
                taps.append(_tap())
            host.run("ip", "link", "set", INTERFACE, "address", host.hardware_address, "mtu", str(mtu))
            set_up(host)
        for host, peer in (hosts, hosts[::-1]):
            know(host, peer)
        carrier.start()
        yield box
    finally:
        ended.set()
        if carrier.ident is not None:
            carrier.join()
        for tap in taps:
            os.close(tap)
        for host in hosts:
            if Path("/run/netns", host.namespace.name).exists():
                run_command("ip", "netns", "delete", host.namespace.name)


def _tap() -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), _IFF_TAP | _IFF_NO_PI))
    return tap


def _carry(box: Middlebox, taps: list[int], ended: threading.Event) -> None:
    while not ended.is_set():
        for tap in select.select(taps, [], [], 0.05)[0]:
            place = taps.index(tap)
            for _ in range(64):
                try:
                    frame = os.read(tap, 1 << 16)
                except BlockingIOError:
                    break
                treated = box.treat(frame, place + 1)
                if treated is not None:
                    os.write(taps[1 - place], treated)


def _described(frame: bytes, sender: int) -> Packet | None:
    """None for what is no UDP on a path."""
    kind = frame[12:14]
    body = frame[_ETHERNET_BYTES:]
    if kind == b"\x08\x00" and body[9] == _UDP:
        path = body[18] - 1  # 10.77.(1 + path).place
        return Packet(path, sender, body[1], len(body), 0) if path >= 0 else None
    if kind == b"\x86\xdd" and body[6] == _UDP:
        path = int.from_bytes(body[26:28], "big") - 1  # fd77:(1 + path)::place
        byte = int.from_bytes(body[:2], "big") >> 4 & 0xFF
        return Packet(path, sender, byte, len(body), 0) if path >= 0 else None
    return None


def _with_byte(frame: bytes, byte: int) -> bytes:
    changed = bytearray(frame)
    start = _ETHERNET_BYTES
    if frame[12:14] == b"\x86\xdd":
        word = int.from_bytes(changed[start : start + 2], "big") & 0xF00F | byte << 4
        changed[start : start + 2] = word.to_bytes(2, "big")
        return bytes(changed)
    changed[start + 1] = byte
    changed[start + 10 : start + 12] = b"\0\0"
    total = sum(struct.unpack("!10H", changed[start : start + 20]))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    changed[start + 10 : start + 12] = (~total & 0xFFFF).to_bytes(2, "big")
    return bytes(changed)
