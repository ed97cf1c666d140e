"""State in the language of EOS: one file, indented as `show running-config` prints it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, Capabilities, PortShare
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.base import LineError
from mltswitch.targets.common import NULL_INTERFACE, Key, QueueSetting, check_lines
from mltswitch.targets.eos.capabilities import LOSSLESS, RATE_STEP_BPS, queue_word
from mltswitch.targets.eos.grammar import (
    REMEMBERED_BODIES,
    Entry,
    MapClass,
    MapDscp,
    PolicyText,
    lines_of,
    parse_entries,
    parse_lines,
)
from mltswitch.targets.eos.policy import CLASSES, FAMILY_OF, OwnPolicies, sequence_number
from mltswitch.targets.eos.settings import Maps, PortSettings, port_cos_for, port_state
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.remap import (
    HOST_POLICY,
    SwitchMap,
    dscp_set_by,
    lossless_queues,
    policy_of,
    rewriting_map,
)
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
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


REMEMBERED_POLICIES: Final = 64
"""All switches of a fabric have the same."""


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`, in any order of lines."""
    text = files[FILE]
    state = _state(text)
    rendered = render_text(state, capabilities)
    if rendered != text:
        check_lines(_keys(text), _keys(rendered))
    return state


def _keys(text: str) -> Iterator[tuple[int, Key]]:
    return ((line.number, (line.modes, line.text)) for line in parse_lines(text))


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What the lines of one port say, whatever its name."""

    settings: PortSettings
    queues: tuple[int, ...]
    """In the order of their lines."""


def _state(text: str) -> SwitchState:
    maps = Maps()
    policy: list[tuple[str, str]] = []
    bodies: dict[str, tuple[str, ...]] = {}
    routes: list[RouteState] = []
    for entry in parse_entries(text):
        match entry.setting:
            case RouteState():
                routes.append(entry.setting)
            case MapDscp() | MapClass():
                maps = entry.setting.apply(maps)
            case None if entry.port:
                lines_of(entry)
                bodies[entry.port] = (*bodies.get(entry.port, ()), entry.body)
            case None:
                lines_of(entry)
                policy.append((entry.text, entry.body))
    states: dict[tuple[str, ...], PortState] = {}
    policies = _parsed_policies(tuple(policy))
    parsed = {body: _port(body) for body in bodies.values()}
    background_dscp = dscp_set_by(policies.entrance(each.settings.policy) for each in parsed.values())
    for body, port in parsed.items():
        if not port.queues:
            raise LineError(0, "", "a port has no queues")
        lossless = lossless_queues(LOSSLESS, port.queues, maps.queue_of_dscps())
        queues = (*port.queues[:-1], *lossless, port.queues[-1])
        states[body] = port_state("", port.settings, maps, policies, background_dscp, queues, lossless)
    ports = tuple(replace(states[body], name=name) for name, body in bodies.items())
    return SwitchState(ports, tuple(routes), background_dscp=background_dscp)


@lru_cache(maxsize=REMEMBERED_POLICIES)
def _parsed_policies(heads_and_bodies: tuple[tuple[str, str], ...]) -> OwnPolicies:
    """What stands under these heads."""
    policies = OwnPolicies()
    for head, body in heads_and_bodies:
        for line in lines_of(Entry(0, head, None, body)):
            if isinstance(line.setting, PolicyText):
                policies = line.setting.apply(policies)
    return policies


@lru_cache(maxsize=REMEMBERED_BODIES)
def _port(bodies: tuple[str, ...]) -> _Parsed:
    """A port from what stands under each `interface` line of it."""
    settings = PortSettings()
    queues: dict[int, None] = {}
    for body in bodies:
        for line in lines_of(Entry(0, "interface Ethernet1", None, body)):
            if isinstance(line.setting, PolicyText):
                continue
            settings = line.setting.apply(settings)
            if isinstance(line.setting, QueueSetting):
                queues[line.setting.queue] = None
    return _Parsed(settings, tuple(queues))
