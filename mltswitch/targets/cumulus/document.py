"""State as the NVUE objects that we own, and nothing else.

Switch priority n is traffic class n is queue n. NVUE knows the map from priority to traffic class for the
whole switch only; it is the identity as delivered, and the plan needs no more than that for its own queues.

The profile `mlt` spreads all 64 code points over the plan's queues, `mlt-host` does so on ports of hosts,
where CS6 and CS7 are background; ports that the fabric does not trust get `mlt-untrusted` or
`mlt-host-untrusted`, which believe nothing. All eight traffic classes are strict, the one of the switch's own
packets too: it lies between the plan's upper and lower queues, and weighted it would come after all of them.

Thresholds and bandwidths differ by port, so ports with equal ones share a congestion profile, and a shaper
profile where they have any; both are named after the first of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import Bandwidth, BitRate
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.cumulus.capabilities import KILOBIT, TRAFFIC_CLASSES
from mltswitch.targets.cumulus.ingress import INBOUND, acl_leaves, acl_names, ports_by_acl
from mltswitch.targets.cumulus.leaves import Leaves, Path
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, RouteState, SwitchState, same_ports
from mltswitch.wire.tos import DSCP_COUNT

PROFILE: Final = "mlt"
HOSTS: Final = "mlt-host"
MAP_OF: Final = MappingProxyType(
    {PROFILE: PROFILE, HOSTS: HOSTS, f"{PROFILE}-untrusted": PROFILE, f"{HOSTS}-untrusted": HOSTS}
)
"""Mapping profile → the one that has its map: a profile that believes nothing has none of its own."""
CERTAIN: Final = "100"
"""Probability, in percent."""

_QUEUE_MAP: Final = ("qos", "egress-queue-mapping", "default-global", "switch-priority")
STATIC: Final = ("vrf", "default", "router", "static")
DISCARD: Final = "blackhole"
"""In the place of a next hop, whose type has the same name."""


def check_expressible(state: SwitchState) -> None:
    """Refuse what one map, or one profile, cannot say for all ports; raises UnsupportedPlanError."""
    port_leaves(state)


def leaves_of(state: SwitchState) -> Leaves:
    """Every leaf that the state needs, objects before their references; raises UnsupportedPlanError."""
    return {**port_leaves(state), **{route_path(route): "" for route in state.routes}}


def same_port_leaves(one: SwitchState, other: SwitchState) -> bool:
    """Whether the ports of both need the same leaves."""
    return one.background_dscp == other.background_dscp and same_ports(one.ports, other.ports)


@partial(remembering_last, same=same_port_leaves)
def port_leaves(state: SwitchState) -> Mapping[Path, str]:
    """The same of ports alone."""
    ports = state.ports
    if not ports:
        return {}
    by_map = _ports_by_map(ports)
    congestion, shapers = congestion_groups(ports), shaper_groups(ports)
    leaves: Leaves = {}
    leaves.update(_profiles(ports, congestion))
    leaves.update(_shapers(ports, shapers))
    leaves.update(_classification(by_map))
    acls = ports_by_acl(state)
    for kind, alike in acls.items():
        leaves.update(acl_leaves(kind, alike[0].rewritten, state.background_dscp))
    leaves.update(_bindings(ports, congestion, shapers))
    for kind, alike in acls.items():
        for name in acl_names(kind):
            leaves.update((("interface", port.name, "acl", name, INBOUND), "") for port in alike)
    return leaves


def mapping_profile(port: PortState) -> str:
    """The mapping profile of a port: one of a host has no network control, which is served first."""
    name = PROFILE if port.queues and port.queues[0].dscps else HOSTS
    return name if port.trusted else f"{name}-untrusted"


def queue_map_path(priority: int | str) -> Path:
    """Where a switch priority is led to its traffic class."""
    return (*_QUEUE_MAP, str(priority), "traffic-class")


def route_path(route: RouteState) -> Path:
    """A static route."""
    return (*STATIC, network_text(route.prefix), "via", _next_hop(route))


@remembering_last
def route_texts(routes: tuple[RouteState, ...]) -> list[tuple[str, str]]:
    """(prefix, next hop) of each route: both files say them."""
    return [(network_text(route.prefix), _next_hop(route)) for route in routes]


def _next_hop(route: RouteState) -> str:
    return DISCARD if route.discards else address_text(route.next_hop)


def next_hop_type(next_hop: str) -> str:
    """What `nv set` adds to a next hop by itself."""
    return DISCARD if next_hop == DISCARD else "ipv4-address"


def congestion_groups(ports: tuple[PortState, ...]) -> dict[str, str]:
    """Port → its congestion profile."""
    first_of: dict[tuple[tuple[int, int | None], ...], str] = {}
    return {
        port.name: first_of.setdefault(
            tuple((queue.queue, queue.ecn_threshold_bytes) for queue in port.queues), f"mlt-{port.name}"
        )
        for port in ports
    }


def shaper_groups(ports: tuple[PortState, ...]) -> dict[str, str]:
    """Port → its shaper profile; ports without guarantees and caps have none."""
    first_of: dict[tuple[tuple[int, Bandwidth | None, Bandwidth | None], ...], str] = {}
    groups: dict[str, str] = {}
    for port in ports:
        rates = tuple(
            (queue.queue, queue.minimum, queue.maximum)
            for queue in port.queues
            if queue.minimum is not None or queue.maximum is not None
        )
        if rates:
            groups[port.name] = first_of.setdefault(rates, f"mlt-{port.name}")
    return groups


def congestion_fields(threshold_bytes: int | None) -> dict[str, str]:
    """A traffic class of a congestion profile.

    Both switches are needed: ecn alone lets packets wait that are not ECN-capable, red alone does not mark.
    NVUE takes ecn for enabled where a class says nothing, so that `none` must be said, too.
    """
    if threshold_bytes is None:
        return {"ecn": "disable", "red": "disable"}
    text = str(threshold_bytes)
    return {
        "ecn": "enable",
        "red": "enable",
        "min-threshold": text,
        "max-threshold": text,
        "probability": CERTAIN,
    }


def _ports_by_map(ports: Sequence[PortState]) -> dict[str, list[PortState]]:
    """Profile with a map → ports of that map; raises UnsupportedPlanError where theirs are not alike."""
    groups: dict[str, list[PortState]] = {}
    for port in ports:
        groups.setdefault(MAP_OF[mapping_profile(port)], []).append(port)
    for group in groups.values():
        first = group[0]
        spread = [(queue.queue, queue.dscps) for queue in first.queues]
        if sorted(dscp for _, dscps in spread for dscp in dscps) != list(range(DSCP_COUNT)):
            raise UnsupportedPlanError("not every code point leads to a queue", where=f"port {first.name}")
        for port in group:
            if [(queue.queue, queue.dscps) for queue in port.queues] != spread:
                raise UnsupportedPlanError(
                    f"its code points lead elsewhere than those of {first.name}: one map serves both",
                    where=f"port {port.name}",
                )
    return groups


def _profiles(ports: tuple[PortState, ...], groups: dict[str, str]) -> Iterator[tuple[Path, str]]:
    for number in range(TRAFFIC_CLASSES):
        yield ("qos", "egress-scheduler", PROFILE, "traffic-class", str(number), "mode"), "strict"
    for port in ports:
        if groups[port.name] != f"mlt-{port.name}":
            continue
        for queue in port.queues:
            fields = congestion_fields(queue.ecn_threshold_bytes)
            for name, value in fields.items():
                yield (
                    ("qos", "congestion-control", groups[port.name], "traffic-class", str(queue.queue), name),
                    value,
                )


def _shapers(ports: tuple[PortState, ...], groups: dict[str, str]) -> Iterator[tuple[Path, str]]:
    for port in ports:
        name = groups.get(port.name)
        if name != f"mlt-{port.name}":
            continue
        for queue in port.queues:
            for field, bandwidth in (("min-rate", queue.minimum), ("max-rate", queue.maximum)):
                if isinstance(bandwidth, BitRate):
                    kbps = bandwidth.bps // KILOBIT
                    yield (
                        ("qos", "egress-shaper", name, "traffic-class", str(queue.queue), field),
                        str(kbps),
                    )


def _classification(by_map: dict[str, list[PortState]]) -> Iterator[tuple[Path, str]]:
    queues = {queue.queue for ports in by_map.values() for queue in ports[0].queues}
    for number in sorted(queues, reverse=True):
        yield queue_map_path(number), str(number)
    for name, ports in by_map.items():
        background = str(ports[0].queues[-1].queue)
        yield ("qos", "mapping", name, "trust"), "l3"
        yield ("qos", "mapping", name, "port-default-sp"), background
        for queue in ports[0].queues:
            for dscp in queue.dscps:
                yield ("qos", "mapping", name, "dscp", str(dscp), "switch-priority"), str(queue.queue)
        if not all(port.trusted for port in ports):
            yield ("qos", "mapping", f"{name}-untrusted", "trust"), "port"
            yield ("qos", "mapping", f"{name}-untrusted", "port-default-sp"), background


def _bindings(
    ports: tuple[PortState, ...], congestion: dict[str, str], shapers: dict[str, str]
) -> Iterator[tuple[Path, str]]:
    for port in ports:
        yield binding_path(port.name, "egress-scheduler"), PROFILE
    for port in ports:
        yield binding_path(port.name, "congestion-control"), congestion[port.name]
    for port in ports:
        if port.name in shapers:
            yield binding_path(port.name, "egress-shaper"), shapers[port.name]
    for port in ports:
        yield binding_path(port.name, "mapping"), mapping_profile(port)


def binding_path(port: str, kind: str) -> Path:
    """Which profile a port has."""
    return ("interface", port, "qos", kind, "profile")
