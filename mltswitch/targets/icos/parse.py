"""FASTPATH lines back into state: nothing but the lines that this state needs, and all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.base import LineError
from mltswitch.targets.common import Key, QueueSetting, check_lines
from mltswitch.targets.icos.grammar import (
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
from mltswitch.targets.icos.policy import OwnPolicies, read_policies
from mltswitch.targets.icos.render import FILE, render_text
from mltswitch.targets.icos.settings import DEFAULT_DSCP_MAP, PortSettings, port_state
from mltswitch.targets.remap import dscp_set_by
from mltswitch.targets.state import PortState, RouteState, SwitchState

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
class _Port:
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
def _port(bodies: tuple[tuple[str, ...], ...]) -> _Port:
    """A port from what stands under each `interface` line of it."""
    settings = PortSettings()
    queues: set[int] = set()
    for body in bodies:
        for _, _, setting in settings_of(Block(0, "", body)):
            settings = setting.apply(settings)
            if isinstance(setting, QueueSetting) and setting.field == "strict":
                queues.add(setting.queue)
    return _Port(settings, tuple(sorted(queues, reverse=True)))
