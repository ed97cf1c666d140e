"""Spray mode `p4`: whole Ethernet frames with a source route, past the kernel's IP layer.

The kernel puts nothing between Ethernet and IP, so the frames are built here: Ethernet, source route, IPv4
and UDP with both checksums, vectorised over the packets. Sending them needs CAP_NET_RAW; what comes back is
ordinary UDP (the last switch removes the route) and comes to ordinary sockets.
"""

import os
import socket
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.checksums import folded, sum_of, sums_of_ranges, sums_of_rows
from mltswitch.hostagent.network.outgoing import (
    EXHAUSTED,
    FULL,
    OUR_FAULT,
    Refusal,
    SendCounters,
    Vectors,
    check_bursts,
    overhead_bytes,
    push_messages,
)
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE, Bursts, Datagram
from mltswitch.wire import AGENT_HEADER_BYTES, ETHERTYPE_IPV4, ETHERTYPE_SOURCE_ROUTE, SourceRoute
from mltswitch.wire.internet import IPV4_HEADER_BYTES, UDP_HEADER_BYTES

_PRIVILEGE: Final = "CAP_NET_RAW"
_ROOM_BYTES: Final = 64
"""For everything before the UDP payload; what is shorter stands at the end, so that IPv4 is always at the
same place."""
_UDP: Final = _ROOM_BYTES - UDP_HEADER_BYTES
_IPV4: Final = _UDP - IPV4_HEADER_BYTES
_TIME_TO_LIVE: Final = 64
_DONT_FRAGMENT: Final = 0x4000
_LEAST_MESSAGES: Final = 1024


@dataclass(frozen=True, slots=True)
class RoutedPath:
    """How a path is sent to."""

    ports: tuple[int, ...]
    """Egress ports of the switches, in order."""
    gateway: str
    """MAC address that frames go to: the first switch's, or the destination's, as the fabric wants it."""
    address: str
    """Destination, IPv4."""
    port: int

    def payload_bytes(self, mtu_bytes: int) -> int:
        """UDP payload that fits into one packet of links with this MTU."""
        route = SourceRoute(self.ports, ETHERTYPE_IPV4)
        return mtu_bytes - route.size_bytes - IPV4_HEADER_BYTES - UDP_HEADER_BYTES


def open_packet_socket(interface: str) -> socket.socket:
    """A socket that sends frames from an interface and receives none; raises MachineError without the
    privilege."""
    try:
        opened = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
        )
    except PermissionError:
        raise MachineError(
            f"frames with a source route need {_PRIVILEGE}",
            where="spray mode p4",
            hint=f"run as root, or give the process that capability alone: AmbientCapabilities={_PRIVILEGE} "
            "in its systemd unit, or setpriv --reuid USER --init-groups --inh-caps +net_raw "
            "--ambient-caps +net_raw -- COMMAND, or setcap cap_net_raw+ep on an interpreter of its own",
        ) from None
    try:
        opened.bind((interface, 0))
    except OSError as error:
        opened.close()
        raise UserInputError(
            f"cannot be used: {os.strerror(error.errno or 0)}", where=f"interface {interface}"
        ) from None
    return opened


class SourceRouteSender:
    """Sends as `sender.BurstSender` does, each packet as a frame of its own; the socket stays the
    caller's."""

    def __init__(
        self,
        opened: socket.socket,
        source_address: str,
        source_port: int,
        paths: Mapping[int, RoutedPath],
    ) -> None:
        """`opened` comes from `open_packet_socket`; the source is where the receiver's answers go.

        Raises ValueError for a path that no header can hold, MachineError where the machine is none of ours.
        """
        libc.require_supported_machine()
        if not paths or min(paths) < 0:
            raise ValueError("a sender has one path or more, from 0 on")
        self.counters = SendCounters()
        self._socket = opened
        self._blocked: socket.socket | None = None
        self._refused: Counter[tuple[int, int]] = Counter()
        rows = max(paths) + 1
        self._known = frozenset(paths)
        self._templates = np.zeros((rows, _ROOM_BYTES), np.uint8)
        self._begins = np.full(rows, -1, np.int64)
        self._ip_sums = np.zeros(rows, np.uint64)
        self._udp_sums = np.zeros(rows, np.uint64)
        hardware = opened.getsockname()[4]
        source = IPv4Address(source_address)
        for path, entry in paths.items():
            begin, ip, udp = _template(hardware, source, source_port, entry)
            self._templates[path, _ROOM_BYTES - len(begin + ip + udp) :] = np.frombuffer(
                begin + ip + udp, np.uint8
            )
            self._begins[path] = _ROOM_BYTES - len(begin + ip + udp)
            self._ip_sums[path] = sum_of(ip)
            pseudo_header = ip[12:20] + bytes((0, socket.IPPROTO_UDP))
            self._udp_sums[path] = sum_of(pseudo_header + udp)
        self._vectors = {pieces: Vectors(pieces) for pieces in (3, 4)}
        self._messages = np.zeros(0, libc.MESSAGE)

    @property
    def blocked_socket(self) -> socket.socket | None:
        """See `Output`."""
        return self._blocked

    def refusals(self) -> tuple[Refusal, ...]:
        """What the kernel would not send since this was asked last."""
        refused, self._refused = self._refused, Counter()
        return tuple(Refusal(path, error, packets) for (path, error), packets in sorted(refused.items()))

    def send(self, bursts: Bursts) -> int:
        """How many leading packets are dealt with; see `BurstSender.send`."""
        self._blocked = None
        packets = bursts.packet_count
        if not packets:
            return 0
        check_bursts(bursts)
        if not self._known.issuperset(bursts.paths.tolist()):
            raise ValueError(f"no destination for path {sorted(set(bursts.paths.tolist()) - self._known)[0]}")
        counts = bursts.starts[1:] - bursts.starts[:-1]
        paths = np.repeat(bursts.paths, counts)
        frames = self._frames(bursts, paths, np.repeat(bursts.tos, counts))
        begins = self._begins[paths]
        vectors = self._vectors[3 if bursts.tags is None else 4]
        vectors.reserve(packets)
        vectors.write(
            0, libc.address_of(frames), np.arange(packets) * _ROOM_BYTES + begins, _ROOM_BYTES - begins
        )
        vectors.write_bursts(bursts, 1)
        if packets > len(self._messages):
            self._messages = np.zeros(max(packets, _LEAST_MESSAGES), libc.MESSAGE)
        self._messages["vectors"][:packets] = vectors.addresses[:packets]
        self._messages["vector_count"][:packets] = vectors.pieces
        return self._push(paths, packets)

    def send_datagrams(self, datagrams: Sequence[Datagram]) -> int:
        """A few small ones; how many leading ones are dealt with, as with `send`."""
        sent = 0
        for datagram in datagrams:
            done = self.send(_as_burst(datagram))
            sent += done
            if not done:
                break
        return sent

    def _push(self, paths: NDArray[np.int64], packets: int) -> int:
        done = 0
        while done < packets:
            address = libc.address_of(self._messages)
            before = done
            done, error = push_messages(self._socket.fileno(), address, done, packets, self.counters)
            self.counters.packets += done - before
            if error in FULL:
                self._blocked = None if error in EXHAUSTED else self._socket
                break
            if error in OUR_FAULT:
                raise OSError(error, os.strerror(error))
            if error:
                self._refused[int(paths[done]), error] += 1
                self.counters.refused_packets += 1
                done += 1
        return done

    def _frames(self, bursts: Bursts, paths: NDArray[np.int64], tos: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What stands before the UDP payload of each packet, in `_ROOM_BYTES` each, at the end."""
        frames = self._templates[paths]
        words = frames.view(np.uint16)
        udp_bytes = bursts.payload_bytes + (overhead_bytes(bursts) + UDP_HEADER_BYTES)
        udp_length = udp_bytes.astype(">u2").view(np.uint16)
        ip_length = (udp_bytes + IPV4_HEADER_BYTES).astype(">u2").view(np.uint16)
        frames[:, _IPV4 + 1] = tos
        words[:, (_IPV4 + 2) // 2] = ip_length
        sums = self._ip_sums[paths] + ip_length + (tos.astype(np.uint64) << np.uint64(8))
        words[:, (_IPV4 + 10) // 2] = folded(sums)
        words[:, (_UDP + 4) // 2] = udp_length
        sums = self._udp_sums[paths] + udp_length + udp_length + _sums_of_payloads(bursts)
        checksums = folded(sums)
        checksums[checksums == 0] = 0xFFFF  # 0 says that there is none (RFC 768)
        words[:, (_UDP + 6) // 2] = checksums
        return frames


def _sums_of_payloads(bursts: Bursts) -> NDArray[np.uint64]:
    headers = bursts.headers.view(np.uint8).reshape(-1, AGENT_HEADER_BYTES)
    sums = sums_of_rows(headers)
    sums += sums_of_ranges(bursts.tensor, bursts.payload_offsets_bytes, bursts.payload_bytes)
    if bursts.tags is not None:
        # Behind an odd number of bytes words begin one byte later.
        sums += sums_of_rows(bursts.tags) << (8 * (bursts.payload_bytes % 2)).astype(np.uint64)
    return sums


def _as_burst(datagram: Datagram) -> Bursts:
    """What follows the agent header takes the place of a tensor."""
    if len(datagram.payload) < AGENT_HEADER_BYTES:
        raise ValueError(f"a datagram of {len(datagram.payload)} bytes has no agent header")
    content = np.frombuffer(datagram.payload, np.uint8)
    return Bursts(
        headers=content[:AGENT_HEADER_BYTES].view(HEADER_DTYPE),
        tensor=content[AGENT_HEADER_BYTES:],
        payload_offsets_bytes=np.zeros(1, np.int64),
        payload_bytes=np.array([len(content) - AGENT_HEADER_BYTES]),
        starts=np.array([0, 1]),
        paths=np.array([datagram.path]),
        tos=np.array([datagram.tos], np.uint8),
    )


def _template(
    hardware: bytes, source: IPv4Address, source_port: int, path: RoutedPath
) -> tuple[bytes, bytes, bytes]:
    """(Ethernet and source route, IPv4, UDP) with lengths, DSCP/ECN byte and checksums 0."""
    route = SourceRoute(path.ports, ETHERTYPE_IPV4)
    gateway = bytes.fromhex(path.gateway.replace(":", ""))
    if len(gateway) != len(hardware):
        raise ValueError(f"{path.gateway} is no MAC address")
    ethernet = gateway + hardware + struct.pack("!H", ETHERTYPE_SOURCE_ROUTE)
    destination = IPv4Address(path.address)
    ip = struct.pack(
        "!BBHHHBBH4s4s",
        0x45,
        0,
        0,
        0,  # the identification of a packet that is never fragmented means nothing (RFC 6864)
        _DONT_FRAGMENT,
        _TIME_TO_LIVE,
        socket.IPPROTO_UDP,
        0,
        source.packed,
        destination.packed,
    )
    return ethernet + route.encode(), ip, struct.pack("!HHHH", source_port, path.port, 0, 0)
