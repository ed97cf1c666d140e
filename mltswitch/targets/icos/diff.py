"""The lines that take a FASTPATH switch to the plan; each takes effect at once, so their order matters.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds and strict service, highest first; then ports are no longer trusted, where they were, and
those of hosts get the DiffServ policy; then packets are led to the queues; then the policy leaves ports that
should not have it; then thresholds are tightened; then ports are trusted. A phase covers all ports before the
next begins, because packets that one port classifies leave through the others; the DSCP map is the whole
switch's.

From a switch as delivered, nothing between serves packets before others that the plan serves before them;
from elsewhere the order is the best known, not a law. A port on which
packets wait in several weighted queues, as on a switch as delivered, becomes strict only after the map: until
then what is background in the plan may lie in a queue above a gradient's. Queues of it that are strict below
a weighted one become weighted first. Code points move up from the highest queue on, down from the lowest on.

A route with another next hop is added before the old one is removed; with another preference, say, it is
removed and added again, because the line that removes a route does not name its preference. So each prefix is
without a route for one line at most. Routes of ours that are not planned are removed last.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import groupby
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.icos.capabilities import QUEUE_COUNT
from mltswitch.targets.icos.grammar import (
    Attach,
    Curve,
    Instantaneous,
    MapLine,
    MapPriority,
    Minimums,
    PolicyLine,
    PortLine,
    RandomDetect,
    RouteLine,
    ScaleLine,
    Strict,
    Trust,
    enter,
    parse_lines,
)
from mltswitch.targets.icos.policy import (
    ATTACH_LINE,
    LEAVE,
    POLICY,
    POLICY_LINE,
    HostPolicy,
    class_lines,
    class_names,
)
from mltswitch.targets.icos.read import (
    NO_NEXT_HOP,
    ports_with_policy,
    read_dscp_map,
    read_host_policy,
    read_port,
)
from mltswitch.targets.icos.render import guaranteed_percents, render_text
from mltswitch.targets.icos.settings import CERTAIN, TRUSTED, DropCurve, PortSettings
from mltswitch.targets.remap import Remap, switch_map
from mltswitch.targets.state import PortState, RouteState, SwitchState

_RANKS: Final = 16
"""More than there are queues."""
SAVE_SECONDS: Final = 120.0
SAVE: Final = (Step(LEAVE), Step("write memory confirm", seconds=SAVE_SECONDS), Step("configure"))
"""Saving is a command of the privileged mode: the configuration mode is left for it."""


class _Phase(IntEnum):
    LOOSEN = 0
    LEVEL = 1
    SCHEDULE = 2
    BACKGROUND = 3
    DISTRUST = 4
    POLICY = 5
    ATTACH = 6
    MAP = 7
    SCHEDULE_LATE = 8
    DETACH = 9
    AVERAGE = 10
    TIGHTEN = 11
    DETECT = 12
    TRUST = 13
    FORGET = 14


_Placed = tuple[_Phase, int, str, str]
"""Phase, rank within it, port or nothing, line."""


def change_between(running: RunningState, wanted: SwitchState) -> Change:
    """Lines of the rendered file that would change something, and removals of routes that are not planned."""
    ports = {port.name: read_port(running.answers, port.name) for port in wanted.ports}
    dscp_map = read_dscp_map(running.answers)
    placed: list[_Placed] = []
    routes: list[RouteLine] = []
    lines = [line for _, line in parse_lines(render_text(wanted))]
    late: dict[str, tuple[int, ...]] = {}
    if any(isinstance(line, MapLine) and dscp_map[line.dscp] != line.queue for line in lines):
        late = _late_ports(wanted, ports, dscp_map)
    for line in lines:
        match line:
            case RouteLine():
                routes.append(line)
            case MapLine():
                if dscp_map[line.dscp] != line.queue:
                    rank = _map_rank(dscp_map[line.dscp], line.queue)
                    placed.append((_Phase.MAP, rank, "", line.text))
            case PortLine(setting=Minimums()):
                pass
            case PortLine(setting=Strict()) if line.port in late:
                placed += _late(line, ports[line.port], late[line.port])
            case PortLine():
                if line.setting.apply(ports[line.port]) != ports[line.port]:
                    placed.append((*_place(line, ports[line.port]), line.port, line.text))
            case ScaleLine() | PolicyLine():
                pass
    for name, queues in late.items():
        placed += [(_Phase.LEVEL, queue, name, f"no cos-queue strict {queue}") for queue in queues]
    placed += _minimums(wanted, ports)
    placed += _policy(running.answers, wanted, ports)
    commands = _in_modes(placed) + list(_routes(running.state, wanted, routes))
    if not commands:
        return Change((), SAVE)
    return Change(tuple(map(Step, commands)), SAVE, "\n".join(commands) + "\n")


def _late(line: PortLine, port: PortSettings, levelled: Iterable[int]) -> Iterator[_Placed]:
    """The line in the phase after the map; `levelled` are weighted by then, whatever they are now."""
    if isinstance(line.setting, Strict):
        queue, on = line.setting.queue, line.setting.on
        if on != (port.queues[queue].strict and queue not in levelled):
            yield _Phase.SCHEDULE_LATE, -queue if on else 1, line.port, line.text


def _late_ports(
    wanted: SwitchState, ports: Mapping[str, PortSettings], dscp_map: Iterable[int]
) -> dict[str, tuple[int, ...]]:
    """Ports that become strict after the map, with the queues that become weighted before it."""
    occupied = set(dscp_map)
    late: dict[str, tuple[int, ...]] = {}
    for port in wanted.ports:
        queues, used = ports[port.name].queues, occupied | {ports[port.name].priorities[0]}
        weighted = {number for number in used if number < QUEUE_COUNT and not queues[number].strict}
        if weighted and weighted != {min(used | {port.queues[-1].queue})}:
            highest = max((each.queue for each in port.queues if not queues[each.queue].strict), default=-1)
            late[port.name] = tuple(
                sorted(
                    each.queue for each in port.queues if queues[each.queue].strict and each.queue < highest
                )
            )
    return late


def _map_rank(old: int, new: int) -> int:
    """What moves down goes first to the lowest queue, then what moves up to the highest."""
    if new < old:
        return _RANKS * new + old - _RANKS**2
    return -_RANKS * new - old + _RANKS**2


def _routes(running: SwitchState, wanted: SwitchState, lines: Iterable[RouteLine]) -> Iterator[str]:
    present = set(running.routes)
    surplus = [route for route in running.routes if route not in wanted.routes]
    for line in lines:
        old = [route for route in surplus if route.prefix == line.route.prefix]
        same = [route for route in old if route.next_hop == line.route.next_hop]
        surplus = [route for route in surplus if route not in old]
        if same:
            yield _removal(same[0])
        if same or line.route not in present:
            yield line.text
        yield from dict.fromkeys(_removal(route) for route in old if route not in same)
    yield from dict.fromkeys(map(_removal, surplus))


def _minimums(wanted: SwitchState, ports: Mapping[str, PortSettings]) -> Iterator[_Placed]:
    """One line sets the guarantees of all queues of a port; those that are not the plan's stay."""
    for port in wanted.ports:
        percents = [queue.minimum_percent for queue in ports[port.name].queues]
        planned = guaranteed_percents(port.queues)
        for queue in port.queues:
            percents[queue.queue] = planned[queue.queue] if planned else 0
        if sum(percents) > CERTAIN:
            raise DeviceError(
                f"minimum bandwidths of queues that are not the plan's leave no room for background's: "
                f"{_foreign_percents(port, ports[port.name])}",
                where=f"port {port.name}",
                hint="lower them first with `cos-queue min-bandwidth`",
            )
        setting = Minimums(tuple(percents))
        if setting.apply(ports[port.name]) != ports[port.name]:
            yield _Phase.SCHEDULE, 1, port.name, str(setting)


def _foreign_percents(port: PortState, settings: PortSettings) -> str:
    own = {queue.queue for queue in port.queues}
    return ", ".join(
        f"queue {number} has {queue.minimum_percent} %"
        for number, queue in enumerate(settings.queues)
        if number not in own and queue.minimum_percent
    )


def _policy(
    answers: Mapping[str, str], wanted: SwitchState, ports: Mapping[str, PortSettings]
) -> Iterator[_Placed]:
    """The policy, its classes, and where it is attached."""
    own, found = switch_map(wanted.ports, "FASTPATH"), read_host_policy(answers)
    detached = [
        port.name
        for port in wanted.ports
        if ports[port.name].policy == POLICY and port.name not in own.remapped
    ]
    for name in detached:
        yield _Phase.DETACH, 0, name, f"no {ATTACH_LINE}"
    if own.remap is not None:
        for line in _policy_additions(found, own.remap):
            yield _Phase.POLICY, 0, "", line
        for line in _policy_removals(found, own.remap):
            yield _Phase.DETACH, 1, "", line
    elif not ports_with_policy(answers) - set(detached):
        if found.is_defined:
            yield _Phase.FORGET, 0, "", f"no policy-map {POLICY}"
        for name in found.classes:
            if name not in found.lent:
                yield _Phase.FORGET, 1, "", f"no class-map {name}"


def _policy_additions(found: HostPolicy, remap: Remap) -> Iterator[str]:
    """Classes that lack or are not what their names say, and their places in the policy."""
    names = tuple(class_names(remap.dscps))
    spoilt = [name for name in names if name in found.classes and not found.is_as_named(name)]
    wrong = [name for name in names if found.queue_of(name) != remap.queue or name in spoilt]
    taken = [name for name in wrong if name in found.instances]
    if taken:
        yield from (POLICY_LINE, *(f"no class {name}" for name in taken), LEAVE)
    for name in spoilt:
        yield f"no class-map {name}"
    for name in names:
        if not found.is_as_named(name):
            yield from class_lines(name)
    if wrong:
        yield POLICY_LINE
        for name in wrong:
            yield from (f"class {name}", f"assign-queue {remap.queue}", LEAVE)
        yield LEAVE


def _policy_removals(found: HostPolicy, remap: Remap) -> Iterator[str]:
    names = set(class_names(remap.dscps))
    surplus = [name for name in found.instances if name not in names]
    if surplus:
        yield from (POLICY_LINE, *(f"no class {name}" for name in surplus), LEAVE)
    for name in found.classes:
        if name not in names and name not in found.lent:
            yield f"no class-map {name}"


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
    rank = 0
    match line.setting:
        case Curve(queue, curve):
            old = port.queues[queue]
            loosens = old.random_detect and _loosens(curve, old.curve)
            phase = _Phase.LOOSEN if loosens else _Phase.TIGHTEN
        case RandomDetect(on=on):
            phase = _Phase.DETECT if on else _Phase.LOOSEN
        case Strict(queue, on):
            phase, rank = _Phase.SCHEDULE, -queue if on else 1
        case MapPriority():
            phase = _Phase.BACKGROUND
        case Minimums() | Instantaneous():
            phase = _Phase.AVERAGE
        case Attach():
            phase = _Phase.ATTACH
        case Trust(mode):
            phase = _Phase.TRUST if mode == TRUSTED else _Phase.DISTRUST
    return phase, rank


def _loosens(new: DropCurve, old: DropCurve) -> bool:
    """Whether the queue drops no packet that it keeps now; only a marking curve spares anybody."""
    return new.marks and all(low >= high for low, high in zip(new.minimum, old.maximum, strict=True))
