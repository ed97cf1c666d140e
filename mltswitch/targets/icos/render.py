"""State in the language of FASTPATH: one file, lines of interface mode between `interface` and `exit`."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mltswitch.capabilities import Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.icos.capabilities import percent_of, scale_of
from mltswitch.targets.icos.grammar import PORT_NAME
from mltswitch.targets.state import PortState, SwitchState
from mltswitch.targets.template import render_template

FILE: Final = "mltswitch.txt"


@dataclass(frozen=True, slots=True)
class _Queue:
    number: int
    percent: int | None


@dataclass(frozen=True, slots=True)
class _Port:
    name: str
    trusted: bool
    queues: tuple[_Queue, ...]


@lru_cache(maxsize=1)
def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, trust, routes.

    The last one is remembered, because what is rendered is parsed at once, and parsing renders to compare.
    """
    check_expressible(state)
    ports = [
        _Port(
            port.name,
            port.trusted,
            tuple(_Queue(queue.queue, _percent(queue.ecn_threshold_bytes)) for queue in port.queues),
        )
        for port in state.ports
    ]
    return render_template(
        "icos/mltswitch.txt.j2",
        full_scale_bytes=scale_of_state(state),
        ports=ports,
        dscp_map=_dscp_map(state),
        routes=state.routes,
    )


def scale_of_state(state: SwitchState) -> int:
    """Bytes that 100 % stand for; raises UnsupportedPlanError where the thresholds fit no one model."""
    return scale_of(queue.ecn_threshold_bytes for port in state.ports for queue in port.queues)


def check_expressible(state: SwitchState) -> None:
    """Refuse what FASTPATH cannot express at all; raises UnsupportedPlanError."""
    for port in state.ports:
        _check_port(port)
    scale_of_state(state)
    maps = {tuple((queue.queue, queue.dscps) for queue in port.queues) for port in state.ports}
    if len(maps) > 1:
        raise UnsupportedPlanError("the switch has one DSCP map, and its ports want different ones")


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
    for queue in port.queues:
        if not isinstance(queue.limit, Unlimited):
            raise UnsupportedPlanError(
                f"a queue of FASTPATH has no limit of its own, not {queue.limit}",
                where=f"{where}, queue {queue.queue}",
            )


def _percent(threshold_bytes: int | None) -> int | None:
    percent = None if threshold_bytes is None else percent_of(threshold_bytes)
    return None if percent is None else percent.percent


def _dscp_map(state: SwitchState) -> tuple[tuple[int, int], ...]:
    if not state.ports:
        return ()
    return tuple(sorted((dscp, queue.queue) for queue in state.ports[0].queues for dscp in queue.dscps))
