"""State in the language of Onyx: one file of one-line commands."""

from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.onyx.grammar import PORT_NAME
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.template import render_template
from mltswitch.units import KIBIBYTE

FILE: Final = "mltswitch.txt"


class _Queue(NamedTuple):
    """Named for the template; a tuple, because its sandbox takes long for each attribute."""

    number: int
    dscps: str
    threshold_kb: int | None
    is_lossless: bool


class _Port(NamedTuple):
    name: str
    trusted: bool
    queues: tuple[_Queue, ...]


def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, trust, routes."""
    check_expressible(state)
    ports = [
        _Port(port.name, port.trusted, alike)
        for queues, ports in groupby(state.ports, _queues_of)
        for alike in [tuple(map(_queue, queues))]
        for port in ports
    ]
    routes = [(port, list(map(_route, routes))) for port, routes in groupby(state.routes, _port_of)]
    return render_template("onyx/mltswitch.txt.j2", ports=ports, routes=routes)


def _queues_of(port: PortState) -> tuple[QueueState, ...]:
    return port.queues


def _port_of(route: RouteState) -> str:
    return route.port


def _route(route: RouteState) -> tuple[str, str]:
    return network_text(route.prefix), address_text(route.next_hop)


def _queue(queue: QueueState) -> _Queue:
    threshold = queue.ecn_threshold_bytes
    return _Queue(
        queue.queue,
        " ".join(map(str, queue.dscps)),
        None if threshold is None else threshold // KIBIBYTE,
        queue.is_lossless,
    )


@remembering_last
def check_expressible(state: SwitchState) -> None:
    """Refuse what Onyx cannot express at all; raises UnsupportedPlanError."""
    for queues, ports in groupby(state.ports, _queues_of):
        for port in ports:
            _check_port(port)
        for queue in queues:
            _check_queue(queue, f"port {port.name}, queue {queue.queue}")
    if state.segment_routing is not None:
        raise UnsupportedPlanError("Onyx has no SRv6", expected="spraying by alias addresses")
    if state.packet_spraying:
        raise UnsupportedPlanError(
            "no command is known that makes Onyx choose paths packet by packet",
            expected="spraying by alias addresses",
        )


def _check_port(port: PortState) -> None:
    where = f"port {port.name}"
    if not PORT_NAME.fullmatch(port.name):
        raise UnsupportedPlanError("is no name for a port", where=where, expected="1/1 or 1/1/1")
    if port.shaped_bps is not None:
        raise UnsupportedPlanError(
            f"Onyx ports have the rate of their link, they are not shaped to {port.shaped_bps} bit/s",
            where=where,
        )


def _check_queue(queue: QueueState, where: str) -> None:
    threshold = queue.ecn_threshold_bytes
    if threshold is not None and (threshold <= 0 or threshold % KIBIBYTE):
        raise UnsupportedPlanError(f"ECN threshold {threshold} B is no whole number of KB", where=where)
    if not isinstance(queue.limit, Unlimited):
        raise UnsupportedPlanError(f"a queue of Onyx has no limit of its own, not {queue.limit}", where=where)
    if queue.minimum is not None or queue.maximum is not None:
        raise UnsupportedPlanError(
            "no command is known that gives a traffic class of Onyx a bandwidth", where=where
        )
