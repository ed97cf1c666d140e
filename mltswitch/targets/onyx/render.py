"""State in the language of Onyx: one file of one-line commands."""

from dataclasses import dataclass
from typing import Final

from mltswitch.capabilities import Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.onyx.grammar import PORT_NAME
from mltswitch.targets.state import PortState, SwitchState
from mltswitch.targets.template import render_template
from mltswitch.units import KIBIBYTE

FILE: Final = "mltswitch.txt"


@dataclass(frozen=True, slots=True)
class _Queue:
    number: int
    dscps: tuple[int, ...]
    threshold_kb: int | None


@dataclass(frozen=True, slots=True)
class _Port:
    name: str
    trusted: bool
    queues: tuple[_Queue, ...]


def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, trust, routes."""
    check_expressible(state)
    ports = [
        _Port(
            port.name,
            port.trusted,
            tuple(
                _Queue(
                    queue.queue,
                    queue.dscps,
                    None if queue.ecn_threshold_bytes is None else queue.ecn_threshold_bytes // KIBIBYTE,
                )
                for queue in port.queues
            ),
        )
        for port in state.ports
    ]
    return render_template("onyx/mltswitch.txt.j2", ports=ports, routes=state.routes)


def check_expressible(state: SwitchState) -> None:
    """Refuse what Onyx cannot express at all; raises UnsupportedPlanError."""
    for port in state.ports:
        _check_port(port)


def _check_port(port: PortState) -> None:
    where = f"port {port.name}"
    if not PORT_NAME.fullmatch(port.name):
        raise UnsupportedPlanError("is no name for a port", where=where, expected="1/1 or 1/1/1")
    if port.shaped_bps is not None:
        raise UnsupportedPlanError(
            f"Onyx ports have the rate of their link, they are not shaped to {port.shaped_bps} bit/s",
            where=where,
        )
    for queue in port.queues:
        threshold = queue.ecn_threshold_bytes
        if threshold is not None and threshold % KIBIBYTE:
            raise UnsupportedPlanError(
                f"ECN threshold {threshold} B is no whole number of KB", where=f"{where}, queue {queue.queue}"
            )
        if not isinstance(queue.limit, Unlimited):
            raise UnsupportedPlanError(
                f"a queue of Onyx has no limit of its own, not {queue.limit}",
                where=f"{where}, queue {queue.queue}",
            )
