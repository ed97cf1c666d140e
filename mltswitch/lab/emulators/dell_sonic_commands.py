"""The maps, ports and routes of an emulated Enterprise SONiC switch.

Sources: the command tree of the management framework as Broadcom published it (sonic-mgmt-framework, branch
broadcom_sonic_3.x: CLI/clitree/cli-xml, and the ranges of sonic_types.xml) and what checks values after it
(sonic-mgmt-common, translib/transformer and the YANG models). Texts that end in `[emulator]` are ours.

Checked as qos_map_*.xml, qos_interface.xml, interface.xml, macro/route_macro.xml and xfmr_qos_intf.go do.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators.dell_sonic_changes import (
    NAME,
    QUEUE,
    Change,
    refused,
    with_entry,
    without_entry,
)
from mltswitch.lab.emulators.dell_sonic_policies import GLOBAL_POLICIES, check_speed
from mltswitch.lab.emulators.dell_sonic_state import (
    DSCP_COUNT,
    MAP_KINDS,
    QUEUES,
    DellSonicConfiguration,
    Port,
    Route,
)
from mltswitch.lab.emulators.grammar import Argument, Command, Element, Values, choice, whole

MAX_ROUTES: Final = 10_000
LOSSLESS_PRIORITIES: Final = 2
_PREFIX: Final = Argument("prefix", IPv4Network)
_HOP: Final = Argument("next-hop", IPv4Address)
_PORT_WORD: Final = Argument("port", str)
PortChange = Callable[[DellSonicConfiguration, Port, Values], Port]


def _number_list(count: int) -> Callable[[str], tuple[int, ...]]:
    def parse(word: str) -> tuple[int, ...]:
        found: list[int] = []
        for part in word.split(","):
            match = re.fullmatch(r"([0-9]{1,2})(?:-([0-9]{1,2}))?", part)
            if match is None:
                raise ValueError("write numbers and ranges, such as 0,2-16")
            first, last = int(match[1]), int(match[2] or match[1])
            if not first <= last < count:
                raise ValueError(f"numbers are 0 to {count - 1}")
            found += range(first, last + 1)
        return tuple(found)

    return parse


def _create_map(kind: str) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
        name = values.one("name", str)
        maps = old.maps.get(kind, {})
        entries = maps.get(name, MappingProxyType({}))
        return replace(old, maps=with_entry(old.maps, kind, with_entry(maps, name, entries)))

    return apply


def _delete_map(kind: str) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
        name = values.one("name", str)
        if any(port.maps.get(kind) == name for port in old.ports.values()):
            raise refused(f"map {kind} {name} is in use [emulator]")
        return replace(old, maps=with_entry(old.maps, kind, without_entry(old.maps.get(kind, {}), name)))

    return apply


def _set_entries(kind: str) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        entries = dict(old.maps[kind][place[0]])
        entries |= dict.fromkeys(values.one("entries", tuple), values.one("target", int))
        maps = with_entry(old.maps[kind], place[0], MappingProxyType(entries))
        return replace(old, maps=with_entry(old.maps, kind, maps))

    return apply


def _delete_entries(kind: str) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        entries: Mapping[int, int] = old.maps[kind][place[0]]
        for number in values.one("entries", tuple):
            entries = without_entry(entries, number)
        return replace(old, maps=with_entry(old.maps, kind, with_entry(old.maps[kind], place[0], entries)))

    return apply


def _map_commands(kind: str) -> tuple[Command[Change], ...]:
    word, target, count = MAP_KINDS[kind]
    entries = Argument("entries", _number_list(count))
    last = DSCP_COUNT - 1 if target == "dscp" else QUEUES - 1
    return (
        Command((word, entries, target, whole("target", 0, last)), _set_entries(kind)),
        Command(("no", word, entries), _delete_entries(kind)),
    )


IN_MAP: Final = {kind: _map_commands(kind) for kind in MAP_KINDS}
CREATE_MAP: Final = {kind: _create_map(kind) for kind in MAP_KINDS}


def _port(
    change: PortChange,
) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        return replace(old, ports=with_entry(old.ports, place[0], change(old, old.ports[place[0]], values)))

    return apply


def _bind_wred(old: DellSonicConfiguration, port: Port, values: Values) -> Port:
    name = values.one("name", str)
    if name not in old.wred:
        raise refused(f"No instance found for '{name}'")
    if old.wred[name].green is None:
        raise refused("Atleast one of the colors(GREEN/YELLOW/RED) must be present in WRED policy")
    return replace(port, wred=with_entry(port.wred, values.one("queue", int), name))


def _bind_scheduler(old: DellSonicConfiguration, port: Port, values: Values) -> Port:
    name = values.one("name", str)
    queues = old.schedulers.get(name)
    if queues is None:
        raise refused(f"No instance found for {name}")
    for scheduler in queues.values():
        if scheduler.meter_type == "packets":
            raise refused("Invalid scheduler policy meter type for the interface")
        check_speed(scheduler, port)
    return replace(port, scheduler=name)


def _bind_map(kind: str) -> PortChange:
    def change(old: DellSonicConfiguration, port: Port, values: Values) -> Port:
        name = values.one("name", str)
        if name not in old.maps.get(kind, {}):
            raise refused(f"No instance found for '{name}'")
        return replace(port, maps=with_entry(port.maps, kind, name))

    return change


def _bind_policy(old: DellSonicConfiguration, port: Port, values: Values) -> Port:
    name = values.one("name", str)
    if port.service_policy:
        raise refused(f"{port.service_policy} policy already applied")
    if ("policy-map", name) not in old.flows:
        raise refused(f"No instance found for '{name}'")
    return replace(port, service_policy=name)


def _unbind_map(kind: str) -> PortChange:
    return lambda _, port, __: replace(port, maps=without_entry(port.maps, kind))


def _pause(_: DellSonicConfiguration, port: Port, values: Values) -> Port:
    lossless = port.lossless | {values.one("priority", int)}
    if len(lossless) > LOSSLESS_PRIORITIES:
        raise refused(f"at most {LOSSLESS_PRIORITIES} priorities have flow control [emulator]")
    return replace(port, lossless=lossless)


def _set_flow_control(_: DellSonicConfiguration, port: Port, values: Values) -> Port:
    way = values.one("way", str)
    others = tuple(each for each in port.flow_control if each != way)
    return replace(port, flow_control=(*others, way) if values.one("state", str) == "on" else others)


_MAP_BINDINGS: Final[tuple[Command[Change], ...]] = tuple(
    command
    for kind in MAP_KINDS
    for command in (
        Command(("qos-map", kind, NAME), _port(_bind_map(kind))),
        Command(("no", "qos-map", kind), _port(_unbind_map(kind))),
    )
)
IN_INTERFACE: Final[tuple[Command[Change], ...]] = (
    Command(("queue", QUEUE, "wred-policy", NAME), _port(_bind_wred)),
    Command(
        ("no", "queue", QUEUE, "wred-policy"),
        _port(lambda _, port, values: replace(port, wred=without_entry(port.wred, values.one("queue", int)))),
    ),
    Command(("scheduler-policy", NAME), _port(_bind_scheduler)),
    Command(("no", "scheduler-policy"), _port(lambda _, port, __: replace(port, scheduler=""))),
    *_MAP_BINDINGS,
    Command(("priority-flow-control", "priority", whole("priority", 0, 7)), _port(_pause)),
    Command(
        ("no", "priority-flow-control", "priority", whole("priority", 0, 7)),
        _port(lambda _, port, values: replace(port, lossless=port.lossless - {values.one("priority", int)})),
    ),
    Command(
        ("priority-flow-control", "asymmetric"),
        _port(lambda _, port, __: replace(port, asymmetric=True)),
    ),
    Command(
        ("no", "priority-flow-control", "asymmetric"),
        _port(lambda _, port, __: replace(port, asymmetric=False)),
    ),
    Command(
        ("flowcontrol", choice("way", "receive", "send"), choice("state", "on", "off")),
        _port(_set_flow_control),
    ),
    Command(
        ("ip", "address", Argument("address", IPv4Interface)),
        _port(lambda _, port, values: replace(port, address=values.one("address", IPv4Interface))),
    ),
    Command(
        ("description", Argument("description", str)),
        _port(lambda _, port, values: replace(port, description=values.one("description", str))),
    ),
    Command(("service-policy", "type", "qos", "in", NAME), _port(_bind_policy)),
    Command(
        ("no", "service-policy", "type", "qos", "in"),
        _port(lambda _, port, __: replace(port, service_policy="")),
    ),
    Command(("shutdown",), _port(lambda _, port, __: replace(port, shutdown=True))),
    Command(("no", "shutdown"), _port(lambda _, port, __: replace(port, shutdown=False))),
    Command(
        ("speed", whole("speed", 1000, 800_000)),
        _port(lambda _, port, values: replace(port, speed_mbps=values.one("speed", int))),
    ),
)


def _route(old: DellSonicConfiguration, values: Values) -> Route:
    interface = values.maybe("port", str) or ""
    if interface and interface not in old.ports:
        raise refused(f"No instance found for '{interface}'")
    return Route(
        values.one("prefix", IPv4Network),
        values.maybe("next-hop", IPv4Address),
        interface,
        values.maybe("blackhole", str) is not None,
        values.maybe("tag", int) or 0,
        values.maybe("distance", int) or 0,
    )


def _add_route(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
    """As a PATCH does: what the line does not say of a next hop that exists stays."""
    route = _route(old, values)
    before = next((one for one in old.routes if one.key == route.key), None)
    if before is not None:
        route = replace(route, tag=route.tag or before.tag, distance=route.distance or before.distance)
    others = tuple(one for one in old.routes if one.key != route.key)
    if len(others) >= MAX_ROUTES:
        raise refused("the routing table is full [emulator]")
    return replace(old, routes=(*others, route))


def _remove_route(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
    route = _route(old, values)
    left = tuple(one for one in old.routes if one.key != route.key)
    if len(left) == len(old.routes):
        raise refused("Resource not found")
    return replace(old, routes=left)


_TARGETS: Final[tuple[tuple[Element, ...], ...]] = (
    (_HOP,),
    ("interface", _PORT_WORD),
    (_HOP, "interface", _PORT_WORD),
    (choice("blackhole", "blackhole"),),
)
_DISTANCE: Final = whole("distance", 1, 255)
_TAG: Final[tuple[Element, ...]] = ("tag", whole("tag", 1, 2**32 - 1))
_MORE: Final[tuple[tuple[Element, ...], ...]] = ((), (_DISTANCE,), _TAG, (*_TAG, _DISTANCE))
_MAP_REMOVALS: Final[tuple[Command[Change], ...]] = tuple(
    Command(("no", "qos", "map", kind, NAME), _delete_map(kind)) for kind in MAP_KINDS
)
_ROUTES: Final[tuple[Command[Change], ...]] = tuple(
    Command(("ip", "route", _PREFIX, *target, *more), _add_route) for target in _TARGETS for more in _MORE
)
_ROUTE_REMOVALS: Final[tuple[Command[Change], ...]] = tuple(
    Command(("no", "ip", "route", _PREFIX, *target), _remove_route) for target in _TARGETS
)
GLOBAL: Final = (*GLOBAL_POLICIES, *_MAP_REMOVALS, *_ROUTES, *_ROUTE_REMOVALS)
"""Commands of the global mode that open no other."""
