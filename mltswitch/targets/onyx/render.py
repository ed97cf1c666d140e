"""State in the language of Onyx: one file of one-line commands."""

from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import Capabilities
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.onyx.grammar import DISCARD
from mltswitch.targets.state import QueueState, SwitchState
from mltswitch.targets.template import render_template
from mltswitch.units import KIBIBYTE

FILE: Final = "mltswitch.txt"


class _Queue(NamedTuple):
    number: int
    dscps: str
    threshold_kb: int | None
    is_lossless: bool


class _Port(NamedTuple):
    name: str
    trusted: bool
    queues: tuple[_Queue, ...]


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`."""
    del capabilities
    return {FILE: render_text(state)}


@remembering_last
def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, trust, routes."""
    ports = [
        _Port(port.name, port.trusted, alike)
        for queues, ports in groupby(state.ports, queues_of)
        for alike in [tuple(map(_queue, queues))]
        for port in ports
    ]
    routes = [
        (network_text(route.prefix), DISCARD if route.discards else address_text(route.next_hop))
        for route in state.routes
    ]
    return render_template("onyx/mltswitch.txt.j2", ports=ports, routes=routes)


def _queue(queue: QueueState) -> _Queue:
    threshold = queue.ecn_threshold_bytes
    return _Queue(
        queue.queue,
        " ".join(map(str, queue.dscps)),
        None if threshold is None else threshold // KIBIBYTE,
        queue.is_lossless,
    )
