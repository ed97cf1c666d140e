"""MAC addresses derived from IPv4 addresses, for networks without ARP.

A switch that neither answers nor sends ARP has to know its neighbours' MAC addresses. They are computed from
the IPv4 addresses: `02:4d:` (locally administered, IEEE 802-2014, section 8.4) and the four bytes.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

REMEMBERED: Final = 1024
"""How many converted addresses are cached: a switch has hundreds of routes to few neighbours."""
_BY_RULE: Final = re.compile(r"02:4d((?::[0-9a-f]{2}){4})")


@lru_cache(maxsize=REMEMBERED)
def hardware_address(address: IPv4Address) -> str:
    """The locally administered MAC address of an interface with this IPv4 address."""
    return "02:4d:" + ":".join(f"{octet:02x}" for octet in address.packed)


@lru_cache(maxsize=REMEMBERED)
def address_of(hardware: str) -> IPv4Address | None:
    """The IPv4 address from which a MAC address (in lower case) was derived; None if there is none."""
    found = _BY_RULE.fullmatch(hardware)
    return None if found is None else IPv4Address(bytes.fromhex(found[1].replace(":", "")))
