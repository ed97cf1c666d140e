"""The lines that take a FASTPATH switch to the plan; each takes effect at once, so their order matters.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds; then ports are no longer trusted, where they were; then packets are led to the queues; then
thresholds are tightened; then ports are trusted. A phase covers all ports before the next begins, because
packets that one port classifies leave through the others; the DSCP map is the whole switch's.

Nor may it serve a packet after another where both ends serve it before, or one does and the other serves both
alike. How the map changes so, and which queues are strict meanwhile, says service_order.py. The policy of
hosts hides the map for a few code points, which are background there. All of them move by one line: down as
the last of them would in the map, up as the first would. That keeps the order where they share a queue before
and after, as in all plans and as delivered. Where they do not, no moment suits all of them. The policy of
ports that are not trusted comes after they trust nothing, and goes before they trust again.

A route with another next hop is added before the old one is removed; with another preference, say, it is
removed and added again, because the line that removes a route does not name its preference. So each prefix is
without a route for one line at most. Routes of ours that are not planned are removed last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.common import NO_NEXT_HOP, NULL_INTERFACE, PortSetting, QueueSetting
from mltswitch.targets.icos.capabilities import QUEUE_COUNT
from mltswitch.targets.icos.grammar import (
    Line,
    MapLine,
    MapPriority,
    Minimums,
    PortLine,
    RouteLine,
    Setting,
    enter,
    parse_lines,
)
from mltswitch.targets.icos.policy import (
    LEAVE,
    OwnPolicies,
    attach_line,
    class_lines,
    class_names,
    dscp_of,
    policy_line,
    read_policies,
)
from mltswitch.targets.icos.read import (
    ports_with_policy,
    read_dscp_map,
    read_own_policies,
    read_port,
    state_with,
)
from mltswitch.targets.icos.render import guaranteed_percents, planned_entrances, render_text
from mltswitch.targets.icos.settings import CERTAIN, TRUSTED, DropCurve, PortSettings
from mltswitch.targets.remap import (
    HOST_POLICY,
    POLICIES,
    UNTRUSTED_POLICY,
    Entrance,
    Remap,
    SwitchMap,
    policy_of,
    rewriting_map,
)
from mltswitch.targets.service_order import (
    NO_BOUNDARY,
    Moment,
    Move,
    boundary,
    moment_down,
    moment_of,
    moment_up,
)
from mltswitch.targets.state import Difference, PortState, RouteState, SwitchState, differences

SAVE_SECONDS: Final = 120.0
SAVE: Final = (Step(LEAVE), Step("write memory confirm", seconds=SAVE_SECONDS), Step("configure"))
"""Saving is a command of the privileged mode: the configuration mode is left for it."""

_ANY_MOMENT: Final[tuple[Moment, int]] = ((0, 0, 0), 0)
"""Of a line whose place among the moves does not matter."""


class Phase(IntEnum):
    """When a line is sent: a phase covers all ports before the next begins."""

    LOOSEN = 0
    BACKGROUND = 1
    DISTRUST = 2
    LEVEL = 3
    SCHEDULE = 4
    POLICY = 5
    MOVE = 6
    SCHEDULE_LATE = 7
    AVERAGE = 8
    TIGHTEN = 9
    DETECT = 10
    TRUST = 11
    FORGET = 12


@dataclass(frozen=True, slots=True)
class Placed:
    """A line and where it belongs; a phase or a moment of it covers all ports before the next begins."""

    phase: Phase
    line: str
    port: str = ""
    rank: int = 0
    """Among the lines of one port."""
    moment: tuple[Moment, int] = _ANY_MOMENT
    """Of the moves: the map's first, then the policy's, which hides it."""


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Lines of the rendered file that would change something, and removals of routes that are not planned."""
    lines = [line for _, line in parse_lines(render_text(wanted, capabilities))]
    percents = {port.name: guaranteed_percents(port.queues) for port in wanted.ports}
    goal = Goal(
        lines,
        {port.name: {queue.queue: queue.minimum is None for queue in port.queues} for port in wanted.ports},
        {name: given or (0,) * QUEUE_COUNT for name, given in percents.items()},
        {port.name: policy_of(port) for port in wanted.ports},
    )
    classification = classify(running, wanted, goal)
    change = change_to(
        goal, running, wanted, classification, _policy(running.answers, wanted, classification)
    )
    return replace(change, stays=_stays(lines, running.answers, wanted, capabilities))


def _stays(
    lines: Iterable[Line], answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities
) -> tuple[Difference, ...]:
    """What is not as wanted when all lines of a change have been entered."""
    ports = {port.name: read_port(answers, port.name) for port in wanted.ports}
    for name, port in ports.items():
        if port.policy in POLICIES:
            ports[name] = replace(port, policy="")
    dscp_map = list(read_dscp_map(answers))
    for line in lines:
        if isinstance(line, PortLine):
            ports[line.port] = line.setting.apply(ports[line.port])
        elif isinstance(line, MapLine):
            dscp_map[line.dscp] = line.queue
    policies = read_policies(render_text(wanted, capabilities).splitlines())
    after = state_with(answers, ports, dscp_map, policies, wanted, capabilities)
    return differences(wanted, replace(after, routes=wanted.routes))


@dataclass(frozen=True, slots=True)
class Goal:
    """What a change leads to, the contents of policies apart; mappings are by port."""

    lines: Iterable[Line]
    """Of ports, map and routes; those of scheduling, guarantees and policies do not count."""
    strict: Mapping[str, Mapping[int, bool]]
    """Queues that are strict, and that are not."""
    percents: Mapping[str, Sequence[int]]
    """Guarantees of all queues; those of the plan's count."""
    attached: Mapping[str, str]
    """Policy, or nothing."""


def classify(running: RunningState, wanted: SwitchState, goal: Goal) -> "_Classification":
    """What leads packets to queues, now and in the end."""
    return _Classification(
        {port.name: read_port(running.answers, port.name) for port in wanted.ports},
        read_dscp_map(running.answers),
        {line.dscp: line.queue for line in goal.lines if isinstance(line, MapLine)},
        read_own_policies(running.answers),
        rewriting_map(wanted, "FASTPATH"),
    )


def change_to(
    goal: Goal,
    running: RunningState,
    wanted: SwitchState,
    classification: "_Classification",
    policies: Iterable["Placed"],
) -> Change:
    """Lines of the goal that change something, those of the policies among them, in a safe order."""
    ports = classification.ports
    placed = [*_map(classification), *policies, *_attachments(goal.attached, classification)]
    placed += (
        Placed(_phase(line, ports[line.port]), line.text, line.port)
        for line in goal.lines
        if isinstance(line, PortLine)
        and not _is_placed_apart(line.setting)
        and line.setting.apply(ports[line.port]) != ports[line.port]
    )
    moves = classification.moves() if any(each.phase is Phase.MOVE for each in placed) else set()
    for name, strict in goal.strict.items():
        placed += _scheduling(name, strict, ports[name], classification.occupied(), moves)
    placed += _minimums(wanted, ports, goal.percents)
    routes = [line for line in goal.lines if isinstance(line, RouteLine)]
    commands = [*_in_modes(placed, list(ports)), *_routes(running.state, routes)]
    if not commands:
        return Change((), SAVE)
    return Change(tuple(map(Step, commands)), SAVE, "\n".join(commands) + "\n")


def _is_placed_apart(setting: Setting) -> bool:
    """Whether other lines are sent for it: of guarantees, of scheduling, and of the policy."""
    return isinstance(setting, Minimums) or (
        isinstance(setting, PortSetting | QueueSetting) and setting.field in {"strict", "policy"}
    )


@dataclass(frozen=True, slots=True)
class _Classification:
    """What leads packets to queues, now and in the plan."""

    ports: Mapping[str, PortSettings]
    now: tuple[int, ...]
    """DSCP → queue."""
    planned: Mapping[int, int]
    """DSCP → queue, as far as the plan says."""
    policies: OwnPolicies
    own: SwitchMap

    def then(self, dscp: int) -> int:
        """Queue to which the map will lead a code point."""
        return self.planned.get(dscp, self.now[dscp])

    @property
    def remap(self) -> Remap:
        """What the plan's policy of hosts moves; nothing where it has none."""
        return self.own.remap or Remap((), 0)

    def moment_down(self, dscps: Iterable[int | None]) -> Moment:
        """When the last of code points would move down to the queue of what hosts may not use."""
        moments = (moment_down(self.now[dscp], self.remap.queue) for dscp in dscps if dscp is not None)
        return max(moments, default=_ANY_MOMENT[0])

    def occupied(self) -> set[int]:
        """Queues that code points may lead to at present, those apart that are the system's."""
        return {old for old, _ in self.moves() if old < QUEUE_COUNT}

    def moves(self) -> set[Move]:
        """Of all code points, with and without the policy of hosts."""
        found = {(queue, self.then(dscp)) for dscp, queue in enumerate(self.now)}
        found |= {(self.now[dscp], self.remap.queue) for dscp in self.remap.dscps}
        if any(port.policy == HOST_POLICY for port in self.ports.values()):
            for dscp, queue in self.policies.queues():
                found |= {(queue, self.then(dscp)), (queue, self.remap.queue)}
        return found


def _map(classification: _Classification) -> Iterator[Placed]:
    for dscp, queue in classification.planned.items():
        if queue != (old := classification.now[dscp]):
            line = f"classofservice ip-dscp-mapping {dscp} {queue}"
            yield Placed(Phase.MOVE, line, moment=(moment_of(old, queue), 0))


def _scheduling(
    name: str, planned: Mapping[int, bool], settings: PortSettings, occupied: set[int], moves: set[Move]
) -> Iterator[Placed]:
    """Strict service of the plan's queues; where code points move, some after that, and weights meanwhile."""
    strict = {number for number, queue in enumerate(settings.queues) if queue.strict}
    highest = boundary(strict, occupied, planned.keys(), moves) if moves else NO_BOUNDARY
    levelled = {queue for queue in strict & (occupied | planned.keys()) if queue <= highest}
    for queue in levelled:
        yield Placed(Phase.LEVEL, f"no cos-queue strict {queue}", name, queue)
    present = strict - levelled
    for queue, is_strict in {**dict.fromkeys(levelled, True), **planned}.items():
        if is_strict and queue not in present:
            phase = Phase.SCHEDULE if queue > highest else Phase.SCHEDULE_LATE
            yield Placed(phase, f"cos-queue strict {queue}", name, -queue)
        elif not is_strict and queue in present:
            phase = Phase.SCHEDULE_LATE if moves else Phase.SCHEDULE
            yield Placed(phase, f"no cos-queue strict {queue}", name, 1)


def _routes(running: SwitchState, lines: Sequence[RouteLine]) -> Iterator[str]:
    present, planned = set(running.routes), {line.route for line in lines}
    surplus = [route for route in running.routes if route not in planned]
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


def _minimums(
    wanted: SwitchState, ports: Mapping[str, PortSettings], planned: Mapping[str, Sequence[int]]
) -> Iterator[Placed]:
    """One line sets the guarantees of all queues of a port; those that are not the plan's stay."""
    for port in wanted.ports:
        percents = [queue.minimum_percent for queue in ports[port.name].queues]
        for queue in port.queues:
            percents[queue.queue] = planned[port.name][queue.queue]
        if sum(percents) > CERTAIN:
            raise DeviceError(
                f"minimum bandwidths of queues that are not the plan's leave no room for background's: "
                f"{_foreign_percents(port, ports[port.name])}",
                where=f"port {port.name}",
                hint="lower them first with `cos-queue min-bandwidth`",
            )
        setting = Minimums(tuple(percents))
        if setting.apply(ports[port.name]) != ports[port.name]:
            yield Placed(Phase.SCHEDULE, str(setting), port.name, 1)


def _foreign_percents(port: PortState, settings: PortSettings) -> str:
    own = {queue.queue for queue in port.queues}
    return ", ".join(
        f"queue {number} has {queue.minimum_percent} %"
        for number, queue in enumerate(settings.queues)
        if number not in own and queue.minimum_percent
    )


def _policy(
    answers: Mapping[str, str], wanted: SwitchState, classification: _Classification
) -> Iterator[Placed]:
    """The policies and their classes."""
    found, planned = classification.policies, planned_entrances(wanted, classification.own)
    needed: set[str] = set()
    for policy in POLICIES:
        detached = {
            port.name
            for port in wanted.ports
            if classification.ports[port.name].policy == policy != policy_of(port)
        }
        if policy in planned:
            needed.update(class_names(planned[policy].dscps))
            for line in _policy_repairs(found, policy, planned[policy]):
                yield Placed(Phase.POLICY, line)
            yield from _policy_changes(classification, policy, planned[policy])
        elif ports_with_policy(answers, policy) - detached:
            needed.update(found.instances(policy))
        elif policy in found.defined:
            yield Placed(Phase.FORGET, f"no policy-map {policy}", rank=0)
    for name in found.classes:
        if name not in needed and name not in found.lent:
            yield Placed(Phase.FORGET, f"no class-map {name}", rank=1)


def _policy_repairs(found: OwnPolicies, policy: str, planned: Entrance) -> Iterator[str]:
    """Classes that lack or are not what their names say, and a policy's that are not the plan's."""
    names, instances = tuple(class_names(planned.dscps)), found.instances(policy)
    spoilt = [name for name in names if name in found.classes and not found.is_as_named(name)]
    changed = [
        name
        for name in names
        if name in instances and found.done(policy, name) != (planned.queue, planned.dscp)
    ]
    taken = [
        name for name in instances if name in spoilt or (name in changed and not found.done(policy, name))
    ]
    if taken:
        yield from (policy_line(policy), *(f"no class {name}" for name in taken), LEAVE)
    for name in spoilt:
        yield f"no class-map {name}"
    for name in names:
        if not found.is_as_named(name):
            yield from class_lines(name)
    if changed or taken:
        yield from _instance_lines(policy, dict.fromkeys((*taken, *changed)), planned)


def _instance_lines(policy: str, names: Iterable[str], planned: Entrance) -> Iterator[str]:
    yield policy_line(policy)
    for name in names:
        yield from (f"class {name}", f"assign-queue {planned.queue}", f"mark ip-dscp {planned.dscp}", LEAVE)
    yield LEAVE


def _policy_changes(classification: _Classification, policy: str, planned: Entrance) -> Iterator[Placed]:
    """Classes that a policy lacks and those that it should not have.

    Those of hosts come when the last of their code points would move in the map, and go when the first would.
    """
    found, names = classification.policies.instances(policy), tuple(class_names(planned.dscps))
    missing = [name for name in names if name not in found]
    surplus = [name for name in found if name not in names]
    phase, coming, going = Phase.POLICY, _ANY_MOMENT, _ANY_MOMENT
    if policy == HOST_POLICY:
        freed = {classification.then(dscp) for dscp in map(dscp_of, surplus) if dscp is not None}
        phase, coming = Phase.MOVE, (classification.moment_down(map(dscp_of, missing)), 1)
        going = (moment_up(planned.queue, max(freed, default=planned.queue)), 1)
    if missing:
        for line in _instance_lines(policy, missing, planned):
            yield Placed(phase, line, moment=coming)
    if surplus:
        for line in (policy_line(policy), *(f"no class {name}" for name in surplus), LEAVE):
            yield Placed(phase, line, moment=going)


def _attachments(attached: Mapping[str, str], classification: _Classification) -> Iterator[Placed]:
    """Policies that leave ports or come to them: that of hosts as its code points would move in the map.

    A port has that of untrusted ports while it trusts nothing, which leads its packets to the same queue.
    """
    queue = classification.remap.queue
    freed = max((classification.then(dscp) for dscp, _ in classification.policies.queues()), default=0)
    for name, new in attached.items():
        old = classification.ports[name].policy
        phase = Phase.POLICY if new == UNTRUSTED_POLICY else Phase.TRUST
        leaving = coming = _ANY_MOMENT
        if UNTRUSTED_POLICY not in {old, new}:
            phase, leaving = Phase.MOVE, (moment_up(queue, freed), 2)
            coming = (classification.moment_down(classification.remap.dscps), 2)
        if old in POLICIES and old != new:
            yield Placed(phase, f"no {attach_line(old)}", name, -2, leaving)
        if new and old != new:
            yield Placed(phase, attach_line(new), name, -1, coming)


def _in_modes(placed: Iterable[Placed], names: Iterable[str]) -> list[str]:
    """The lines by phase, then by port in the plan's order, each port's between `interface` and `exit`."""
    order = {port: index for index, port in enumerate(("", *names))}
    ranked = sorted(placed, key=lambda each: (each.phase, each.moment, order[each.port], each.rank))
    lines: list[str] = []
    for port, entries in groupby(ranked, key=lambda each: each.port):
        texts = [each.line for each in entries]
        lines += [enter(port), *texts, LEAVE] if port else texts
    return lines


def route_start(route: RouteState) -> str:
    """Command, address and mask."""
    return f"ip route {route.prefix.network_address} {route.prefix.netmask}"


def _removal(route: RouteState) -> str:
    command = f"no {route_start(route)}"
    if route.next_hop != NO_NEXT_HOP:
        return f"{command} {route.next_hop}"
    words = route.port.split() or [NULL_INTERFACE]
    return f"{command} {' '.join(words[:2] if words[0] == 'interface' else words[:1])}"


def _phase(line: PortLine, port: PortSettings) -> Phase:
    match line.setting:
        case QueueSetting(queue, "curve", curve):
            old = port.queues[queue]
            loosens = old.random_detect and _loosens(curve, old.curve)
            return Phase.LOOSEN if loosens else Phase.TIGHTEN
        case QueueSetting(_, "random_detect", on):
            return Phase.DETECT if on else Phase.LOOSEN
        case MapPriority():
            return Phase.BACKGROUND
        case PortSetting("trust", mode):
            return Phase.TRUST if mode == TRUSTED else Phase.DISTRUST
    return Phase.AVERAGE


def _loosens(new: DropCurve, old: DropCurve) -> bool:
    """Whether the queue drops no packet that it keeps now; only a marking curve spares anybody."""
    return new.marks and all(low >= high for low, high in zip(new.minimum, old.maximum, strict=True))
