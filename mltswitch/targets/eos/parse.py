"""EOS lines back into state: nothing but the lines that this state needs, and all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.base import LineError
from mltswitch.targets.common import Key, QueueSetting, check_lines
from mltswitch.targets.eos.capabilities import LOSSLESS
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
from mltswitch.targets.eos.policy import OwnPolicies
from mltswitch.targets.eos.render import FILE, render_text
from mltswitch.targets.eos.settings import Maps, PortSettings, port_state
from mltswitch.targets.remap import dscp_set_by, lossless_queues
from mltswitch.targets.state import PortState, RouteState, SwitchState

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
class _Port:
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
    policies = _policies(tuple(policy))
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
def _policies(heads_and_bodies: tuple[tuple[str, str], ...]) -> OwnPolicies:
    """What stands under these heads."""
    policies = OwnPolicies()
    for head, body in heads_and_bodies:
        for line in lines_of(Entry(0, head, None, body)):
            if isinstance(line.setting, PolicyText):
                policies = line.setting.apply(policies)
    return policies


@lru_cache(maxsize=REMEMBERED_BODIES)
def _port(bodies: tuple[str, ...]) -> _Port:
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
    return _Port(settings, tuple(queues))
