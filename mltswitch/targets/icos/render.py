"""State in the language of FASTPATH: one file, lines of interface mode between `interface` and `exit`."""

from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import PortShare, Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text
from mltswitch.targets.icos.capabilities import QUEUE_COUNT, percent_of, scale_of
from mltswitch.targets.icos.grammar import NETMASKS, PORT_NAME
from mltswitch.targets.icos.policy import FAMILIES, class_name
from mltswitch.targets.icos.settings import CERTAIN
from mltswitch.targets.remap import SwitchMap, switch_map
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.template import remember_last, render_template

FILE: Final = "mltswitch.txt"


@dataclass(frozen=True, slots=True)
class _Queue:
    number: int
    percent: int | None
    """S."""
    is_guaranteed: bool


@dataclass(frozen=True, slots=True)
class _Alike:
    """Ports in a row with the same queues."""

    names: tuple[str, ...]
    queues: tuple[_Queue, ...]
    guaranteed_percents: tuple[int, ...]
    """Of all queues of the hardware; empty: none has any."""


@dataclass(frozen=True, slots=True)
class _Port:
    name: str
    trusted: bool
    remapped: bool
    background: int
    queues: tuple[_Queue, ...]


@dataclass(frozen=True, slots=True)
class _Class:
    """The DiffServ class of one code point that hosts may not use."""

    name: str
    dscp: int
    family: str


class _Route(NamedTuple):
    address: str
    mask: str
    next_hop: str


@remember_last
def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, trust, routes."""
    check_expressible(state)
    own = switch_map(state.ports, "FASTPATH")
    alike = [
        _Alike(tuple(port.name for port in ports), tuple(map(_queue, queues)), guaranteed_percents(queues))
        for queues, ports in groupby(state.ports, _queues_of)
    ]
    queues_of = {name: run.queues for run in alike for name in run.names}
    return render_template(
        "icos/mltswitch.txt.j2",
        full_scale_bytes=scale_of_state(state),
        ports=[
            _Port(
                port.name,
                port.trusted,
                port.name in own.remapped,
                port.queues[-1].queue,
                queues_of[port.name],
            )
            for port in state.ports
        ],
        alike=alike,
        dscp_map=_dscp_map(own),
        denied=_denied(own),
        background=own.remap.queue if own.remap else None,
        routes=[(port, list(map(_route, routes))) for port, routes in groupby(state.routes, _port_of)],
    )


def guaranteed_percents(queues: tuple[QueueState, ...]) -> tuple[int, ...]:
    """Minimum of each queue of the hardware; empty where none has any."""
    percents = [0] * QUEUE_COUNT
    for queue in queues:
        if isinstance(queue.minimum, PortShare):
            percents[queue.queue] = queue.minimum.percent
    return tuple(percents) if any(percents) else ()


def scale_of_state(state: SwitchState) -> int:
    """Bytes that 100 % stand for; raises UnsupportedPlanError where the thresholds fit no one model."""
    return scale_of(
        {queue.ecn_threshold_bytes for queues, _ in groupby(state.ports, _queues_of) for queue in queues}
    )


def check_expressible(state: SwitchState) -> None:
    """Refuse what FASTPATH cannot express at all; raises UnsupportedPlanError."""
    for queues, ports in groupby(state.ports, _queues_of):
        for port in ports:
            _check_port(port)
        for queue in queues:
            _check_queue(queue, f"port {port.name}, queue {queue.queue}", is_last=queue is queues[-1])
    scale_of_state(state)
    switch_map(state.ports, "FASTPATH")
    if state.segment_routing is not None or state.packet_spraying:
        raise UnsupportedPlanError("no SRv6 and no choice of paths packet by packet is known of FASTPATH")


def _queues_of(port: PortState) -> tuple[QueueState, ...]:
    return port.queues


def _port_of(route: RouteState) -> str:
    return route.port


def _route(route: RouteState) -> _Route:
    prefix = route.prefix
    return _Route(
        address_text(prefix.network_address), NETMASKS[prefix.prefixlen], address_text(route.next_hop)
    )


def _queue(queue: QueueState) -> _Queue:
    return _Queue(queue.queue, _percent(queue.ecn_threshold_bytes), queue.minimum is not None)


def _check_port(port: PortState) -> None:
    where = f"port {port.name}"
    if not PORT_NAME.fullmatch(port.name):
        raise UnsupportedPlanError(
            "is no name for a port", where=where, expected="0/1, 1/0/1 or te1/0/1 (unit/slot/port)"
        )
    if port.shaped_bps is not None:
        raise UnsupportedPlanError(
            f"ports have the rate of their link, they are not shaped to {port.shaped_bps} bit/s", where=where
        )
    if not port.queues:
        raise UnsupportedPlanError("has no queues", where=where)


def _check_queue(queue: QueueState, where: str, *, is_last: bool) -> None:
    if not 0 <= queue.queue < QUEUE_COUNT:
        raise UnsupportedPlanError(
            "FASTPATH keeps it for itself, or has none", where=where, expected=f"0 to {QUEUE_COUNT - 1}"
        )
    if not isinstance(queue.limit, Unlimited):
        raise UnsupportedPlanError(
            f"a queue of FASTPATH has no limit of its own, not {queue.limit}", where=where
        )
    if queue.maximum is not None:
        raise UnsupportedPlanError(f"FASTPATH holds no queue to {queue.maximum}", where=where)
    minimum = queue.minimum
    if minimum is None:
        return
    if not (isinstance(minimum, PortShare) and 1 <= minimum.percent <= CERTAIN):
        raise UnsupportedPlanError(f"a guarantee of {minimum}", where=where, expected="1 to 100 %")
    if not is_last:
        # A guaranteed queue is weighted, and a weighted one is served after all strict ones.
        raise UnsupportedPlanError("only background, the last queue, can have a guarantee", where=where)


def _percent(threshold_bytes: int | None) -> int | None:
    percent = None if threshold_bytes is None else percent_of(threshold_bytes)
    return None if percent is None else percent.percent


def _dscp_map(own: SwitchMap) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((dscp, queue) for queue, dscps in own.dscps.items() for dscp in dscps))


def _denied(own: SwitchMap) -> list[_Class]:
    dscps = own.remap.dscps if own.remap else ()
    return [_Class(class_name(dscp, family), dscp, family) for dscp in dscps for family in FAMILIES]
