"""The configuration commands of EOS that concern queues and paths, by the mode in which they stand.

Source: the templates, tested configurations and schema of aristanetworks/avd (spelling, ranges), Arista's QoS
manual (what is bound to what, what a default is). Ours, because no source says: that minimum may not be
above maximum, that host bits of a route are 0, where a route's distance stands, that another one replaces it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators import eos_arguments as argument
from mltswitch.lab.emulators.eos_state import (
    CONTROL_CLASS,
    EosConfiguration,
    Port,
    Qos,
    Queue,
    Route,
    Threshold,
    Trust,
)
from mltswitch.lab.emulators.grammar import Command, Element, Values, invalid
from mltswitch.lab.emulators.sequences import with_items

MAX_ROUTES: Final = 10_000
FLAGS: Final = (
    "ip routing",
    "qos rewrite cos",
    "qos rewrite dscp",
    "qos random-detect ecn allow non-ect",
    "qos random-detect ecn allow non-ect chip-based",
    "priority-flow-control all off",
    "hardware counter feature ecn out",
)

GlobalChange = Callable[[EosConfiguration, Values], EosConfiguration]
PortChange = Callable[[Port, Values], Port]
QosChange = Callable[[Qos, Values], Qos]
QueueChange = Callable[[Queue, Values], Queue]


# --- the whole switch --------------------------------------------------------------------------------------


def _map_dscp(old: EosConfiguration, values: Values) -> EosConfiguration:
    dscps = values.all("dscp", int)
    return replace(
        old,
        dscp_classes=with_items(old.dscp_classes, dscps, values.one("traffic-class", int)),
        dscp_precedence=with_items(old.dscp_precedence, dscps, values.maybe("drop-precedence", int) or 0),
    )


def _map_cos(old: EosConfiguration, values: Values) -> EosConfiguration:
    classes = with_items(old.cos_classes, values.all("cos", int), values.one("traffic-class", int))
    return replace(old, cos_classes=classes)


def _map_class(old: EosConfiguration, values: Values) -> EosConfiguration:
    classes = values.all("traffic-class", int)
    if CONTROL_CLASS in classes:
        raise invalid(f"traffic class {CONTROL_CLASS} stays with queue {CONTROL_CLASS}")
    return replace(old, class_queues=with_items(old.class_queues, classes, values.one("queue", int)))


def _route(values: Values) -> Route:
    return Route(
        values.one("prefix", IPv4Network),
        values.maybe("interface", str) or "",
        values.maybe("next-hop", IPv4Address),
        values.maybe("distance", int) or 1,
    )


def _add_route(old: EosConfiguration, values: Values) -> EosConfiguration:
    route = _route(values)
    if route in old.routes:
        return old
    if route.interface.startswith("Ethernet") and route.interface not in old.ports:
        raise invalid(f"there is no {route.interface}")
    if len(old.routes) >= MAX_ROUTES:
        raise invalid(f"there are {MAX_ROUTES} routes already")
    via = (route.prefix, route.interface, route.next_hop)
    kept = (each for each in old.routes if (each.prefix, each.interface, each.next_hop) != via)
    return replace(old, routes=(*kept, route))


def _remove_route(old: EosConfiguration, values: Values) -> EosConfiguration:
    """What the line does not name, it does not ask for."""
    asked = _route(values)
    distance = values.maybe("distance", int)

    def is_meant(route: Route) -> bool:
        return (
            route.prefix == asked.prefix
            and asked.interface in {"", route.interface}
            and asked.next_hop in {None, route.next_hop}
            and distance in {None, route.distance}
        )

    kept = tuple(route for route in old.routes if not is_meant(route))
    if kept == old.routes:
        raise invalid(f"there is no such route to {asked.prefix}")
    return replace(old, routes=kept)


def _flag(text: str, *, on: bool) -> GlobalChange:
    def change(old: EosConfiguration, _: Values) -> EosConfiguration:
        return replace(old, flags=old.flags | {text} if on else old.flags - {text})

    return change


_VIA: Final[tuple[tuple[Element, ...], ...]] = (
    (argument.NEXT_HOP,),
    (argument.INTERFACE, argument.NEXT_HOP),
    (argument.NULL0,),
)
_FAR: Final[tuple[tuple[Element, ...], ...]] = ((), (argument.DISTANCE,))


def _route_commands() -> Iterator[Command[GlobalChange]]:
    add: tuple[Element, ...] = ("ip", "route", argument.PREFIX)
    yield Command(("no", *add), _remove_route)
    for via in _VIA:
        for far in _FAR:
            yield Command((*add, *via, *far), _add_route)
            yield Command(("no", *add, *via, *far), _remove_route)


_FLAG_COMMANDS: Final[tuple[Command[GlobalChange], ...]] = tuple(
    Command((*prefix, *text.split()), _flag(text, on=not prefix))
    for text in FLAGS
    for prefix in ((), ("no",))
)
_MAP_COMMANDS: Final[tuple[Command[GlobalChange], ...]] = (
    Command(("qos", "map", "dscp", argument.DSCPS, "to", "traffic-class", argument.CLASS), _map_dscp),
    Command(
        (
            *("qos", "map", "dscp", argument.DSCPS, "to", "traffic-class", argument.CLASS),
            *("drop-precedence", argument.PRECEDENCE),
        ),
        _map_dscp,
    ),
    Command(("qos", "map", "cos", argument.COSES, "to", "traffic-class", argument.CLASS), _map_cos),
    Command(("qos", "map", "traffic-class", argument.CLASSES, "to", "tx-queue", argument.QUEUE), _map_class),
)
GLOBAL_COMMANDS: Final = _MAP_COMMANDS + tuple(_route_commands()) + _FLAG_COMMANDS

# --- a port and a QoS profile ------------------------------------------------------------------------------


def _lossless(old: Qos, values: Values, *, add: bool) -> Qos:
    named = {values.one("priority", int)}
    return replace(old, lossless=old.lossless | named if add else old.lossless - named)


_SERVICE_POLICY: Final[tuple[Element, ...]] = ("service-policy", "type", "qos", "input")


def _take_policy_off(old: Qos, values: Values) -> Qos:
    if old.policy != values.one("name", str):
        raise invalid("another policy map is there, or none")
    return replace(old, policy="")


QOS_COMMANDS: Final[tuple[Command[QosChange], ...]] = (
    Command(("qos", "trust", "dscp"), lambda old, _: replace(old, trust=Trust.DSCP)),
    Command(("qos", "trust", "cos"), lambda old, _: replace(old, trust=Trust.COS)),
    Command(("no", "qos", "trust"), lambda old, _: replace(old, trust=Trust.NONE)),
    Command(("default", "qos", "trust"), lambda old, _: replace(old, trust=Trust.DEFAULT)),
    Command(("qos", "cos", argument.COS), lambda old, values: replace(old, cos=values.one("cos", int))),
    Command(("no", "qos", "cos"), lambda old, _: replace(old, cos=None)),
    Command(("qos", "dscp", argument.DSCP), lambda old, values: replace(old, dscp=values.one("dscp", int))),
    Command(("no", "qos", "dscp"), lambda old, _: replace(old, dscp=None)),
    Command(
        ("shape", "rate", argument.RATE, argument.RATE_UNIT),
        lambda old, values: replace(old, shape=f"{values.one('rate', int)} {values.one('unit', str)}"),
    ),
    Command(("no", "shape", "rate"), lambda old, _: replace(old, shape="")),
    Command(
        (*_SERVICE_POLICY, argument.NAME), lambda old, values: replace(old, policy=values.one("name", str))
    ),
    Command(("no", *_SERVICE_POLICY), lambda old, _: replace(old, policy="")),
    Command(("no", *_SERVICE_POLICY, argument.NAME), _take_policy_off),
    Command(("priority-flow-control", "on"), lambda old, _: replace(old, pfc=True)),
    Command(("no", "priority-flow-control"), lambda old, _: replace(old, pfc=False)),
    Command(
        ("priority-flow-control", "priority", argument.PRIORITY, "no-drop"),
        lambda old, values: _lossless(old, values, add=True),
    ),
    Command(
        ("no", "priority-flow-control", "priority", argument.PRIORITY, "no-drop"),
        lambda old, values: _lossless(old, values, add=False),
    ),
)


def _address(old: Port, values: Values) -> Port:
    if old.switchport:
        raise invalid("the interface is a switch port, it needs `no switchport` first")
    return replace(old, address=values.one("address", IPv4Interface))


def _flow_control(old: Port, values: Values, *, on: bool) -> Port:
    named = {values.one("direction", str)}
    return replace(old, flow_control=old.flow_control | named if on else old.flow_control - named)


PORT_COMMANDS: Final[tuple[Command[PortChange], ...]] = (
    Command(
        ("service-profile", argument.NAME), lambda old, values: replace(old, profile=values.one("name", str))
    ),
    Command(("no", "service-profile"), lambda old, _: replace(old, profile="")),
    Command(
        ("description", argument.NAME), lambda old, values: replace(old, description=values.one("name", str))
    ),
    Command(("mtu", argument.MTU), lambda old, values: replace(old, mtu_bytes=values.one("mtu", int))),
    Command(
        ("channel-group", argument.CHANNEL, "mode", "active"),
        lambda old, values: replace(old, channel_group=values.one("channel", int)),
    ),
    Command(("no", "channel-group"), lambda old, _: replace(old, channel_group=None)),
    Command(
        ("flowcontrol", argument.DIRECTION, "on"), lambda old, values: _flow_control(old, values, on=True)
    ),
    Command(
        ("flowcontrol", argument.DIRECTION, "off"), lambda old, values: _flow_control(old, values, on=False)
    ),
    Command(("no", "switchport"), lambda old, _: replace(old, switchport=False)),
    Command(("switchport",), lambda old, _: replace(old, switchport=True, address=None)),
    Command(("ip", "address", argument.ADDRESS), _address),
    Command(("shutdown",), lambda old, _: replace(old, shutdown=True)),
    Command(("no", "shutdown"), lambda old, _: replace(old, shutdown=False)),
)

# --- a queue -----------------------------------------------------------------------------------------------


def _threshold(values: Values) -> Threshold:
    minimum, maximum = values.one("minimum", int), values.one("maximum", int)
    units = set(values.all("unit", str))
    if len(units) != 1:
        raise invalid("minimum and maximum have the same unit")
    if minimum > maximum:
        raise invalid(f"minimum {minimum} is above maximum {maximum}")
    return Threshold(
        minimum, maximum, units.pop(), values.maybe("probability", int), values.maybe("weight", int)
    )


def _bandwidth(kind: str) -> QueueChange:
    return lambda old, values: replace(old, bandwidth=f"{kind} {values.one('percent', int)}")


def _take_bandwidth_off(kind: str) -> QueueChange:
    def change(old: Queue, _: Values) -> Queue:
        return replace(old, bandwidth="") if old.bandwidth.startswith(kind) else old

    return change


_RANGE: Final[tuple[Element, ...]] = (
    *("minimum-threshold", argument.MINIMUM, argument.UNIT),
    *("maximum-threshold", argument.MAXIMUM, argument.UNIT),
)
_MARK: Final[tuple[Element, ...]] = ("max-mark-probability", argument.PROBABILITY)
_WEIGHT: Final[tuple[Element, ...]] = ("weight", argument.WEIGHT)
_DROP: Final[tuple[Element, ...]] = ("drop-probability", argument.PROBABILITY)


def _ecn(old: Queue, values: Values) -> Queue:
    return replace(old, ecn=_threshold(values))


def _drop(old: Queue, values: Values) -> Queue:
    return replace(old, drop=_threshold(values))


_PLAIN_COMMANDS: Final[tuple[Command[QueueChange], ...]] = (
    Command(("priority", "strict"), lambda old, _: replace(old, strict=True)),
    Command(("no", "priority"), lambda old, _: replace(old, strict=False)),
    Command(("bandwidth", "percent", argument.PERCENT), _bandwidth("percent")),
    Command(("bandwidth", "guaranteed", "percent", argument.PERCENT), _bandwidth("guaranteed percent")),
    Command(
        ("bandwidth", "guaranteed", argument.RATE, argument.RATE_UNIT),
        lambda old, values: replace(
            old, bandwidth=f"guaranteed {values.one('rate', int)} {values.one('unit', str)}"
        ),
    ),
    Command(("no", "bandwidth", "percent"), _take_bandwidth_off("percent")),
    Command(("no", "bandwidth", "guaranteed"), _take_bandwidth_off("guaranteed")),
    Command(
        ("shape", "rate", argument.RATE, argument.RATE_UNIT),
        lambda old, values: replace(old, shape=f"{values.one('rate', int)} {values.one('unit', str)}"),
    ),
    Command(("no", "shape", "rate"), lambda old, _: replace(old, shape="")),
    Command(("no", "random-detect", "ecn"), lambda old, _: replace(old, ecn=None)),
    Command(("random-detect", "ecn", "count"), lambda old, _: replace(old, ecn_count=True)),
    Command(("no", "random-detect", "ecn", "count"), lambda old, _: replace(old, ecn_count=False)),
)
_ECN_COMMANDS: Final[tuple[Command[QueueChange], ...]] = tuple(
    Command(("random-detect", "ecn", *_RANGE, *mark, *weight), _ecn)
    for mark in ((), _MARK)
    for weight in ((), _WEIGHT)
)
_DROP_COMMANDS: Final[tuple[Command[QueueChange], ...]] = tuple(
    Command(("random-detect", "drop", *_RANGE, *_DROP, *weight), _drop) for weight in ((), _WEIGHT)
)
QUEUE_COMMANDS: Final = _PLAIN_COMMANDS + _ECN_COMMANDS + _DROP_COMMANDS


def on_qos(change: QosChange) -> PortChange:
    """A change of what ports and profiles share, for a port."""
    return lambda old, values: replace(old, qos=change(old.qos, values))


def with_port(old: EosConfiguration, name: str, port: Port) -> EosConfiguration:
    """The same configuration with one port changed."""
    return replace(old, ports=MappingProxyType({**old.ports, name: port}))


def with_profile(old: EosConfiguration, name: str, qos: Qos) -> EosConfiguration:
    """The same configuration with one QoS profile changed."""
    return replace(old, profiles=MappingProxyType({**old.profiles, name: qos}))
