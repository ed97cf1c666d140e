"""mltswitch's routes, alias and SRv6, as facts: prefix → the words of `ip route` for it, IPv4 first."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final

from mltswitch.errors import DeviceError
from mltswitch.plan.segments import LOCATOR_BITS
from mltswitch.targets.addresses import ipv4_address, ipv4_network, network_text
from mltswitch.targets.base import LineError
from mltswitch.targets.common import NO_NEXT_HOP
from mltswitch.targets.linux.answers import ROUTE_QUERY, ROUTES, SEGMENT_QUERY, RouteAnswer, load
from mltswitch.targets.linux.lines import ROUTE_PROTOCOL, read_line, route_text
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SegmentRouteState, SegmentRouting, SwitchState

REPLACE: Final = "route replace "
Routes = Mapping[str, str | None]
"""Prefix → the words of its route; None: not read, empty: a kind of route that no plan asks for."""
_BLACKHOLE: Final = ("blackhole", "6")
"""A route that discards: `ip` names it, or with -N numbers it (RTN_BLACKHOLE)."""
_METRICS: Final = {4: 0, 6: 1024}
"""What the kernel gives a route that names none (IP6_RT_PRIO_USER)."""
_KERNEL: Final = "2"
"""Of a port's own addresses: RTPROT_KERNEL."""
_NO_SEGMENTS: Final = SegmentRouting(None, ())


def _text(route: RouteState | SegmentRouteState) -> tuple[str, str]:
    """A prefix and its route; an unspecified next hop is a network on the link itself."""
    prefix = network_text(route.prefix) if isinstance(route, RouteState) else str(route.prefix)
    if isinstance(route, RouteState) and route.discards:
        return prefix, route_text("discard", network=prefix)
    if route.next_hop.is_unspecified:
        return prefix, f"{prefix} dev {route.port} proto {ROUTE_PROTOCOL}"
    return prefix, route_text("route", prefix=prefix, address=route.next_hop, port=route.port)


def _segment_text(segment: IPv6Address, port: str) -> tuple[str, str]:
    """The switch's own segment (RFC 8986, End). The kernel wants some port for it; it looks where to send the
    packet afterwards."""
    return f"{segment}/128", route_text("segment", segment=segment, port=port)


def is_segment(text: str | None) -> bool:
    """Whether a route's text is that of a switch's own SRv6 segment."""
    return text is not None and " encap " in text


def routes_of(state: SwitchState, wanted: SwitchState) -> dict[str, str]:
    """The routes of a state to prefixes, segments and hosts, and its own segment on a wanted port."""
    segments = state.segment_routing or _NO_SEGMENTS
    found = dict([*map(_text, state.routes), *map(_text, segments.routes)])
    if segments.segment is not None:
        ways = (wanted.segment_routing or segments).routes
        found |= [_segment_text(segments.segment, ways[0].port if ways else "")]
    return found


def route_lines(now: Routes, then: Routes, *, is_rollback: bool = False) -> list[str]:
    """Lines for `ip -batch` that lead from routes to others; removals last, so that no prefix lacks a route.

    A new prefix is added, never put in place of somebody else's route. On the way to a plan, an own
    segment that is not on its port was read as none, so it is replaced; on the way back, a prefix to remove
    may have another route by now.
    """
    changed = [prefix for prefix, text in then.items() if text and now.get(prefix) != text]
    replaced = {prefix for prefix in changed if prefix in now}
    if not is_rollback:
        changed.sort(key=lambda prefix: (":" in prefix, is_segment(then[prefix]), prefix not in now))
        replaced |= {prefix for prefix in changed if is_segment(then[prefix])}
    lines = [f"{REPLACE if prefix in replaced else 'route add '}{then[prefix]}" for prefix in changed]
    for prefix, text in now.items():
        if prefix not in then:
            is_known = not is_rollback and not is_segment(text)
            lines.append(f"route del {text if is_known else f'{prefix} proto {ROUTE_PROTOCOL}'}")
    return lines


def parse_routes(
    lines: Iterable[tuple[int, str]], file: str
) -> tuple[tuple[RouteState, ...], SegmentRouting | None]:
    """The routes in a file, given as numbered lines; raises LineError."""
    found: dict[IPv4Network | IPv6Network, RouteState | SegmentRouteState] = {}
    segments: list[SegmentRouteState] = []
    locator: IPv6Network | None = None
    for number, text in lines:
        try:
            route = _parse_route(text)
        except ValueError as error:
            raise LineError(number, text, str(error), file) from None
        problem = ""
        if isinstance(route, IPv6Network):
            if locator is not None or not segments:
                problem = "a segment without routes, or a second one"
            elif text != REPLACE + _segment_text(route.network_address, segments[0].port)[1]:
                problem = f"not the first address of {route} on port {segments[0].port}"
            locator = route
        elif locator is not None and not route.next_hop.is_unspecified:
            problem = "a route after the segment"
        elif isinstance(route, RouteState) and segments:
            problem = "IPv4 after IPv6"
        elif found.setdefault(route.prefix, route) is not route:
            problem = "a second route for this prefix"
        elif isinstance(route, SegmentRouteState):
            segments.append(route)
        if problem:
            raise LineError(number, text, problem, file)
    routes = tuple(route for route in found.values() if isinstance(route, RouteState))
    return routes, SegmentRouting(locator, tuple(segments)) if segments else None


def _parse_route(text: str) -> RouteState | SegmentRouteState | IPv6Network:
    """What a line says: a route, or the block of the switch's own segment; raises ValueError."""
    words = text.removeprefix(REPLACE)
    (what,), value = read_line("" if words == text else words, is_route=True)
    if what == "discard":
        return RouteState(ipv4_network(value), NO_NEXT_HOP, "")
    if what == "segment":
        return IPv6Network((value[0], LOCATOR_BITS), strict=False)
    prefix, hop, port = value
    if ":" in prefix:
        return SegmentRouteState(IPv6Network(prefix), IPv6Address(hop), port)
    return RouteState(ipv4_network(prefix), ipv4_address(hop), port)


def running_routes(
    answers: Mapping[str, str], wanted: SwitchState
) -> tuple[tuple[RouteState, ...], SegmentRouting | None]:
    """mltswitch's running routes, the plan's first; raises DeviceError for others that divert its packets.

    Any other route within an alias prefix does that, or within a prefix of the plan's segments. SRv6 is None
    where it neither runs nor is wanted.
    """
    own = OwnPrefixes(wanted.routes)
    alias = [_alias(*entry) for entry in _ours(answers, ROUTE_QUERY, own.__contains__)]
    planned = wanted.segment_routing or _NO_SEGMENTS
    prefixes = [route.prefix for route in planned.routes]
    prefixes += [] if planned.locator is None else [planned.locator]
    port = planned.routes[0].port if planned.routes else None
    entries = list(_ours(answers, SEGMENT_QUERY, lambda prefix: any(map(prefix.subnet_of, prefixes))))
    blocks = [_locator(entry, prefix, port) for entry, prefix in entries if entry.encap]
    locator = next((block for block in reversed(blocks) if block), None)
    order = {route.prefix: number for number, route in enumerate(planned.routes)}
    routes = sorted(
        (_segment_route(entry, prefix) for entry, prefix in entries if not entry.encap),
        key=lambda route: (order.get(route.prefix, len(order)), route.prefix),
    )
    is_none = wanted.segment_routing is None and locator is None and not routes
    return in_order_of(wanted.routes, alias), None if is_none else SegmentRouting(locator, tuple(routes))


def former_routes(answers: Mapping[str, str]) -> dict[str, str]:
    """mltswitch's routes on a host, whichever plan they are of: prefix → the words of its route."""
    found: dict[str, str] = {}
    for entry, prefix in _ours(answers, ROUTE_QUERY):
        name, text = _text(_alias(entry, prefix))
        found[name] = "" if " dev (" in text else text
    for entry, prefix in _ours(answers, SEGMENT_QUERY):
        if not entry.encap:
            found |= [_text(_segment_route(entry, prefix))]
        elif block := _locator(entry, prefix):
            found |= [_segment_text(block.network_address, entry.port)]
        else:
            found[entry.prefix] = ""
    return found


def _ours(
    answers: Mapping[str, str], query: str, is_planned: Callable[[Any], bool] = lambda _: False
) -> Iterator[tuple[RouteAnswer, Any]]:
    """The routes with our protocol number, each with its prefix."""
    version, kind, every = (
        (6, IPv6Network, "::/0") if query == SEGMENT_QUERY else (4, IPv4Network, "0.0.0.0/0")
    )
    for entry in load(ROUTES, answers, query):
        try:
            prefix = kind(every if entry.prefix == "default" else entry.prefix)
        except ValueError:
            raise DeviceError(f"{entry.prefix!r} is no IPv{version} prefix", where=query) from None
        problem = ""
        if entry.protocol == ROUTE_PROTOCOL:
            if entry.nexthops or entry.metric != _METRICS[version] or entry.gateway.version > version:
                problem = "has the protocol number of mltswitch, but a metric or several next hops"
        elif is_planned(prefix) and (version, entry.protocol) != (6, _KERNEL):
            place = "an alias prefix of the plan" if version == 4 else "a prefix of the plan's segments"
            problem = f"lies within {place}"
        if problem:
            family = " -6" if ":" in entry.prefix else ""
            removal = f"ip{family} route del {entry.prefix} proto {entry.protocol}"
            raise DeviceError(
                f"route {entry.prefix} {problem}",
                where=SEGMENT_QUERY if family else ROUTE_QUERY,
                hint=f"somebody else made it; remove it: {removal}",
            )
        if entry.protocol == ROUTE_PROTOCOL:
            yield entry, prefix


def _alias(entry: RouteAnswer, prefix: IPv4Network) -> RouteState:
    """A route of ours; of a kind that no plan asks for, the kind is its port."""
    port = "" if entry.kind in _BLACKHOLE else entry.port or f"({entry.kind})"
    gateway = entry.gateway if isinstance(entry.gateway, IPv4Address) else NO_NEXT_HOP
    return RouteState(prefix, gateway, port)


def _segment_route(entry: RouteAnswer, prefix: IPv6Network) -> SegmentRouteState:
    gateway = entry.gateway if isinstance(entry.gateway, IPv6Address) else IPv6Address(0)
    return SegmentRouteState(prefix, gateway, entry.port)


def _locator(entry: RouteAnswer, prefix: IPv6Network, port: str | None = None) -> IPv6Network | None:
    """Block of a segment of ours; None: it stands on another port than the plan's, or does something else."""
    block = IPv6Network((prefix.network_address, LOCATOR_BITS), strict=False)
    is_segment = (entry.encap, entry.action, prefix.prefixlen) == ("seg6local", "End", prefix.max_prefixlen)
    is_in_place = port is None or entry.port == port
    return block if is_segment and is_in_place and prefix.network_address == block.network_address else None
