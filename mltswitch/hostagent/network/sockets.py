"""UDP sockets for each way to name a path, none of them open to addresses that nobody asked for.

*One socket for all addresses* (`open_socket`): alias addresses. With several local addresses it is bound to
the wildcard, and a classic BPF filter, attached before, drops in the kernel whatever was not sent to one of
them: as exact as one socket for each address, without a system call for each, and strangers fill no buffer.
*One socket per path*: `entropy`, where each has a source port of its own, and `srv6`, where each has its
segments.

No socket here believes path MTUs that ICMP messages claim (a forged one would stop all sending), and none
fragments.
"""

import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.forks import not_in_children
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.destinations import attach_destination_filter

DEFAULT_BUFFER_BYTES: Final = 32 << 20
"""A tensor of 25 MB fits."""
MAXIMUM_SEGMENTS: Final = 16
"""Of one segment list; the header then has 8 + 16 · 17 bytes."""

_HINTS: Final = {
    errno.EADDRINUSE: "another agent has it: end that one, or take data port 0, which is any that is free",
    errno.EADDRNOTAVAIL: "this host does not have it: mltswitch agent paths --setup says how to add it",
}
_PAGE_BYTES: Final = 4096
_PACKET_OVERHEAD_BYTES: Final = 512
"""Headers, the driver's headroom and struct skb_shared_info."""
_DESCRIPTOR_BYTES: Final = 256
"""struct sk_buff."""
_IPV6_ROUTING_TYPE_SEGMENTS: Final = 4
"""RFC 8754, section 2."""
_MEMORY_INFORMATION: Final = struct.Struct("=9I")
"""linux/sock_diag.h, SK_MEMINFO_*: 2 is what waits to be sent, 3 the limit, 8 what was dropped."""


@dataclass(frozen=True, slots=True)
class BufferSize:
    """A socket's buffer: what was asked for and what the kernel gave, both as setsockopt(2) counts."""

    wanted_bytes: int
    granted_bytes: int
    setting: str
    """The kernel setting that limits it."""

    def datagrams(self, payload_bytes: int) -> int:
        """How many received ones of this length fit for sure, however the driver lays them into memory.

        Each is charged with its descriptor and the memory it lies in (skb_truesize): a page, or the next
        power of two. The kernel grants twice what it calls granted.
        """
        bits = (payload_bytes + _PACKET_OVERHEAD_BYTES - 1).bit_length()
        return 2 * self.granted_bytes // (max(1 << bits, _PAGE_BYTES) + _DESCRIPTOR_BYTES)

    @property
    def warning(self) -> str:
        """What the user should know; empty where the buffer is as large as wanted."""
        if self.granted_bytes >= self.wanted_bytes:
            return ""
        return (
            f"the kernel gives {self.granted_bytes} bytes of socket buffer instead of {self.wanted_bytes}: "
            f"bursts will be lost. As root: sysctl -w {self.setting}={self.wanted_bytes}"
        )


@dataclass(frozen=True, slots=True)
class PathSocket:
    """How a path is sent to."""

    socket: socket.socket
    address: str
    """Destination."""
    port: int


@dataclass(frozen=True, slots=True)
class DataSocket:
    """An open UDP socket, non-blocking."""

    socket: socket.socket
    addresses: tuple[str, ...]
    """Local addresses that it receives at."""
    receive_buffer: BufferSize
    send_buffer: BufferSize

    @property
    def port(self) -> int:
        """Local port."""
        port: int = self.socket.getsockname()[1]
        return port

    @property
    def warnings(self) -> tuple[str, ...]:
        """About buffers that are too small."""
        return tuple(size.warning for size in (self.receive_buffer, self.send_buffer) if size.warning)


def open_socket(
    addresses: Sequence[str],
    port: int,
    *,
    receive_buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    send_buffer_bytes: int = DEFAULT_BUFFER_BYTES,
) -> DataSocket:
    """One socket that receives at these local addresses and no other, all IPv4 or all IPv6.

    Port 0: the kernel chooses. Raises UserInputError for addresses that this host does not have,
    MachineError for a port that is taken.
    """
    version = _version(addresses)
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    opened = not_in_children(socket.socket(family, kind))
    try:
        if version == 6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _never_fragment(opened)
        receive = _sized(
            opened, socket.SO_RCVBUF, libc.SO_RCVBUFFORCE, receive_buffer_bytes, "net.core.rmem_max"
        )
        send = _sized(opened, socket.SO_SNDBUF, libc.SO_SNDBUFFORCE, send_buffer_bytes, "net.core.wmem_max")
        if len(addresses) > 1:
            for address in addresses:
                _require_local(family, address)
            attach_destination_filter(opened, addresses)
            _bind(opened, "0.0.0.0" if version == 4 else "::", port)  # noqa: S104 - the filter stands before it
        else:
            _bind(opened, addresses[0], port)
    except BaseException:
        opened.close()
        raise
    return DataSocket(opened, tuple(addresses), receive, send)


def open_path_sockets(
    addresses: Sequence[str],
    ports: Sequence[int],
    *,
    receive_buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    send_buffer_bytes: int = DEFAULT_BUFFER_BYTES,
) -> tuple[DataSocket, ...]:
    """One socket per path, each with an address and a port, for `entropy` and `srv6`; 0 among the ports: any.

    Switches that hash ports then send each path's datagrams another way, those that come to it as well.
    Raises UserInputError as `open_socket`.
    """
    opened: list[DataSocket] = []
    try:
        for address, port in zip(addresses, ports, strict=True):
            one = open_socket(
                (address,),
                port,
                receive_buffer_bytes=receive_buffer_bytes,
                send_buffer_bytes=send_buffer_bytes,
            )
            opened.append(one)
    except BaseException:
        for entry in opened:
            entry.socket.close()
        raise
    return tuple(opened)


def set_segments(opened: socket.socket, segments: Sequence[str]) -> None:
    """Let everything that the socket sends pass these IPv6 segments in order, then go to its destination.

    A sticky routing header of type 4 (RFC 8754; ipv6(7), IPV6_RTHDR): 8 + 16 · (segments + 1) bytes of each
    packet. No privilege is needed. Raises UserInputError for a list that no header holds, MachineError where
    the kernel has no segment routing.
    """
    try:
        hops = [IPv6Address(segment) for segment in segments]
    except ValueError as error:
        raise UserInputError(str(error), where="segments", expected="IPv6 addresses") from None
    if not 1 <= len(hops) <= MAXIMUM_SEGMENTS:
        raise UserInputError(f"{len(hops)} segments", where="segments", expected=f"1-{MAXIMUM_SEGMENTS}")
    try:
        opened.setsockopt(socket.IPPROTO_IPV6, libc.IPV6_RTHDR, segment_header(hops))
    except OSError as error:
        raise MachineError(
            f"the kernel refuses segment lists: {error.strerror}",
            where="spray mode srv6",
            hint="it needs IPv6 segment routing (CONFIG_IPV6_SEG6_LWTUNNEL); the mode alias needs nothing",
        ) from None


def segment_header(hops: Sequence[IPv6Address]) -> bytes:
    """The routing header: last segment first, the place of the destination left free for the kernel."""
    last = len(hops)
    fixed = struct.pack("!BBBBBBH", 0, 2 * (last + 1), _IPV6_ROUTING_TYPE_SEGMENTS, last, last, 0, 0)
    return fixed + bytes(16) + b"".join(hop.packed for hop in reversed(hops))


def send_space_bytes(opened: socket.socket) -> int:
    """How much more the socket may be charged with before it blocks."""
    _, _, used_bytes, limit_bytes, *_ = _memory_information(opened)
    return max(0, limit_bytes - used_bytes)


def kernel_drops(opened: socket.socket) -> int:
    """Datagrams that the kernel has dropped since the socket was opened, most of all because it was full.

    Raises OSError where the kernel does not tell (before Linux 4.12).
    """
    return _memory_information(opened)[8]


def socket_address(family: int, address: str, port: int) -> bytes:
    """struct sockaddr_in or sockaddr_in6; raises ValueError for an address of another family."""
    parsed = ip_address(address)
    if (family, parsed.version) not in {(socket.AF_INET, 4), (socket.AF_INET6, 6)}:
        raise ValueError(f"{address} is no address of the socket's family")
    begin = struct.pack("=H", family) + struct.pack("!H", port)
    if isinstance(parsed, IPv4Address):
        return begin + parsed.packed + bytes(8)
    scope = socket.if_nametoindex(parsed.scope_id) if parsed.scope_id else 0
    return begin + bytes(4) + parsed.packed + struct.pack("=I", scope)


def _memory_information(opened: socket.socket) -> tuple[int, ...]:
    answer = opened.getsockopt(libc.SOL_SOCKET, libc.SO_MEMINFO, _MEMORY_INFORMATION.size)
    if len(answer) != _MEMORY_INFORMATION.size:
        raise OSError(errno.ENOPROTOOPT, "the kernel tells less")
    return _MEMORY_INFORMATION.unpack(answer)


def _version(addresses: Sequence[str]) -> int:
    try:
        versions = {ip_address(address).version for address in addresses}
    except ValueError as error:
        raise UserInputError(str(error), where="local address") from None
    if len(versions) != 1:
        raise UserInputError(
            f"{', '.join(addresses) or 'no address'}",
            where="local addresses",
            expected="one or more, all IPv4 or all IPv6",
        )
    return versions.pop()


def _bind(opened: socket.socket, address: str, port: int) -> None:
    try:
        opened.bind(_endpoint(address, port))
    except OSError as error:
        kind = MachineError if error.errno == errno.EADDRINUSE else UserInputError
        raise kind(
            f"UDP port {port} cannot be opened: {os.strerror(error.errno or 0)}",
            where=address,
            hint=_HINTS.get(error.errno or 0, ""),
        ) from None


def _require_local(family: int, address: str) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        _bind(probe, address, 0)


def _endpoint(address: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address) and parsed.scope_id:
        return address.partition("%")[0], port, 0, socket.if_nametoindex(parsed.scope_id)
    return address, port


def _never_fragment(opened: socket.socket) -> None:
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, libc.IPV6_MTU_DISCOVER, libc.IP_PMTUDISC_PROBE)
    else:
        opened.setsockopt(socket.IPPROTO_IP, libc.IP_MTU_DISCOVER, libc.IP_PMTUDISC_PROBE)


def _sized(opened: socket.socket, option: int, forced: int, wanted_bytes: int, setting: str) -> BufferSize:
    opened.setsockopt(socket.SOL_SOCKET, option, wanted_bytes)
    # The kernel doubles what it is asked for, for its own bookkeeping (socket(7)).
    granted_bytes = opened.getsockopt(socket.SOL_SOCKET, option) // 2
    if granted_bytes < wanted_bytes:
        try:
            opened.setsockopt(socket.SOL_SOCKET, forced, wanted_bytes)
        except PermissionError:  # CAP_NET_ADMIN
            return BufferSize(wanted_bytes, granted_bytes, setting)
        granted_bytes = opened.getsockopt(socket.SOL_SOCKET, option) // 2
    return BufferSize(wanted_bytes, granted_bytes, setting)
