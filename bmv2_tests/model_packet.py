"""Packets as the reference model reads and writes them: the parser and the deparser of the P4 program."""

import struct
from dataclasses import dataclass
from typing import Final

from bmv2_tests.received import WireFormatError, decode_fields
from bmv2_tests.received import hops as hops_in
from mltswitch.wire.headers import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    HOP,
    SOURCE_ROUTE,
    SOURCE_ROUTE_VERSION,
)

ETHERTYPE_VLAN: Final = 0x8100
ETHERNET_BYTES: Final = 14
_TCP: Final = 6
_UDP: Final = 17
_IPV4_HEADER_BYTES: Final = 20
_IPV6_HEADER_BYTES: Final = 40
_PORTS_BYTES: Final = 4
_IPV4_CHECKSUM: Final = slice(10, 12)


class NotIpError(Exception):
    """Neither IPv4 nor IPv6."""


class MartianError(Exception):
    """Its source is an address that no host has (RFC 1812, section 5.3.7)."""


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
    ports: bytes
    """Four bytes; zeros where it has none of UDP or TCP, is a later fragment, has options, or has expired."""
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
    hops: tuple[int, ...]
    """Ports of the source route; none where the packet has no source route."""
    ether_type: int
    """Of what follows tag and source route."""
    network: NetworkHeader
    data: bytes
    """From the network header to the end of the frame."""

    @property
    def more_link_bytes(self) -> int:
        """Of the headers between Ethernet's and IP's."""
        route_bytes = SOURCE_ROUTE.size_bytes + len(self.hops) * HOP.size_bytes if self.hops else 0
        return len(self.tag) + route_bytes

    def encode(self) -> bytes:
        """The frame."""
        route = _two_bytes(self.ether_type)
        if self.hops:
            final = len(self.hops) - 1
            route = _two_bytes(ETHERTYPE_SOURCE_ROUTE)
            route += SOURCE_ROUTE.encode((SOURCE_ROUTE_VERSION, self.route_reserved, self.ether_type))
            route += b"".join(HOP.encode((number == final, port)) for number, port in enumerate(self.hops))
        return self.destination + self.source + self.tag + route + self.data

    @classmethod
    def decode(cls, frame: bytes) -> "Packet":
        """The packet in a frame.

        Raises:
            WireFormatError: what the switch counts as malformed.
            NotIpError: it carries something else.
            MartianError: nobody has its source address.
        """
        offset_bytes = 12
        tag = b""
        ether_type = _number(frame, offset_bytes)
        if ether_type == ETHERTYPE_VLAN:
            tag = frame[12:16]
            offset_bytes = 16
            ether_type = _number(frame, offset_bytes)
        offset_bytes += 2
        hops: tuple[int, ...] = ()
        reserved = 0
        if ether_type == ETHERTYPE_SOURCE_ROUTE:
            version, reserved, ether_type = decode_fields(SOURCE_ROUTE, frame, offset_bytes)
            if version != SOURCE_ROUTE_VERSION:
                raise WireFormatError(f"version {version}", where="source route")
            hops = hops_in(frame, offset_bytes + SOURCE_ROUTE.size_bytes)
            offset_bytes += SOURCE_ROUTE.size_bytes + len(hops) * HOP.size_bytes
        decode = {ETHERTYPE_IPV4: _decode_ipv4, ETHERTYPE_IPV6: _decode_ipv6}.get(ether_type)
        if decode is None:
            raise NotIpError
        data = frame[offset_bytes:]
        return cls(frame[:6], frame[6:12], tag, reserved, hops, ether_type, decode(data), data)


def network_bytes(data: bytes, network: NetworkHeader, *, dscp: int, ecn: int) -> bytes:
    """`data`, which begins with that header, as the next hop gets it: a hop older, with a right checksum."""
    changed = bytearray(data)
    if network.version == 4:
        changed[1] = dscp << 2 | ecn
        changed[8] -= 1
        changed[_IPV4_CHECKSUM] = _two_bytes(ipv4_checksum(changed[: network.size_bytes]))
    else:
        traffic_class = dscp << 2 | ecn
        changed[0] = changed[0] & 0xF0 | traffic_class >> 4
        changed[1] = changed[1] & 0x0F | (traffic_class & 0x0F) << 4
        changed[7] -= 1
    return bytes(changed)


def ipv4_checksum(header: bytes | bytearray) -> int:
    """The checksum that a header with options should carry, whatever stands in its place now (RFC 791)."""
    blank = bytearray(header)
    blank[_IPV4_CHECKSUM] = bytes(2)
    return _sum_of(blank) ^ 0xFFFF


def _sum_of(header: bytes | bytearray) -> int:
    """In ones' complement."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _decode_ipv4(data: bytes) -> NetworkHeader:
    _check(len(data) >= _IPV4_HEADER_BYTES, "IPv4 header")
    version, words = data[0] >> 4, data[0] & 0xF
    size_bytes, total_bytes = 4 * words, _number(data, 2)
    _check(total_bytes <= len(data) and version == 4 and words >= 5, "IPv4 header")
    if data[12] in (0, 127) or data[12] >= 0xE0:
        raise MartianError
    _check(size_bytes <= min(len(data), total_bytes), "IPv4 header")
    is_first_fragment = _number(data, 6) & 0x1FFF == 0
    has_ports = words == 5 and is_first_fragment and total_bytes >= size_bytes + _PORTS_BYTES and data[8] > 1
    return NetworkHeader(
        version,
        size_bytes,
        dscp=data[1] >> 2,
        ecn=data[1] & 3,
        lifetime=data[8],
        protocol=data[9],
        source=data[12:16],
        destination=data[16:20],
        ports=_ports(data, size_bytes, data[9]) if has_ports else bytes(_PORTS_BYTES),
        has_valid_checksum=_sum_of(data[:size_bytes]) == 0xFFFF,
    )


def _decode_ipv6(data: bytes) -> NetworkHeader:
    _check(len(data) >= _IPV6_HEADER_BYTES and data[0] >> 4 == 6, "IPv6 header")
    payload_bytes, source = _number(data, 4), data[8:24]
    _check(_IPV6_HEADER_BYTES + payload_bytes <= len(data), "IPv6 header")
    if source[0] == 0xFF or int.from_bytes(source, "big") <= 1:
        raise MartianError
    traffic_class = _number(data, 0) >> 4 & 0xFF
    has_ports = payload_bytes >= _PORTS_BYTES and data[7] > 1
    return NetworkHeader(
        6,
        _IPV6_HEADER_BYTES,
        dscp=traffic_class >> 2,
        ecn=traffic_class & 3,
        lifetime=data[7],
        protocol=data[6],
        source=source,
        destination=data[24:40],
        ports=_ports(data, _IPV6_HEADER_BYTES, data[6]) if has_ports else bytes(_PORTS_BYTES),
        has_valid_checksum=True,
    )


def _ports(data: bytes, offset_bytes: int, protocol: int) -> bytes:
    if protocol not in (_TCP, _UDP):
        return bytes(_PORTS_BYTES)
    return data[offset_bytes : offset_bytes + _PORTS_BYTES]


def _check(is_right: bool, where: str) -> None:
    if not is_right:
        raise WireFormatError("a wrong version or length", where=where)


def _number(data: bytes, offset_bytes: int) -> int:
    """Two bytes in network order."""
    if offset_bytes + 2 > len(data):
        raise WireFormatError("ends early", where="packet")
    return int.from_bytes(data[offset_bytes : offset_bytes + 2], "big")


def _two_bytes(number: int) -> bytes:
    return number.to_bytes(2, "big")
