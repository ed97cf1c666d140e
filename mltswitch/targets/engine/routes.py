"""Static routes as facts of the switch; mltswitch manages those that lie within the plan's prefixes."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from mltswitch.errors import DeviceError
from mltswitch.targets.addresses import address_text
from mltswitch.targets.common import NO_NEXT_HOP, NULL_INTERFACE, as_discarding, static_route
from mltswitch.targets.engine.facts import DISTANCE, ROUTE, Fact, PortFacts
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState


def route_facts(routes: Iterable[RouteState]) -> PortFacts:
    """The routes as facts, in their order."""
    return dict.fromkeys(map(_fact, routes))


def _fact(route: RouteState) -> Fact:
    if route.next_hop != NO_NEXT_HOP:
        hop, distance = address_text(route.next_hop), route.port
    else:
        words = (route.port or NULL_INTERFACE.lower()).split()
        target = 2 if words[0] == "interface" else 1  # `interface 0/1` stands for a next hop as one word does
        hop, distance = " ".join(words[:target]), " ".join(words[target:])
    return (DISTANCE, route.prefix, hop, distance) if distance else (ROUTE, route.prefix, hop)


def routes_of(facts: PortFacts) -> tuple[RouteState, ...]:
    """The routes among the facts of the switch."""
    return tuple(_route(*fact[1:]) for fact in facts if fact[0] in {ROUTE, DISTANCE})


def _route(prefix: IPv4Network, hop: str, distance: str = "") -> RouteState:
    words = f"{hop} {distance}".rstrip()
    try:
        return RouteState(prefix, IPv4Address(hop), distance)
    except ValueError:
        return as_discarding(RouteState(prefix, NO_NEXT_HOP, words), NULL_INTERFACE)


def read_routes(
    lines: Iterable[str], form: re.Pattern[str], where: str, planned: tuple[RouteState, ...]
) -> PortFacts:
    """The routes within the plan's prefixes in lines of a running configuration, those of the plan first.

    The form of such a line has the groups `vrf`, `address`, `length` or `mask`, `target` for the next hop and
    `others` for what stands behind it. Raises DeviceError for a route of another form.
    """
    own = OwnPrefixes(planned)
    found: list[RouteState] = []
    for line in lines:
        if line.startswith("ip route "):
            match = form.fullmatch(line)
            if match is None:
                raise DeviceError(f"cannot read {line!r}", where=where)
            prefix = f"{match['address']}/{match['length'] or match['mask']}"
            route = static_route(line, where, prefix, match["target"], match["others"])
            if route.prefix in own and match["vrf"] in {None, "default"}:
                found.append(route)
    return route_facts(in_order_of(planned, found))
