"""The configuration commands of FASTPATH that concern queues and paths.

Sources: the Class of Service, Routing and Data Center Bridging chapters of public FASTPATH manuals (NETGEAR
M4300, Extreme 200 Series, Dell EMC Networking N-series with `drop-prob-scale` and `ecn`). In interface mode a
command concerns the port, in global mode all ports. Ours, because no source says: that thresholds end at
250 % (Dell has an example with 200), that a route with another preference replaces the old one, and that host
bits of a route are 0.
"""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators.grammar import Argument, Command, Element, Values, invalid, whole
from mltswitch.lab.emulators.icos_diffserv import NAME, QUEUES, parse_dscp
from mltswitch.lab.emulators.icos_state import (
    COLOURS,
    DEFAULT_DSCP_TO_QUEUE,
    DEFAULT_EXPONENT,
    DEFAULT_PREFERENCE,
    NULL0,
    PRIORITIES,
    Curve,
    IcosConfiguration,
    Port,
    Queue,
    Route,
    Trust,
)
from mltswitch.lab.emulators.sequences import with_items

MAX_ROUTES: Final = 10_000
GREATEST_PERCENT: Final = 250
Change = Callable[[IcosConfiguration, Values, tuple[str, ...]], IcosConfiguration]
"""The names are the ports that the line concerns: one in interface mode, all in global mode."""
PortChange = Callable[[Port, Values], Port]


def _parse_mask(word: str) -> int:
    try:
        network = IPv4Network(f"0.0.0.0/{word}")
    except ValueError:
        raise ValueError("write a subnet mask") from None
    if str(network.netmask) != word:
        raise ValueError("write a subnet mask")
    return network.prefixlen


def _parse_next_hop(word: str) -> IPv4Address:
    return NULL0 if word.lower() == "null0" else IPv4Address(word)


_QUEUE: Final = whole("queue", 0, QUEUES - 1)
_QUEUE_LIST: Final = whole("queue", 0, QUEUES - 1, repeated=True)
_PRIORITY: Final = whole("priority", 0, PRIORITIES - 1)
_DSCP: Final = Argument("dscp", parse_dscp)
_ADDRESS: Final = Argument("address", IPv4Address)
_MASK: Final = Argument("mask", _parse_mask)
_NEXT_HOP: Final = Argument("next-hop", _parse_next_hop)
_PREFERENCE: Final = whole("preference", 1, 255)


def _columns(name: str, maximum: int) -> tuple[Element, ...]:
    return (name, *(whole(name, 0, maximum) for _ in range(COLOURS)))


def _on_ports(change: PortChange) -> Change:
    def apply(configuration: IcosConfiguration, values: Values, names: tuple[str, ...]) -> IcosConfiguration:
        ports = dict(configuration.ports)
        for name in names:
            ports[name] = change(ports[name], values)
        return replace(configuration, ports=MappingProxyType(ports))

    return apply


def _on_queues(change: Callable[[Queue, Values], Queue]) -> PortChange:
    def apply(port: Port, values: Values) -> Port:
        chosen = set(values.all("queue", int))
        queues = (change(old, values) if n in chosen else old for n, old in enumerate(port.queues))
        return replace(port, queues=tuple(queues))

    return apply


def _trust(mode: Trust) -> PortChange:
    return lambda port, _: replace(port, trust=mode)


def _map_priority(port: Port, values: Values) -> Port:
    mapped = with_items(port.priority_to_queue, values.all("priority", int), values.one("queue", int))
    return replace(port, priority_to_queue=mapped)


def _curve(ecn: bool) -> PortChange:
    def change(old: Queue, values: Values) -> Queue:
        minimum, maximum = values.all("min-thresh", int), values.all("max-thresh", int)
        # Dell: a maximum below the minimum becomes the minimum plus one.
        maximum = tuple(high if high >= low else low + 1 for low, high in zip(minimum, maximum, strict=True))
        return replace(old, curve=Curve(minimum, maximum, values.all("drop-prob-scale", int), ecn))

    return _on_queues(change)


def _bandwidths(port: Port, values: Values) -> Port:
    shares = values.all("bandwidth", int)
    if len(shares) != QUEUES or sum(shares) > 100:
        raise invalid(f"bandwidths are {QUEUES} percentages of at most 100 together")
    queues = (replace(old, minimum_bandwidth=share) for old, share in zip(port.queues, shares, strict=True))
    return replace(port, queues=tuple(queues))


def _address(port: Port, values: Values) -> Port:
    return replace(
        port, address=IPv4Interface(f"{values.one('address', IPv4Address)}/{values.one('mask', int)}")
    )


def _map_dscp(configuration: IcosConfiguration, values: Values, _: tuple[str, ...]) -> IcosConfiguration:
    mapped = with_items(configuration.dscp_to_queue, values.all("dscp", int), values.one("queue", int))
    return replace(configuration, dscp_to_queue=mapped)


def _prefix(values: Values) -> IPv4Network:
    try:
        return IPv4Network(f"{values.one('address', IPv4Address)}/{values.one('mask', int)}")
    except ValueError as error:
        raise invalid(str(error)) from None


def _add_route(configuration: IcosConfiguration, values: Values, _: tuple[str, ...]) -> IcosConfiguration:
    preference = next(iter(values.all("preference", int)), DEFAULT_PREFERENCE)
    route = Route(_prefix(values), values.one("next-hop", IPv4Address), preference)
    others = tuple(
        old for old in configuration.routes if (old.prefix, old.next_hop) != (route.prefix, route.next_hop)
    )
    if len(others) >= MAX_ROUTES:
        raise invalid("the routing table is full")
    return replace(configuration, routes=(*others, route))


def _remove_route(configuration: IcosConfiguration, values: Values, _: tuple[str, ...]) -> IcosConfiguration:
    prefix, hops = _prefix(values), values.all("next-hop", IPv4Address)
    left = tuple(
        old for old in configuration.routes if old.prefix != prefix or (hops and old.next_hop != hops[0])
    )
    if left == configuration.routes:
        raise invalid("there is no such route")
    return replace(configuration, routes=left)


def _attach(configuration: IcosConfiguration, values: Values, names: tuple[str, ...]) -> IcosConfiguration:
    policy = values.one("name", str)
    if policy not in configuration.diffserv.policies:
        raise invalid(f"there is no policy {policy}")
    if any(configuration.ports[name].policy not in {"", policy} for name in names):
        raise invalid("an interface has one policy, and there is another")
    return _on_ports(lambda port, _: replace(port, policy=policy))(configuration, values, names)


def _detach(configuration: IcosConfiguration, values: Values, names: tuple[str, ...]) -> IcosConfiguration:
    policy = values.one("name", str)
    if all(configuration.ports[name].policy != policy for name in names):
        raise invalid(f"policy {policy} is not attached")
    return _on_ports(lambda port, _: replace(port, policy="" if port.policy == policy else port.policy))(
        configuration, values, names
    )


def _delete_policy(configuration: IcosConfiguration, values: Values, _: tuple[str, ...]) -> IcosConfiguration:
    policy = values.one("name", str)
    if any(port.policy == policy for port in configuration.ports.values()):
        raise invalid(f"policy {policy} is in use")
    return replace(configuration, diffserv=configuration.diffserv.without_policy(policy))


def _switch_diffserv(*, on: bool) -> Change:
    return lambda old, _, __: replace(old, diffserv=replace(old.diffserv, is_on=on))


def _port(*pattern: Element, change: PortChange) -> Command[Change]:
    return Command(pattern, _on_ports(change))


def _queue_switch(*words: str, change: Callable[[Queue, Values], Queue]) -> Command[Change]:
    return _port(*words, _QUEUE_LIST, change=_on_queues(change))


_PARAMETERS: Final[tuple[Element, ...]] = (
    "random-detect",
    "queue-parms",
    _QUEUE_LIST,
    *_columns("min-thresh", GREATEST_PERCENT),
    *_columns("max-thresh", GREATEST_PERCENT),
    *_columns("drop-prob-scale", 100),
)

EVERYWHERE: Final[tuple[Command[Change], ...]] = (
    *(_port("classofservice", "trust", mode.value, change=_trust(mode)) for mode in Trust),
    _port("no", "classofservice", "trust", change=lambda port, _: replace(port, trust=Trust.DOT1P)),
    _port("classofservice", "dot1p-mapping", _PRIORITY, _QUEUE, change=_map_priority),
    _port(
        *("no", "classofservice", "dot1p-mapping"),
        change=lambda port, _: replace(port, priority_to_queue=Port().priority_to_queue),
    ),
    _queue_switch("cos-queue", "strict", change=lambda old, _: replace(old, strict=True)),
    _queue_switch("no", "cos-queue", "strict", change=lambda old, _: replace(old, strict=False)),
    _queue_switch("cos-queue", "random-detect", change=lambda old, _: replace(old, random_detect=True)),
    _queue_switch(
        "no", "cos-queue", "random-detect", change=lambda old, _: replace(old, random_detect=False)
    ),
    _port("cos-queue", "min-bandwidth", whole("bandwidth", 0, 100, repeated=True), change=_bandwidths),
    _port(
        *("no", "cos-queue", "min-bandwidth"),
        change=lambda port, _: replace(
            port, queues=tuple(replace(old, minimum_bandwidth=0) for old in port.queues)
        ),
    ),
    _port(*_PARAMETERS, change=_curve(False)),
    _port(*_PARAMETERS, "ecn", change=_curve(True)),
    _queue_switch("no", "random-detect", "queue-parms", change=lambda old, _: replace(old, curve=Curve())),
    _port(
        *("random-detect", "exponential-weighting-constant", whole("constant", 0, 15)),
        change=lambda port, values: replace(port, weighting_exponent=values.one("constant", int)),
    ),
    _port(
        *("no", "random-detect", "exponential-weighting-constant"),
        change=lambda port, _: replace(port, weighting_exponent=DEFAULT_EXPONENT),
    ),
    _port(
        *("traffic-shape", whole("bandwidth", 0, 100)),
        change=lambda port, values: replace(port, shaping_percent=values.one("bandwidth", int)),
    ),
    Command(("service-policy", "in", NAME), _attach),
    Command(("no", "service-policy", "in", NAME), _detach),
    _port("no", "traffic-shape", change=lambda port, _: replace(port, shaping_percent=0)),
)
"""Commands of the global and of the interface mode."""

INTERFACE: Final[tuple[Command[Change], ...]] = (
    *EVERYWHERE,
    _port("storm-control", "flowcontrol", change=lambda port, _: replace(port, flow_control=True)),
    _port("no", "storm-control", "flowcontrol", change=lambda port, _: replace(port, flow_control=False)),
    _port(
        *("vlan", "priority", _PRIORITY),
        change=lambda port, values: replace(port, default_priority=values.one("priority", int)),
    ),
    _port("routing", change=lambda port, _: replace(port, routing=True)),
    _port("no", "routing", change=lambda port, _: replace(port, routing=False)),
    _port("ip", "address", _ADDRESS, _MASK, change=_address),
    _port("shutdown", change=lambda port, _: replace(port, shutdown=True)),
    _port("no", "shutdown", change=lambda port, _: replace(port, shutdown=False)),
)

BRIDGING: Final[tuple[Command[Change], ...]] = (
    _port("priority-flow-control", "mode", "on", change=lambda port, _: replace(port, pfc=True)),
    _port("priority-flow-control", "mode", "off", change=lambda port, _: replace(port, pfc=False)),
    _port("no", "priority-flow-control", "mode", change=lambda port, _: replace(port, pfc=False)),
    _port(
        *("priority-flow-control", "priority", _PRIORITY, "no-drop"),
        change=lambda port, values: replace(port, lossless=port.lossless | set(values.all("priority", int))),
    ),
    _port(
        *("priority-flow-control", "priority", _PRIORITY, "drop"),
        change=lambda port, values: replace(port, lossless=port.lossless - set(values.all("priority", int))),
    ),
)
"""Commands of the datacenter-bridging mode inside an interface."""

GLOBAL: Final[tuple[Command[Change], ...]] = (
    *EVERYWHERE,
    Command(("classofservice", "ip-dscp-mapping", _DSCP, _QUEUE), _map_dscp),
    Command(
        ("no", "classofservice", "ip-dscp-mapping"),
        lambda old, _, __: replace(old, dscp_to_queue=DEFAULT_DSCP_TO_QUEUE),
    ),
    Command(("diffserv",), _switch_diffserv(on=True)),
    Command(("no", "diffserv"), _switch_diffserv(on=False)),
    Command(
        ("no", "class-map", NAME),
        lambda old, values, _: replace(old, diffserv=old.diffserv.without_class(values.one("name", str))),
    ),
    Command(("no", "policy-map", NAME), _delete_policy),
    Command(("flowcontrol",), lambda old, _, __: replace(old, flow_control=True)),
    Command(("no", "flowcontrol"), lambda old, _, __: replace(old, flow_control=False)),
    Command(("ip", "routing"), lambda old, _, __: replace(old, ip_routing=True)),
    Command(("no", "ip", "routing"), lambda old, _, __: replace(old, ip_routing=False)),
    Command(("ip", "route", _ADDRESS, _MASK, _NEXT_HOP), _add_route),
    Command(("ip", "route", _ADDRESS, _MASK, _NEXT_HOP, _PREFERENCE), _add_route),
    Command(("no", "ip", "route", _ADDRESS, _MASK, _NEXT_HOP), _remove_route),
    Command(("no", "ip", "route", _ADDRESS, _MASK), _remove_route),
)
