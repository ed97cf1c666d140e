"""Translates the facts of an EOS switch to state, and a plan's state to facts.

The maps are the switch's, the same for all its ports: a packet gets a traffic class from its DSCP where the
port on which it arrives trusts DSCP, and the traffic class names the queue on the port on which it leaves. An
untrusted port gives all packets the traffic class of its own CoS or DSCP; both have to lead to background. A
policy map on a port's entrance comes before either: it makes background of what a port may not say, before
the DSCP counts, and rewrites it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from mltswitch.capabilities import Capabilities, Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.base import LineError
from mltswitch.targets.engine.facts import (
    BIND,
    FOREIGN_LINE,
    MAP,
    ROUTE,
    SERVICE,
    STRICT,
    SWITCH,
    THRESHOLD,
    TRUST,
    Fact,
    Facts,
    PortFacts,
)
from mltswitch.targets.eos.capabilities import LOSSLESS, TRAFFIC_CLASSES
from mltswitch.targets.eos.sheet import (
    CAP,
    CLASS,
    CLASS_MAPS,
    CLASSES,
    COS,
    COS_MAP,
    COUNT,
    DSCP,
    ENTRY,
    FAMILY_OF,
    FOREIGN_POLICY,
    GUARANTEE,
    LISTS,
    MATCH,
    OBJECT,
    OF_QUEUES,
    POLICY,
    POLICY_MAPS,
    POLICY_OF_HEAD,
    QUEUE_LINE,
    ROUTED,
    SET_CLASS,
    SET_DSCP,
    SHARE,
    TRUSTED,
    UNTRUSTED,
    report,
    route_of,
    route_text,
)
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.remap import (
    HOST_POLICY,
    Entrance,
    SwitchMap,
    code_points,
    dscp_set_by,
    lossless_queues,
    policy_of,
    rewriting_map,
)
from mltswitch.targets.routes import in_order_of
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

USED_ELSEWHERE: Final = "policy used elsewhere"
"""Name of a fact: (policy used elsewhere, policy) → None, a policy of a port or profile outside the plan."""
_LOW_ORDER: Final = (1, 0, *range(2, TRAFFIC_CLASSES))
"""Traffic class of CoS n, and of the eight code points from 8 n: 0 and 1 are swapped (EOS manual)."""
MAPS_AS_DELIVERED: Final[PortFacts] = {
    **{(MAP, dscp): _LOW_ORDER[dscp >> 3] for dscp in range(DSCP_COUNT)},
    **{(COS_MAP, cos): traffic_class for cos, traffic_class in enumerate(_LOW_ORDER)},
    **{(BIND, traffic_class): traffic_class for traffic_class in range(TRAFFIC_CLASSES)},
}
_REPORTED: Final = frozenset({SERVICE, THRESHOLD, SHARE, QUEUE_LINE})
"""Facts of a queue of which no field of a state tells what no plan has."""
_LEFT: Final = frozenset({COS, DSCP, COUNT, SHARE})
"""What a push leaves where the plan does not set it."""


def in_force(own: PortFacts) -> PortFacts:
    """The facts of a port with the defaults that no line of it says."""
    return {**_as_delivered(own), **own}


def _as_delivered(own: PortFacts) -> PortFacts:
    """What holds on a port where no line of it says anything else."""
    return {(TRUST,): TRUSTED if (ROUTED,) in own else "cos", (COS,): 0, (DSCP,): 0}


def check_expressible(state: SwitchState) -> None:
    """Refuse what EOS cannot express at all; raises UnsupportedPlanError."""
    _switch_map(state)


@remembering_last
def _switch_map(state: SwitchState) -> SwitchMap:
    own = rewriting_map(state, "EOS")
    for port in state.ports[:1]:
        if not own.dscps[port.queues[-1].queue]:
            raise UnsupportedPlanError(
                "no code point leads to the last queue, background", where=f"port {port.name}"
            )
    return own


def facts_of(state: SwitchState, _capabilities: Capabilities) -> Facts:
    """The facts that a state asks for, in the order of the rendered file."""
    own = _switch_map(state)
    facts: dict[str, PortFacts] = {}
    untrusted: dict[Fact, Any] = {}
    if state.ports:
        background = state.ports[0].queues[-1].queue
        untrusted = {(COS,): _LOW_ORDER.index(background), (DSCP,): own.dscps[background][0]}
    for (queues, trusted, _), ports in groupby(state.ports, attrgetter("queues", "trusted", "rewritten")):
        alike = list(ports)
        policy: dict[Fact, Any] = {(POLICY, name): None for name in (policy_of(alike[0]),) if name}
        trust = {(TRUST,): TRUSTED} if trusted else {**untrusted, (TRUST,): UNTRUSTED}
        shared: PortFacts = {**_queue_facts(queues), **policy, **trust}
        facts |= dict.fromkeys((port.name for port in alike), shared)
    return facts | {SWITCH: dict(_switch_facts(state, own))}


def _queue_facts(queues: Sequence[QueueState]) -> PortFacts:
    facts: dict[Fact, Any] = {}
    for queue in queues:
        if not queue.is_lossless:
            facts[SERVICE, queue.queue] = STRICT
            if queue.minimum is not None:
                facts[GUARANTEE, queue.queue] = queue.minimum
            if queue.maximum is not None:
                facts[CAP, queue.queue] = queue.maximum
            if queue.ecn_threshold_bytes is not None:
                facts[COUNT, queue.queue] = None
            facts[THRESHOLD, queue.queue] = queue.ecn_threshold_bytes
    return facts


def _switch_facts(state: SwitchState, own: SwitchMap) -> Iterator[tuple[Fact, Any]]:
    for queue, dscps in own.dscps.items():
        if dscps:
            yield (BIND, queue), queue
            yield from (((MAP, dscp), queue) for dscp in dscps)
    used = set(map(policy_of, state.ports))
    for policy in CLASSES:
        if policy in used:
            moved = own.remap.dscps if policy == HOST_POLICY and own.remap else None
            background = state.ports[0].queues[-1].queue
            yield from _policy_facts(policy, Entrance(moved, background, state.background_dscp))
    yield from (((ROUTE, route_text(route)), None) for route in state.routes)


def _policy_facts(policy: str, entrance: Entrance) -> Iterator[tuple[Fact, Any]]:
    """A policy map of ours with all that it names, in the order of the rendered file.

    The number of an access list's entry says its code point, so it can be taken out without knowing the
    others; the one for all packets comes last.
    """
    for name in CLASSES[policy]:
        everything = f"permit {FAMILY_OF[name]} any any"
        yield (OBJECT, LISTS[name]), None
        if entrance.dscps is None:
            yield (ENTRY, LISTS[name], 1 + DSCP_COUNT, everything), None
        for dscp in entrance.dscps or ():
            yield (ENTRY, LISTS[name], 1 + dscp, f"{everything} dscp {dscp}"), None
        yield (OBJECT, CLASS_MAPS[name]), None
        yield (MATCH, CLASS_MAPS[name], f"{FAMILY_OF[name]} access-group {name}"), None
    policy_map = POLICY_MAPS[policy]
    yield (OBJECT, policy_map), None
    for name in CLASSES[policy]:
        yield (CLASS, policy_map, name), None
        if entrance.dscp is not None:
            yield (SET_DSCP, policy_map, name), entrance.dscp
        yield (SET_CLASS, policy_map, name), entrance.queue


def _entrance(policy: str, switch: PortFacts) -> Entrance | None:
    """What a policy map of ours does, its queue as a traffic class; None: its lines are not such as ours."""
    own = {fact: value for fact, value in switch.items() if _policy_of(fact) == policy}
    name = CLASSES[policy][0]
    numbers = sorted(fact[2] - 1 for fact in own if fact[:2] == (ENTRY, LISTS[name]))
    traffic_class, dscp = (own.get((what, POLICY_MAPS[policy], name)) for what in (SET_CLASS, SET_DSCP))
    if traffic_class is None or not numbers:
        return None
    found = Entrance(None if numbers == [DSCP_COUNT] else tuple(numbers), traffic_class, dscp)
    return found if dict(_policy_facts(policy, found)) == own else None


def _policy_of(fact: Fact) -> str:
    """The policy map that a fact of the switch is for; empty: it is not of one of ours."""
    return POLICY_OF_HEAD.get(fact[1], "") if len(fact) > 1 else ""


def goal(now: Facts, planned: Facts) -> Facts:
    """The facts to which a push leads: the plan's, and those on its ports that it leaves to others."""
    attached = {fact[1] for own in planned.values() for fact in own if fact[0] == POLICY}
    used_elsewhere = {fact[1] for fact in now[SWITCH] if fact[0] == USED_ELSEWHERE} - attached
    facts: dict[str, PortFacts] = {}
    for port, then in planned.items():
        own, delivered = now[port], _as_delivered(now[port])
        left = {
            fact: value
            for fact, value in own.items()
            if fact not in then and (fact[0] in _LEFT or _policy_of(fact) in used_elsewhere)
        }
        lines = (
            (fact, value)
            for fact, value in then.items()
            if fact in own or fact not in delivered or delivered[fact] != value
        )
        facts[port] = left | dict(lines)
    return facts


def planned_state(facts: Facts, _capabilities: Capabilities) -> SwitchState:
    """The state of a rendered file; raises LineError for a port without queues."""
    ports = {port: own for port, own in facts.items() if port != SWITCH}
    switch = _Switch(facts.get(SWITCH, {}), ports.values())
    background_dscp = switch.background_dscp
    states: dict[int, PortState] = {}
    for own in ports.values():
        if id(own) not in states:
            configured = [place[0] for what, *place in own if what in OF_QUEUES]
            if not configured:
                raise LineError(0, "", "a port has no queues")
            *strict, background = dict.fromkeys(configured)
            lossless = lossless_queues(LOSSLESS, configured, switch.queue_of_dscps)
            states[id(own)] = switch.port(own, (*strict, *lossless, background), lossless, background_dscp)
    return SwitchState(
        tuple(replace(states[id(own)], name=port) for port, own in ports.items()),
        switch.routes(),
        background_dscp=background_dscp,
    )


def running_state(facts: Facts, wanted: SwitchState, _capabilities: Capabilities) -> SwitchState:
    """The state that a device's facts give the wanted ports and queues, with the routes within the plan."""
    switch = _Switch(facts[SWITCH], (facts[port.name] for port in wanted.ports))
    ports = []
    for port in wanted.ports:
        queues = [queue.queue for queue in port.queues]
        lossless = [queue.queue for queue in port.queues if queue.is_lossless]
        own = switch.port(facts[port.name], queues, lossless, wanted.background_dscp)
        ports.append(replace(own, name=port.name))
    foreign = tuple(fact[1] for fact in facts[SWITCH] if fact[0] == FOREIGN_LINE)
    return SwitchState(
        tuple(ports),
        in_order_of(wanted.routes, switch.routes()),
        background_dscp=switch.background_dscp,
        unexpected=foreign if ports else (),
    )


def policy_on(own: PortFacts) -> str:
    """Name of the policy map on packets that arrive at a port; empty: none."""
    return next((fact[1] for fact in own if fact[0] in {POLICY, FOREIGN_POLICY}), "")


def classes_of_dscps(switch: PortFacts) -> tuple[int, ...]:
    """The traffic class of each DSCP (index) by the map of the switch."""
    values = (switch[MAP, dscp] for dscp in range(DSCP_COUNT))
    return tuple(value if isinstance(value, int) else value[0] for value in values)


class _Switch:
    """What the facts of the whole switch mean for its ports."""

    def __init__(self, facts: PortFacts, ports: Iterable[PortFacts]) -> None:
        self._facts = {**MAPS_AS_DELIVERED, **facts}
        self._queue_of_class = [self._facts[BIND, each] for each in range(TRAFFIC_CLASSES)]
        classes = classes_of_dscps(self._facts)
        self.queue_of_dscps = tuple(self._queue_of_class[traffic_class] for traffic_class in classes)
        self._entrances = {policy: _entrance(policy, facts) for policy in CLASSES}
        self.background_dscp = dscp_set_by(self._entrances.get(policy_on(own)) for own in ports)

    def routes(self) -> tuple[RouteState, ...]:
        """Our routes."""
        return tuple(route_of(fact[1]) for fact in self._facts if fact[0] == ROUTE)

    def port(
        self, own: PortFacts, queues: Sequence[int], lossless: Collection[int], background_dscp: int
    ) -> PortState:
        """A port without its name; what no plan asks for is in `unexpected`, in the words of EOS.

        Of the queues in `lossless` the code points alone count.
        """
        own = in_force(own)
        queue_of, policy = self.queue_of_dscps, policy_on(own)
        background = queues[-1] if queues else 0
        unexpected = [*self._trust_faults(own, background)]
        entrance = self._entrances.get(policy)
        line = f"service-policy type qos input {policy}"
        if entrance is not None:
            entrance = replace(entrance, queue=self._queue_of_class[entrance.queue])
            queue_of = tuple(entrance.applied(queue_of))
            faults = entrance.faults(background, background_dscp)
            unexpected += (f"{line}, which {fault}" for fault in faults)
        elif policy:
            unexpected.append(line + (", whose lines are not the plan's" if policy in CLASSES else ""))
        unexpected += (fact[1] for fact in own if fact[0] == FOREIGN_LINE)
        dscps = code_points(queue_of)
        states: list[QueueState] = []
        for queue in queues:
            if queue in lossless:
                states.append(QueueState(queue, dscps.get(queue, ()), None, Unlimited(), is_lossless=True))
                continue
            low, high, threshold = (own.get((what, queue)) for what in (GUARANTEE, CAP, THRESHOLD))
            states.append(
                QueueState(
                    queue,
                    dscps.get(queue, ()),
                    threshold if isinstance(threshold, int) else None,
                    Unlimited(),
                    None if isinstance(low, str) else low,
                    None if isinstance(high, str) else high,
                )
            )
            unexpected += (f"queue {queue} {fault}" for fault in _queue_faults(own, queue))
        if own.get((SERVICE, TRAFFIC_CLASSES - 1), STRICT) != STRICT:
            # On some chips round robin in one queue makes it round robin in all below it.
            unexpected.append(f"queue {TRAFFIC_CLASSES - 1} no priority")
        rewritten = entrance.rewritten if entrance else ()
        return PortState("", own[TRUST,] == TRUSTED, None, tuple(states), tuple(unexpected), rewritten)

    def _trust_faults(self, own: PortFacts, background: int) -> Iterator[str]:
        if own[TRUST,] == TRUSTED:
            for dscp in range(DSCP_COUNT):
                if not isinstance(value := self._facts[MAP, dscp], int):
                    yield "qos map dscp {} to traffic-class {} drop-precedence {}".format(dscp, *value)
        elif own[TRUST,] == UNTRUSTED:
            cos, dscp, queue_of = own[COS,], own[DSCP,], self.queue_of_dscps
            queue = self._queue_of_class[self._facts[COS_MAP, cos]]
            if queue != background or cos != _LOW_ORDER.index(background):
                yield f"qos cos {cos}, which leads to queue {queue}"
            if background not in queue_of or dscp != queue_of.index(background):
                yield f"qos dscp {dscp}, which leads to queue {queue_of[dscp]}"
        else:
            yield f"qos trust {own[TRUST,]}"


def _queue_faults(own: PortFacts, queue: int) -> Iterator[str]:
    """What no plan asks for, in the words of EOS."""
    is_detecting = isinstance(own.get((THRESHOLD, queue)), int)
    if is_detecting and (COUNT, queue) not in own:
        yield "no random-detect ecn count"
    for fact, value in own.items():
        if fact[1:2] == (queue,) and (fact[0] in _REPORTED or isinstance(value, str)):
            yield from filter(None, (report(fact, value),))
