"""SRv6 in CONFIG_DB: a switch's locator, the segment in it, and whose static IPv6 routes are ours.

SONiC's YANG model (sonic-srv6) has three behaviours, uN, uA and uDT46 (RFC 9800); uN is the plan's End: where
nothing follows the locator in the destination address, it does what End does (RFC 9800, section 4.1.1). A
segment list must therefore name the locator's address itself. bgpcfgd (managers_srv6.py) hands both tables to
the routing daemon. Its design (SONiC, doc/srv6/srv6_static_config_hld.md) calls decap_dscp_mode mandatory;
`uniform` keeps the class in which the fabric has carried a packet.
"""

from collections.abc import Iterable
from ipaddress import AddressValueError, IPv6Address, IPv6Network, NetmaskValueError
from typing import Final

from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.sonic.database import Database, Entry
from mltswitch.targets.state import SegmentRouteState, SegmentRouting

LOCATORS: Final = "SRV6_MY_LOCATORS"
SEGMENTS: Final = "SRV6_MY_SIDS"
LOCATOR: Final = "MLT"
LENGTHS: Final[Entry] = {"block_len": "32", "node_len": "16", "func_len": "16", "arg_len": "0"}
"""Bits of a segment: the format f3216, the defaults of the model and what chips are made for."""
LOCATOR_BITS: Final = 48
_BEHAVIOUR: Final[Entry] = {"action": "uN", "decap_dscp_mode": "uniform"}


def segment_tables(routing: SegmentRouting) -> Database:
    """Both tables, or none where the switch ends no segment; raises UnsupportedPlanError."""
    locator = routing.locator
    if locator is None:
        return {}
    if locator.prefixlen != LOCATOR_BITS:
        raise UnsupportedPlanError(f"locator {locator} has not {LOCATOR_BITS} bits", where="segment routing")
    return {
        LOCATORS: {LOCATOR: {"prefix": str(locator.network_address), **LENGTHS}},
        SEGMENTS: {f"{LOCATOR}|{locator}": dict(_BEHAVIOUR)},
    }


def locator_of(database: Database) -> IPv6Network | None:
    """Our locator with its one segment; None where there is none, or it ends nothing that a plan means."""
    fields = database.get(LOCATORS, {}).get(LOCATOR, {})
    try:
        locator = IPv6Network((str(fields.get("prefix", "")), LOCATOR_BITS))
    except (AddressValueError, NetmaskValueError, ValueError):
        return None
    needed = segment_tables(SegmentRouting(locator, ()))
    own = {key: entry for key, entry in database.get(SEGMENTS, {}).items() if is_own_segment(key)}
    return locator if needed[LOCATORS][LOCATOR] == fields and needed[SEGMENTS] == own else None


def is_own_segment(key: str) -> bool:
    """Whether a key of SRV6_MY_SIDS belongs to our locator."""
    return key.partition("|")[0] == LOCATOR


class OwnSegmentPrefixes:
    """A static IPv6 route is ours when its prefix is, or lies within, the prefix of a route of the plan."""

    def __init__(self, routing: SegmentRouting | None) -> None:
        self._prefixes = [route.prefix for route in routing.routes] if routing is not None else []

    def __contains__(self, prefix: object) -> bool:
        """Whether a route to this prefix is ours."""
        return isinstance(prefix, IPv6Network) and any(prefix.subnet_of(own) for own in self._prefixes)


def in_order_of(
    wanted: SegmentRouting | None, found: Iterable[SegmentRouteState]
) -> tuple[SegmentRouteState, ...]:
    """`found`, the plan's routes first and in its order."""
    place = {route: index for index, route in enumerate(wanted.routes if wanted is not None else ())}
    return tuple(
        sorted(found, key=lambda route: (place.get(route, len(place)), route.prefix, route.next_hop))
    )


NO_NEXT_HOP: Final = IPv6Address(0)
"""Stands for one that cannot be read."""
