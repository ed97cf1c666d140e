"""The lines that take an Onyx switch to the plan; each takes effect at once, so their order matters.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds; then ports are no longer trusted, where they were; then packets are led to the queues; then
thresholds are tightened; then ports are trusted. A phase covers all ports before the next begins, because
packets that one port classifies leave through the others.

Nor may it serve a packet after another that neither end serves first. service_order.py says how: which
classes become strict before the maps change and which after all else, and which code points move first. A
line moves all code points of a new class; where some of them move down and others up, it is two, unless all
service is weighted yet.

A route of ours with another distance, say, is removed and added again by two lines in a row, for no source
says whether Onyx keeps both; other routes within our prefixes are removed last.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Network
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.common import NO_NEXT_HOP, PortSetting, QueueSetting
from mltswitch.targets.onyx.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.onyx.grammar import (
    DISCARD,
    PREAMBLE,
    Bind,
    MapDscp,
    PortLine,
    RouteLine,
    parse_lines,
)
from mltswitch.targets.onyx.read import read_port
from mltswitch.targets.onyx.render import render_text
from mltswitch.targets.onyx.settings import ABSOLUTE, TRUSTED, CongestionControl, PortSettings
from mltswitch.targets.service_order import boundary
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


_Placed = tuple[_Phase, int, str]
"""Phase, rank within it, line."""


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Lines of the rendered file that would change something, and removals of routes that are not planned."""
    del capabilities
    present = set(running.state.routes)
    planned = set(wanted.routes)
    # A removal names no distance, so one line removes whatever goes to this next hop.
    removals = {_key(route): _removal(route) for route in running.state.routes if route not in planned}
    ports = {port.name: read_port(running.answers, port.name) for port in wanted.ports}
    order = _order(wanted, ports)
    settings: list[_Placed] = []
    routes: list[str] = []
    for _, line in parse_lines(render_text(wanted)):
        if isinstance(line, RouteLine):
            removal = removals.pop(_key(line.route), None)
            if removal is not None:
                routes += (removal, line.text)
            elif line.route not in present:
                routes.append(line.text)
        elif line.setting.apply(ports[line.port]) != ports[line.port]:
            settings += _place(line, ports[line.port], order)
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
    return route.prefix, hop or DISCARD


def _removal(route: RouteState) -> str:
    prefix, hop = _key(route)
    return f"no ip route vrf default {prefix} {hop}"


@dataclass(frozen=True, slots=True)
class _Order:
    """How ports serve while code points move."""

    boundaries: Mapping[str, int]
    """Port → highest class that is weighted until the end."""
    anything_is_strict: bool
    """Whether some class of some port is, so that it matters who moves first."""


def _order(wanted: SwitchState, ports: Mapping[str, PortSettings]) -> _Order:
    # What a VLAN tag may say counts for nothing here: it says so until the port is trusted, last of all.
    maps = (port.switch_priorities for port in ports.values() if port.trust in {TRUSTED, "both"})
    priorities = {0}.union(*maps)
    boundaries: dict[str, int] = {}
    for port in wanted.ports:
        settings = ports[port.name]
        strict = {number for number, entry in enumerate(settings.queues) if entry.is_strict}
        occupied = {settings.bindings[priority] for priority in priorities}
        planned = {queue.queue for queue in port.queues if not queue.is_lossless}
        # Where all service is weighted nobody loses by waiting for strict service.
        is_weighted = not strict & occupied
        boundaries[port.name] = max(planned) if is_weighted else boundary(strict, occupied, planned, ())
    return _Order(boundaries, any(entry.is_strict for port in ports.values() for entry in port.queues))


def _place(line: PortLine, port: PortSettings, order: _Order) -> Iterator[_Placed]:
    rank = 0
    match line.setting:
        case QueueSetting(traffic_class, "scheduling", _):
            is_late = traffic_class <= order.boundaries[line.port]
            phase, rank = _Phase.SCHEDULE_LAST if is_late else _Phase.SCHEDULE_FIRST, -traffic_class
        case Bind():
            phase = _Phase.BIND
        case MapDscp() if order.anything_is_strict:
            yield from _moves(line, line.setting, port)
            return
        case MapDscp():
            phase = _Phase.MAP
        case PortSetting("trust", mode):
            phase = _Phase.TRUST if mode == TRUSTED else _Phase.DISTRUST
        case PortSetting():
            phase = _Phase.LOOSEN
        case QueueSetting(traffic_class, _, new):
            old = port.queues[traffic_class].congestion_control
            phase = _Phase.LOOSEN if _loosens(new, old) else _Phase.TIGHTEN
    yield phase, rank, line.text


def _moves(line: PortLine, setting: MapDscp, port: PortSettings) -> Iterator[_Placed]:
    """Code points that move down, to the lowest class first; then those that move up, highest class first."""
    new = setting.switch_priority
    down = [dscp for dscp in setting.dscps if port.switch_priorities[dscp] > new]
    up = [dscp for dscp in setting.dscps if port.switch_priorities[dscp] < new]
    for dscps, rank in ((down, new - TRAFFIC_CLASSES), (up, TRAFFIC_CLASSES - new)):
        if dscps:
            numbers = " ".join(map(str, dscps if down and up else setting.dscps))
            text = f"interface ethernet {line.port} qos map dscp {numbers} to switch-priority {new}"
            yield _Phase.MAP, rank, text


def _loosens(new: CongestionControl | None, old: CongestionControl | None) -> bool:
    """Whether the queue drops no packet that it keeps now."""
    if new is None or old is None:
        return new is None
    comparable = old.control != "ecn" and old.threshold_mode == ABSOLUTE
    return comparable and new.minimum >= old.maximum
