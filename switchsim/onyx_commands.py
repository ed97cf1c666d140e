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
from typing import Any, Final

from switchsim.grammar import Command, Values, invalid
from switchsim.onyx_arguments import ARGUMENTS
from switchsim.onyx_state import (
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
from switchsim.settings import patterns, with_items

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


def _sets(**fields: Any) -> PortChange:
    """What a line does that always sets these fields of a port to the same."""
    return lambda port, _: replace(port, **fields)


def _takes(field: str, argument: str) -> PortChange:
    def change(port: Port, values: Values) -> Port:
        fields: dict[str, Any] = {field: values.maybe(argument, object)}
        return replace(port, **fields)

    return change


def _switch_sets(**fields: Any) -> Change:
    return lambda old, _: replace(old, **fields)


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


def _pfc_priorities(configuration: OnyxConfiguration, values: Values, *, enable: bool) -> OnyxConfiguration:
    named = set(values.all("switch-priority", int))
    old = configuration.pfc_priorities
    return replace(configuration, pfc_priorities=old | named if enable else old - named)


_CLASS: Final = "traffic-class {traffic-class}"
_PORT_ROWS: Final[tuple[tuple[str, PortChange], ...]] = (
    ("qos trust {trust}", _trust),
    ("no qos trust", _sets(trust=Trust.L2)),
    ("qos map dscp {dscp} to switch-priority {switch-priority}", _map_dscp),
    ("qos rewrite dscp", _sets(rewrite_dscp=True)),
    ("no qos rewrite dscp", _sets(rewrite_dscp=False)),
    ("qos rewrite pcp", _sets(rewrite_pcp=True)),
    ("no qos rewrite pcp", _sets(rewrite_pcp=False)),
    (f"{_CLASS} bind switch-priority {{switch-priorities}}", _bind),
    (
        f"{_CLASS} congestion-control {{control}} minimum-absolute {{minimum-kb}} "
        "maximum-absolute {maximum-kb}",
        _congestion_control(ThresholdMode.ABSOLUTE),
    ),
    (
        f"{_CLASS} congestion-control {{control}} minimum-relative {{minimum-percent}} "
        "maximum-relative {maximum-percent}",
        _congestion_control(ThresholdMode.RELATIVE),
    ),
    (f"no {_CLASS} congestion-control", _no_congestion_control),
    (f"{_CLASS} dcb ets strict", _strict),
    (f"{_CLASS} dcb ets wrr {{weight}}", _weighted),
    ("bandwidth shape {rate}", _takes("shaper_mbps", "rate")),
    ("no bandwidth shape", _takes("shaper_mbps", "rate")),
    ("no switchport force", _sets(switchport=False, address=None)),
    ("switchport force", _sets(switchport=True, address=None)),
    ("ip address {address} [primary]", _address),
    ("dcb priority-flow-control mode on force", _sets(pfc=True)),
    ("no dcb priority-flow-control mode force", _sets(pfc=False)),
    ("mtu {mtu} force", _takes("mtu_bytes", "mtu")),
    ("shutdown", _sets(shutdown=True)),
    ("no shutdown", _sets(shutdown=False)),
)
_ROWS: Final[tuple[tuple[str, Change], ...]] = (
    *((f"interface ethernet {{ports}} {text}", _on_ports(change)) for text, change in _PORT_ROWS),
    (
        "interface ethernet {ports} egress-buffer {buffer} map pool {name} reserved {size} "
        "shared alpha {alpha}",
        _egress_buffer,
    ),
    ("cli default prefix-modes enable", _switch_sets(prefix_modes=True)),
    ("no cli default prefix-modes enable", _switch_sets(prefix_modes=False)),
    ("ip routing vrf default", _switch_sets(routing_vrfs=frozenset({"default"}))),
    ("no ip routing vrf default", _switch_sets(routing_vrfs=frozenset())),
    ("ip route vrf default {prefix} {next-hop} [{distance}]", _add_route),
    ("no ip route vrf default {prefix} [{next-hop}]", _remove_route),
    ("dcb priority-flow-control enable force", _switch_sets(pfc=True)),
    ("no dcb priority-flow-control enable force", _switch_sets(pfc=False)),
    (
        "dcb priority-flow-control priority {switch-priority} enable",
        lambda old, values: _pfc_priorities(old, values, enable=True),
    ),
    (
        "no dcb priority-flow-control priority {switch-priority} enable",
        lambda old, values: _pfc_priorities(old, values, enable=False),
    ),
    ("advanced buffer management force", _switch_sets(advanced_buffers=True)),
    ("no advanced buffer management force", _simple_buffers),
    (
        "no ipv4 access-list {access-list}",
        lambda old, values: replace(
            old, access_lists=tuple(name for name in old.access_lists if name != values.one("name", str))
        ),
    ),
    ("pool {name} size {size} type {type}", _pool),
)
COMMANDS: Final[tuple[Command[Change], ...]] = tuple(
    Command(pattern, change) for text, change in _ROWS for pattern in patterns(text, ARGUMENTS)
)
