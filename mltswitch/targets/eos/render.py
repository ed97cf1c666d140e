"""State in the language of EOS: one file, indented as `show running-config` prints it."""

from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, PortShare, Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.eos.capabilities import LARGEST_RATE_BPS, LARGEST_VALUE, RATE_STEP_BPS, TRAFFIC_CLASSES
from mltswitch.targets.eos.grammar import PORT_NAME
from mltswitch.targets.eos.policy import sequence_number
from mltswitch.targets.eos.settings import port_cos_for
from mltswitch.targets.eos.state import queue_word
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.remap import SwitchMap, switch_map
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.template import remember_last, render_template

FILE: Final = "mltswitch.txt"


@dataclass(frozen=True, slots=True)
class _Queue:
    number: int
    dscps: tuple[int, ...]
    threshold_bytes: int | None
    guaranteed_percent: int | None
    shape_kbps: int | None


@dataclass(frozen=True, slots=True)
class _Alike:
    """Ports in a row with the same queues."""

    names: tuple[str, ...]
    queues: tuple[_Queue, ...]


@dataclass(frozen=True, slots=True)
class _Port:
    name: str
    trusted: bool
    remapped: bool
    queues: tuple[_Queue, ...]


@dataclass(frozen=True, slots=True)
class _Denied:
    """One code point that hosts may not use."""

    dscp: int
    sequence_number: int


class _Route(NamedTuple):
    prefix: str
    port: str
    next_hop: str


@remember_last
def render_text(state: SwitchState) -> str:
    """All lines: queues, then what leads to them, trust, routes."""
    check_expressible(state)
    own = switch_map(state.ports, "EOS")
    alike = [
        _Alike(
            tuple(port.name for port in ports),
            tuple(_queue(queue) for queue in queues if not queue.is_lossless),
        )
        for queues, ports in ((queues, list(ports)) for queues, ports in groupby(state.ports, _queues_of))
    ]
    queues_of = {name: run.queues for run in alike for name in run.names}
    background = state.ports[0].queues[-1].queue if state.ports else None
    return render_template(
        "eos/mltswitch.txt.j2",
        ports=[
            _Port(port.name, port.trusted, port.name in own.remapped, queues_of[port.name])
            for port in state.ports
        ],
        alike=alike,
        queue_word=queue_word(state),
        map=_map(own),
        denied=[_Denied(dscp, sequence_number(dscp)) for dscp in own.remap.dscps] if own.remap else [],
        background=background,
        port_cos=None if background is None else port_cos_for(background),
        port_dscp=None if background is None else own.dscps[background][0],
        routes=list(map(_route, state.routes)),
    )


@remembering_last
def check_expressible(state: SwitchState) -> None:
    """Refuse what EOS cannot express at all; raises UnsupportedPlanError."""
    names: set[str] = set()
    for queues, ports in groupby(state.ports, _queues_of):
        for port in ports:
            _check_port(port, names)
        for queue in queues:
            _check_queue(queue, f"port {port.name}, queue {queue.queue}")
    own = switch_map(state.ports, "EOS")
    for port in state.ports[:1]:
        if not own.dscps[port.queues[-1].queue]:
            raise UnsupportedPlanError(
                "no code point leads to the last queue, background", where=f"port {port.name}"
            )
    for name, routes in groupby(state.routes, _port_of):
        if not PORT_NAME.fullmatch(name):
            raise UnsupportedPlanError(
                f"is no name for a port: {name[:60]!r}", where=f"route {next(routes).prefix}"
            )
    if state.segment_routing is not None or state.packet_spraying:
        raise UnsupportedPlanError("no SRv6 and no choice of paths packet by packet is rendered for EOS")


def _queues_of(port: PortState) -> tuple[QueueState, ...]:
    return port.queues


def _queue(queue: QueueState) -> _Queue:
    return _Queue(
        queue.queue,
        queue.dscps,
        queue.ecn_threshold_bytes,
        queue.minimum.percent if isinstance(queue.minimum, PortShare) else None,
        queue.maximum.bps // RATE_STEP_BPS if isinstance(queue.maximum, BitRate) else None,
    )


def _port_of(route: RouteState) -> str:
    return route.port


def _route(route: RouteState) -> _Route:
    return _Route(network_text(route.prefix), route.port, address_text(route.next_hop))


def _map(own: SwitchMap) -> list[dict[str, object]]:
    return [{"number": queue, "dscps": dscps} for queue, dscps in own.dscps.items() if dscps]


def _check_port(port: PortState, names: set[str]) -> None:
    where = f"port {port.name}"
    if not PORT_NAME.fullmatch(port.name):
        raise UnsupportedPlanError("is no name for a port", where=where, expected="Ethernet1 or Ethernet1/1")
    if port.name in names:
        raise UnsupportedPlanError("stands twice", where=where)
    names.add(port.name)
    if port.shaped_bps is not None:
        raise UnsupportedPlanError(
            f"a port of ours has the rate of its link, it is not shaped to {port.shaped_bps} bit/s",
            where=where,
        )
    if not port.queues:
        raise UnsupportedPlanError("has no queues", where=where)


def _check_queue(queue: QueueState, where: str) -> None:
    if not 0 <= queue.queue < TRAFFIC_CLASSES - 1:
        raise UnsupportedPlanError(
            "EOS keeps it for itself, or has none", where=where, expected=f"0 to {TRAFFIC_CLASSES - 2}"
        )
    threshold = queue.ecn_threshold_bytes
    if threshold is not None and not 1 <= threshold <= LARGEST_VALUE:
        raise UnsupportedPlanError(
            f"ECN threshold {threshold} B", where=where, expected=f"1 to {LARGEST_VALUE} B"
        )
    if not isinstance(queue.limit, Unlimited):
        raise UnsupportedPlanError(f"a queue has no limit of its own here, not {queue.limit}", where=where)
    minimum, maximum = queue.minimum, queue.maximum
    if minimum is not None and not (isinstance(minimum, PortShare) and 1 <= minimum.percent <= 100):
        raise UnsupportedPlanError(f"a guarantee of {minimum}", where=where, expected="1 to 100 %")
    if maximum is not None and not (
        isinstance(maximum, BitRate)
        and maximum.bps % RATE_STEP_BPS == 0
        and RATE_STEP_BPS <= maximum.bps <= LARGEST_RATE_BPS
    ):
        raise UnsupportedPlanError(f"a rate of {maximum}", where=where, expected="whole kbit/s")
