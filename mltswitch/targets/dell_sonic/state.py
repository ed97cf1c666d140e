"""The meaning of an Enterprise SONiC switch's facts as state, for a rendered file and for a device alike."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from mltswitch.capabilities import BitRate, Capabilities, Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.base import LineError
from mltswitch.targets.dell_sonic import sheet
from mltswitch.targets.dell_sonic.capabilities import BITS_OF_KBPS, KILOBYTE, LOSSLESS, QUEUE_COUNT
from mltswitch.targets.dell_sonic.sheet import Attributes, Tree, facts_in, objects_in
from mltswitch.targets.engine.facts import FOREIGN_LINE, ROUTE, SWITCH, Fact, Facts, PortFacts
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.remap import code_points, lossless_queues
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState, every_dscp_but
from mltswitch.wire.tos import DSCP_COUNT

MARKING: Final = ("all", "green")
"""Values of `ecn` that mark green packets; only green is configured, for all that no policer coloured."""
_NO_QUEUE: Final = -1
"""Where code points lead that a map leaves out."""
_STEP: Final = re.compile(
    r"minimum-threshold ([1-9][0-9]{0,4}) maximum-threshold ([1-9][0-9]{0,4}) drop-probability ([0-9]{1,3})"
)
_RATE: Final = re.compile(r"[1-9][0-9]{0,8}")
_FLOW: Final = re.compile(rf"{sheet.CLASS_NAME}({sheet.ANY}|[0-9]{{1,2}}) priority 10")


def check_expressible(state: SwitchState) -> None:
    """Raise UnsupportedPlanError for what this OS cannot express at all."""
    for queues, ports in groupby(state.ports, queues_of):
        where = f"port {next(ports).name}"
        numbers = [queue.queue for queue in queues if not queue.is_lossless]
        usable = [number for number in reversed(range(QUEUE_COUNT)) if number not in LOSSLESS]
        if not numbers or [number for number in usable if number in numbers] != numbers:
            raise UnsupportedPlanError(
                f"its queues are {', '.join(map(str, numbers)) or 'none'}",
                where=where,
                expected=f"some of {', '.join(map(str, usable))}, the higher served first",
            )
        if sorted(dscp for queue in queues for dscp in queue.dscps) != list(range(DSCP_COUNT)):
            raise UnsupportedPlanError("not every code point leads to one queue", where=where)


def planned_state(facts: Facts, _capabilities: Capabilities) -> SwitchState:
    """The state of a rendered file; raises LineError where an object is missing or contradicts its name."""
    of_switch = facts.get(SWITCH, {})
    objects = objects_in(of_switch)
    names = {name for own in facts.values() for name in policies_of(own)}
    background = max((_rewriting(objects, name)[1] for name in names), default=0)
    known: dict[int, PortState] = {}
    ports: list[PortState] = []
    for name, own in facts.items():
        if name == SWITCH:
            continue
        sections = objects[sheet.SCHEDULER].get(own.get((sheet.PORT_SCHEDULER,)), {})
        queues = [section for section in sections if section != sheet.PORT_SECTION]
        if not queues:
            raise LineError(0, "", f"interface {name} lacks a scheduler-policy with queues")
        if id(own) not in known:
            reader = _PortReader(own, objects, _strange(of_switch), background)
            lossless = lossless_queues(LOSSLESS, queues, reader.queue_of)
            known[id(own)] = reader.state([*queues[:-1], *lossless, queues[-1]])
        one = known[id(own)]
        if one.unexpected:
            raise LineError(0, "", f"interface {name}: {one.unexpected[0]}")
        ports.append(replace(one, name=name))
    return SwitchState(tuple(ports), _routes(of_switch), background_dscp=background)


def running_state(facts: Facts, wanted: SwitchState, _capabilities: Capabilities) -> SwitchState:
    """The state that a device's facts give the wanted ports that exist."""
    of_switch, background = facts[SWITCH], wanted.background_dscp
    objects = objects_in(of_switch)
    known: dict[tuple[int, tuple[int, ...]], PortState] = {}
    ports = []
    for port in wanted.ports:
        if port.name in facts:
            own, queues = facts[port.name], tuple(queue.queue for queue in port.queues)
            key = id(own), queues
            if key not in known:
                known[key] = _PortReader(own, objects, _strange(of_switch), background).state(queues)
            ports.append(replace(known[key], name=port.name))
    foreign = tuple(fact[1] for fact in of_switch if fact[0] == FOREIGN_LINE) if ports else ()
    if not any(port.rewritten for port in ports):
        background = 0
    return SwitchState(tuple(ports), _routes(of_switch), background_dscp=background, unexpected=foreign)


def queues_of_code_points(objects: Tree, dscp_map: str, queue_map: str) -> list[int]:
    """The queue of each DSCP (index) on a port to which these maps are bound."""
    classes = objects[sheet.DSCP_MAP].get(dscp_map, {})
    queues = objects[sheet.QUEUE_MAP].get(queue_map, {}) if queue_map else sheet.IDENTITY
    return [queues.get(classes.get(dscp, _NO_QUEUE), _NO_QUEUE) for dscp in range(DSCP_COUNT)]


def _strange(facts: PortFacts) -> list[Fact]:
    return [fact for fact in facts if fact[0] == sheet.STRANGE]


def _routes(facts: PortFacts) -> tuple[RouteState, ...]:
    return tuple(sheet.route_of(*fact) for fact in facts if fact[0] == ROUTE)


def policies_of(own: PortFacts) -> Iterator[str]:
    """Name of the policy-map that acts on packets as they arrive at the port, if there is one."""
    return (fact[1] for fact in own if fact[0] == sheet.PORT_POLICY)


def curve_of(policy: Attributes) -> tuple[int, int, int] | None:
    """Minimum and maximum threshold in KB, and probability in percent, of a wred-policy for green packets;
    None: the policy has no such line."""
    match = _STEP.fullmatch(policy.get("green", ""))
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _threshold_bytes(policy: Attributes) -> int | None:
    """S of a policy that is one certain step and marks; None for any other."""
    curve = curve_of(policy)
    if curve is None or set(policy) != {"green", "ecn"} or policy["ecn"] not in MARKING:
        return None
    return curve[0] * KILOBYTE if curve == (curve[0], curve[0], 100) else None


def _rate(scheduler: Attributes, word: str) -> BitRate | None:
    """`cir` or `pir` of a queue."""
    text = scheduler.get(word, "")
    return BitRate(int(text) * BITS_OF_KBPS) if _RATE.fullmatch(text) else None


def _is_strict(scheduler: Attributes) -> bool:
    """Whether a queue has strict priority, at most with a minimum and a maximum."""
    return scheduler.get("type") == "strict" and all(
        word == "type" or (word in {"cir", "pir"} and _rate(scheduler, word)) for word in scheduler
    )


def _rewriting(objects: Tree, policy: str) -> tuple[tuple[int, ...], int, list[str]]:
    """Code points that a policy-map rewrites, to which one, and what of its lines is otherwise."""
    flows = objects[sheet.POLICY].get(policy, {})
    targets = {
        match[1]: int(lines["set dscp"])
        for flow, lines in flows.items()
        if (match := _FLOW.fullmatch(flow)) and re.fullmatch("[0-9]{1,2}", lines.get("set dscp", ""))
    }
    background = min(targets.values(), default=0)
    matches = [match for match, target in targets.items() if target == background]
    dscps = tuple(sorted(int(match) for match in matches if match != sheet.ANY))
    if sheet.ANY in matches:
        dscps = every_dscp_but(background)
    _, planned = sheet.rewriting_of(dscps, background)
    classes = {fact[1]: objects[sheet.CLASS].get(fact[1], {}) for fact in planned if fact[0] == sheet.CLASS}
    expected = _said(planned.items())
    found = _said(facts_in({sheet.POLICY: {policy: flows}, sheet.CLASS: classes}))
    faults = [*(f"no {words}" for words in sorted(expected - found)), *sorted(found - expected)]
    return dscps, background, faults


def _said(facts: Iterable[tuple[Fact, Any]]) -> set[str]:
    """Lines with their places, whichever name the policy-map has."""
    written = (
        sheet.SHEET.write(sheet.SHEET.line_for(fact[0], value), ((fact, value),))
        for fact, value in facts
        if not isinstance(value, sheet.Exists)
    )
    return {": ".join((*(line.modes[1:] or line.modes), line.text)) for line in written}


@dataclass
class _PortReader:
    """One port, with the objects that it may bind; what no plan asks for is told in klish's words."""

    own: PortFacts
    objects: Tree
    strange: Sequence[Fact]
    background_dscp: int
    """To which ports are to rewrite code points."""
    unexpected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dscp_map: str = self.own.get((sheet.PORT_MAP, sheet.DSCP_MAP), "")
        self.queue_map: str = self.own.get((sheet.PORT_MAP, sheet.QUEUE_MAP), "")
        self.scheduler: str = self.own.get((sheet.PORT_SCHEDULER,), "")
        self.is_trusted = bool(self.dscp_map) and not self.dscp_map.startswith(sheet.UNTRUSTED)
        # An untrusted port's map tells which one it would have, were it trusted.
        twin = sheet.TRUSTED + self.dscp_map.removeprefix(sheet.UNTRUSTED)
        self.queue_of = queues_of_code_points(
            self.objects, self.dscp_map if self.is_trusted else twin, self.queue_map
        )

    def state(self, queues: Sequence[int]) -> PortState:
        """The port without its name."""
        self.unexpected += self._faults_of_maps(queues)
        sections = self.objects[sheet.SCHEDULER].get(self.scheduler, {})
        self.unexpected += self._faults_of_schedulers(queues, sections)
        dscps = code_points(self.queue_of)
        states = tuple(self._queue(number, dscps.get(number, ()), sections) for number in queues)
        self.unexpected += self._faults_of_names(states)
        rewritten: tuple[int, ...] = ()
        for policy in policies_of(self.own):
            rewritten, _, faults = _rewriting(self.objects, policy)
            if not rewritten or policy != sheet.rewriting_of(rewritten, self.background_dscp)[0]:
                self.unexpected.append(f"service-policy type qos in {policy}")
            if policy.startswith(sheet.PREFIX):
                self.unexpected += faults
        foreign = (fact[1] for fact in self.own if fact[0] == FOREIGN_LINE)
        return PortState("", self.is_trusted, None, states, (*self.unexpected, *foreign), rewritten)

    def _faults_of_maps(self, queues: Sequence[int]) -> Iterator[str]:
        entries = self.objects[sheet.DSCP_MAP].get(self.dscp_map, {})
        if not self.dscp_map:
            yield "no qos-map dscp-tc"
        elif not self.is_trusted and entries != dict.fromkeys(range(DSCP_COUNT), queues[-1]):
            yield f"qos map dscp-tc {self.dscp_map} leads elsewhere than to background"
        if not self.queue_map:
            yield "no qos-map tc-queue"
        elif self.queue_map != sheet.QUEUES_NAME:
            yield f"qos-map tc-queue {self.queue_map}"
        elif self.objects[sheet.QUEUE_MAP].get(self.queue_map, {}) != sheet.IDENTITY:
            yield f"qos map tc-queue {self.queue_map} is not one to one"
        for (what, *place), name in self.own.items():
            if what == sheet.OTHER_MAP and place[0] not in sheet.MAPS:
                yield f"qos-map {place[0]} {name}"

    def _faults_of_schedulers(self, queues: Sequence[int], sections: Tree) -> Iterator[str]:
        policy = f"scheduler-policy {self.scheduler}"
        if self.scheduler not in self.objects[sheet.SCHEDULER]:
            yield policy if self.scheduler else "no scheduler-policy"
            return
        for queue in queues:
            if queue not in LOSSLESS and not _is_strict(sections.get(queue, {})):
                yield f"{policy}: queue {queue} {_words(sections.get(queue, {}))}"
        if self.scheduler.startswith(sheet.PREFIX):
            for queue in sections:
                if queue != sheet.PORT_SECTION and (queue not in queues or queue in LOSSLESS):
                    yield f"{policy}: queue {queue} {_words(sections[queue])}"
        if sheet.PORT_SECTION in sections:
            yield f"{policy}: port {_words(sections[sheet.PORT_SECTION])}"

    def _queue(self, queue: int, dscps: tuple[int, ...], sections: Tree) -> QueueState:
        if queue in LOSSLESS:
            return QueueState(queue, dscps, None, Unlimited(), is_lossless=True)
        scheduler: Attributes = sections.get(queue, {})
        rates = (_rate(scheduler, "cir"), _rate(scheduler, "pir"))
        return QueueState(queue, dscps, self._threshold(queue), Unlimited(), *rates)

    def _threshold(self, queue: int) -> int | None:
        bound = self.own.get((sheet.QUEUE_WRED, queue))
        if bound is None:
            return None
        policy = self.objects[sheet.WRED].get(bound, {})
        threshold = _threshold_bytes(policy)
        if threshold is None:
            self.unexpected.append(f"queue {queue} wred-policy {bound}: {_words(policy)}")
        elif bound != sheet.wred_of(threshold)[0]:
            self.unexpected.append(f"queue {queue} wred-policy {bound}")
        return threshold

    def _faults_of_names(self, states: Sequence[QueueState]) -> Iterator[str]:
        """Objects that say the right thing, but belong to somebody else, who may change them."""
        if self.dscp_map and self.dscp_map != sheet.dscp_map_of(states, trusted=self.is_trusted)[0]:
            yield f"qos-map dscp-tc {self.dscp_map}"
        if (
            self.scheduler in self.objects[sheet.SCHEDULER]
            and self.scheduler != sheet.scheduler_of(states)[0]
        ):
            yield f"scheduler-policy {self.scheduler}"
        planned = {state.queue for state in states if not state.is_lossless}
        policies = {fact[1]: name for fact, name in self.own.items() if fact[0] == sheet.QUEUE_WRED}
        for queue, name in policies.items():
            if queue not in planned and name.startswith(sheet.PREFIX):
                yield f"queue {queue} wred-policy {name}"
        bound = set(bound_by(self.own))
        flows = (flow for name in policies_of(self.own) for flow in self.objects[sheet.POLICY].get(name, {}))
        bound.update(flow.split()[0] for flow in flows)
        yield from (f"{name}: {line}" for _, name, line in self.strange if name in bound)


def bound_by(own: PortFacts) -> Iterator[str]:
    """Names of the objects that are bound to a port."""
    for (what, *place), name in own.items():
        if what == sheet.PORT_POLICY:
            yield place[0]
        elif what in {sheet.QUEUE_WRED, sheet.PORT_SCHEDULER, sheet.PORT_MAP, sheet.OTHER_MAP}:
            yield name


def _words(attributes: Mapping[str, str]) -> str:
    return ", ".join(f"{word} {rest}".rstrip() for word, rest in attributes.items()) or "empty"
