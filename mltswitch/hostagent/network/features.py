"""What the kernel and the way to a peer offer, found out by trying."""

import errno
import fcntl
import os
import platform
import select
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.departures import enable_departures
from mltswitch.hostagent.network.netlink import (
    TC_H_ROOT,
    QueueingDiscipline,
    egress_interface,
    queueing_disciplines,
)
from mltswitch.hostagent.network.sockets import kernel_drops
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES
from mltswitch.wire.internet import ip_udp_bytes

FAIR_QUEUEING: Final = "fq"
"""The queueing discipline that paces sockets (tc-fq(8))."""
_MULTIQUEUE: Final = "mq"
_LIMITS: Final = Path("/proc/sys/net/core")
_SIOCGIFMTU: Final = 0x8921
"""netdevice(7)."""
_DISCARD_PORT: Final = 9
"""Connecting a UDP socket asks for the route and sends nothing; the port does not matter."""
_PROBE_SEGMENTS: Final = 3
_PROBE_SEGMENT_BYTES: Final = 64
_PROBE_TOS: Final = 0xB8
_PROBE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class KernelFeatures:
    """Of this machine."""

    kernel_release: str
    batching: bool
    """sendmmsg(2) and recvmmsg(2)."""
    segmentation: bool
    """UDP_SEGMENT: a burst is one message (Linux 4.18)."""
    coalescing: bool
    """UDP_GRO: a message may be several datagrams (Linux 5.0)."""
    traffic_class: bool
    """A datagram's DSCP/ECN byte can be set one by one, and is told to the receiver."""
    pacing: bool
    """SO_TXTIME: messages may carry departure times (Linux 4.19), which fq keeps."""
    drop_counts: bool
    """SO_MEMINFO: how many datagrams a full socket dropped (Linux 4.12)."""
    receive_buffer_limit_bytes: int | None
    """net.core.rmem_max; None: not readable."""
    send_buffer_limit_bytes: int | None
    """net.core.wmem_max; None: not readable."""


@dataclass(frozen=True, slots=True)
class Egress:
    """The way to one address."""

    destination: str
    source: str
    """Local address that the kernel would send from."""
    interface: str
    mtu_bytes: int
    """Of the route, IP headers included."""
    disciplines: tuple[QueueingDiscipline, ...]

    @property
    def kernel_paces(self) -> bool:
        """Whether departure times are kept here: fq at the root, or below every queue of a multi-queue
        device."""
        roots = [entry for entry in self.disciplines if entry.parent == TC_H_ROOT]
        if any(entry.kind == FAIR_QUEUEING for entry in roots):
            return True
        multiqueue = {entry.handle >> 16 for entry in roots if entry.kind == _MULTIQUEUE}
        leaves = [entry.kind for entry in self.disciplines if entry.parent >> 16 in multiqueue]
        return bool(leaves) and all(kind == FAIR_QUEUEING for kind in leaves)

    def payload_bytes(self, *, route_bytes: int = 0) -> int:
        """UDP payload that fits into one packet, beside so many bytes of extension or source-route
        headers."""
        header_bytes = ip_udp_bytes(self.destination) + route_bytes
        return min(UDP_MAXIMUM_PAYLOAD_BYTES, self.mtu_bytes - header_bytes)


def kernel_features() -> KernelFeatures:
    """Try everything once, on the loopback interface; takes milliseconds."""
    segmentation, coalescing, traffic_class = _try_offload()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        pacing = enable_departures(probe)
        drop_counts = _tells_drops(probe)
    return KernelFeatures(
        kernel_release=platform.release(),
        batching=not libc.MISSING_CALLS,
        segmentation=segmentation,
        coalescing=coalescing,
        traffic_class=traffic_class,
        pacing=pacing,
        drop_counts=drop_counts,
        receive_buffer_limit_bytes=_limit("rmem_max"),
        send_buffer_limit_bytes=_limit("wmem_max"),
    )


def egress(address: str) -> Egress:
    """The way to an address; raises UserInputError for what is no address, MachineError without a route."""
    try:
        destination = ip_address(address)
    except ValueError as error:
        raise UserInputError(str(error), where="destination") from None
    is_ipv4 = destination.version == 4
    family = socket.AF_INET if is_ipv4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, _DISCARD_PORT))
        except OSError as error:
            raise MachineError(f"no route: {error.strerror}", where=address) from None
        source = probe.getsockname()[0]
        level, option = (socket.IPPROTO_IP, libc.IP_MTU) if is_ipv4 else (socket.IPPROTO_IPV6, libc.IPV6_MTU)
        mtu_bytes = probe.getsockopt(level, option)
    interface = egress_interface(destination)
    return Egress(
        destination=address,
        source=source,
        interface=socket.if_indextoname(interface),
        mtu_bytes=mtu_bytes,
        disciplines=queueing_disciplines(interface),
    )


def interface_mtu_bytes(name: str) -> int:
    """IP packets of an interface, in the namespace of the calling thread; raises UserInputError."""
    request = struct.pack("16s16x8x", name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked, _SIOCGIFMTU, request)
        except OSError as error:
            raise UserInputError(
                f"has no MTU: {os.strerror(error.errno or 0)}", where=f"interface {name}"
            ) from None
    return int.from_bytes(answer[16:20], "little", signed=True)


def _try_offload() -> tuple[bool, bool, bool]:
    """(UDP_SEGMENT, UDP_GRO, DSCP/ECN byte by control message), by a burst to ourselves."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.IPPROTO_IP, libc.IP_RECVTOS, 1)
        coalescing = _knows(receiver, libc.SOL_UDP, libc.UDP_GRO, struct.pack("=i", 1))
        marked = (socket.IPPROTO_IP, libc.IP_TOS, struct.pack("=i", _PROBE_TOS))
        segmented = (libc.SOL_UDP, libc.UDP_SEGMENT, struct.pack("=H", _PROBE_SEGMENT_BYTES))
        payload, target = bytes(_PROBE_SEGMENTS * _PROBE_SEGMENT_BYTES), receiver.getsockname()
        segmentation = True
        try:
            sender.sendmsg((payload,), (marked, segmented), 0, target)
        except OSError:
            segmentation = False
            sender.sendmsg((payload,), (marked,), 0, target)
        length, tos, segment = _one_message(receiver)
        if segmentation:
            # Coalesced, all comes at once with the size beside it; else the first datagram comes alone.
            coalescing = coalescing and segment == _PROBE_SEGMENT_BYTES
            segmentation = coalescing or length == _PROBE_SEGMENT_BYTES
        return segmentation, coalescing, tos == _PROBE_TOS


def _one_message(receiver: socket.socket) -> tuple[int, int | None, int | None]:
    """(length, DSCP/ECN byte, segment size) of what comes first."""
    if not select.select([receiver], [], [], _PROBE_SECONDS)[0]:
        return 0, None, None
    data, controls, _, _ = receiver.recvmsg(1 << 16, 256)
    found = {(level, kind): int.from_bytes(content, "little") for level, kind, content in controls}
    return (
        len(data),
        found.get((socket.IPPROTO_IP, libc.IP_TOS)),
        found.get((libc.SOL_UDP, libc.UDP_GRO)),
    )


def _knows(probe: socket.socket, level: int, option: int, value: bytes) -> bool:
    try:
        probe.setsockopt(level, option, value)
    except OSError as error:
        return error.errno not in {errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EINVAL}
    return True


def _tells_drops(probe: socket.socket) -> bool:
    try:
        kernel_drops(probe)
    except OSError:
        return False
    return True


def _limit(name: str) -> int | None:
    try:
        return int((_LIMITS / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
