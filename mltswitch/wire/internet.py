"""Lengths of the IP and UDP headers in front of the agent header, without options."""

from ipaddress import ip_address
from typing import Final

IPV4_HEADER_BYTES: Final = 20
"""Length of an IPv4 header without options, in bytes (RFC 791)."""
IPV6_HEADER_BYTES: Final = 40
"""Length of an IPv6 header without extension headers, in bytes (RFC 8200)."""
UDP_HEADER_BYTES: Final = 8
"""Length of a UDP header, in bytes (RFC 768)."""


def ip_udp_bytes(address: str) -> int:
    """Bytes of IP and UDP headers of a datagram to or from this address; raises ValueError for no address."""
    is_ipv4 = ip_address(address).version == 4
    return (IPV4_HEADER_BYTES if is_ipv4 else IPV6_HEADER_BYTES) + UDP_HEADER_BYTES
