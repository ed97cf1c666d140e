"""Lengths of the headers below the agent's, without options."""

from ipaddress import ip_address
from typing import Final

IPV4_HEADER_BYTES: Final = 20
"""RFC 791."""
IPV6_HEADER_BYTES: Final = 40
"""RFC 8200, without extension headers."""
UDP_HEADER_BYTES: Final = 8
"""RFC 768."""


def ip_udp_bytes(address: str) -> int:
    """IP and UDP of a datagram to or from this address; raises ValueError for what is no address."""
    is_ipv4 = ip_address(address).version == 4
    return (IPV4_HEADER_BYTES if is_ipv4 else IPV6_HEADER_BYTES) + UDP_HEADER_BYTES
