"""The lines that take an Enterprise SONiC switch to the plan; each takes effect at once, so order matters.

Nothing between old and new may drop what neither of them would. New objects come first: no port refers to
them yet. Then queues get the more lenient of both thresholds, or none where neither is; then ports take the
scheduler policies that can serve packets of both ends; then ports are no longer trusted, where they were;
then packets are led to their queues, and ports take the policy-maps that rewrite; then ports take the plan's
scheduler policies, where others had to stand between (scheduling.py); then thresholds are tightened. A phase
covers all ports before the next begins, because packets that one port classifies leave through the others.
What somebody changed in an object of ours is mended in it, in the phase in which a binding would change.
Objects of ours that no port refers to any more go last.

Where a port leaves a tc-queue map that is not one to one, packets may take any queue between its line and
that of the dscp-tc map, so meanwhile the wred-policies of the plan's ports are unbound and no queue has a
cap. A port takes a policy-map only when it has none (fbs_app.go), so between two it has none for a moment.

Routes change prefix by prefix: a new next hop stands beside the old one (equal cost) before that one goes.
Only two are removed first, each just before what replaces it: a route by the same next hop, with another
distance, say, because a line keeps what it does not say; and a blackhole, which may not be taken beside
a next hop. Routes to other prefixes of ours are removed last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Network
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.dell_sonic.names import PREFIX, QUEUE_MAP, UNTRUSTED, between_policy_name
from mltswitch.targets.dell_sonic.read import read_configuration, route_state, state_with
from mltswitch.targets.dell_sonic.render import render_text
from mltswitch.targets.dell_sonic.scheduling import (
    Moment,
    Queues,
    Traffic,
    mended_first,
    passage,
    scheduler_lines,
    traffic_between,
)
from mltswitch.targets.dell_sonic.sections import (
    BLACKHOLE,
    Path,
    attributes_text,
    configuration_of,
    file_lines,
    number_list,
    with_modes,
)
from mltswitch.targets.dell_sonic.settings import (
    DSCP_MAP_KIND,
    MARKING,
    QUEUE_MAP_KIND,
    Attributes,
    Configuration,
    PortSettings,
    StaticRoute,
    curve_of,
)
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.state import SwitchState, differences

SAVE_SECONDS: Final = 120.0
SAVE: Final = (Step("end"), Step("write memory", seconds=SAVE_SECONDS), Step("configure terminal"))
"""Saving is a command of the EXEC mode: the configuration mode is left for it."""
ENTRY_WORDS: Final = {DSCP_MAP_KIND: ("dscp", "traffic-class"), QUEUE_MAP_KIND: ("traffic-class", "queue")}


class Phase(IntEnum):
    """Where a line stands: a phase covers all ports before the next begins."""

    CREATE = 0
    MARK = 1
    LOOSEN = 2
    SCHEDULE = 3
    DISTRUST = 4
    MAP = 5
    SETTLE = 6
    REFINE = 7
    TIGHTEN = 8
    ROUTE = 9
    REMOVE = 10


@dataclass(frozen=True, slots=True)
class Line:
    """One line, with the modes in which it stands."""

    phase: Phase
    path: Path
    words: str


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Lines that would change something; raises DeviceError where the switch lacks a port."""
    del capabilities
    now = read_configuration(running.answers)
    then = configuration_of(line for _, line in file_lines(render_text(wanted)))
    for name in then.ports:
        if name not in now.ports:
            raise DeviceError(
                "the switch has no such port",
                where=f"port {name}",
                hint="`show interface status` lists them; `interface-naming standard` names them Eth1/1",
            )
    after = replace(state_with(_after(now, then), wanted), routes=wanted.routes)
    return replace(change_of(_Changes(now, then, wanted).lines()), stays=differences(wanted, after))


def _after(now: Configuration, then: Configuration) -> Configuration:
    """The configuration when all lines of a change have been entered."""
    ports = dict(now.ports)
    for name, goal in then.ports.items():
        old = ports[name]
        kept = {queue: bound for queue, bound in old.wred.items() if not bound.startswith(PREFIX)}
        for queue in then.schedulers[goal.scheduler].queues:
            kept.pop(queue, None)
        policy = goal.policy or ("" if old.policy.startswith(PREFIX) else old.policy)
        ports[name] = replace(
            old,
            wred={**kept, **goal.wred},
            scheduler=goal.scheduler,
            maps={**old.maps, **goal.maps},
            policy=policy,
        )
    kinds = {**now.maps, **then.maps}
    return replace(
        now,
        wred={**now.wred, **then.wred},
        schedulers={**now.schedulers, **then.schedulers},
        maps={kind: {**now.maps.get(kind, {}), **then.maps.get(kind, {})} for kind in kinds},
        ports=ports,
        flows={
            name: tuple(dict.fromkeys((*now.flows.get(name, ()), *then.flows.get(name, ()))))
            for name in {**now.flows, **then.flows}
        },
    )


def change_of(lines: Iterable[Line]) -> Change:
    """The lines by phase, and what opens and leaves their modes."""
    ordered = sorted(lines, key=lambda line: line.phase)
    if not ordered:
        return Change((), SAVE)
    shown = list(with_modes((line.path, line.words) for line in ordered))
    text = "\n".join(" " * len(path) + words for path, words in shown) + "\n"
    return Change(tuple(Step(words) for _, words in shown), SAVE, text)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Two configurations; `then` has nothing but what the plan needs."""

    now: Configuration
    then: Configuration
    wanted: SwitchState

    def lines(self) -> Iterator[Line]:
        """Every line, its phase beside it; within a phase in the order in which they are to be entered."""
        yield from self._wred_policies()
        traffic = traffic_between(self.now, self.then)
        passages = {port: self._passage(port, traffic) for port in self.then.ports}
        yield from self._scheduler_policies()
        yield from self._policies_between(passages)
        for kind in (QUEUE_MAP_KIND, DSCP_MAP_KIND):
            yield from map_lines(self.now, self.then, kind)
        for name, flow_lines in self.then.flows.items():
            phase = Phase.MAP if name in self.now.flows else Phase.CREATE
            running = self.now.flows.get(name, ())
            yield from (Line(phase, *line) for line in flow_lines if line not in running)
        for port in self.then.ports:
            yield from self._port(port, sheltered=traffic.anywhere)
            yield from self._bindings_of_scheduler(port, *passages[port])
        own = OwnPrefixes(self.wanted.routes)
        present = [route for route in self.now.routes if route.prefix in own]
        yield from route_lines(present, self.then.routes)
        used = {name for port in self.now.ports for name in self._bound_afterwards(port)}
        yield from removals(self.now, self.then, used)

    def _wred_policies(self) -> Iterator[Line]:
        for name, policy in self.then.wred.items():
            path = (f"qos wred-policy {name}",)
            running = self.now.wred.get(name)
            if running is None:
                yield from (Line(Phase.CREATE, path, words) for words in attributes_text(policy))
                continue
            if running.get("ecn") not in MARKING:
                yield Line(Phase.MARK, path, f"ecn {policy['ecn']}")
            for colour in ("yellow", "red"):
                if colour in running:
                    yield Line(Phase.MARK, path, f"no {colour}")
            yield from (Line(phase, path, words) for phase, words in curve_lines(running, policy))

    def _scheduler_policies(self) -> Iterator[Line]:
        """Those of the plan; what somebody changed is mended in two steps, and harsher only by the second."""
        for name, policy in self.then.schedulers.items():
            path = (f"qos scheduler-policy {name}",)
            running = self.now.schedulers.get(name)
            if running is None:
                yield from policy_lines(Phase.CREATE, path, {}, policy.queues)
                continue
            first = mended_first(running.queues, policy.queues)
            yield from policy_lines(Phase.SCHEDULE, path, running.queues, first)
            yield from policy_lines(Phase.REFINE, path, first, policy.queues)
            if running.port is not None:
                yield Line(Phase.SCHEDULE, path, "no port")

    def _passage(self, name: str, traffic: Traffic) -> tuple[Moment, Queues]:
        now, then = self.now.ports[name], self.then.ports[name]
        old, new = self.now.schedulers.get(now.scheduler), self.then.schedulers[then.scheduler]
        if now.scheduler == then.scheduler and not traffic.anywhere:
            return Moment.BEFORE, new.queues
        return passage(old, new, traffic)

    def _policies_between(self, passages: Mapping[str, tuple[Moment, Queues]]) -> Iterator[Line]:
        needed = {
            between_policy_name(queues): queues
            for moment, queues in passages.values()
            if moment is Moment.NEITHER
        }
        for name, queues in needed.items():
            running = self.now.schedulers.get(name)
            present = {} if running is None else running.queues
            yield from policy_lines(Phase.CREATE, (f"qos scheduler-policy {name}",), present, queues)
            if running is None:
                yield Line(Phase.REMOVE, (), f"no qos scheduler-policy {name}")

    def _bindings_of_scheduler(self, name: str, moment: Moment, queues: Queues) -> Iterator[Line]:
        path = (f"interface {name}",)
        bound, wanted = self.now.ports[name].scheduler, self.then.ports[name].scheduler
        if moment is Moment.NEITHER:
            yield Line(Phase.SCHEDULE, path, f"scheduler-policy {between_policy_name(queues)}")
            yield Line(Phase.SETTLE, path, f"scheduler-policy {wanted}")
        elif bound != wanted:
            phase = Phase.SCHEDULE if moment is Moment.BEFORE else Phase.SETTLE
            yield Line(phase, path, f"scheduler-policy {wanted}")

    def _port(self, name: str, *, sheltered: bool) -> Iterator[Line]:
        path = (f"interface {name}",)
        now, then = self.now.ports[name], self.then.ports[name]
        queues = self.then.schedulers[then.scheduler].queues
        for queue in _left_bindings(now, queues):
            yield Line(Phase.LOOSEN, path, f"no queue {queue} wred-policy")
        for queue in queues:
            yield from binding_lines(self.now, self.then, name, queue, sheltered=sheltered)
        if now.maps.get(QUEUE_MAP_KIND) != QUEUE_MAP:
            yield Line(Phase.MAP, path, f"qos-map {QUEUE_MAP_KIND} {QUEUE_MAP}")
        classification = then.maps[DSCP_MAP_KIND]
        if now.maps.get(DSCP_MAP_KIND) != classification:
            phase = Phase.DISTRUST if classification.startswith(UNTRUSTED) else Phase.MAP
            yield Line(phase, path, f"qos-map {DSCP_MAP_KIND} {classification}")
        if now.policy != then.policy and (then.policy or now.policy.startswith(PREFIX)):
            phase = Phase.MAP if then.policy else Phase.DISTRUST
            if now.policy:
                yield Line(phase, path, "no service-policy type qos in")
            if then.policy:
                yield Line(phase, path, f"service-policy type qos in {then.policy}")

    def _bound_afterwards(self, name: str) -> Iterator[str]:
        now, then = self.now.ports[name], self.then.ports.get(name)
        if then is None:
            yield from (now.scheduler, now.policy, *now.wred.values(), *now.maps.values())
            return
        queues = self.then.schedulers[then.scheduler].queues
        changed = {*queues, *_left_bindings(now, queues)}
        yield from (then.scheduler, then.policy, *then.wred.values(), *{**now.maps, **then.maps}.values())
        yield from (bound for queue, bound in now.wred.items() if queue not in changed)


def map_lines(now: Configuration, then: Configuration, kind: str) -> Iterator[Line]:
    """Entries that the maps lack or have otherwise."""
    first, second = ENTRY_WORDS[kind]
    for name, entries in then.maps.get(kind, {}).items():
        running = now.maps.get(kind, {}).get(name)
        phase = Phase.CREATE if running is None else Phase.MAP
        groups: dict[int, list[int]] = {}
        for number, target in entries.items():
            if (running or {}).get(number) != target:
                groups.setdefault(target, []).append(number)
        for target, numbers in groups.items():
            words = f"{first} {number_list(sorted(numbers))} {second} {target}"
            yield Line(phase, (f"qos map {kind} {name}",), words)


def route_lines(running: Sequence[StaticRoute], wanted: Sequence[StaticRoute]) -> Iterator[Line]:
    """What makes of routes of ours the wanted ones."""
    present, kept = set(map(route_state, running)), set(map(route_state, wanted))
    foreign: dict[IPv4Network, list[StaticRoute]] = {}
    for route in running:
        if route_state(route) not in kept:
            foreign.setdefault(route.prefix, []).append(route)
    planned: dict[IPv4Network, list[StaticRoute]] = {}
    for route in wanted:
        planned.setdefault(route.prefix, []).append(route)
    for prefix, routes in planned.items():
        missing = [route for route in routes if route_state(route) not in present]
        yield from _replacement(foreign.pop(prefix, []), missing)
    for routes in foreign.values():
        yield from _replacement(routes, [])


def removals(now: Configuration, then: Configuration, used: set[str]) -> Iterator[Line]:
    """Objects of ours to which, after all this, no port refers."""
    for word, present, needed in (
        ("wred-policy", now.wred, then.wred),
        ("scheduler-policy", now.schedulers, then.schedulers),
        *((f"map {kind}", now.maps.get(kind, {}), then.maps.get(kind, {})) for kind in ENTRY_WORDS),
    ):
        yield from (Line(Phase.REMOVE, (), f"no qos {word} {name}") for name in _left(present, needed, used))
    # Policy-maps that no port refers to, then class-maps that no policy-map does.
    left = set(used)
    for name in sorted(now.flows.keys() - then.flows.keys(), reverse=True):
        _, _, own = name.partition(" ")
        if own.startswith(PREFIX) and own not in left:
            yield Line(Phase.REMOVE, (), f"no {name}")
        else:
            left |= {path[1].split()[1] for path, _ in now.flows[name] if len(path) > 1}


def binding_lines(
    now: Configuration, then: Configuration, name: str, queue: int, *, sheltered: bool
) -> Iterator[Line]:
    """How one queue of a port gets its wred-policy; `sheltered`: it has none while packets move."""
    path = (f"interface {name}",)
    bound, wanted = now.ports[name].wred.get(queue), then.ports[name].wred.get(queue)
    taken_off = Line(Phase.LOOSEN, path, f"no queue {queue} wred-policy")
    if bound is not None and (wanted is None or sheltered):
        yield taken_off
        bound = None
    elif bound is not None and wanted is not None and bound != wanted:
        old, new = now.wred.get(bound, {}), then.wred.get(wanted, {})
        if _spares(new, old):
            yield Line(Phase.LOOSEN, path, f"queue {queue} wred-policy {wanted}")
            return
        if not _spares(old, new):
            yield taken_off
    if wanted is not None and wanted != bound:
        yield Line(Phase.TIGHTEN, path, f"queue {queue} wred-policy {wanted}")


def _left_bindings(port: PortSettings, queues: Iterable[int]) -> Iterator[int]:
    """Queues with a wred-policy of ours that the plan does not use any more; those of others stay."""
    planned = set(queues)
    for queue, name in port.wred.items():
        if name.startswith(PREFIX) and queue not in planned:
            yield queue


def _left(present: Mapping[str, object], needed: Mapping[str, object], used: set[str]) -> Iterator[str]:
    for name in present:
        if name.startswith(PREFIX) and name not in needed and name not in used:
            yield name


def policy_lines(phase: Phase, path: Path, now: Queues, then: Queues) -> Iterator[Line]:
    """Lines that make one scheduler policy of another."""
    for queue, scheduler in then.items():
        for words in scheduler_lines(now.get(queue, {}), scheduler):
            yield Line(phase, (*path, f"queue {queue}"), words)
    yield from (Line(phase, path, f"no queue {queue}") for queue in now if queue not in then)


def curve_lines(running: Attributes, policy: Attributes) -> Iterator[tuple[Phase, str]]:
    """The step of a policy that exists; where neither curve spares what the other does, by a higher one."""
    old, new = curve_of(running), curve_of(policy)
    if old == new or new is None:
        return
    words = f"green {policy['green']}"
    if old is not None and new.minimum >= old.maximum:
        yield Phase.LOOSEN, words
        return
    if old is not None and old.minimum < new.minimum:
        yield (
            Phase.LOOSEN,
            (f"green minimum-threshold {old.maximum} maximum-threshold {old.maximum} drop-probability 100"),
        )
    yield Phase.TIGHTEN, words


def _spares(one: Attributes, other: Attributes) -> bool:
    """Whether a queue drops no packet under one policy that it keeps under the other."""
    first, second = curve_of(one), curve_of(other)
    if first is None:
        return True
    if second is None or first.minimum < second.maximum:
        return False
    return one.get("ecn") in MARKING or other.get("ecn") not in MARKING


def _replacement(old: Sequence[StaticRoute], new: Sequence[StaticRoute]) -> Iterator[Line]:
    """Lines of one prefix: its new routes, and no old one before there is a new one, as far as may be."""
    targets = {route.target for route in new}
    first = [route for route in old if new and (route.target in targets or route.target == BLACKHOLE)]
    kept = [route for route in old if route not in first]
    # Those that are no replacement of themselves stand before anything goes.
    for route in sorted(new, key=lambda route: route.target in {each.target for each in first}):
        yield from (_removal(each) for each in first if each.target in {route.target, BLACKHOLE})
        first = [each for each in first if each.target not in {route.target, BLACKHOLE}]
        yield Line(Phase.ROUTE, (), f"ip route {route.prefix} {route.way}")
    yield from map(_removal, kept)


def _removal(route: StaticRoute) -> Line:
    return Line(Phase.ROUTE, (), f"no ip route {route.prefix} {route.target}")
