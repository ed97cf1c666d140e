"""The configuration lines of FASTPATH, the facts that they set, and what the facts mean as state.

A packet gets its queue on the port where it arrives: by its DSCP and one map of the whole switch where the
port trusts ip-dscp; else by the port's default 802.1p priority and the port's own dot1p-mapping. Packets that
are not IP take the second way on every port, so priority 0 has to lead to background on all of them. A
DiffServ policy on the port comes before either.

A guaranteed queue is weighted. MIB says that a minimum bandwidth is ignored where the queue is strict, UCG
that it overrides strict priority. Weighted queues are served after all strict ones (UCG), so background, the
only one of the plan, stays last, and both documents agree on what it gets.

A class of a policy has one code point, or all, and one version of IP, and cannot be changed once it is
defined (M4300, DiffServ Class Commands). So each has a name that says what it is. What a policy does with a
class can be changed in place (M4300, DiffServ Policy Commands).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from functools import cache
from ipaddress import IPV4LENGTH, IPv4Network
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from mltswitch.capabilities import Capabilities, PortShare, Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, ipv4_address, ipv4_network
from mltswitch.targets.base import LineError
from mltswitch.targets.common import NULL_INTERFACE
from mltswitch.targets.engine.facts import (
    BIND,
    DISTANCE,
    FOREIGN_LINE,
    MAP,
    ROUTE,
    SERVICE,
    STRICT,
    SWITCH,
    TRUST,
    Fact,
    Facts,
    PortFacts,
)
from mltswitch.targets.engine.line import Line, Use, Word
from mltswitch.targets.engine.routes import route_facts, routes_of
from mltswitch.targets.engine.sheet import Block, Sheet
from mltswitch.targets.icos.capabilities import COLOURS, QUEUE_COUNT
from mltswitch.targets.remap import (
    HOST_POLICY,
    POLICIES,
    UNTRUSTED_POLICY,
    Entrance,
    code_points,
    dscp_set_by,
    policy_of,
    rewriting_map,
)
from mltswitch.targets.state import PortState, QueueState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"(?:(?:gi|te|fo)?[1-8]/)?[0-9]/[1-9][0-9]{0,2}")
"""Port names: `1/0/1` (unit/slot/port), `0/1` where there is no stack, `te1/0/1` on Dell's N-series."""
LEAVE: Final = "exit"
TRUSTED: Final = "ip-dscp"
UNTRUSTED: Final = "untrusted"
WEIGHTED: Final = "weighted"
CERTAIN: Final = 100
DEFAULT_PRIORITIES: Final = (1, 0, 0, 1, 2, 2, 3, 3)
"""The queue of each 802.1p priority (index) as delivered; a DSCP leads where its first three bits do."""
FAMILIES: Final = ("ipv4", "ipv6")
OWN_CLASS: Final = re.compile(r"mltswitch-(any|[0-9]|[1-5][0-9]|6[0-3])-(ipv4|ipv6)")

AVERAGE: Final = "averaging"
CURVE: Final = "drop curve"
"""Name of a fact: (drop curve, queue) → the threshold in percent, from which all packets are marked or
dropped, or the text of a curve that no plan has; it counts where DETECT is true."""
DETECT: Final = "early detection"
MINIMUMS: Final = "guarantees"
"""Name of a fact: (guarantees,) → the minimum of each queue in percent of the port's rate; absent: none."""
ATTACHED: Final = "policy on a port"
"""Name of a fact: (policy on a port, policy) → None, for mltswitch's policies only."""
CLASS: Final = "class"
"""Name of a fact: (class, name, version of IP) → None, for classes with names of mltswitch's."""
MATCH: Final = "match"
"""Name of a fact: (match, class, version of IP, words) → None, what the class matches."""
POLICY: Final = "policy"
INSTANCE: Final = "class of a policy"
"""Name of a fact: (class of a policy, policy, class) → None, for a class that a policy contains."""
ACTION: Final = "action"
"""Name of a fact: (action, policy, class, command) → the argument of the command."""
ELSEWHERE: Final = "policy elsewhere"
"""Name of a fact: (policy elsewhere, policy) → None, for a policy in use outside the plan's ports."""
LENT: Final = "class elsewhere"
"""Name of a fact: (class elsewhere, class) → None, for a class that a foreign policy names."""
ASSIGN: Final = "assign-queue"
MARK: Final = "mark ip-dscp"
SHAPER: Final = "shaper"
DEFAULT_PRIORITY: Final = "default priority"
CAP: Final = "bandwidth maximum"


class Phase(IntEnum):
    """The phases of a change, in the order in which their lines are entered; order.py says why."""

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
    ROUTE = 13


def curve_at(step: int) -> str:
    """The drop curve of plans: from this percentage on every packet is marked or dropped, below it none.

    Each parameter has a value for green, yellow and red TCP, and one for what is not TCP.
    """
    row = " ".join([str(step)] * COLOURS)
    return f"min-thresh {row} max-thresh {row} drop-prob-scale 100 100 100 100 ecn"


def _step_in(text: str) -> int:
    step = int(text.split()[1])
    if step > CERTAIN or text != curve_at(step):
        raise ValueError("not one certain step for all colours")
    return step


def _row(values: tuple[int, ...]) -> str:
    return " ".join(map(str, values))


def _guarantees_in(text: str) -> tuple[int, ...]:
    percents = tuple(map(int, text.split()))
    if sum(percents) > CERTAIN:
        raise ValueError("more than 100 % together")
    return percents


NETMASKS: Final = tuple(str(IPv4Network((0, length)).netmask) for length in range(IPV4LENGTH + 1))
"""Length of an IPv4 prefix → its network mask, as the lines of routes have it."""


def _prefix_in(text: str) -> IPv4Network:
    address, mask = text.split(" ")
    prefix = ipv4_network(f"{address}/{mask}")
    if mask != NETMASKS[prefix.prefixlen]:
        raise ValueError("not a network mask")
    return prefix


def _prefix(prefix: IPv4Network) -> str:
    return f"{address_text(prefix.network_address)} {NETMASKS[prefix.prefixlen]}"


def _next_hop_in(text: str) -> str:
    return NULL_INTERFACE.lower() if text == NULL_INTERFACE else address_text(ipv4_address(text))


def _next_hop(hop: str) -> str:
    return NULL_INTERFACE if hop == NULL_INTERFACE.lower() else hop


_DSCP: Final = "[0-9]|[1-5][0-9]|6[0-3]"
_PERCENTS: Final = f"[1-9][0-9]{{0,2}}(?: [1-9][0-9]{{0,2}}){{{COLOURS - 1}}}"
_WORDS: Final = {
    "port": Word(PORT_NAME.pattern),
    "queue": Word("[0-6]", int, holds=int),
    "priority": Word("0", int, holds=int),
    "dscp": Word(_DSCP, int, holds=int),
    "number": Word("[0-9]+", int, holds=int),
    "step": Word(
        f"min-thresh {_PERCENTS} max-thresh {_PERCENTS} drop-prob-scale {_PERCENTS} ecn",
        _step_in,
        curve_at,
        int,
    ),
    "guarantees": Word(rf"[0-9]+(?: [0-9]+){{{QUEUE_COUNT - 1}}}", _guarantees_in, _row, tuple),
    "trust": Word(f"{TRUSTED}|{UNTRUSTED}"),
    "foreign-trust": Word("dot1p|ip-precedence"),
    "policy": Word("|".join(POLICIES)),
    "class": Word(OWN_CLASS.pattern.replace("(", "(?:")),
    "family": Word("|".join(FAMILIES)),
    "match": Word(f"match any|match ip dscp (?:{_DSCP})"),
    "action": Word(f"{ASSIGN}|{MARK}"),
    "argument": Word(_DSCP),
    "prefix": Word("[0-9.]{7,15} [0-9.]{7,15}", _prefix_in, _prefix, IPv4Network),
    "hop": Word(f"[0-9.]{{7,15}}|{NULL_INTERFACE}", _next_hop_in, _next_hop),
    "words": Word("(?s:.*)"),
}
_RED: Final = "random-detect queue-parms {@queue} "
_AVERAGING: Final = "random-detect exponential-weighting-constant "


def _default_phase(_old: Any, new: Any) -> Phase:
    """On a way back to another queue than background's, ports that trust nothing trust again first."""
    return Phase.FORGET if int(new) else Phase.BACKGROUND


_PRIORITY: Final = "classofservice dot1p-mapping {@priority} "
_DSCP_MAP: Final = "classofservice ip-dscp-mapping {@dscp} "
_ATTACH: Final = "service-policy in {@policy}"
_CLASS_MAP: Final = "class-map match-all {@class} {@family}"
_POLICY_MAP: Final = "policy-map {@policy} in"
_INSTANCE: Final = "class {@class}"
_STATIC: Final = "ip route {@prefix} {@hop}"


def _of_policy(what: str, text: str, undo: str, *modes: str, use: Use = Use.PLANNED) -> Line:
    return Line(what, text, use=use, phase=Phase.POLICY, undo=undo, of_switch=True, modes=modes)


_LINES: Final = (
    Line(AVERAGE, f"{_AVERAGING}0", 0, phase=Phase.AVERAGE),
    Line(AVERAGE, f"{_AVERAGING}{{number}}", use=Use.FOREIGN, phase=Phase.AVERAGE),
    Line(SERVICE, "cos-queue strict {@queue}", STRICT),
    Line(SERVICE, "no cos-queue strict {@queue}", WEIGHTED),
    Line(CURVE, f"{_RED}{{step}}"),
    Line(CURVE, f"{_RED}{{words}}", use=Use.FOREIGN),
    Line(DETECT, "cos-queue random-detect {@queue}", True, phase=Phase.DETECT),
    Line(DETECT, "no cos-queue random-detect {@queue}", False, phase=Phase.LOOSEN),
    Line(
        MINIMUMS, "cos-queue min-bandwidth {guarantees}", undo=f"cos-queue min-bandwidth{' 0' * QUEUE_COUNT}"
    ),
    Line(ATTACHED, _ATTACH, undo=f"no {_ATTACH}"),
    Line(BIND, f"{_PRIORITY}{{queue}}", phase=_default_phase),
    Line(BIND, f"{_PRIORITY}{{number}}", use=Use.SHOWN),
    Line(TRUST, "classofservice trust {trust}"),
    Line(TRUST, "classofservice trust {foreign-trust}", use=Use.FOREIGN),
    Line(MAP, f"{_DSCP_MAP}{{queue}}", of_switch=True),
    Line(MAP, f"{_DSCP_MAP}{{number}}", use=Use.SHOWN, of_switch=True),
    _of_policy(CLASS, _CLASS_MAP, "no class-map {@class}"),
    # A match and what is done with a class go with the class: order.py makes that anew.
    _of_policy(MATCH, "{@match}", "no {@match}", _CLASS_MAP),
    _of_policy(POLICY, _POLICY_MAP, "no policy-map {@policy}"),
    _of_policy(INSTANCE, _INSTANCE, f"no {_INSTANCE}", _POLICY_MAP),
    _of_policy(ACTION, "{@action} {argument}", "no {@action}", _POLICY_MAP, _INSTANCE),
    _of_policy(ACTION, "{@action} {words}", "no {@action}", _POLICY_MAP, _INSTANCE, use=Use.FOREIGN),
    Line(ROUTE, _STATIC, undo=f"no {_STATIC}", of_switch=True),
    Line(DISTANCE, f"{_STATIC} {{@words}}", use=Use.FOREIGN, undo=f"no {_STATIC}", of_switch=True),
    Line(DEFAULT_PRIORITY, "vlan priority {number}", use=Use.SHOWN),
    Line(SHAPER, "traffic-shape {words}", use=Use.SHOWN),
    Line(CAP, "bandwidth maximum {number} % of queue {@queue}", use=Use.SHOWN),
    Line(FOREIGN_LINE, "{@words}", use=Use.SHOWN),
)


def class_name(dscp: int | None, family: str) -> str:
    """Name of mltswitch's class of one DSCP (None: of all), for one version of IP."""
    return f"mltswitch-{'any' if dscp is None else dscp}-{family}"


_QUEUES: Final = frozenset({AVERAGE, SERVICE, CURVE, DETECT, MINIMUMS})
_DIFFSERV: Final = frozenset({CLASS, MATCH, POLICY, INSTANCE, ACTION})
_HOST_CLASSES: Final = [class_name(dscp, family) for dscp in range(DSCP_COUNT) for family in FAMILIES]
_UNTRUSTED_CLASSES: Final = [class_name(None, family) for family in FAMILIES]
_SHEET: Final = Sheet(
    words=_WORDS,
    lines=_LINES,
    blocks=(
        Block(_QUEUES, "\n! queues of {port}"),
        Block(frozenset({MAP}), "\n! classification"),
        Block(
            _DIFFSERV,
            "\n! what hosts may not use becomes background",
            places=frozenset({HOST_POLICY, *_HOST_CLASSES}),
        ),
        Block(
            _DIFFSERV,
            "\n! what ports send that are not trusted becomes background",
            places=frozenset({UNTRUSTED_POLICY, *_UNTRUSTED_CLASSES}),
        ),
        Block(frozenset({ATTACHED, BIND, TRUST}), "\n! what {port} believes"),
        Block(frozenset({ROUTE, DISTANCE}), "\n! routes"),
    ),
    comment=re.compile(r"![ -~]*|"),
    port_mode="interface {port}",
    leave=LEAVE,
)


@cache
def _sheet_of_scale(percent_bytes: int) -> Sheet:
    return replace(_SHEET, preamble=f"! 1 % of a threshold is {percent_bytes} B")


def sheet_for(capabilities: Capabilities) -> Sheet:
    """The sheet of FASTPATH's lines, for files that begin with what a percent is on this hardware."""
    return _sheet_of_scale(capabilities.threshold.step_bytes)


def check_expressible(state: SwitchState) -> None:
    """Refuse what FASTPATH cannot express at all; raises UnsupportedPlanError."""
    for queues, (first, *_) in groupby(state.ports, attrgetter("queues")):
        for queue in queues[:-1]:
            # A guaranteed queue is weighted, and a weighted one is served after all strict ones.
            if queue.minimum is not None:
                raise UnsupportedPlanError(
                    "only background, the last queue, can have a guarantee",
                    where=f"port {first.name}, queue {queue.queue}",
                )
    rewriting_map(state, "FASTPATH")


def facts_of(state: SwitchState, capabilities: Capabilities) -> Facts:
    """The facts that a state asks for, in the order of the rendered file."""
    facts: dict[str, PortFacts] = {}
    for _, ports in groupby(state.ports, attrgetter("queues", "trusted", "rewritten")):
        first, *others = ports
        own = _port_facts(first, capabilities.threshold.step_bytes)
        facts |= dict.fromkeys((port.name for port in (first, *others)), own)
    planned = rewriting_map(state, "FASTPATH")
    queue_of = {dscp: queue for queue, dscps in planned.dscps.items() for dscp in dscps}
    own = {(MAP, dscp): queue_of[dscp] for dscp in sorted(queue_of)}
    moved = planned.remap.dscps if planned.remap else ()
    attached = set(map(policy_of, state.ports))
    for policy, dscps in ((HOST_POLICY, moved), (UNTRUSTED_POLICY, None)):
        if policy in attached:
            background = state.ports[0].queues[-1].queue
            own |= _policy_facts(policy, Entrance(dscps, background, state.background_dscp))
    return facts | {SWITCH: {**own, **route_facts(state.routes)}}


def _port_facts(port: PortState, step_bytes: int) -> PortFacts:
    facts: dict[Fact, Any] = {(AVERAGE,): 0}
    guarantees = [0] * QUEUE_COUNT
    for queue in port.queues:
        facts[SERVICE, queue.queue] = WEIGHTED if queue.minimum else STRICT
        if queue.ecn_threshold_bytes is not None:
            facts[CURVE, queue.queue] = queue.ecn_threshold_bytes // step_bytes
        facts[DETECT, queue.queue] = queue.ecn_threshold_bytes is not None
        if isinstance(queue.minimum, PortShare):
            guarantees[queue.queue] = queue.minimum.percent
    if any(guarantees):
        facts[MINIMUMS,] = tuple(guarantees)
    if policy := policy_of(port):
        facts[ATTACHED, policy] = None
    return {**facts, (BIND, 0): port.queues[-1].queue, (TRUST,): TRUSTED if port.trusted else UNTRUSTED}


def dscp_of(name: str) -> int | None:
    """The DSCP in the name of a class of mltswitch's; None: it has all DSCPs, or is a foreign class."""
    match = OWN_CLASS.fullmatch(name)
    return int(match[1]) if match and match[1].isdecimal() else None


def _policy_facts(policy: str, does: Entrance) -> PortFacts:
    """Our classes, and a policy that does the same with each of them."""
    facts: dict[Fact, Any] = {}
    instances: dict[Fact, Any] = {(POLICY, policy): None}
    for dscp in (None,) if does.dscps is None else does.dscps:
        for family in FAMILIES:
            name = class_name(dscp, family)
            facts[CLASS, name, family] = None
            facts[MATCH, name, family, "match any" if dscp is None else f"match ip dscp {dscp}"] = None
            instances[INSTANCE, policy, name] = None
            instances[ACTION, policy, name, ASSIGN] = str(does.queue)
            if does.dscp is not None:
                instances[ACTION, policy, name, MARK] = str(does.dscp)
    return facts | instances


def _entrance(facts: PortFacts, policy: str) -> Entrance | None:
    """What a policy does, where it does no more than a plan asks, for both versions of IP alike."""
    names = {fact[2]: None for fact in facts if fact[:2] == (INSTANCE, policy)}
    first = next(iter(names), "")
    queue, dscp = (facts.get((ACTION, policy, first, action), "") for action in (ASSIGN, MARK))
    if not (re.fullmatch("[0-6]", queue) and re.fullmatch("[0-9]{0,2}", dscp)):
        return None
    dscps = tuple(sorted({dscp for dscp in map(dscp_of, names) if dscp is not None}))
    does = Entrance(None if policy == UNTRUSTED_POLICY else dscps, int(queue), int(dscp) if dscp else None)
    own = {
        fact: value
        for fact, value in facts.items()
        if fact[0] in _DIFFSERV and fact[1] in (names if fact[0] in {CLASS, MATCH} else {policy})
    }
    return does if own == _policy_facts(policy, does) else None


def planned_state(facts: Facts, capabilities: Capabilities) -> SwitchState:
    """The state of a rendered file; raises LineError for a port without a queue."""
    queues: dict[str, list[int]] = {}
    for port, own in facts.items():
        if port != SWITCH:
            queues[port] = sorted((fact[1] for fact in own if fact[0] == SERVICE), reverse=True)
            if not queues[port]:
                raise LineError(0, "", f"lacks the line 'cos-queue strict' of interface {port}")
    return _state({SWITCH: {}, **facts}, queues, capabilities)


def running_state(facts: Facts, wanted: SwitchState, capabilities: Capabilities) -> SwitchState:
    """The state that a device's facts give the wanted ports and queues."""
    queues = {port.name: [queue.queue for queue in port.queues] for port in wanted.ports}
    return _state(facts, queues, capabilities, wanted.background_dscp)


def _state(
    facts: Facts, queues: Mapping[str, list[int]], capabilities: Capabilities, planned_dscp: int | None = None
) -> SwitchState:
    """What the facts mean for these queues of ports, the last of which is background's.

    A policy that rewrites to another code point than the planned one is reported.
    """
    switch, step_bytes = facts[SWITCH], capabilities.threshold.step_bytes
    queue_of = tuple(switch.get((MAP, dscp), DEFAULT_PRIORITIES[dscp >> 3]) for dscp in range(DSCP_COUNT))
    entrances = {policy: _entrance(switch, policy) for policy in POLICIES}
    attached = {port: attached_policy(facts[port]) for port in queues}
    dscp = dscp_set_by(entrances.get(policy) for policy in attached.values())
    expected_dscp = dscp if planned_dscp is None else planned_dscp
    known: dict[int, PortState] = {}
    for port, numbers in queues.items():
        own, policy = facts[port], attached[port]
        if id(own) not in known:
            does = entrances.get(policy)
            faults = does.faults(numbers[-1], expected_dscp) if does else ()
            unexpected = (
                *_reports(own, numbers[-1]),
                *(f"service-policy in {policy}, which {fault}" for fault in faults),
                *(
                    [f"service-policy in {policy}, whose lines are not the plan's"]
                    if policy and not does
                    else []
                ),
                *(words for queue in numbers for words in _queue_reports(own, queue)),
                *_foreign_lines(own),
            )
            dscps = code_points(does.applied(queue_of) if does else queue_of)
            states = tuple(_queue(own, queue, dscps.get(queue, ()), step_bytes) for queue in numbers)
            trusted, rewritten = own.get((TRUST,)) == TRUSTED, does.rewritten if does else ()
            known[id(own)] = PortState("", trusted, None, states, unexpected, rewritten)
    return SwitchState(
        tuple(replace(known[id(facts[port])], name=port) for port in queues),
        routes_of(switch),
        background_dscp=dscp,
        unexpected=tuple(_foreign_lines(switch)),
    )


def _queue(facts: PortFacts, queue: int, dscps: tuple[int, ...], step_bytes: int) -> QueueState:
    curve = facts.get((CURVE, queue))
    detects = facts.get((DETECT, queue))
    threshold = curve * step_bytes if detects and isinstance(curve, int) else None
    percent = facts[MINIMUMS,][queue] if (MINIMUMS,) in facts else 0
    return QueueState(queue, dscps, threshold, Unlimited(), PortShare(percent) if percent else None)


def attached_policy(facts: PortFacts) -> str:
    """Name of mltswitch's policy on a port; empty: none."""
    return next((fact[1] for fact in facts if fact[0] == ATTACHED), "")


def _foreign_lines(facts: PortFacts) -> Iterator[str]:
    return (_SHEET.report(fact, None) for fact in facts if fact[0] == FOREIGN_LINE)


def _reports(facts: PortFacts, background: int) -> list[str]:
    """What no plan asks for of the port as a whole."""
    whats = (TRUST, DEFAULT_PRIORITY, BIND, SHAPER, AVERAGE)
    found = {fact[0]: _SHEET.report(fact, value) for fact, value in facts.items() if fact[0] in whats}
    queue = facts.get((BIND, 0), background)
    found[BIND] = "" if queue == background else f"classofservice dot1p-mapping 0 {queue}"
    return [found[what] for what in whats if found.get(what)]


def _queue_reports(facts: PortFacts, queue: int) -> Iterator[str]:
    """What no plan asks for of one queue, in the words of FASTPATH."""
    is_strict = facts.get((SERVICE, queue)) == STRICT
    is_guaranteed = (MINIMUMS,) in facts and facts[MINIMUMS,][queue] > 0
    if is_strict and is_guaranteed:
        yield f"cos-queue strict {queue}, where its minimum bandwidth may not count"
    if not is_strict and not is_guaranteed:
        yield f"no cos-queue strict {queue}"
    for fact in ((CAP, queue), (CURVE, queue)):
        if fact in facts and (fact[0] == CAP or facts.get((DETECT, queue))):
            yield from filter(None, [_SHEET.report(fact, facts[fact])])
