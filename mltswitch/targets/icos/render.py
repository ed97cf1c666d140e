"""State in the language of FASTPATH: one file, lines of interface mode between `interface` and `exit`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import Capabilities, PortShare
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text
from mltswitch.targets.base import LineError
from mltswitch.targets.common import NULL_INTERFACE, Key, QueueSetting, check_lines
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.icos.capabilities import QUEUE_COUNT
from mltswitch.targets.icos.grammar import (
    NETMASKS,
    REMEMBERED_BODIES,
    Block,
    MapLine,
    PolicyLine,
    PortLine,
    RouteLine,
    enter,
    parse_entries,
    parse_lines,
    settings_of,
)
from mltswitch.targets.icos.policy import OwnPolicies, class_lines, class_names, read_policies
from mltswitch.targets.icos.settings import DEFAULT_DSCP_MAP, PortSettings, port_state
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.remap import (
    HOST_POLICY,
    UNTRUSTED_POLICY,
    Entrance,
    SwitchMap,
    dscp_set_by,
    policy_of,
    rewriting_map,
)
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
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
    policy: str
    background: int


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
    own = rewriting_map(state, "FASTPATH")
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
            _Port(port.name, port.trusted, policy_of(port), port.queues[-1].queue) for port in state.ports
        ],
        alike=alike,
        dscp_map=_dscp_map(own),
        policies={
            policy: {name: class_lines(name) for name in class_names(entrance.dscps)}
            for policy, entrance in planned_entrances(state, own).items()
        },
        background=state.ports[0].queues[-1].queue if state.ports else None,
        background_dscp=state.background_dscp,
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
    rewriting_map(state, "FASTPATH")


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


def planned_entrances(state: SwitchState, own: SwitchMap) -> dict[str, Entrance]:
    """Policy → what it does, of those that a port of the plan has."""
    used = set(map(policy_of, state.ports))
    return {
        policy: Entrance(dscps, state.ports[0].queues[-1].queue, state.background_dscp)
        for policy, dscps in ((HOST_POLICY, own.remap.dscps if own.remap else ()), (UNTRUSTED_POLICY, None))
        if policy in used
    }


REMEMBERED_POLICIES: Final = 64
"""All switches of a fabric have the same."""


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`, in any order of lines."""
    text = files[FILE]
    state = _state(text, capabilities.threshold.step_bytes)
    rendered = render_text(state, capabilities)
    if rendered != text:
        check_lines(_keys(text), _keys(rendered))
    return state


def _keys(text: str) -> Iterator[tuple[int, Key]]:
    for number, line in parse_lines(text):
        yield number, ((enter(line.port),) if isinstance(line, PortLine) else (), line.text)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What the lines of one port say, whatever its name."""

    settings: PortSettings
    queues: tuple[int, ...]
    """In the order of service."""


def _state(text: str, step_bytes: int) -> SwitchState:
    bodies: dict[str, tuple[tuple[str, ...], ...]] = {}
    policy_lines: list[str] = []
    dscp_map = list(DEFAULT_DSCP_MAP)
    routes: list[RouteState] = []
    for _, entry in parse_entries(text):
        match entry:
            case Block():
                settings_of(entry)
                bodies[entry.port] = (*bodies.get(entry.port, ()), entry.body)
            case RouteLine():
                routes.append(entry.route)
            case MapLine():
                dscp_map[entry.dscp] = entry.queue
            case PolicyLine():
                policy_lines.append(entry.text)
    policies = _policies(tuple(policy_lines))
    ports = {body: _port(body) for body in bodies.values()}
    background_dscp = dscp_set_by(policies.entrance(each.settings.policy) for each in ports.values())
    states: dict[tuple[tuple[str, ...], ...], PortState] = {}
    for name, body in bodies.items():
        if body not in states:
            port = ports[body]
            if not port.queues:
                raise LineError(0, "", f"lacks the line 'cos-queue strict' of interface {name}")
            states[body] = port_state(
                "", port.settings, dscp_map, policies, background_dscp, port.queues, step_bytes
            )
    return SwitchState(
        tuple(replace(states[body], name=name) for name, body in bodies.items()),
        tuple(routes),
        background_dscp=background_dscp,
    )


@lru_cache(maxsize=REMEMBERED_POLICIES)
def _policies(policy_lines: tuple[str, ...]) -> OwnPolicies:
    return read_policies(policy_lines)


@lru_cache(maxsize=REMEMBERED_BODIES)
def _port(bodies: tuple[tuple[str, ...], ...]) -> _Parsed:
    """A port from what stands under each `interface` line of it."""
    settings = PortSettings()
    queues: set[int] = set()
    for body in bodies:
        for _, _, setting in settings_of(Block(0, "", body)):
            settings = setting.apply(settings)
            if isinstance(setting, QueueSetting) and setting.field == "strict":
                queues.add(setting.queue)
    return _Parsed(settings, tuple(sorted(queues, reverse=True)))
