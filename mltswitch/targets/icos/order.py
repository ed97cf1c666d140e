"""The order in which the lines of FASTPATH are entered, each of which takes effect at once.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds; then ports are no longer trusted, where they were; then packets are led to the queues; then
thresholds are tightened; then ports are trusted.

Nor may it serve a packet after another where both ends serve it before, or one does and the other serves both
alike. How the map changes so, and which queues are strict meanwhile, says service_order.py. The policy of
hosts hides the map for a few code points, which are background there. All of them move by one line: down as
the last of them would in the map, up as the first would. That keeps the order where they share a queue before
and after, as in all plans and as delivered. Where they do not, no moment suits all of them. The policy of
ports that are not trusted comes after they trust nothing, and goes before they trust again.

A class that is not what its name says cannot be changed: it leaves our policies and is made anew, and so does
a class with which a policy does more than it should. A route with another next hop is added before the old
one is removed, so each prefix is without a route for one line at most.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from ipaddress import IPv4Network
from itertools import takewhile
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.common import Key
from mltswitch.targets.engine.facts import (
    DISTANCE,
    MAP,
    ROUTE,
    SERVICE,
    STRICT,
    SWITCH,
    TRUST,
    Fact,
    PortFacts,
)
from mltswitch.targets.engine.line import Moment, Written
from mltswitch.targets.engine.order import Order, Placed
from mltswitch.targets.icos.capabilities import COLOURS, QUEUE_COUNT
from mltswitch.targets.icos.sheet import (
    ACTION,
    ASSIGN,
    ATTACHED,
    CERTAIN,
    CLASS,
    CURVE,
    DETECT,
    ELSEWHERE,
    INSTANCE,
    LENT,
    MATCH,
    MINIMUMS,
    OWN_CLASS,
    POLICY,
    TRUSTED,
    WEIGHTED,
    Phase,
    attached_policy,
    curve_at,
    dscp_of,
)
from mltswitch.targets.remap import HOST_POLICY, POLICIES, UNTRUSTED_POLICY
from mltswitch.targets.service_order import (
    NO_BOUNDARY,
    Move,
    boundary,
    moment_down,
    moment_of,
    moment_up,
)
from mltswitch.wire.tos import DSCP_COUNT

_ANY_MOMENT: Final = (0, 0, 0)
_NOTHING: Final = (0,) * QUEUE_COUNT


class ServiceOrder(Order):
    """The order of a change's lines that never serves packets in a wrong order while code points move."""

    def place(self, port: str, written: Written) -> Iterator[Placed]:
        """When a line that sets something new is entered."""
        (what, *place), new = written.facts[0]
        own = self.present(port)
        if what == SERVICE:
            if place[0] not in self._levelled(port):
                yield self._service(port, place[0], new), written
        elif what == MINIMUMS:
            yield from self._minimums(port, new)
        elif what == CURVE:
            loosens = own[DETECT, place[0]] and _loosens(new, own[CURVE, place[0]])
            yield self._at(Phase.LOOSEN if loosens else Phase.TIGHTEN, port), written
        elif what == TRUST:
            yield self._at(Phase.TRUST if new == TRUSTED else Phase.DISTRUST, port), written
        elif what == MAP:
            yield self._at(Phase.MOVE, moment=moment_of(own[MAP, place[0]], new)), written
        elif what == ATTACHED:
            yield self._attachment(port, -1, self._comes(self._will_move)), written
        elif what in {INSTANCE, ACTION} and (INSTANCE, *place[:2]) in self._brought:
            missing = self._will_move.keys() - self._was_moved.keys()
            yield self._at(Phase.MOVE, moment=self._comes(missing), step=1), written
        elif what in {ROUTE, DISTANCE}:
            yield self._at(Phase.ROUTE, step=self._route_step(place[0])), written
        else:
            for (phase, *_), line in super().place(port, written):
                yield self._at(Phase(phase), port, step=2 if phase == Phase.POLICY else 0), line

    def place_undo(self, port: str, fact: Fact, undo: Written) -> Iterator[Placed]:
        """When a line that undoes a fact is entered; nothing while something else needs the fact."""
        what, *place = fact
        if what == MINIMUMS:
            yield from self._minimums(port, _NOTHING)
        elif what == ATTACHED:
            yield self._attachment(port, -2, self._leaves(self._was_moved)), undo
        elif what == INSTANCE and fact not in self._taken:
            if place[0] == HOST_POLICY:
                surplus = self._was_moved.keys() - self._will_move.keys()
                yield self._at(Phase.MOVE, moment=self._leaves(surplus), step=1), undo
            else:
                yield self._at(Phase.POLICY, step=3), undo
        elif what == POLICY and not self._stays(place[0]):
            yield self._at(Phase.FORGET, step=POLICIES.index(place[0])), undo
        elif what == CLASS and not self._is_needed(place[0]):
            yield self._at(Phase.FORGET, step=len(POLICIES)), undo
        elif what in {ROUTE, DISTANCE}:
            yield self._at(Phase.ROUTE, step=self._route_step(place[0]) + 1), undo

    def between(self) -> Iterator[tuple[Moment, Key]]:
        """Interim lines: queues are weighted while code points move, and what is made anew is removed."""
        for port in self._ports:
            for queue in self._levelled(port):
                yield self._at(Phase.LEVEL, port, queue), self._key(port, (SERVICE, queue), WEIGHTED)
                if self.then[port].get((SERVICE, queue), STRICT) == STRICT:
                    yield self._service(port, queue, STRICT), self._key(port, (SERVICE, queue), STRICT)
        steps = {INSTANCE: 0, CLASS: 1}
        for fact in self._now:
            if fact[0] in steps and fact not in self._left and (undo := self.sheet.undo(fact, None)):
                yield self._at(Phase.POLICY, step=steps[fact[0]]), self.sheet.entered(SWITCH, undo)

    def present(self, port: str) -> PortFacts:
        """The facts of a port, without the classes that are made anew."""
        return super().present(port) if port else self._left

    def _at(
        self, phase: Phase, port: str = SWITCH, rank: int = 0, *, moment: Moment = _ANY_MOMENT, step: int = 0
    ) -> Moment:
        """First by phase, then by moment of the code points, by step, by port, and by rank there.

        Steps of POLICY: classes leave policies, they go, they come into policies, others leave, ports get
        policies. Steps of MOVE: the map, then the policy of hosts, which hides it, then ports get that.
        """
        return phase, *moment, step, self._ports.get(port, -1), rank

    @cached_property
    def _ports(self) -> Mapping[str, int]:
        """Ports of the plan → their place in the order of the file."""
        return {port: number for number, port in enumerate(self.then) if port != SWITCH}

    def _key(self, port: str, fact: Fact, value: object) -> Key:
        line = self.sheet.line_for(fact[0], value)
        return self.sheet.entered(port, self.sheet.write(line, ((fact, value),)))

    @cached_property
    def _now(self) -> PortFacts:
        """What the whole switch runs."""
        return self.now[SWITCH]

    @cached_property
    def _then(self) -> PortFacts:
        """What it runs in the end; code points that no plan names stay."""
        return {**{fact: self._now[fact] for fact in self._now if fact[0] == MAP}, **self.then[SWITCH]}

    # Service.

    def _service(self, port: str, queue: int, service: str) -> Moment:
        """When a queue gets its service, the highest first."""
        if service == STRICT:
            phase = Phase.SCHEDULE if queue > self._highest(port) else Phase.SCHEDULE_LATE
            return self._at(phase, port, -queue)
        return self._at(Phase.SCHEDULE_LATE if self._is_moving else Phase.SCHEDULE, port, queue + 1)

    def _levelled(self, port: str) -> list[int]:
        """Strict queues that are weighted while code points move."""
        concerned = self._occupied | _queues(self.then[port])
        return sorted(
            queue for queue in _queues(self.now[port], STRICT) & concerned if queue <= self._highest(port)
        )

    def _highest(self, port: str) -> int:
        """The highest queue that is weighted while code points move."""
        if not self._is_moving:
            return NO_BOUNDARY
        strict, planned = _queues(self.now[port], STRICT), _queues(self.then[port])
        return boundary(strict, self._occupied, planned, self._moves)

    def _minimums(self, port: str, wanted: tuple[int, ...]) -> Iterator[Placed]:
        """One line sets the guarantees of all queues of a port; those that are not the plan's stay."""
        now = self.now[port].get((MINIMUMS,), _NOTHING)
        # A way back names the service of all queues, but early detection of the plan's alone.
        planned = {fact[1] for fact in self.then[port] if fact[0] == DETECT}
        percents = tuple((wanted if queue in planned else now)[queue] for queue in range(QUEUE_COUNT))
        if sum(percents) > CERTAIN:
            foreign = (
                f"queue {queue} has {percent} %"
                for queue, percent in enumerate(now)
                if percent and queue not in planned
            )
            raise DeviceError(
                "minimum bandwidths of queues that are not the plan's leave no room for background's: "
                f"{', '.join(foreign)}",
                where=f"port {port}",
                hint="lower them first with `cos-queue min-bandwidth`",
            )
        if percents != now:
            line = self.sheet.line_for(MINIMUMS, percents)
            yield (
                self._at(Phase.SCHEDULE, port, QUEUE_COUNT + 1),
                self.sheet.write(line, (((MINIMUMS,), percents),)),
            )

    # Code points.

    @cached_property
    def _was_moved(self) -> Mapping[int, int]:
        return _moved_by_policy(self._now)

    @cached_property
    def _will_move(self) -> Mapping[int, int]:
        return _moved_by_policy(self._then)

    def _comes(self, dscps: Iterable[int]) -> Moment:
        """When the last of code points would move down to the queue of what hosts may not use."""
        moments = (moment_down(self._now[MAP, dscp], self._will_move[dscp]) for dscp in dscps)
        return max(moments, default=_ANY_MOMENT)

    def _leaves(self, dscps: Iterable[int]) -> Moment:
        """When the first of code points would move up from there."""
        moments = (moment_up(self._was_moved[dscp], self._then[MAP, dscp]) for dscp in dscps)
        return min(moments, default=moment_up(0, 0))

    @cached_property
    def _moves(self) -> set[Move]:
        """Of all code points, on each port and, by the map alone, on those of others."""
        found: set[Move] = set()
        for port in (SWITCH, *self._ports):
            hosts = [attached_policy(facts[port]) == HOST_POLICY for facts in (self.now, self.then)]
            was_moved, will_move = self._was_moved if hosts[0] else {}, self._will_move if hosts[1] else {}
            for dscp in range(DSCP_COUNT):
                old, new = self._now[MAP, dscp], self._then[MAP, dscp]
                found.add((was_moved.get(dscp, old), will_move.get(dscp, new)))
        return found

    @cached_property
    def _is_moving(self) -> bool:
        return any(old != new for old, new in self._moves)

    @cached_property
    def _occupied(self) -> set[int]:
        """Queues that code points may lead to at present, those apart that are the system's."""
        return {old for old, _ in self._moves if old < QUEUE_COUNT}

    # Policies.

    @cached_property
    def _spoilt(self) -> set[str]:
        """Classes of ours that are more than they will be."""
        wanted = {fact[1] for fact in self._then if fact[0] == CLASS}
        surplus = {fact[1] for fact in self._now if fact[0] in {CLASS, MATCH} and fact not in self._then}
        return surplus & wanted

    @cached_property
    def _taken(self) -> set[Fact]:
        """Where policies name such a class, or do more with a class than they will."""
        now, then = self._now, self._then
        overdone = {(INSTANCE, *fact[1:3]) for fact in now if fact[0] == ACTION and fact not in then}
        spoilt = {fact for fact in now if fact[0] == INSTANCE and fact[2] in self._spoilt}
        found = spoilt | (overdone & then.keys())
        for policy in POLICIES:
            was, will = ([fact for fact in facts if fact[:2] == (INSTANCE, policy)] for facts in (now, then))
            if not all(OWN_CLASS.fullmatch(fact[2]) for fact in will):  # those of others may have an order
                same = sum(
                    1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(was, will, strict=False))
                )
                found |= {*was[same:]} & then.keys()
        return found

    @cached_property
    def _left(self) -> PortFacts:
        """What is there when these are taken back."""
        return {
            fact: value
            for fact, value in self._now.items()
            if not (fact[0] in {CLASS, MATCH} and fact[1] in self._spoilt)
            and not (fact[0] in {INSTANCE, ACTION} and (INSTANCE, *fact[1:3]) in self._taken)
        }

    @cached_property
    def _brought(self) -> set[Fact]:
        """Classes of the policy of hosts that come while code points move: those by which it newly makes
        some background, and those behind them where classes of others may have an order."""
        will = [fact for fact in self._then if fact[:2] == (INSTANCE, HOST_POLICY)]
        new = [fact for fact in will if dscp_of(fact[2]) is not None and fact not in self._now]
        if all(OWN_CLASS.fullmatch(fact[2]) for fact in will):
            return {*new}
        return {*will[will.index(new[0]) :]} if new else set()

    def _attachment(self, port: str, rank: int, moment: Moment) -> Moment:
        """When a policy comes to a port or leaves it: that of hosts as its code points would in the map.

        A port has that of untrusted ports while it trusts nothing, which leads its packets to the same queue.
        """
        new = attached_policy(self.then[port])
        if new == UNTRUSTED_POLICY:
            return self._at(Phase.POLICY, port, rank, step=4)
        if attached_policy(self.now[port]) == UNTRUSTED_POLICY:
            return self._at(Phase.TRUST, port, rank)
        return self._at(Phase.MOVE, port, rank, moment=moment, step=2)

    def _stays(self, policy: str) -> bool:
        """Whether a policy of ours stays although no port of the plan needs it."""
        return (ELSEWHERE, policy) in self._now and (POLICY, policy) not in self._then

    def _is_needed(self, name: str) -> bool:
        """Whether a class of ours stays that is not planned, or is made anew."""
        policies = [fact[1] for fact in self._now if fact[0] == INSTANCE and fact[2] == name]
        return name in self._spoilt or (LENT, name) in self._now or any(map(self._stays, policies))

    # Routes.

    @cached_property
    def _route_steps(self) -> Mapping[IPv4Network, int]:
        prefixes = dict.fromkeys(fact[1] for fact in self._then if fact[0] in {ROUTE, DISTANCE})
        return {prefix: 2 * number for number, prefix in enumerate(prefixes)}

    def _route_step(self, prefix: IPv4Network) -> int:
        """By prefix in the order of the plan, those last that it does not have."""
        return self._route_steps.get(prefix, 2 * len(self._route_steps))


def _loosens(new: int | str, old: int | str) -> bool:
    """Whether the queue drops no packet that it keeps now; only a marking curve spares anybody."""
    words, old_words = (curve_at(curve) if isinstance(curve, int) else curve for curve in (new, old))
    minima, maxima = words.split()[1 : COLOURS + 1], old_words.split()[COLOURS + 2 : 2 * COLOURS + 2]
    return words.endswith(" ecn") and all(
        int(low) >= int(high) for low, high in zip(minima, maxima, strict=True)
    )


def _queues(facts: PortFacts, service: str = "") -> set[int]:
    """The queues of a port that have this service, or any."""
    return {fact[1] for fact, value in facts.items() if fact[0] == SERVICE and service in {"", value}}


def _moved_by_policy(facts: PortFacts) -> dict[int, int]:
    """Code points that the policy of hosts leads elsewhere → their queue."""
    return {
        dscp: int(queue)
        for fact, queue in facts.items()
        if fact[:2] == (ACTION, HOST_POLICY) and fact[3] == ASSIGN and re.fullmatch("[0-9]", queue)
        for dscp in [dscp_of(fact[2])]
        if dscp is not None
    }
