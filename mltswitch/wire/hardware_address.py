"""MAC addresses by rule, where nobody asks for them by ARP.

A switch that answers no ARP, and asks nobody, has to know its neighbours' MAC addresses. By rule they follow
from their IPv4 addresses: `02:4d:` (locally administered, IEEE 802-2014, section 8.4) and the four bytes.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

REMEMBERED: Final = 1024
"""A switch has hundreds of routes to few neighbours."""
_BY_RULE: Final = re.compile(r"02:4d((?::[0-9a-f]{2}){4})")


@lru_cache(maxsize=REMEMBERED)
def hardware_address(address: IPv4Address) -> str:
    """The locally administered MAC address that an interface with this address has."""
    return "02:4d:" + ":".join(f"{octet:02x}" for octet in address.packed)


@lru_cache(maxsize=REMEMBERED)
def address_of(hardware: str) -> IPv4Address | None:
    """The address whose MAC address this is, in lower case; None where it is not one by rule."""
    found = _BY_RULE.fullmatch(hardware)
    return None if found is None else IPv4Address(bytes.fromhex(found[1].replace(":", "")))
