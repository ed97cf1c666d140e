"""State as the NVUE objects that we own, and nothing else.

Switch priority n is traffic class n is queue n. NVUE knows the map from priority to traffic class for the
whole switch only; it is the identity as delivered, and the plan needs no more than that for its own queues.

The profile `mlt` spreads all 64 code points over the plan's queues; ports that the fabric does not trust get
`mlt-untrusted`, which believes nothing. All eight traffic classes are strict, the one of the switch's own
packets too: it lies between the plan's upper and lower queues, and weighted it would come after all of them.

Thresholds differ by port, so ports with equal ones share a congestion profile, named after the first of them.
"""

from collections.abc import Iterator
from typing import Final

from mltswitch.capabilities import Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.cumulus.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.cumulus.leaves import Leaves, Path
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

PROFILE: Final = "mlt"
UNTRUSTED: Final = "mlt-untrusted"
LARGEST_THRESHOLD_BYTES: Final = 2**31 - 1
CERTAIN: Final = "100"
"""Probability, in percent."""

_QUEUE_MAP: Final = ("qos", "egress-queue-mapping", "default-global", "switch-priority")
STATIC: Final = ("vrf", "default", "router", "static")


def leaves_of(state: SwitchState) -> Leaves:
    """Every leaf that the state needs, objects before their references; raises UnsupportedPlanError."""
    leaves: Leaves = {}
    if state.ports:
        _check_classification(state.ports)
        groups = congestion_groups(state.ports)
        leaves.update(_profiles(state.ports, groups))
        leaves.update(_classification(state.ports))
        leaves.update(_bindings(state.ports, groups))
    leaves.update({route_path(route): "" for route in state.routes})
    return leaves


def queue_map_path(priority: int | str) -> Path:
    """Where a switch priority is led to its traffic class."""
    return (*_QUEUE_MAP, str(priority), "traffic-class")


def route_path(route: RouteState) -> Path:
    """A static route."""
    return (*STATIC, str(route.prefix), "via", str(route.next_hop))


def congestion_groups(ports: tuple[PortState, ...]) -> dict[str, str]:
    """Port → its congestion profile."""
    first_of: dict[tuple[tuple[int, int | None], ...], str] = {}
    return {
        port.name: first_of.setdefault(
            tuple((queue.queue, queue.ecn_threshold_bytes) for queue in port.queues), f"mlt-{port.name}"
        )
        for port in ports
    }


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


def _check_classification(ports: tuple[PortState, ...]) -> None:
    first = ports[0]
    leads_to = {dscp: queue.queue for queue in first.queues for dscp in queue.dscps}
    if sorted(leads_to) != list(range(DSCP_COUNT)):
        raise UnsupportedPlanError("not every code point leads to a queue", where=f"port {first.name}")
    for port in ports:
        if {dscp: queue.queue for queue in port.queues for dscp in queue.dscps} != leads_to:
            raise UnsupportedPlanError(
                f"its code points lead elsewhere than those of {first.name}: one map serves all ports",
                where=f"port {port.name}",
            )


def _profiles(ports: tuple[PortState, ...], groups: dict[str, str]) -> Iterator[tuple[Path, str]]:
    for number in range(TRAFFIC_CLASSES):
        yield ("qos", "egress-scheduler", PROFILE, "traffic-class", str(number), "mode"), "strict"
    for port in ports:
        if groups[port.name] != f"mlt-{port.name}":
            continue
        for queue in port.queues:
            fields = congestion_fields(_checked_threshold(port, queue))
            for name, value in fields.items():
                yield (
                    ("qos", "congestion-control", groups[port.name], "traffic-class", str(queue.queue), name),
                    value,
                )


def _classification(ports: tuple[PortState, ...]) -> Iterator[tuple[Path, str]]:
    queues = ports[0].queues
    background = str(queues[-1].queue)
    for queue in queues:
        yield queue_map_path(queue.queue), str(queue.queue)
    yield ("qos", "mapping", PROFILE, "trust"), "l3"
    yield ("qos", "mapping", PROFILE, "port-default-sp"), background
    for queue in queues:
        for dscp in queue.dscps:
            yield ("qos", "mapping", PROFILE, "dscp", str(dscp), "switch-priority"), str(queue.queue)
    if not all(port.trusted for port in ports):
        yield ("qos", "mapping", UNTRUSTED, "trust"), "port"
        yield ("qos", "mapping", UNTRUSTED, "port-default-sp"), background


def _bindings(ports: tuple[PortState, ...], groups: dict[str, str]) -> Iterator[tuple[Path, str]]:
    for port in ports:
        yield binding_path(port.name, "egress-scheduler"), PROFILE
    for port in ports:
        yield binding_path(port.name, "congestion-control"), groups[port.name]
    for port in ports:
        yield binding_path(port.name, "mapping"), PROFILE if port.trusted else UNTRUSTED


def binding_path(port: str, kind: str) -> Path:
    """Which profile a port has."""
    return ("interface", port, "qos", kind, "profile")


def _checked_threshold(port: PortState, queue: QueueState) -> int | None:
    where = f"port {port.name}, queue {queue.queue}"
    threshold = queue.ecn_threshold_bytes
    if threshold is not None and not 0 < threshold <= LARGEST_THRESHOLD_BYTES:
        raise UnsupportedPlanError(
            f"ECN threshold {threshold} B", where=where, expected=f"1 to {LARGEST_THRESHOLD_BYTES} B"
        )
    if not isinstance(queue.limit, Unlimited):
        raise UnsupportedPlanError(
            f"a queue of one port has no limit of its own, not {queue.limit}", where=where
        )
    return threshold
