"""The lines that take an Onyx switch to the plan; each takes effect at once, so their order matters.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds; then ports are no longer trusted, where they were; then packets are led to the queues; then
thresholds are tightened; then ports are trusted. A phase covers all ports before the next begins, because
packets that one port classifies leave through the others.

Strict service comes first on a port whose background is strict already, as a plan of ours left it: a class
that this plan adds must not wait behind background. Elsewhere, on a switch as delivered for one, it comes
last: before, the old map would lead planned background to classes that are served above gradients. In either
case the highest class of all ports is first.

A route of ours with another distance, say, is removed and added again by two lines in a row, for no source
says whether Onyx keeps both; other routes within our prefixes are removed last.
"""

from enum import IntEnum
from ipaddress import IPv4Network
from typing import Final

from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.onyx.grammar import (
    PREAMBLE,
    Bind,
    Congestion,
    KeepDscp,
    MapDscp,
    PortLine,
    RouteLine,
    Strict,
    Trust,
    parse_lines,
)
from mltswitch.targets.onyx.read import NO_NEXT_HOP, read_port
from mltswitch.targets.onyx.render import render_text
from mltswitch.targets.onyx.settings import ABSOLUTE, TRUSTED, CongestionControl, PortSettings
from mltswitch.targets.state import RouteState, SwitchState

SAVE: Final = (Step("configuration write"),)


class _Phase(IntEnum):
    LOOSEN = 0
    SCHEDULE_FIRST = 1
    DISTRUST = 2
    BIND = 3
    MAP = 4
    TIGHTEN = 5
    TRUST = 6
    SCHEDULE_LAST = 7


def change_between(running: RunningState, wanted: SwitchState) -> Change:
    """Lines of the rendered file that would change something, and removals of routes that are not planned."""
    present = set(running.state.routes)
    planned = set(wanted.routes)
    # A removal names no distance, so one line removes whatever goes to this next hop.
    removals = {_key(route): _removal(route) for route in running.state.routes if route not in planned}
    ports = {port.name: read_port(running.answers, port.name) for port in wanted.ports}
    background = {port.name: port.queues[-1].queue for port in wanted.ports if port.queues}
    settings: list[tuple[_Phase, int, str]] = []
    routes: list[str] = []
    for _, line in parse_lines(render_text(wanted)):
        if isinstance(line, RouteLine):
            removal = removals.pop(_key(line.route), None)
            if removal is not None:
                routes += (removal, line.text)
            elif line.route not in present:
                routes.append(line.text)
        elif line.setting.apply(ports[line.port]) != ports[line.port]:
            settings.append((*_place(line, ports[line.port], background[line.port]), line.text))
    # The sort is stable: within a phase the ports keep their order.
    lines = [text for _, _, text in sorted(settings, key=lambda entry: entry[:2])]
    lines += (*routes, *removals.values())
    if not lines:
        return Change((), SAVE)
    lines.insert(0, PREAMBLE)
    return Change(tuple(Step(line) for line in lines), SAVE, "\n".join(lines) + "\n")


def _key(route: RouteState) -> tuple[IPv4Network, str]:
    """Prefix, and next hop or the word that stands for it."""
    hop = str(route.next_hop) if route.next_hop != NO_NEXT_HOP else route.port.partition(" ")[0]
    return route.prefix, hop


def _removal(route: RouteState) -> str:
    prefix, hop = _key(route)
    return f"no ip route vrf default {prefix} {hop}"


def _place(line: PortLine, port: PortSettings, background: int) -> tuple[_Phase, int]:
    match line.setting:
        case Strict(traffic_class):
            was_strict = port.classes[background].is_strict
            return _Phase.SCHEDULE_FIRST if was_strict else _Phase.SCHEDULE_LAST, -traffic_class
        case Bind():
            phase = _Phase.BIND
        case MapDscp():
            phase = _Phase.MAP
        case Trust(mode):
            phase = _Phase.TRUST if mode == TRUSTED else _Phase.DISTRUST
        case KeepDscp():
            phase = _Phase.LOOSEN
        case Congestion(traffic_class, new):
            old = port.classes[traffic_class].congestion_control
            phase = _Phase.LOOSEN if _loosens(new, old) else _Phase.TIGHTEN
    return phase, 0


def _loosens(new: CongestionControl | None, old: CongestionControl | None) -> bool:
    """Whether the queue drops no packet that it keeps now."""
    if new is None or old is None:
        return new is None
    comparable = old.control != "ecn" and old.threshold_mode == ABSOLUTE
    return comparable and new.minimum >= old.maximum
