"""The lines that take a FASTPATH switch to the plan; each takes effect at once, so their order matters.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds and strict service, highest first; then ports are no longer trusted, where they were; then
packets are led to the queues; then thresholds are tightened; then ports are trusted. A phase covers all ports
before the next begins, because packets that one port classifies leave through the others; the DSCP map is the
whole switch's.

A route of ours with another preference, say, is removed before it is added again; other routes within our
prefixes are removed last.
"""

from enum import IntEnum
from itertools import groupby
from typing import Final

from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.icos.grammar import (
    LEAVE,
    Curve,
    Instantaneous,
    MapLine,
    MapPriority,
    PortLine,
    RandomDetect,
    RouteLine,
    ScaleLine,
    Strict,
    Trust,
    enter,
    parse_lines,
)
from mltswitch.targets.icos.read import NO_NEXT_HOP, read_dscp_map, read_port
from mltswitch.targets.icos.render import render_text
from mltswitch.targets.icos.settings import TRUSTED, DropCurve, PortSettings
from mltswitch.targets.state import RouteState, SwitchState

SAVE_SECONDS: Final = 120.0
SAVE: Final = (Step(LEAVE), Step("write memory confirm", seconds=SAVE_SECONDS), Step("configure"))
"""Saving is a command of the privileged mode: the configuration mode is left for it."""


class _Phase(IntEnum):
    LOOSEN = 0
    SCHEDULE = 1
    BACKGROUND = 2
    DISTRUST = 3
    MAP = 4
    AVERAGE = 5
    TIGHTEN = 6
    DETECT = 7
    TRUST = 8


_Placed = tuple[_Phase, int, str, str]
"""Phase, rank within it, port or nothing, line."""


def change_between(running: RunningState, wanted: SwitchState) -> Change:
    """Lines of the rendered file that would change something, and removals of routes that are not planned."""
    present = set(running.state.routes)
    ports = {port.name: read_port(running.answers, port.name) for port in wanted.ports}
    dscp_map = read_dscp_map(running.answers)
    placed: list[_Placed] = []
    routes: list[str] = []
    for _, line in parse_lines(render_text(wanted)):
        match line:
            case RouteLine():
                if line.route not in present:
                    routes.append(line.text)
            case MapLine():
                if dscp_map[line.dscp] != line.queue:
                    placed.append((_Phase.MAP, 0, "", line.text))
            case PortLine():
                if line.setting.apply(ports[line.port]) != ports[line.port]:
                    placed.append((*_place(line, ports[line.port]), line.port, line.text))
            case ScaleLine():
                pass
    planned = {(route.prefix, route.next_hop) for route in wanted.routes}
    removed = [route for route in running.state.routes if route not in wanted.routes]
    removed_first = [_removal(route) for route in removed if (route.prefix, route.next_hop) in planned]
    removed_last = [_removal(route) for route in removed if (route.prefix, route.next_hop) not in planned]
    lines = _in_modes(placed) + removed_first + routes + removed_last
    if not lines:
        return Change((), SAVE)
    return Change(tuple(map(Step, lines)), SAVE, "\n".join(lines) + "\n")


def _in_modes(placed: list[_Placed]) -> list[str]:
    """The lines by phase, then by port in the plan's order, each port's between `interface` and `exit`."""
    order = {port: index for index, port in enumerate(dict.fromkeys(port for _, _, port, _ in placed))}
    ranked = sorted(placed, key=lambda entry: (entry[0], order[entry[2]], entry[1]))
    lines: list[str] = []
    for port, entries in groupby(ranked, key=lambda entry: entry[2]):
        texts = [text for _, _, _, text in entries]
        lines += [enter(port), *texts, LEAVE] if port else texts
    return lines


def _removal(route: RouteState) -> str:
    command = f"no ip route {route.prefix.network_address} {route.prefix.netmask}"
    if route.next_hop != NO_NEXT_HOP:
        return f"{command} {route.next_hop}"
    words = route.port.split()
    return f"{command} {' '.join(words[:2] if words[0] == 'interface' else words[:1])}"


def _place(line: PortLine, port: PortSettings) -> tuple[_Phase, int]:
    match line.setting:
        case Curve(queue, curve):
            old = port.queues[queue]
            loosens = old.random_detect and _loosens(curve, old.curve)
            return (_Phase.LOOSEN if loosens else _Phase.TIGHTEN), 0
        case RandomDetect(on=on):
            return (_Phase.DETECT if on else _Phase.LOOSEN), 0
        case Strict(queue):
            return _Phase.SCHEDULE, -queue
        case MapPriority():
            return _Phase.BACKGROUND, 0
        case Instantaneous():
            return _Phase.AVERAGE, 0
        case Trust(mode):
            return (_Phase.TRUST if mode == TRUSTED else _Phase.DISTRUST), 0


def _loosens(new: DropCurve, old: DropCurve) -> bool:
    """Whether the queue drops no packet that it keeps now; only a marking curve spares anybody."""
    return new.marks and all(low >= high for low, high in zip(new.minimum, old.maximum, strict=True))
