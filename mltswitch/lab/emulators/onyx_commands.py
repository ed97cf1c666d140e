"""The configuration commands of Onyx 3.7-3.10 (SN2100) that concern queues and paths.

Source: "Quality of Service", "QoS Commands" and "Shared Buffer Commands" of the Onyx manual, the Ansible
collection mellanox.onyx, saved configurations, and for `bandwidth shape` of a port public scripts of a
research group. Every command is a full one-liner; the sub-mode prefixes its lines. Ours, because no source
says: the bounds of weight, percentages, rates and thresholds, that the host bits of a route are 0, where a
route's distance stands, and that another distance replaces it. There is no command for the bandwidths of a
traffic class, because no source has its words.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators import onyx_arguments as argument
from mltswitch.lab.emulators.grammar import Command, Element, Values, invalid
from mltswitch.lab.emulators.onyx_state import (
    DEFAULT_DISTANCE,
    CongestionControl,
    Control,
    EgressBuffer,
    OnyxConfiguration,
    Pool,
    Port,
    Route,
    ThresholdMode,
    TrafficClass,
    Trust,
)
from mltswitch.lab.emulators.sequences import with_items

MAX_ROUTES: Final = 10_000
MAX_POOLS: Final = 8

Change = Callable[[OnyxConfiguration, Values], OnyxConfiguration]
PortChange = Callable[[Port, Values], Port]


def positive(words: Sequence[str]) -> Sequence[str]:
    """`no interface ethernet 1/1 X` is another way to write `interface ethernet 1/1 no X`."""
    if len(words) > 4 and words[0] == "no" and words[1] and "interface".startswith(words[1]):
        return (*words[1:4], "no", *words[4:])
    return words


def _on_ports(change: PortChange) -> Change:
    def apply_to_ports(configuration: OnyxConfiguration, values: Values) -> OnyxConfiguration:
        ports = dict(configuration.ports)
        for name in (name for names in values.all("ports", tuple) for name in names):
            if name not in ports:
                raise invalid(f"there is no interface ethernet {name}")
            ports[name] = change(ports[name], values)
        return replace(configuration, ports=MappingProxyType(ports))

    return apply_to_ports


def _class_change(port: Port, values: Values, change: Callable[[TrafficClass], TrafficClass]) -> Port:
    index = values.one("traffic-class", int)
    return replace(
        port, traffic_classes=with_items(port.traffic_classes, (index,), change(port.traffic_classes[index]))
    )


def _trust(port: Port, values: Values) -> Port:
    return replace(port, trust=Trust(values.one("trust", str)))


def _map_dscp(port: Port, values: Values) -> Port:
    priority = values.one("switch-priority", int)
    return replace(
        port,
        dscp_to_switch_priority=with_items(port.dscp_to_switch_priority, values.all("dscp", int), priority),
    )


def _bind(port: Port, values: Values) -> Port:
    index = values.one("traffic-class", int)
    priorities = values.all("switch-priority", int)
    return replace(
        port, switch_priority_to_class=with_items(port.switch_priority_to_class, priorities, index)
    )


def _congestion_control(mode: ThresholdMode) -> PortChange:
    def change(port: Port, values: Values) -> Port:
        minimum, maximum = values.one("minimum", int), values.one("maximum", int)
        if minimum > maximum:
            raise invalid(f"minimum {minimum} is above maximum {maximum}")
        wanted = CongestionControl(Control(values.one("control", str)), mode, minimum, maximum)
        return _class_change(port, values, lambda old: replace(old, congestion_control=wanted))

    return change


def _no_congestion_control(port: Port, values: Values) -> Port:
    return _class_change(port, values, lambda old: replace(old, congestion_control=None))


def _strict(port: Port, values: Values) -> Port:
    return _class_change(port, values, lambda old: replace(old, strict=True))


def _weighted(port: Port, values: Values) -> Port:
    return _class_change(
        port, values, lambda old: replace(old, strict=False, weight=values.one("weight", int))
    )


def _port_shaped(port: Port, values: Values) -> Port:
    return replace(port, shaper_mbps=values.maybe("rate", int))


def _address(port: Port, values: Values) -> Port:
    if port.switchport:
        raise invalid("the interface is a switch port, it needs `no switchport force` first")
    return replace(port, address=values.one("address", IPv4Interface))


def _add_route(configuration: OnyxConfiguration, values: Values) -> OnyxConfiguration:
    distance = next(iter(values.all("distance", int)), DEFAULT_DISTANCE)
    route = Route("default", values.one("prefix", IPv4Network), values.one("next-hop", IPv4Address), distance)
    if route in configuration.routes:
        return configuration
    if len(configuration.routes) >= MAX_ROUTES:
        raise invalid(f"there are {MAX_ROUTES} routes already")
    kept = (
        old for old in configuration.routes if (old.prefix, old.next_hop) != (route.prefix, route.next_hop)
    )
    return replace(configuration, routes=(*kept, route))


def _remove_route(configuration: OnyxConfiguration, values: Values) -> OnyxConfiguration:
    prefix = values.one("prefix", IPv4Network)
    next_hops = values.all("next-hop", IPv4Address)
    kept = tuple(
        route
        for route in configuration.routes
        if route.prefix != prefix or (next_hops and route.next_hop not in next_hops)
    )
    if kept == configuration.routes:
        raise invalid(f"there is no such route to {prefix}")
    return replace(configuration, routes=kept)


def _pool(configuration: OnyxConfiguration, values: Values) -> OnyxConfiguration:
    _needs_advanced_buffers(configuration)
    pool = Pool(values.one("size", int), values.one("type", str))
    pools = {**configuration.pools, values.one("name", str): pool}
    if len(pools) > MAX_POOLS:
        raise invalid(f"there are {MAX_POOLS} pools already")
    return replace(configuration, pools=MappingProxyType(pools))


def _egress_buffer(configuration: OnyxConfiguration, values: Values) -> OnyxConfiguration:
    _needs_advanced_buffers(configuration)
    name = values.one("name", str)
    if name not in configuration.pools:
        raise invalid(f"there is no pool {name}")
    index = int(values.one("buffer", str).removeprefix("ePort.tc"))
    wanted = EgressBuffer(name, values.one("size", int), values.one("alpha", str))

    def change(port: Port, _: Values) -> Port:
        traffic_class = replace(port.traffic_classes[index], buffer=wanted)
        return replace(port, traffic_classes=with_items(port.traffic_classes, (index,), traffic_class))

    return _on_ports(change)(configuration, values)


def _needs_advanced_buffers(configuration: OnyxConfiguration) -> None:
    if not configuration.advanced_buffers:
        raise invalid("this needs `advanced buffer management force` first")


def _simple_buffers(configuration: OnyxConfiguration, _: Values) -> OnyxConfiguration:
    """Leaving the advanced mode forgets what it held (inferred: no source says so)."""

    def forget(port: Port) -> Port:
        return replace(port, traffic_classes=tuple(replace(old, buffer=None) for old in port.traffic_classes))

    ports = {name: forget(port) for name, port in configuration.ports.items()}
    return replace(configuration, advanced_buffers=False, pools={}, ports=MappingProxyType(ports))


def _port_command(*pattern: Element, change: PortChange) -> Command[Change]:
    return Command(("interface", "ethernet", argument.PORTS, *pattern), _on_ports(change))


def _pfc_priorities(configuration: OnyxConfiguration, values: Values, *, enable: bool) -> OnyxConfiguration:
    named = set(values.all("switch-priority", int))
    old = configuration.pfc_priorities
    return replace(configuration, pfc_priorities=old | named if enable else old - named)


_PORT_COMMANDS: Final[tuple[Command[Change], ...]] = (
    _port_command("qos", "trust", argument.TRUST, change=_trust),
    _port_command("no", "qos", "trust", change=lambda port, _: replace(port, trust=Trust.L2)),
    _port_command(
        "qos",
        "map",
        "dscp",
        argument.DSCP,
        "to",
        "switch-priority",
        argument.SWITCH_PRIORITY,
        change=_map_dscp,
    ),
    _port_command("qos", "rewrite", "dscp", change=lambda port, _: replace(port, rewrite_dscp=True)),
    _port_command("no", "qos", "rewrite", "dscp", change=lambda port, _: replace(port, rewrite_dscp=False)),
    _port_command("qos", "rewrite", "pcp", change=lambda port, _: replace(port, rewrite_pcp=True)),
    _port_command("no", "qos", "rewrite", "pcp", change=lambda port, _: replace(port, rewrite_pcp=False)),
    _port_command(
        "traffic-class",
        argument.TRAFFIC_CLASS,
        "bind",
        "switch-priority",
        argument.SWITCH_PRIORITIES,
        change=_bind,
    ),
    _port_command(
        "traffic-class",
        argument.TRAFFIC_CLASS,
        "congestion-control",
        argument.CONTROL,
        "minimum-absolute",
        argument.MINIMUM_KB,
        "maximum-absolute",
        argument.MAXIMUM_KB,
        change=_congestion_control(ThresholdMode.ABSOLUTE),
    ),
    _port_command(
        "traffic-class",
        argument.TRAFFIC_CLASS,
        "congestion-control",
        argument.CONTROL,
        "minimum-relative",
        argument.MINIMUM_PERCENT,
        "maximum-relative",
        argument.MAXIMUM_PERCENT,
        change=_congestion_control(ThresholdMode.RELATIVE),
    ),
    _port_command(
        "no", "traffic-class", argument.TRAFFIC_CLASS, "congestion-control", change=_no_congestion_control
    ),
    _port_command("traffic-class", argument.TRAFFIC_CLASS, "dcb", "ets", "strict", change=_strict),
    _port_command(
        "traffic-class", argument.TRAFFIC_CLASS, "dcb", "ets", "wrr", argument.WEIGHT, change=_weighted
    ),
    _port_command("bandwidth", "shape", argument.RATE, change=_port_shaped),
    _port_command("no", "bandwidth", "shape", change=_port_shaped),
    _port_command(
        "no", "switchport", "force", change=lambda port, _: replace(port, switchport=False, address=None)
    ),
    _port_command("switchport", "force", change=lambda port, _: replace(port, switchport=True, address=None)),
    _port_command("ip", "address", argument.ADDRESS, "primary", change=_address),
    _port_command("ip", "address", argument.ADDRESS, change=_address),
    _port_command(
        "dcb", "priority-flow-control", "mode", "on", "force", change=lambda port, _: replace(port, pfc=True)
    ),
    _port_command(
        "no", "dcb", "priority-flow-control", "mode", "force", change=lambda port, _: replace(port, pfc=False)
    ),
    _port_command(
        "mtu",
        argument.MTU,
        "force",
        change=lambda port, values: replace(port, mtu_bytes=values.one("mtu", int)),
    ),
    _port_command("shutdown", change=lambda port, _: replace(port, shutdown=True)),
    _port_command("no", "shutdown", change=lambda port, _: replace(port, shutdown=False)),
)

_GLOBAL_COMMANDS: Final[tuple[Command[Change], ...]] = (
    Command(
        (
            *("interface", "ethernet", argument.PORTS, "egress-buffer", argument.EGRESS_BUFFER),
            *("map", "pool", argument.NAME, "reserved", argument.SIZE, "shared", "alpha", argument.ALPHA),
        ),
        _egress_buffer,
    ),
    Command(("cli", "default", "prefix-modes", "enable"), lambda old, _: replace(old, prefix_modes=True)),
    Command(
        ("no", "cli", "default", "prefix-modes", "enable"), lambda old, _: replace(old, prefix_modes=False)
    ),
    Command(
        ("ip", "routing", "vrf", "default"),
        lambda old, _: replace(old, routing_vrfs=old.routing_vrfs | {"default"}),
    ),
    Command(
        ("no", "ip", "routing", "vrf", "default"),
        lambda old, _: replace(old, routing_vrfs=old.routing_vrfs - {"default"}),
    ),
    Command(("ip", "route", "vrf", "default", argument.PREFIX, argument.NEXT_HOP), _add_route),
    Command(
        ("ip", "route", "vrf", "default", argument.PREFIX, argument.NEXT_HOP, argument.DISTANCE), _add_route
    ),
    Command(("no", "ip", "route", "vrf", "default", argument.PREFIX, argument.NEXT_HOP), _remove_route),
    Command(("no", "ip", "route", "vrf", "default", argument.PREFIX), _remove_route),
    Command(("dcb", "priority-flow-control", "enable", "force"), lambda old, _: replace(old, pfc=True)),
    Command(
        ("no", "dcb", "priority-flow-control", "enable", "force"), lambda old, _: replace(old, pfc=False)
    ),
    Command(
        ("dcb", "priority-flow-control", "priority", argument.SWITCH_PRIORITY, "enable"),
        lambda old, values: _pfc_priorities(old, values, enable=True),
    ),
    Command(
        ("no", "dcb", "priority-flow-control", "priority", argument.SWITCH_PRIORITY, "enable"),
        lambda old, values: _pfc_priorities(old, values, enable=False),
    ),
    Command(
        ("advanced", "buffer", "management", "force"), lambda old, _: replace(old, advanced_buffers=True)
    ),
    Command(("no", "advanced", "buffer", "management", "force"), _simple_buffers),
    Command(("pool", argument.NAME, "size", argument.SIZE, "type", argument.POOL_MODE), _pool),
)

COMMANDS: Final = _PORT_COMMANDS + _GLOBAL_COMMANDS
