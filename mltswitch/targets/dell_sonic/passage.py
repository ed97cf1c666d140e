"""How an Enterprise SONiC switch gets from one configuration to another; each line takes effect at once.

Nothing between old and new may drop what neither of them would, so a change goes by a configuration that
stands between. On the way to it, new objects come first: no port refers to them yet. Then queues get the more
lenient of both thresholds, or none where neither is; then ports take the scheduler policies that can serve
packets of both ends. On the way from it, ports are no longer trusted, where they were; then packets are led
to their queues, and ports take the policy-maps that rewrite; then ports take the plan's scheduler policies,
where others had to stand between; then thresholds are tightened. A phase covers all ports before the next
begins, because packets that one port classifies leave through the others. What somebody changed in an object
of ours is mended in it in the same two steps. Objects of ours that no port refers to any more go last.

A port takes a scheduler policy by one line and packets take other queues by others, so for a while packets
lie in queues of both ends. Meanwhile each queue has to be served as one end serves it, and capped by no more
than both. Where neither policy does that, a third one stands between them: it names the queues that packets
take at either end, caps a queue only where both ends do, by the higher of both, and guarantees the higher
minimum. None stands on the way back to somebody else's policy. Where a port gets another tc-queue map,
packets may take any queue between its line and that of the dscp-tc map, so meanwhile the wred-policies of the
plan's ports are unbound and no queue has a cap. A port takes a policy-map only when it has none (fbs_app.go),
so between two it has none for a moment.

Routes change prefix by prefix: a new next hop stands beside the old one (equal cost) before that one goes.
Only two are removed first, each just before what replaces it: a route by the same next hop, with another
distance, say, because a line keeps what it does not say; and a blackhole, which may not be taken beside
a next hop. Routes to other prefixes of ours are removed last.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

from mltswitch.errors import DeviceError
from mltswitch.targets.common import Key
from mltswitch.targets.dell_sonic import sheet
from mltswitch.targets.dell_sonic.capabilities import QUEUE_COUNT
from mltswitch.targets.dell_sonic.sheet import Attributes, Phase, Tree, facts_in, objects_in
from mltswitch.targets.dell_sonic.state import MARKING, bound_by, curve_of
from mltswitch.targets.engine.facts import ROUTE, SWITCH, Fact, Facts, PortFacts
from mltswitch.targets.engine.line import Moment, Written
from mltswitch.targets.engine.order import Order, Placed, ordered_lines
from mltswitch.targets.engine.sheet import Sheet
from mltswitch.wire.tos import DSCP_COUNT

_COLORS: Final = ("green", "yellow", "red")
_STRICT: Final[Attributes] = {"type": "strict"}
Queues = Mapping[int, Attributes]
"""Number of a queue → how a scheduler policy serves it."""


def facts_after(_sheet: Sheet, now: Facts, then: Facts) -> Facts:
    """The facts that run after a change: wanted ones, those of others, and mltswitch's objects still in use.

    Raises DeviceError where the switch lacks a port.
    """
    after = dict(now)
    schedulers = objects_in(then[SWITCH])[sheet.SCHEDULER]
    for port, wanted in then.items():
        if port not in now:
            raise DeviceError(
                "the switch has no such port",
                where=f"port {port}",
                hint="`show interface status` lists them; `interface-naming standard` names them Eth1/1",
            )
        if port != SWITCH:
            queues = schedulers.get(wanted.get((sheet.PORT_SCHEDULER,)), {})
            after[port] = {**wanted, **_kept_on_port(now[port], wanted, queues)}
    used = {fact[1] for fact in now[SWITCH] if fact[0] == sheet.USED_ELSEWHERE}
    used.update(name for port, own in after.items() if port != SWITCH for name in bound_by(own))
    return after | {SWITCH: _objects_after(now[SWITCH], then[SWITCH], used)}


def _kept_on_port(own: PortFacts, wanted: PortFacts, queues: Collection[int]) -> PortFacts:
    """What a change leaves on a port: nothing of ours, and no thresholds on queues that it serves."""
    has_policy = any(fact[0] == sheet.PORT_POLICY for fact in wanted)
    kept: dict[Fact, Any] = {}
    for fact, value in own.items():
        is_ours = any(name.startswith(sheet.PREFIX) for name in bound_by({fact: value}))
        if fact[0] == sheet.PORT_POLICY:
            is_ours |= has_policy
        elif fact[0] == sheet.QUEUE_WRED:
            is_ours |= fact[1] in queues
        if fact not in wanted and (not is_ours or fact[0] == sheet.OTHER_MAP):
            kept[fact] = value
    return kept


def _objects_after(now: PortFacts, then: PortFacts, used: Set[str]) -> PortFacts:
    """Objects of others stay as they are, and ours in use; a class-map or policy-map keeps its lines."""

    def is_kept(fact: Fact) -> bool:
        if fact[0] not in sheet.OBJECTS:
            return bool(fact[0] != ROUTE)
        if fact[:2] in ours:
            return fact[0] in {sheet.CLASS, sheet.POLICY}
        return fact[1] in used or not fact[1].startswith(sheet.PREFIX)

    ours = {fact: then[fact] for fact in then if fact[0] == ROUTE or fact[1].startswith(sheet.PREFIX)}
    flows = (fact[2] for fact in now if fact[0] == sheet.POLICY and len(fact) > 2 and is_kept(fact))
    used = used | {flow.split()[0] for flow in flows}
    return {fact: value for fact, value in now.items() if is_kept(fact)} | ours


def check_rollback(former: Facts, now: Facts) -> None:
    """Raise DeviceError where no command is known that restores what ran before."""
    present = {fact[1] for fact in now[SWITCH] if fact[0] in sheet.OBJECTS}
    for what, *place in former[SWITCH]:
        if what == sheet.STRANGE and place[0] not in present:
            raise DeviceError(
                f"the push has removed {place[0]}, and no command is known for its line {place[1]!r}",
                hint="enter it by hand from the backup",
            )
    for fact, value in now[SWITCH].items():
        is_ours = fact[0] in {sheet.CLASS, sheet.POLICY} and fact[1].startswith(sheet.PREFIX)
        if is_ours and fact[:2] in former[SWITCH] and fact not in former[SWITCH]:
            written = sheet.SHEET.write(sheet.SHEET.line_for(fact[0], value), ((fact, value),))
            name = f"{fact[0]} {fact[1]}"
            raise DeviceError(
                f"no command is known that takes {written.text!r} out of {written.modes[-1]!r}",
                where=name,
                hint=f"take {name} off its ports, remove it, and enter it again from the backup",
            )


def order_between(lines: Sheet, now: Facts, then: Facts) -> Order:
    """The order of the lines that lead to the wanted facts, with the interim configuration between."""
    after = facts_after(lines, now, then)
    between = _facts_between(now, after)
    return _Departure(lines, between, after, tuple(ordered_lines(_Approach(lines, now, between))))


class _Grouped(Order):
    """Within a phase, lines go by port, object or queue; in each of them what is taken back comes first."""

    @cached_property
    def _ranks(self) -> Mapping[object, int]:
        both = ((port, fact) for facts in (self.then, self.now) for port in facts for fact in facts[port])
        groups = dict.fromkeys(_group(port, fact) for port, fact in both)
        return {group: rank for rank, group in enumerate(groups)}

    def _moment(self, phase: int, port: str, fact: Fact, step: int) -> Moment:
        return phase, self._ranks[_group(port, fact)], step


def _group(port: str, fact: Fact) -> object:
    return port or fact[: 3 if fact[0] == sheet.SCHEDULER else 2]


class _Approach(_Grouped):
    """The way from what runs to what stands between."""

    def place(self, port: str, written: Written) -> Iterator[Placed]:
        fact, _ = written.facts[0]
        is_new = not port and fact[:2] not in self.now[SWITCH]
        phase = Phase.CREATE if is_new else _APPROACH[fact[0]]
        yield self._moment(phase, port, fact, 1), written

    def place_undo(self, port: str, fact: Fact, undo: Written) -> Iterator[Placed]:
        yield self._moment(_APPROACH[fact[0]], port, fact, 0), undo


@dataclass(frozen=True)
class _Departure(_Grouped):
    """The way from what stands between to the wanted facts."""

    before: tuple[Key, ...]
    """The lines that have led to what stands between."""

    def between(self) -> Iterator[tuple[Moment, Key]]:
        return (((-1, number), line) for number, line in enumerate(self.before))

    @cached_property
    def _present_routes(self) -> Set[Fact]:
        """Routes without the words that do not name them."""
        return {fact[:3] for fact in self.now[SWITCH] if fact[0] == ROUTE}

    @cached_property
    def _changed_prefixes(self) -> Set[Fact]:
        """Prefixes that get another route."""
        return {fact[:2] for fact in self.then[SWITCH] if fact[0] == ROUTE and fact not in self.now[SWITCH]}

    def place(self, port: str, written: Written) -> Iterator[Placed]:
        present, (fact, _) = self.now[port], written.facts[0]
        changed = tuple(entry for entry in written.facts if entry not in present.items())
        for (phase, *_), line in super().place(port, written):
            if fact[0] == ROUTE:
                yield self._moment(phase, port, fact, 2 if fact[:3] in self._present_routes else 1), line
            else:
                # No minimum may be above a maximum, and here both only get less.
                step = 2 if fact[0] == sheet.SCHEDULER and fact[-1] == "pir" else 1
                changed_line = self.sheet.write(line.line, changed) if changed else line
                yield self._moment(phase, port, fact, step), changed_line

    def place_undo(self, port: str, fact: Fact, undo: Written) -> Iterator[Placed]:
        if fact[0] in sheet.OBJECTS and len(fact) == 2:
            yield (Phase.REMOVE, fact[0] == sheet.CLASS), undo  # after the policy-maps that have them
            return
        step = 0
        if fact[0] == ROUTE and not (fact[2] == sheet.BLACKHOLE and fact[:2] in self._changed_prefixes):
            step = 3
        yield self._moment(undo.line.undo_phase, port, fact, step), undo


_APPROACH: Final = {
    sheet.WRED: Phase.LOOSEN,
    sheet.QUEUE_WRED: Phase.LOOSEN,
    sheet.SCHEDULER: Phase.SCHEDULE,
    sheet.PORT_SCHEDULER: Phase.SCHEDULE,
}
"""When a line is entered that leads to what stands between, unless its object is new."""


def _facts_between(now: Facts, then: Facts) -> Facts:
    """What stands between while packets move: new objects beside the present ones, which are the more lenient
    of what they are and shall be, and bindings of which the same is true."""
    old, new = objects_in(now[SWITCH]), objects_in(then[SWITCH])
    objects = {kind: {**new[kind], **old[kind]} for kind in sheet.OBJECTS}
    for kind, lenient in ((sheet.WRED, _lenient_thresholds), (sheet.SCHEDULER, _lenient_schedulers)):
        both = [name for name in new[kind] if name in old[kind]]
        objects[kind] |= {name: lenient(old[kind][name], new[kind][name]) for name in both}
    names = [port for port in then if port != SWITCH]
    traffic = _Traffic.of([(now[port], old, then[port], new) for port in names])
    ports: dict[str, PortFacts] = {}
    for port in names:
        own = dict(now[port])
        for fact in [fact for fact in {**own, **then[port]} if fact[0] == sheet.QUEUE_WRED]:
            bound, wanted = own.pop(fact, ""), then[port].get(fact, "")
            is_ours = bound != wanted or wanted.startswith(sheet.PREFIX)
            bound = _lenient_binding(bound, wanted, old[sheet.WRED], new[sheet.WRED])
            own |= {fact: bound} if bound and not (is_ours and traffic.anywhere) else {}
        bound, wanted = (each.get((sheet.PORT_SCHEDULER,), "") for each in (own, then[port]))
        policy, queues = _scheduler_between(
            bound, wanted, old[sheet.SCHEDULER], new[sheet.SCHEDULER], traffic
        )
        own |= {(sheet.PORT_SCHEDULER,): policy} if policy else {}
        objects[sheet.SCHEDULER] |= {policy: queues} if queues else {}
        ports[port] = own
    others = {fact: value for fact, value in now[SWITCH].items() if fact[0] not in sheet.OBJECTS}
    return {SWITCH: {**dict(facts_in(objects)), **others}, **ports}


@dataclass(frozen=True, slots=True)
class _Traffic:
    """What the packets that arrive at the plan's ports do while their maps change."""

    moves: bool
    """Whether some packet leaves through another queue than before."""
    anywhere: bool
    """Whether a packet may meanwhile take a queue of neither end: two maps are bound one after the other."""
    queues: frozenset[int]
    """Queues that packets take before,"""
    later: frozenset[int]
    """and after that; a policy need not name them."""

    @classmethod
    def of(cls, ports: Sequence[tuple[PortFacts, Tree, PortFacts, Tree]]) -> "_Traffic":
        """Of ports as they are and as they shall be, with the objects of either time."""
        before = [_leads_to(own, old) for own, old, _, _ in ports]
        after = [_leads_to(wanted, new) for _, _, wanted, new in ports]
        anywhere = any(_queue_map(own, old) != _queue_map(wanted, new) for own, old, wanted, new in ports)
        taken, later = (frozenset(chain.from_iterable(queues)) for queues in (before, after))
        return cls(anywhere or before != after, anywhere, taken, later)


def _queue_map(own: PortFacts, objects: Tree) -> Mapping[int, int]:
    """Traffic class → queue; without a map class N goes to queue N."""
    bound = own.get((sheet.PORT_MAP, sheet.QUEUE_MAP))
    entries: Mapping[int, int] = objects[sheet.QUEUE_MAP].get(bound, {}) if bound else sheet.IDENTITY
    return entries


def _leads_to(own: PortFacts, objects: Tree) -> tuple[int, ...]:
    """Queue of each code point; without an entry a packet is traffic class 0."""
    classes, queues = (
        objects[sheet.DSCP_MAP].get(own.get((sheet.PORT_MAP, sheet.DSCP_MAP)), {}),
        _queue_map(own, objects),
    )
    found = (classes.get(dscp, 0) for dscp in range(DSCP_COUNT))
    return tuple(queues.get(traffic_class, traffic_class) for traffic_class in found)


def _scheduler_between(
    bound: str, wanted: str, old: Tree, new: Tree, traffic: _Traffic
) -> tuple[str, Queues]:
    """The policy of a port while packets move, and what it says where it is a third one."""
    if wanted not in new or (bound == wanted and not traffic.anywhere):
        return bound, {}
    present, shall = old.get(bound), new[wanted]
    queues = _queues_between(present, shall, traffic)
    if not traffic.moves or queues == _queues_of(shall):
        return wanted, {}
    serves_both = present is not None and all(present.get(queue) == queues[queue] for queue in queues)
    if serves_both or not wanted.startswith(sheet.PREFIX):
        return bound, {}
    content = tuple((queue, tuple(queues[queue].items())) for queue in sorted(queues))
    return f"{sheet.PREFIX}between-{sheet.digest(content)}", queues


def _queues_between(old: Tree | None, new: Tree, traffic: _Traffic) -> Queues:
    """How queues are to be served while packets move, by neither policy worse than by both."""
    wanted = _queues_of(new)
    if traffic.anywhere:
        return {queue: _joined({}, wanted.get(queue, _STRICT)) for queue in reversed(range(QUEUE_COUNT))}
    present = _queues_of(old or {})
    queues = {
        queue: _joined(present.get(queue, {}), service) if queue in traffic.queues else service
        for queue, service in wanted.items()
    }
    for queue in sorted((traffic.queues | traffic.later) - wanted.keys(), reverse=True):
        if old is None or queue in present:
            service = present.get(queue, _STRICT)
            # Packets come to a later one, which the new policy does not cap.
            queues[queue] = _joined(service, {}) if queue in traffic.later else service
    return queues


def _queues_of(policy: Tree) -> Queues:
    return {section: service for section, service in policy.items() if section != sheet.PORT_SECTION}


def _joined(one: Attributes, other: Attributes) -> Attributes:
    """A strict queue that gets what either guarantees and is held by no cap that not both have."""
    rates = {word: [rate for each in (one, other) for rate in _rates(each, word)] for word in ("pir", "cir")}
    joined = {**_STRICT}
    if len(rates["pir"]) > 1:
        joined["pir"] = str(max(rates["pir"]))
    if rates["cir"]:
        joined["cir"] = str(max(rates["cir"]))
    return joined


def _rates(service: Attributes, word: str) -> list[int]:
    text = service.get(word, "")
    return [int(text)] if text.isascii() and text.isdecimal() else []


def _lenient_schedulers(old: Tree, new: Tree) -> Tree:
    """A policy that has changed, while packets may be served by what it says or shall say."""
    kept = {section: old[section] for section in old if section != sheet.PORT_SECTION or section in new}
    changed = (queue for queue, service in _queues_of(new).items() if old.get(queue) != service)
    return kept | {queue: _joined(old.get(queue, {}), new[queue]) for queue in changed}


def _lenient_thresholds(old: Attributes, new: Attributes) -> Attributes:
    """A policy that has changed; where neither curve spares what the other does, by a higher one."""
    kept = {word: old[word] for word in old if word in new or word not in _COLORS}
    if old.get("ecn") not in MARKING and new.get("ecn") in MARKING:
        kept["ecn"] = new["ecn"]
    present, wanted = curve_of(old), curve_of(new)
    if present and wanted and wanted[0] >= present[1]:
        kept["green"] = new["green"]
    elif present and wanted and wanted[0] > present[0]:
        kept["green"] = f"minimum-threshold {present[1]} maximum-threshold {present[1]} drop-probability 100"
    if old.keys().isdisjoint(_COLORS) and "green" in new:
        kept["green"] = new["green"]  # no port has it: the switch binds no policy without a colour
    return kept


def _lenient_binding(bound: str, wanted: str, old: Tree, new: Tree) -> str:
    """The policy of both that drops nothing that the other keeps; empty where neither is such a one."""
    present, shall = old.get(bound, {}), new.get(wanted, {})
    if not bound or not wanted or bound == wanted:
        return bound if wanted else ""
    if _spares(shall, present):
        return wanted
    return bound if _spares(present, shall) else ""


def _spares(one: Attributes, other: Attributes) -> bool:
    """Whether a queue drops no packet under one policy that it keeps under the other."""
    first, second = curve_of(one), curve_of(other)
    if first is None:
        return True
    if second is None or first[0] < second[1]:
        return False
    return one.get("ecn") in MARKING or other.get("ecn") not in MARKING
