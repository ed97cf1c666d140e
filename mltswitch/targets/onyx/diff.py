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

The way back has the same lines with the values that the switch answered before, in the same order of phases:
service becomes weighted again last of all.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Network
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
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
    line_of,
    parse_lines,
)
from mltswitch.targets.onyx.read import read_port, read_routes, state_with
from mltswitch.targets.onyx.render import render_text
from mltswitch.targets.onyx.settings import (
    ABSOLUTE,
    PLANNED_CONTROL,
    STRICT,
    TRUSTED,
    CongestionControl,
    PortSettings,
)
from mltswitch.targets.service_order import boundary
from mltswitch.targets.state import RouteState, SwitchState, differences

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
    lines = [line for _, line in parse_lines(render_text(wanted))]
    ports = {port.name: read_port(running.answers, port.name) for port in wanted.ports}
    for line in lines:
        if isinstance(line, PortLine):
            ports[line.port] = line.setting.apply(ports[line.port])
    after = replace(state_with(running.answers, ports, wanted), routes=wanted.routes)
    return replace(_change(running, wanted, lines), stays=differences(wanted, after))


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """Lines that give everything that the rendered file sets the value that it had before.

    Raises DeviceError for a value that no line sets, also where it is still in force.
    """
    del capabilities
    return _change(running, wanted, list(_former_lines(before, wanted)))


def _former_lines(before: Mapping[str, str], wanted: SwitchState) -> Iterator[PortLine | RouteLine]:
    """The lines of the rendered file with the values of before, and the routes of before."""
    ports = {port.name: read_port(before, port.name) for port in wanted.ports}
    for _, line in parse_lines(render_text(wanted)):
        if isinstance(line, PortLine):
            for setting in line.setting.former(ports[line.port]):
                try:
                    yield line_of(line.port, setting)
                except ValueError as error:
                    raise DeviceError(
                        f"it has {error}, for which no command is known: no way back to it",
                        where=f"port {line.port}",
                        hint="change it by hand before the push, if it need not come back",
                    ) from None
    for route in read_routes(before, wanted):
        prefix, hop = _key(route)
        distance = route.port if route.next_hop != NO_NEXT_HOP else route.port.partition(" ")[2]
        yield RouteLine(f"ip route vrf default {prefix} {hop} {distance}".rstrip(), route)


def _change(running: RunningState, wanted: SwitchState, target: Iterable[PortLine | RouteLine]) -> Change:
    """Those of the target's lines that change something, in a safe order, and removals of other routes."""
    present = set(running.state.routes)
    planned = {line.route for line in target if isinstance(line, RouteLine)}
    # A removal names no distance, so one line removes whatever goes to this next hop.
    removals = {_key(route): _removal(route) for route in running.state.routes if route not in planned}
    ports = {port.name: read_port(running.answers, port.name) for port in wanted.ports}
    order = _order(wanted, ports)
    settings: list[_Placed] = []
    routes: list[str] = []
    for line in target:
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
        case QueueSetting(traffic_class, "scheduling", service):
            is_late = service != STRICT or traffic_class <= order.boundaries[line.port]
            phase, rank = _Phase.SCHEDULE_LAST if is_late else _Phase.SCHEDULE_FIRST, -traffic_class
        case Bind():
            phase = _Phase.BIND
        case MapDscp() if order.anything_is_strict:
            yield from _moves(line, line.setting, port)
            return
        case MapDscp():
            phase = _Phase.MAP
        case PortSetting("trust", mode):
            phase = _Phase.TRUST if mode in {TRUSTED, "both"} else _Phase.DISTRUST
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
            moving = tuple(dscps) if down and up else setting.dscps
            yield _Phase.MAP, rank, line_of(line.port, MapDscp(moving, new)).text


def _loosens(new: CongestionControl | None, old: CongestionControl | None) -> bool:
    """Whether the queue drops no packet that it keeps now."""
    if new is None or old is None:
        return new is None
    comparable = new.threshold_mode == old.threshold_mode == ABSOLUTE
    comparable = comparable and old.control != "ecn" and new.control in {PLANNED_CONTROL, old.control}
    return comparable and new.minimum >= old.maximum
