"""State in the language of EOS: one file, indented as `show running-config` prints it."""

from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, Capabilities, PortShare
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.common import NULL_INTERFACE
from mltswitch.targets.eos.capabilities import RATE_STEP_BPS, queue_word
from mltswitch.targets.eos.policy import CLASSES, FAMILY_OF, sequence_number
from mltswitch.targets.eos.settings import port_cos_for
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.remap import HOST_POLICY, SwitchMap, policy_of, rewriting_map
from mltswitch.targets.state import QueueState, RouteState, SwitchState
from mltswitch.targets.template import render_template

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
    policy: str


@dataclass(frozen=True, slots=True)
class _Class:
    """Packets of one family that a policy map is for."""

    name: str
    family: str
    entries: tuple[tuple[int, int | None], ...]
    """Number in the access list and code point; None: all."""


class _Route(NamedTuple):
    prefix: str
    port: str
    next_hop: str


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`."""
    return {FILE: render_text(state, capabilities)}


@remembering_last
def render_text(state: SwitchState, capabilities: Capabilities) -> str:
    """All lines: queues, then what leads to them, trust, routes."""
    check_expressible(state)
    own = rewriting_map(state, "EOS")
    alike = [
        _Alike(
            tuple(port.name for port in ports),
            tuple(_queue(queue) for queue in queues if not queue.is_lossless),
        )
        for queues, ports in ((queues, list(ports)) for queues, ports in groupby(state.ports, queues_of))
    ]
    background = state.ports[0].queues[-1].queue if state.ports else None
    return render_template(
        "eos/mltswitch.txt.j2",
        ports=[_Port(port.name, port.trusted, policy_of(port)) for port in state.ports],
        alike=alike,
        queue_word=queue_word(capabilities),
        map=_map(own),
        policies=_policies(state, own),
        background_dscp=state.background_dscp,
        background=background,
        port_cos=None if background is None else port_cos_for(background),
        port_dscp=None if background is None else own.dscps[background][0],
        routes=list(map(_route, state.routes)),
    )


@remembering_last
def check_expressible(state: SwitchState) -> None:
    """Refuse what EOS cannot express at all; raises UnsupportedPlanError."""
    own = rewriting_map(state, "EOS")
    for port in state.ports[:1]:
        if not own.dscps[port.queues[-1].queue]:
            raise UnsupportedPlanError(
                "no code point leads to the last queue, background", where=f"port {port.name}"
            )


def _policies(state: SwitchState, own: SwitchMap) -> dict[str, list[_Class]]:
    """Policy map → its classes, of those that a port has."""
    host = own.remap.dscps if own.remap else ()
    used = set(map(policy_of, state.ports))
    return {
        policy: [
            _Class(name, FAMILY_OF[name], tuple((sequence_number(dscp), dscp) for dscp in dscps))
            for name in names
        ]
        for policy, names in CLASSES.items()
        if policy in used
        for dscps in (host if policy == HOST_POLICY else (None,),)
    }


def _queue(queue: QueueState) -> _Queue:
    return _Queue(
        queue.queue,
        queue.dscps,
        queue.ecn_threshold_bytes,
        queue.minimum.percent if isinstance(queue.minimum, PortShare) else None,
        queue.maximum.bps // RATE_STEP_BPS if isinstance(queue.maximum, BitRate) else None,
    )


def _route(route: RouteState) -> _Route:
    if route.discards:
        return _Route(network_text(route.prefix), NULL_INTERFACE, "")
    return _Route(network_text(route.prefix), route.port, address_text(route.next_hop))


def _map(own: SwitchMap) -> list[dict[str, object]]:
    return [{"number": queue, "dscps": dscps} for queue, dscps in own.dscps.items() if dscps]
