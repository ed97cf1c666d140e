"""The configuration commands of FASTPATH that concern queues and paths.

Sources: the Class of Service, Routing and Data Center Bridging chapters of public FASTPATH manuals (NETGEAR
M4300, Extreme 200 Series, Dell EMC Networking N-series with `drop-prob-scale` and `ecn`). In interface mode a
command concerns the port, in global mode all ports. Ours, because no source says: that thresholds end at
250 % (Dell has an example with 200), that a route with another preference replaces the old one, and that host
bits of a route are 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Any, Final

from switchsim.grammar import Argument, Command, Values, invalid, whole
from switchsim.icos_diffserv import NAME, QUEUES, parse_dscp
from switchsim.icos_state import (
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
from switchsim.settings import patterns, with_items

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


ARGUMENTS: Final[Mapping[str, Argument]] = {
    "queue": whole("queue", 0, QUEUES - 1),
    "queues": whole("queue", 0, QUEUES - 1, repeated=True),
    "priority": whole("priority", 0, PRIORITIES - 1),
    "dscp": Argument("dscp", parse_dscp),
    "address": Argument("address", IPv4Address),
    "mask": Argument("mask", _parse_mask),
    "next-hop": Argument("next-hop", lambda word: NULL0 if word.lower() == "null0" else IPv4Address(word)),
    "preference": whole("preference", 1, 255),
    "name": NAME,
    "bandwidth": whole("bandwidth", 0, 100),
    "bandwidths": whole("bandwidth", 0, 100, repeated=True),
    "constant": whole("constant", 0, 15),
    "min-thresh": whole("min-thresh", 0, GREATEST_PERCENT),
    "max-thresh": whole("max-thresh", 0, GREATEST_PERCENT),
    "drop-prob-scale": whole("drop-prob-scale", 0, 100),
}


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


def _sets(**fields: Any) -> Change:
    return _on_ports(lambda port, _: replace(port, **fields))


def _takes(field: str, argument: str) -> Change:
    def change(port: Port, values: Values) -> Port:
        fields: dict[str, Any] = {field: values.one(argument, int)}
        return replace(port, **fields)

    return _on_ports(change)


def _queues_set(**fields: Any) -> Change:
    return _on_ports(_on_queues(lambda queue, _: replace(queue, **fields)))


def _switch_sets(**fields: Any) -> Change:
    return lambda old, _, __: replace(old, **fields)


def _map_priority(port: Port, values: Values) -> Port:
    mapped = with_items(port.priority_to_queue, values.all("priority", int), values.one("queue", int))
    return replace(port, priority_to_queue=mapped)


def _curve(*, ecn: bool) -> PortChange:
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


def _lossless(*, on: bool) -> Change:
    def change(port: Port, values: Values) -> Port:
        named = set(values.all("priority", int))
        return replace(port, lossless=port.lossless | named if on else port.lossless - named)

    return _on_ports(change)


def _no_bandwidths(port: Port, _: Values) -> Port:
    return replace(port, queues=tuple(replace(old, minimum_bandwidth=0) for old in port.queues))


def _commands(*rows: tuple[str, Change]) -> tuple[Command[Change], ...]:
    return tuple(Command(pattern, change) for text, change in rows for pattern in patterns(text, ARGUMENTS))


_PARAMETERS: Final = "random-detect queue-parms {queues} " + " ".join(
    f"{word}{f' {{{word}}}' * COLOURS}" for word in ("min-thresh", "max-thresh", "drop-prob-scale")
)
EVERYWHERE: Final = _commands(
    *((f"classofservice trust {mode.value}", _sets(trust=mode)) for mode in Trust),
    ("no classofservice trust", _sets(trust=Trust.DOT1P)),
    ("classofservice dot1p-mapping {priority} {queue}", _on_ports(_map_priority)),
    ("no classofservice dot1p-mapping", _sets(priority_to_queue=Port().priority_to_queue)),
    ("cos-queue strict {queues}", _queues_set(strict=True)),
    ("no cos-queue strict {queues}", _queues_set(strict=False)),
    ("cos-queue random-detect {queues}", _queues_set(random_detect=True)),
    ("no cos-queue random-detect {queues}", _queues_set(random_detect=False)),
    ("cos-queue min-bandwidth {bandwidths}", _on_ports(_bandwidths)),
    ("no cos-queue min-bandwidth", _on_ports(_no_bandwidths)),
    (_PARAMETERS, _on_ports(_curve(ecn=False))),
    (f"{_PARAMETERS} ecn", _on_ports(_curve(ecn=True))),
    ("no random-detect queue-parms {queues}", _queues_set(curve=Curve())),
    ("random-detect exponential-weighting-constant {constant}", _takes("weighting_exponent", "constant")),
    ("no random-detect exponential-weighting-constant", _sets(weighting_exponent=DEFAULT_EXPONENT)),
    ("traffic-shape {bandwidth}", _takes("shaping_percent", "bandwidth")),
    ("no traffic-shape", _sets(shaping_percent=0)),
    ("service-policy in {name}", _attach),
    ("no service-policy in {name}", _detach),
)
"""Commands of the global and of the interface mode."""

INTERFACE: Final = EVERYWHERE + _commands(
    ("storm-control flowcontrol", _sets(flow_control=True)),
    ("no storm-control flowcontrol", _sets(flow_control=False)),
    ("vlan priority {priority}", _takes("default_priority", "priority")),
    ("routing", _sets(routing=True)),
    ("no routing", _sets(routing=False)),
    ("ip address {address} {mask}", _on_ports(_address)),
    ("shutdown", _sets(shutdown=True)),
    ("no shutdown", _sets(shutdown=False)),
)

BRIDGING: Final = _commands(
    ("priority-flow-control mode on", _sets(pfc=True)),
    ("priority-flow-control mode off", _sets(pfc=False)),
    ("no priority-flow-control mode", _sets(pfc=False)),
    ("priority-flow-control priority {priority} no-drop", _lossless(on=True)),
    ("priority-flow-control priority {priority} drop", _lossless(on=False)),
)
"""Commands of the datacenter-bridging mode inside an interface."""

GLOBAL: Final = EVERYWHERE + _commands(
    ("classofservice ip-dscp-mapping {dscp} {queue}", _map_dscp),
    ("no classofservice ip-dscp-mapping", _switch_sets(dscp_to_queue=DEFAULT_DSCP_TO_QUEUE)),
    ("diffserv", _switch_diffserv(on=True)),
    ("no diffserv", _switch_diffserv(on=False)),
    (
        "no class-map {name}",
        lambda old, values, _: replace(old, diffserv=old.diffserv.without_class(values.one("name", str))),
    ),
    ("no policy-map {name}", _delete_policy),
    ("flowcontrol", _switch_sets(flow_control=True)),
    ("no flowcontrol", _switch_sets(flow_control=False)),
    ("ip routing", _switch_sets(ip_routing=True)),
    ("no ip routing", _switch_sets(ip_routing=False)),
    ("ip route {address} {mask} {next-hop} [{preference}]", _add_route),
    ("no ip route {address} {mask} [{next-hop}]", _remove_route),
)
