"""FASTPATH lines back into state: nothing but the lines that this state needs, and all of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.common import LineError
from mltswitch.targets.icos.capabilities import DEFAULT_SCALE
from mltswitch.targets.icos.grammar import (
    REMEMBERED_BODIES,
    Block,
    Line,
    MapLine,
    PolicyLine,
    PortLine,
    RouteLine,
    ScaleLine,
    Strict,
    parse_entries,
    parse_lines,
    settings_of,
)
from mltswitch.targets.icos.policy import read_policy
from mltswitch.targets.icos.render import FILE, render_text
from mltswitch.targets.icos.settings import DEFAULT_DSCP_MAP, PortSettings, port_state
from mltswitch.targets.remap import Remap
from mltswitch.targets.state import PortState, RouteState, SwitchState

REMEMBERED_POLICIES: Final = 64
"""All switches of a fabric have the same."""


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line."""
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    text = files[FILE]
    try:
        state = _state(text)
        rendered = render_text(state)
        if rendered == text:
            return state
        lines = list(parse_lines(text))
        needed = Counter(_key(line) for _, line in parse_lines(rendered))
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    except UnsupportedPlanError as error:
        raise UserInputError(str(error), where=FILE) from None
    for number, line in lines:
        if not needed[_key(line)]:
            raise UserInputError(f"does not fit the other lines: {_name(line)}", where=f"{FILE}:{number}")
        needed[_key(line)] -= 1
    if missing := sorted(+needed):
        port, text = missing[0]
        raise UserInputError(f"lacks the line {text!r}{f' of interface {port}' if port else ''}", where=FILE)
    return state


def _key(line: Line) -> tuple[str, str]:
    return (line.port if isinstance(line, PortLine) else "", line.text)


def _name(line: Line) -> str:
    return repr(line.text[:120])


@dataclass(frozen=True, slots=True)
class _Port:
    """What the lines of one port say, whatever its name."""

    settings: PortSettings
    queues: tuple[int, ...]
    """In the order of service."""


def _state(text: str) -> SwitchState:
    bodies: dict[str, tuple[tuple[str, ...], ...]] = {}
    policy_lines: list[str] = []
    dscp_map = list(DEFAULT_DSCP_MAP)
    scale = DEFAULT_SCALE
    routes: list[RouteState] = []
    for _, entry in parse_entries(text):
        match entry:
            case Block():
                settings_of(entry)
                bodies[entry.port] = (*bodies.get(entry.port, ()), entry.body)
            case ScaleLine():
                scale = entry.full_scale_bytes
            case RouteLine():
                routes.append(entry.route)
            case MapLine():
                dscp_map[entry.dscp] = entry.queue
            case PolicyLine():
                policy_lines.append(entry.text)
    remap = _remap(tuple(policy_lines))
    states: dict[tuple[tuple[str, ...], ...], PortState] = {}
    for name, body in bodies.items():
        if body not in states:
            port = _port(body)
            if not port.queues:
                raise UserInputError(f"lacks the line 'cos-queue strict' of interface {name}", where=FILE)
            states[body] = port_state("", port.settings, dscp_map, remap, port.queues, scale)
    return SwitchState(
        tuple(replace(states[body], name=name) for name, body in bodies.items()), tuple(routes)
    )


@lru_cache(maxsize=REMEMBERED_POLICIES)
def _remap(policy_lines: tuple[str, ...]) -> Remap | None:
    return read_policy(policy_lines).remap


@lru_cache(maxsize=REMEMBERED_BODIES)
def _port(bodies: tuple[tuple[str, ...], ...]) -> _Port:
    """A port from what stands under each `interface` line of it."""
    settings = PortSettings()
    queues: set[int] = set()
    for body in bodies:
        for _, _, setting in settings_of(Block(0, "", body)):
            settings = setting.apply(settings)
            if isinstance(setting, Strict):
                queues.add(setting.queue)
    return _Port(settings, tuple(sorted(queues, reverse=True)))
