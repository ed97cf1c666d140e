"""Packets as the reference model reads and writes them: the parser and the deparser of the P4 program."""

import struct
from dataclasses import dataclass
from typing import Final

from mltswitch.wire.codec import WireFormatError, decode_fields, encode_fields
from mltswitch.wire.headers import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    HOP,
    SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
    SOURCE_ROUTE_VERSION,
)

ETHERTYPE_VLAN: Final = 0x8100
_TCP: Final = 6
_UDP: Final = 17
_IPV6_HEADER_BYTES: Final = 40
_IPV4_CHECKSUM: Final = slice(10, 12)


@dataclass(frozen=True, slots=True)
class NetworkHeader:
    """What the switch reads of an IPv4 or IPv6 header, and of the ports behind it."""

    version: int
    size_bytes: int
    """Options included."""
    dscp: int
    ecn: int
    lifetime: int
    """TTL, or hop limit."""
    protocol: int
    source: bytes
    destination: bytes
    source_port: int
    """0 where it is neither UDP nor TCP, or a later fragment."""
    destination_port: int
    has_valid_checksum: bool
    """True for IPv6, whose header has none."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A frame, split where the switch changes it."""

    destination: bytes
    source: bytes
    tag: bytes
    """The 802.1Q tag with its EtherType, or nothing."""
    route_reserved: int
    ports: tuple[int, ...]
    """Hops of the source route; none where the packet has no source route."""
    ether_type: int
    """Of what follows tag and source route."""
    network: NetworkHeader | None
    """None where the packet is neither IPv4 nor IPv6."""
    data: bytes
    """From the network header to the end of the frame."""

    def encode(self) -> bytes:
        """The frame."""
        route = b""
        if self.ports:
            final = len(self.ports) - 1
            route = _two_bytes(ETHERTYPE_SOURCE_ROUTE)
            route += encode_fields(
                SOURCE_ROUTE, (SOURCE_ROUTE_VERSION, self.route_reserved, self.ether_type)
            ) + b"".join(
                encode_fields(HOP, (number == final, port)) for number, port in enumerate(self.ports)
            )
        else:
            route = _two_bytes(self.ether_type)
        return self.destination + self.source + self.tag + route + self.data

    @classmethod
    def decode(cls, frame: bytes) -> "Packet":
        """The packet in a frame; raises WireFormatError for what the switch counts as malformed."""
        offset_bytes = 12
        tag = b""
        ether_type = _number(frame, offset_bytes)
        if ether_type == ETHERTYPE_VLAN:
            tag = frame[12:16]
            offset_bytes = 16
            ether_type = _number(frame, offset_bytes)
        offset_bytes += 2
        ports: tuple[int, ...] = ()
        reserved = 0
        if ether_type == ETHERTYPE_SOURCE_ROUTE:
            version, reserved, ether_type = decode_fields(SOURCE_ROUTE, frame, offset_bytes)
            if version != SOURCE_ROUTE_VERSION:
                raise WireFormatError(f"version {version}", where="source route")
            ports = _decode_hops(frame, offset_bytes + SOURCE_ROUTE.size_bytes)
            offset_bytes += SOURCE_ROUTE.size_bytes + len(ports) * HOP.size_bytes
        data = frame[offset_bytes:]
        network = None
        if ether_type == ETHERTYPE_IPV4:
            network = _decode_ipv4(data)
        elif ether_type == ETHERTYPE_IPV6:
            network = _decode_ipv6(data)
        return cls(frame[:6], frame[6:12], tag, reserved, ports, ether_type, network, data)


def network_bytes(data: bytes, network: NetworkHeader, *, ecn: int, lifetime: int) -> bytes:
    """`data`, which begins with that header, with another ECN field and lifetime and a right checksum."""
    changed = bytearray(data)
    if network.version == 4:
        changed[1] = network.dscp << 2 | ecn
        changed[8] = lifetime
        changed[_IPV4_CHECKSUM] = _two_bytes(ipv4_checksum(changed[: network.size_bytes]))
    else:
        changed[1] = changed[1] & 0b11001111 | ecn << 4
        changed[7] = lifetime
    return bytes(changed)


def ipv4_checksum(header: bytes | bytearray) -> int:
    """The checksum that a header with options should carry, whatever stands in its place now (RFC 791)."""
    blank = bytearray(header)
    blank[_IPV4_CHECKSUM] = bytes(2)
    total: int = sum(struct.unpack(f"!{len(blank) // 2}H", blank))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _decode_hops(frame: bytes, offset_bytes: int) -> tuple[int, ...]:
    ports: list[int] = []
    for _ in range(SOURCE_ROUTE_MAXIMUM_HOPS):
        last, port = decode_fields(HOP, frame, offset_bytes)
        offset_bytes += HOP.size_bytes
        ports.append(port)
        if last:
            return tuple(ports)
    raise WireFormatError("no hop is the last", where="source route")


def _decode_ipv4(data: bytes) -> NetworkHeader:
    version, words = _byte(data, 0) >> 4, data[0] & 0xF
    size_bytes = 4 * words
    if version != 4 or words < 5 or len(data) < size_bytes:
        raise WireFormatError(f"version {version}, {words} words", where="IPv4 header")
    is_first_fragment = _number(data, 6) & 0x1FFF == 0
    source_port, destination_port = _decode_ports(data, size_bytes, data[9]) if is_first_fragment else (0, 0)
    return NetworkHeader(
        version,
        size_bytes,
        dscp=data[1] >> 2,
        ecn=data[1] & 3,
        lifetime=data[8],
        protocol=data[9],
        source=data[12:16],
        destination=data[16:20],
        source_port=source_port,
        destination_port=destination_port,
        has_valid_checksum=_number(data, 10) == ipv4_checksum(data[:size_bytes]),
    )


def _decode_ipv6(data: bytes) -> NetworkHeader:
    version = _byte(data, 0) >> 4
    if version != 6 or len(data) < _IPV6_HEADER_BYTES:
        raise WireFormatError(f"version {version}", where="IPv6 header")
    traffic_class = _number(data, 0) >> 4 & 0xFF
    source_port, destination_port = _decode_ports(data, _IPV6_HEADER_BYTES, data[6])
    return NetworkHeader(
        version,
        _IPV6_HEADER_BYTES,
        dscp=traffic_class >> 2,
        ecn=traffic_class & 3,
        lifetime=data[7],
        protocol=data[6],
        source=data[8:24],
        destination=data[24:40],
        source_port=source_port,
        destination_port=destination_port,
        has_valid_checksum=True,
    )


def _decode_ports(data: bytes, offset_bytes: int, protocol: int) -> tuple[int, int]:
    if protocol not in (_TCP, _UDP):
        return 0, 0
    return _number(data, offset_bytes), _number(data, offset_bytes + 2)


def _byte(data: bytes, offset_bytes: int) -> int:
    if offset_bytes >= len(data):
        raise WireFormatError("ends early", where="packet")
    return data[offset_bytes]


def _number(data: bytes, offset_bytes: int) -> int:
    """Two bytes in network order."""
    if offset_bytes + 2 > len(data):
        raise WireFormatError("ends early", where="packet")
    return int.from_bytes(data[offset_bytes : offset_bytes + 2], "big")


def _two_bytes(number: int) -> bytes:
    return number.to_bytes(2, "big")
