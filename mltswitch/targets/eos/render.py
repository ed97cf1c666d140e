"""State in the language of EOS: one file, indented as `show running-config` prints it."""

from dataclasses import dataclass
from typing import Final

from mltswitch.capabilities import Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.eos.capabilities import LARGEST_VALUE, TRAFFIC_CLASSES
from mltswitch.targets.eos.grammar import PORT_NAME
from mltswitch.targets.eos.settings import port_cos_for
from mltswitch.targets.eos.state import queue_word
from mltswitch.targets.state import PortState, SwitchState
from mltswitch.targets.template import render_template

FILE: Final = "mltswitch.txt"


@dataclass(frozen=True, slots=True)
class _Queue:
    number: int
    dscps: tuple[int, ...]
    threshold_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Port:
    name: str
    trusted: bool
    queues: tuple[_Queue, ...]


def render_text(state: SwitchState) -> str:
    """All lines: queues, then what leads to them, trust, routes."""
    check_expressible(state)
    ports = [
        _Port(
            port.name,
            port.trusted,
            tuple(_Queue(queue.queue, queue.dscps, queue.ecn_threshold_bytes) for queue in port.queues),
        )
        for port in state.ports
    ]
    background = ports[0].queues[-1] if ports else None
    return render_template(
        "eos/mltswitch.txt.j2",
        ports=ports,
        queue_word=queue_word(state),
        map=[queue for queue in ports[0].queues if queue.dscps] if ports else [],
        port_cos=port_cos_for(background.number) if background else None,
        port_dscp=background.dscps[0] if background else None,
        routes=state.routes,
    )


def check_expressible(state: SwitchState) -> None:
    """Refuse what EOS cannot express at all; raises UnsupportedPlanError."""
    for port in state.ports:
        _check_port(port)
        if _map(port) != _map(state.ports[0]):
            raise UnsupportedPlanError(
                "EOS has one DSCP map for all ports of a switch",
                where=f"port {port.name}",
                expected=f"the code points of port {state.ports[0].name}",
            )
    for route in state.routes:
        if not PORT_NAME.fullmatch(route.port):
            raise UnsupportedPlanError(
                f"is no name for a port: {route.port[:60]!r}", where=f"route {route.prefix}"
            )


def _map(port: PortState) -> dict[int, tuple[int, ...]]:
    return {queue.queue: queue.dscps for queue in port.queues}


def _check_port(port: PortState) -> None:
    where = f"port {port.name}"
    if not PORT_NAME.fullmatch(port.name):
        raise UnsupportedPlanError("is no name for a port", where=where, expected="Ethernet1 or Ethernet1/1")
    if port.shaped_bps is not None:
        raise UnsupportedPlanError(
            f"a port of ours has the rate of its link, it is not shaped to {port.shaped_bps} bit/s",
            where=where,
        )
    if not port.queues or not port.queues[-1].dscps:
        raise UnsupportedPlanError("no code point leads to the last queue, background", where=where)
    for queue in port.queues:
        place = f"{where}, queue {queue.queue}"
        if not 0 <= queue.queue < TRAFFIC_CLASSES - 1:
            raise UnsupportedPlanError(
                "EOS keeps it for itself, or has none", where=place, expected=f"0 to {TRAFFIC_CLASSES - 2}"
            )
        threshold = queue.ecn_threshold_bytes
        if threshold is not None and not 1 <= threshold <= LARGEST_VALUE:
            raise UnsupportedPlanError(
                f"ECN threshold {threshold} B", where=place, expected=f"1 to {LARGEST_VALUE} B"
            )
        if not isinstance(queue.limit, Unlimited):
            raise UnsupportedPlanError(
                f"a queue has no limit of its own here, not {queue.limit}", where=place
            )
