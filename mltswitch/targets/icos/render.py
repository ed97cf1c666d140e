"""State in the language of FASTPATH: one file, lines of interface mode between `interface` and `exit`."""

from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import Capabilities, PortShare
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text
from mltswitch.targets.common import NULL_INTERFACE
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.icos.capabilities import QUEUE_COUNT
from mltswitch.targets.icos.grammar import NETMASKS
from mltswitch.targets.icos.policy import FAMILIES, class_name
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.remap import SwitchMap, switch_map
from mltswitch.targets.state import QueueState, RouteState, SwitchState
from mltswitch.targets.template import render_template

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


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`."""
    return {FILE: render_text(state, capabilities)}


@remembering_last
def render_text(state: SwitchState, capabilities: Capabilities) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, trust, routes."""
    step_bytes = capabilities.threshold.step_bytes
    own = switch_map(state.ports, "FASTPATH")
    alike = [
        _Alike(
            tuple(port.name for port in ports),
            tuple(_queue(queue, step_bytes) for queue in queues),
            guaranteed_percents(queues),
        )
        for queues, ports in groupby(state.ports, queues_of)
    ]
    return render_template(
        "icos/mltswitch.txt.j2",
        percent_bytes=step_bytes,
        ports=[
            _Port(port.name, port.trusted, port.name in own.remapped, port.queues[-1].queue)
            for port in state.ports
        ],
        alike=alike,
        dscp_map=_dscp_map(own),
        denied=_denied(own),
        background=own.remap.queue if own.remap else None,
        routes=list(map(_route, state.routes)),
    )


def guaranteed_percents(queues: tuple[QueueState, ...]) -> tuple[int, ...]:
    """Minimum of each queue of the hardware; empty where none has any."""
    percents = [0] * QUEUE_COUNT
    for queue in queues:
        if isinstance(queue.minimum, PortShare):
            percents[queue.queue] = queue.minimum.percent
    return tuple(percents) if any(percents) else ()


@remembering_last
def check_expressible(state: SwitchState) -> None:
    """Refuse what FASTPATH cannot express at all; raises UnsupportedPlanError."""
    for queues, ports in groupby(state.ports, queues_of):
        names = [port.name for port in ports]
        for queue in queues[:-1]:
            # A guaranteed queue is weighted, and a weighted one is served after all strict ones.
            if queue.minimum is not None:
                raise UnsupportedPlanError(
                    "only background, the last queue, can have a guarantee",
                    where=f"port {names[0]}, queue {queue.queue}",
                )
    switch_map(state.ports, "FASTPATH")


def _route(route: RouteState) -> _Route:
    prefix = route.prefix
    next_hop = NULL_INTERFACE if route.discards else address_text(route.next_hop)
    return _Route(address_text(prefix.network_address), NETMASKS[prefix.prefixlen], next_hop)


def _queue(queue: QueueState, step_bytes: int) -> _Queue:
    threshold = queue.ecn_threshold_bytes
    percent = None if threshold is None else threshold // step_bytes
    return _Queue(queue.queue, percent, queue.minimum is not None)


def _dscp_map(own: SwitchMap) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((dscp, queue) for queue, dscps in own.dscps.items() for dscp in dscps))


def _denied(own: SwitchMap) -> list[_Class]:
    dscps = own.remap.dscps if own.remap else ()
    return [_Class(class_name(dscp, family), dscp, family) for dscp in dscps for family in FAMILIES]
