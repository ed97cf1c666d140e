"""IPv4 addresses and prefixes from numbers, with equal ones sharing one object.

A switch has hundreds of routes to few next hops, and what is rendered of them is read again and compared.
`ipaddress` takes microseconds to make or to compare two, and nothing to see that both are the same object.
"""

from functools import lru_cache
from ipaddress import IPV4LENGTH, IPv4Address, IPv4Network
from typing import Final

REMEMBERED: Final = 4096
"""How many addresses, and as many prefixes, are cached: the routes of one large switch, or of some small
ones."""


@lru_cache(maxsize=REMEMBERED)
def address_at(number: int) -> IPv4Address:
    """The address `IPv4Address(number)`, cached; raises ValueError."""
    return IPv4Address(number)


@lru_cache(maxsize=REMEMBERED)
def prefix_at(number: int, length: int) -> IPv4Network:
    """The prefix `IPv4Network((number, length))`, cached; raises ValueError, also for bits set behind the
    length."""
    # A number and a length: of an address the text would be made, and read again.
    return IPv4Network((number, length))


def block_at(first: int, size: int) -> IPv4Network:
    """The prefix of `size` addresses, a power of two, that begins at the number `first`; raises
    ValueError."""
    return prefix_at(first, IPV4LENGTH - (size.bit_length() - 1))


def host_prefix(address: IPv4Address) -> IPv4Network:
    """The /32 prefix of one address."""
    return prefix_at(int(address), IPV4LENGTH)
