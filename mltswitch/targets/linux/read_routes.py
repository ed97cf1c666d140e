"""Our routes, alias and SRv6, from what `ip route` answers; those of others that stand in their way."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeVar

from mltswitch.errors import DeviceError
from mltswitch.plan.segments import LOCATOR_BITS
from mltswitch.targets.linux.answers import ROUTE_QUERY, SEGMENT_QUERY, RouteAnswer
from mltswitch.targets.linux.render import ROUTE_PROTOCOL
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.state import RouteState, SegmentRouteState, SegmentRouting

BLACKHOLE: Final = ("blackhole", "6")
"""A route that discards: `ip` names it, or with -N numbers it (RTN_BLACKHOLE)."""


def alias_routes(entries: Sequence[RouteAnswer], own: OwnPrefixes) -> list[RouteState]:
    """Those with our protocol number; anybody else's in an alias prefix takes packets off the plan's path."""
    routes: list[RouteState] = []
    for entry in entries:
        prefix = _prefix(IPv4Network, entry)
        if entry.protocol == str(ROUTE_PROTOCOL):
            if entry.nexthops or entry.metric or not isinstance(entry.gateway, IPv4Address):
                raise _refuse(
                    entry, "has the protocol number of mltswitch, but a metric or several next hops"
                )
            port = "" if entry.kind in BLACKHOLE else entry.port or f"({entry.kind})"
            routes.append(RouteState(prefix, entry.gateway, port))
        elif prefix in own:
            raise _refuse(entry, "lies within an alias prefix of the plan")
    return routes


_IPV6_METRIC: Final = 1024
"""What the kernel gives an IPv6 route that names none (IP6_RT_PRIO_USER)."""


def segment_routing(entries: Sequence[RouteAnswer], wanted: SegmentRouting | None) -> SegmentRouting | None:
    """The same for IPv6; None: there is none, and none is wanted."""
    planned = wanted or SegmentRouting(None, ())
    prefixes = [route.prefix for route in planned.routes]
    if planned.locator is not None:
        prefixes.append(planned.locator)
    locator: IPv6Network | None = None
    routes: list[SegmentRouteState] = []
    for entry in entries:
        prefix = _prefix(IPv6Network, entry)
        if entry.protocol == str(ROUTE_PROTOCOL):
            if entry.nexthops or entry.metric != _IPV6_METRIC:
                raise _refuse(
                    entry, "has the protocol number of mltswitch, but a metric or several next hops"
                )
            if entry.encap:
                locator = _locator(entry, prefix, planned) or locator
            else:
                gateway = entry.gateway if isinstance(entry.gateway, IPv6Address) else IPv6Address(0)
                routes.append(SegmentRouteState(prefix, gateway, entry.port))
        elif entry.protocol != _KERNEL and any(prefix.subnet_of(known) for known in prefixes):
            raise _refuse(entry, "lies within a prefix of the plan's segments")
    if wanted is None and locator is None and not routes:
        return None
    order = {route.prefix: number for number, route in enumerate(planned.routes)}
    routes.sort(key=lambda route: (order.get(route.prefix, len(order)), route.prefix))
    return SegmentRouting(locator, tuple(routes))


_KERNEL: Final = "2"
"""Of a port's own addresses: RTPROT_KERNEL."""


def _locator(entry: RouteAnswer, prefix: IPv6Network, planned: SegmentRouting) -> IPv6Network | None:
    """Block of a segment of ours; None: it stands on another port than the plan's, or does something else."""
    block = IPv6Network((prefix.network_address, LOCATOR_BITS), strict=False)
    is_segment = (entry.encap, entry.action) == (
        "seg6local",
        "End",
    ) and prefix.prefixlen == prefix.max_prefixlen
    is_in_place = not planned.routes or entry.port == planned.routes[0].port
    is_first = prefix.network_address == block.network_address
    return block if is_segment and is_in_place and is_first else None


def _refuse(entry: RouteAnswer, problem: str) -> DeviceError:
    family = " -6" if ":" in entry.prefix else ""
    return DeviceError(
        f"route {entry.prefix} {problem}",
        where=SEGMENT_QUERY if family else ROUTE_QUERY,
        hint=f"somebody else made it; remove it: ip{family} route del {entry.prefix} proto {entry.protocol}",
    )


_Network = TypeVar("_Network", IPv4Network, IPv6Network)


def _prefix(kind: type[_Network], entry: RouteAnswer) -> _Network:
    is_six = kind is IPv6Network
    every = "::/0" if is_six else "0.0.0.0/0"
    try:
        return kind(every if entry.prefix == "default" else entry.prefix)
    except ValueError:
        raise DeviceError(
            f"{entry.prefix!r} is no IPv{6 if is_six else 4} prefix",
            where=SEGMENT_QUERY if is_six else ROUTE_QUERY,
        ) from None
