"""The lines that take an EOS switch to the plan, in one config session.

The session takes effect as a whole when it is committed, with a timer: unless the change is read back and
confirmed in time, the switch restores what ran before. Still the lines stand in an order in which they could
be entered one by one: queues get the more lenient of both thresholds and strict service; then ports are no
longer trusted, where they were; then packets are led to the queues; then ports are trusted, because until
then they may trust CoS, which leads to any queue; then thresholds are tightened. A phase covers all ports
before the next begins, because packets that one port classifies leave through the others.

Sessions of ours that a broken push left behind are thrown away. One that waits for its confirmation is
confirmed where the switch runs the plan; else nobody can know which of both the operator wants.
"""

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.eos.grammar import (
    Detect,
    MapClass,
    MapLine,
    PortCos,
    PortDscp,
    PortLine,
    RouteLine,
    Strict,
    Trust,
    parse_lines,
)
from mltswitch.targets.eos.read import NO_NEXT_HOP, read_sessions, read_settings
from mltswitch.targets.eos.render import render_text
from mltswitch.targets.eos.settings import TRUSTED, PortSettings
from mltswitch.targets.eos.text import indented
from mltswitch.targets.state import RouteState, SwitchState

CONFIRM_WITHIN: Final = "00:10:00"
"""After which the switch restores what ran before: longer than reading back takes."""
_OURS: Final = re.compile(r"mltswitch-([0-9]{1,6})")
_LEAVE: Final = "end"
_SAVE: Final = "write memory"
_COMMIT_SECONDS: Final = 120.0
"""A commit programs the chip before the prompt comes back."""

_Placed = tuple[tuple[str, ...], str]


class _Phase(IntEnum):
    LOOSEN = 0
    SCHEDULE = 1
    DISTRUST = 2
    QUEUE = 3
    MAP = 4
    TRUST = 5
    TIGHTEN = 6


def change_between(running: RunningState, wanted: SwitchState) -> Change:
    """Lines of the rendered file that would change something, and removals of routes that are not planned."""
    sessions = read_sessions(running.answers)
    waiting = [name for name in sessions if _OURS.fullmatch(name) and sessions[name] == "pendingCommitTimer"]
    lines = [*_settings(running, wanted), *(((), text) for text in _routes(running.state, wanted))]
    if not lines:
        return Change((), _save(waiting))
    if waiting:
        raise DeviceError(
            f"a push waits to be confirmed, in config session {waiting[0]}, and what runs is not the plan",
            hint=f"`configure session {waiting[0]} commit` keeps it, `configure session {waiting[0]} abort` "
            f"undoes it, and after at most {CONFIRM_WITHIN} the switch undoes it by itself",
        )
    stale = [name for name in sessions if _OURS.fullmatch(name) and sessions[name] == "pending"]
    name = _next_name(sessions)
    commit = f"configure session {name} commit timer {CONFIRM_WITHIN}"
    before = [_LEAVE, *(f"configure session {old} abort" for old in stale), f"configure session {name}"]
    commands = list(_with_modes(lines))
    steps = (
        *(Step(line) for line in before),
        *(Step(text) for _, text in commands),
        Step(_LEAVE),
        Step(commit, seconds=_COMMIT_SECONDS),
    )
    shown = [*before[1:], *(indented(("", *modes), text) for modes, text in commands), commit]
    return Change(steps, _save([name]), "\n".join(shown) + "\n")


def _save(waiting: Iterable[str]) -> tuple[Step, ...]:
    confirm = (Step(f"configure session {name} commit") for name in waiting)
    return (Step(_LEAVE), *confirm, Step(_SAVE))


def _next_name(sessions: Iterable[str]) -> str:
    """A name that the switch does not know yet."""
    numbers = [int(match[1]) for match in map(_OURS.fullmatch, sessions) if match]
    return f"mltswitch-{max(numbers, default=0) + 1}"


def _settings(running: RunningState, wanted: SwitchState) -> Iterator[_Placed]:
    maps, ports = read_settings(running.answers, wanted)
    lines: list[tuple[_Phase, int, _Placed]] = []
    for line in parse_lines(render_text(wanted)):
        placed = (line.placed.modes, line.placed.text)
        if isinstance(line, MapLine):
            if line.setting.apply(maps) != maps:
                phase = _Phase.QUEUE if isinstance(line.setting, MapClass) else _Phase.MAP
                lines.append((phase, 0, placed))
        elif isinstance(line, PortLine) and line.setting.apply(ports[line.port]) != ports[line.port]:
            lines.append((*_place(line, ports[line.port]), placed))
    # The sort is stable: within a phase the ports keep their order.
    for _, _, placed in sorted(lines, key=lambda entry: entry[:2]):
        yield placed


def _place(line: PortLine, port: PortSettings) -> tuple[_Phase, int]:
    match line.setting:
        case Detect():
            return (_Phase.LOOSEN if _loosens(line.setting, port) else _Phase.TIGHTEN), 0
        case Strict(queue):
            return _Phase.SCHEDULE, -queue
        case PortCos() | PortDscp():
            return _Phase.DISTRUST, 0
        case Trust(mode):
            return (_Phase.TRUST if mode == TRUSTED else _Phase.DISTRUST), 1


def _loosens(setting: Detect, port: PortSettings) -> bool:
    """Whether the queue drops no packet that it keeps now."""
    new, old = setting.detection, port.queues[setting.queue].detection
    if new is None:
        return True
    if old is None or old.unit != new.unit:
        return False
    return new.minimum >= old.maximum


def _routes(running: SwitchState, wanted: SwitchState) -> Iterator[str]:
    """A route of ours with another distance, say, goes before it is added again; other routes go last."""
    planned = {(route.prefix, route.next_hop) for route in wanted.routes}
    removed = [route for route in running.routes if route not in wanted.routes]
    for route in removed:
        if (route.prefix, route.next_hop) in planned:
            yield f"no {_spelled(route)}"
    present = set(running.routes)
    for line in parse_lines(render_text(wanted)):
        if isinstance(line, RouteLine) and line.route not in present:
            yield line.placed.text
    for route in removed:
        if (route.prefix, route.next_hop) not in planned:
            yield f"no {_spelled(route)}"


def _spelled(route: RouteState) -> str:
    """The line by which a running route stands in the configuration."""
    target, _, others = route.port.partition(" ")
    if target and not target[0].isalpha():
        target, others = "", route.port
    hop = "" if route.next_hop == NO_NEXT_HOP else str(route.next_hop)
    return " ".join(filter(None, ("ip route", str(route.prefix), target, hop, others)))


def _with_modes(lines: Iterable[_Placed]) -> Iterator[_Placed]:
    """The lines, and before each the ones that open its modes where they are not open."""
    current: tuple[str, ...] = ()
    for modes, text in lines:
        if modes != current:
            for depth in range(_first_new_mode(current, modes), len(modes)):
                yield modes[:depth], modes[depth]
        yield modes, text
        current = modes


def _first_new_mode(current: tuple[str, ...], modes: tuple[str, ...]) -> int:
    """Index of the first mode to open; after a line of a queue, one of the port needs the port's again."""
    if len(current) > len(modes) and current[: len(modes)] == modes:
        return max(0, len(modes) - 1)
    return next((i for i, mode in enumerate(modes) if i >= len(current) or current[i] != mode), len(modes))
