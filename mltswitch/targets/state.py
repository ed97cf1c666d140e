"""The state of one switch, as far as mltswitch manages it: it is rendered, read back and compared."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from operator import attrgetter
from typing import Final

from mltswitch.capabilities import Bandwidth, Limit
from mltswitch.plan import Route as RouteState  # a plan says it as a device runs it
from mltswitch.wire.tos import every_dscp_but

__all__ = [
    "FIELD_WORDS",
    "Difference",
    "PortState",
    "QueueState",
    "RouteState",
    "SegmentRouteState",
    "SegmentRouting",
    "SwitchState",
    "differences",
    "every_dscp_but",
    "same_ports",
]


@dataclass(frozen=True, slots=True)
class QueueState:
    """One egress queue of one port."""

    queue: int
    """The number of the hardware queue."""
    dscps: tuple[int, ...]
    """DSCPs that lead to this queue, ascending, of packets that arrive at this port.

    On Linux, where the port by which a packet leaves decides, of packets that leave. The port's queues share
    all 64.
    """
    ecn_threshold_bytes: int | None
    """The ECN threshold S: above it ECN-capable packets are marked and others dropped; None: neither."""
    limit: Limit
    minimum: Bandwidth | None = None
    """The bandwidth guaranteed to the queue however much waits in stricter ones (background); None: none."""
    maximum: Bandwidth | None = None
    """The bandwidth that the queue may not exceed (control); None: the port's rate."""
    is_lossless: bool = False
    """Whether the queue is lossless: only its DSCPs are managed, and it stands before the last queue."""


@dataclass(frozen=True, slots=True)
class PortState:
    """One port: its queues in order of service, strict priority but for a queue's minimum."""

    name: str
    trusted: bool
    """Whether the DSCP of packets that arrive here is believed."""
    shaped_bps: int | None
    """Rate to which the switch itself shapes the port; None: the link's own rate."""
    queues: tuple[QueueState, ...]
    unexpected: tuple[str, ...] = ()
    """What a device runs here that no plan asks for and no other field can say; empty in a wanted state."""
    rewritten: tuple[int, ...] = ()
    """DSCPs of arriving packets that are rewritten to background's, for every switch behind this one, too."""
    hardware_address: str = ""
    """The MAC address to which neighbours send what this port routes; empty: the OS has one of its own."""
    mtu_bytes: int | None = None
    """The longest IP packet in bytes; None where the OS has an MTU of its own."""


_PORT_FIELDS: Final = ("trusted", "shaped_bps", "rewritten", "hardware_address", "mtu_bytes")
_fields: Final = attrgetter(*_PORT_FIELDS)


@dataclass(frozen=True, slots=True)
class SegmentRouteState:
    """One static IPv6 route of the plan, to a switch's segments or to the hosts of a leaf."""

    prefix: IPv6Network
    next_hop: IPv6Address
    port: str


@dataclass(frozen=True, slots=True)
class SegmentRouting:
    """SRv6 on one switch: the paths that hosts name by segment lists (RFC 8986)."""

    locator: IPv6Network | None
    """The switch's own block of segments, /48; None: it ends no segment."""
    routes: tuple[SegmentRouteState, ...]

    @property
    def segment(self) -> IPv6Address | None:
        """The switch's own segment, of behaviour End; None: it has none.

        Nothing stands behind its locator: in a compressed list (RFC 9800) that would be the next segment.
        """
        return None if self.locator is None else self.locator.network_address


@dataclass(frozen=True, slots=True)
class SwitchState:  # noqa: PLW1641  (the decorator makes the hash)
    """All that mltswitch manages on one switch; ports and routes are in a fixed order."""

    ports: tuple[PortState, ...]
    routes: tuple[RouteState, ...]
    segment_routing: SegmentRouting | None = None
    """SRv6 on the switch; None: the plan does not use it."""
    packet_spraying: bool = False
    """Whether equal-cost routes are chosen packet by packet."""
    background_dscp: int = 0
    """The DSCP to which ports rewrite others."""
    unexpected: tuple[str, ...] = field(default=(), compare=False)
    """Settings of the whole switch that touch the plan's ports and no plan asks for; equality has them."""

    def __eq__(self, other: object) -> bool:
        """Whether everything is the same; ports that share their queues are compared once."""
        if not isinstance(other, SwitchState):
            return NotImplemented
        return (
            self.routes == other.routes
            and self.segment_routing == other.segment_routing
            and self.packet_spraying == other.packet_spraying
            and self.background_dscp == other.background_dscp
            and self.unexpected == other.unexpected
            and same_ports(self.ports, other.ports)
        )


def same_ports(ones: tuple[PortState, ...], others: tuple[PortState, ...]) -> bool:
    """Whether two tuples of ports are equal; queues, which most ports share, are compared once for each pair.

    A plain comparison would compare the queues of every port, which takes longer than to parse a file of
    them.
    """
    equal: set[tuple[int, int]] = set()
    for one, other in zip(ones, others, strict=False):
        if one.name != other.name:
            return False
        if (
            any(getattr(one, field) != getattr(other, field) for field in _PORT_FIELDS)
            or one.unexpected != other.unexpected
        ):
            return False
        pair = (id(one.queues), id(other.queues))
        if pair not in equal and one.queues != other.queues:
            return False
        equal.add(pair)
    return len(ones) == len(others)


_CONFIGURATION: Final = "configuration"
DISCARDED: Final = "discarded"
"""What differences call the next hop of a route that drops packets."""
FIELD_WORDS: Final = {
    "ecn_threshold_bytes": "ECN threshold",
    "dscps": "code points",
    "shaped_bps": "rate",
    "trusted": "DSCP trusted",
    "rewritten": "code points made background's",
    "background_dscp": "code point that they get",
    "hardware_address": "MAC address",
    "mtu_bytes": "MTU",
    "minimum": "guarantee",
    "maximum": "rate cap",
}
"""Field of a difference or a rounding → its name in messages."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of a switch's state that differs from the expected one."""

    port: str
    queue: int | None
    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        place = (
            f"port {self.port}" if self.port else "the switch" if self.field == _CONFIGURATION else "routes"
        )
        if self.queue is not None:
            place += f", queue {self.queue}"
        return f"{place}: {self.field} expected {self.expected}, found {self.found}"


def differences(expected: SwitchState, found: SwitchState) -> tuple[Difference, ...]:
    """Every value in which `found` differs from `expected`; ports that `expected` lacks are ignored."""
    return (
        *(Difference("", None, _CONFIGURATION, "as planned", fault) for fault in found.unexpected),
        *_port_differences(expected, found),
        *_rewriting_differences(expected, found),
        *_route_differences(expected, found),
        *_path_differences(expected, found),
    )


def _port_differences(expected: SwitchState, found: SwitchState) -> Iterator[Difference]:
    found_ports = {port.name: port for port in found.ports}
    for port in expected.ports:
        other = found_ports.get(port.name)
        if other is None:
            yield Difference(port.name, None, _CONFIGURATION, "present", "absent")
            continue
        for name in _PORT_FIELDS:
            wanted, actual = getattr(port, name), getattr(other, name)
            if wanted != actual:
                yield Difference(port.name, None, name, str(wanted), str(actual))
        yield from _queue_differences(port, other)
        for fault in other.unexpected:
            yield Difference(port.name, None, _CONFIGURATION, "as planned", fault)


def _rewriting_differences(expected: SwitchState, found: SwitchState) -> Iterator[Difference]:
    wanted, actual = expected.background_dscp, found.background_dscp
    if wanted != actual and any(one.rewritten and other.rewritten for one, other in _pairs(expected, found)):
        yield Difference("", None, "background_dscp", str(wanted), str(actual))


def _pairs(expected: SwitchState, found: SwitchState) -> Iterator[tuple[PortState, PortState]]:
    found_ports = {port.name: port for port in found.ports}
    return ((port, found_ports[port.name]) for port in expected.ports if port.name in found_ports)


def _queue_differences(expected: PortState, found: PortState) -> Iterator[Difference]:
    found_queues = {queue.queue: queue for queue in found.queues}
    for queue in expected.queues:
        other = found_queues.pop(queue.queue, None)
        if other is None:
            yield Difference(expected.name, queue.queue, "queue", "present", "absent")
            continue
        for name in ("dscps", "ecn_threshold_bytes", "limit", "minimum", "maximum"):
            wanted, actual = getattr(queue, name), getattr(other, name)
            if wanted != actual:
                yield Difference(expected.name, queue.queue, name, str(wanted), str(actual))
    for number in found_queues:
        yield Difference(expected.name, number, "queue", "absent", "present")


def _route_differences(expected: SwitchState, found: SwitchState) -> Iterator[Difference]:
    if expected.routes == found.routes:
        return
    found_routes = _by_prefix(found)
    for prefix, routes in _by_prefix(expected).items():
        others = found_routes.pop(prefix, [])
        if set(routes) == set(others):
            continue
        # Of two to the prefix of one, which a switch may hold, the one that is not the plan's says more.
        shown = others[-1:] if len(routes) == 1 else others
        yield Difference("", None, f"route {prefix}", _all_via(routes), _all_via(shown) or "absent")
    for prefix, routes in found_routes.items():
        yield Difference("", None, f"route {prefix}", "absent", _all_via(routes[-1:]))


def _by_prefix(state: SwitchState) -> dict[IPv4Network, list[RouteState]]:
    """Routes to each prefix: several share its packets."""
    found: dict[IPv4Network, list[RouteState]] = {}
    for route in state.routes:
        found.setdefault(route.prefix, []).append(route)
    return found


def _all_via(routes: Iterable[RouteState]) -> str:
    return " and ".join(map(_via, routes))


def _path_differences(expected: SwitchState, found: SwitchState) -> Iterator[Difference]:
    if expected.packet_spraying != found.packet_spraying:
        wanted, actual = (
            "on" if each else "off" for each in (expected.packet_spraying, found.packet_spraying)
        )
        yield Difference("", None, "packet spraying", wanted, actual)
    if expected.segment_routing is None and found.segment_routing is None:
        return
    wanted_segments = expected.segment_routing or SegmentRouting(None, ())
    found_segments = found.segment_routing or SegmentRouting(None, ())
    if wanted_segments.locator != found_segments.locator:
        locators = (str(each.locator or "absent") for each in (wanted_segments, found_segments))
        yield Difference("", None, "segment routing locator", *locators)
    for route in wanted_segments.routes:
        if route not in found_segments.routes:
            yield Difference("", None, f"route {route.prefix}", _via(route), "absent")
    for route in found_segments.routes:
        if route not in wanted_segments.routes:
            yield Difference("", None, f"route {route.prefix}", "absent", _via(route))


def _via(route: RouteState | SegmentRouteState) -> str:
    discards = isinstance(route, RouteState) and route.discards
    return DISCARDED if discards else f"via {route.next_hop} {route.port}".rstrip()
