"""The configuration lines of EOS, and the order in which a change enters them.

A config session takes effect as a whole when it is committed. Still its lines stand in an order in which they
could be entered one by one: queues get the more lenient of both thresholds and strict service; then ports are
no longer trusted, where they were; then ports get the policy map that they need; then packets are led to the
queues; then policy maps leave ports that should have none; then ports are trusted, because until then they
may trust CoS, which leads to any queue; then thresholds and rates are tightened.

A policy map names class maps, and a class map of EOS names access lists; those of IPv4 and of IPv6 are two
(aristanetworks/avd, tested configuration qos.cfg). `class-default` is what neither of both is (EOS manual,
Traffic Management), so where every packet is meant, an access list says so. The names are mltswitch's, so
it also manages all that stands in these objects.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from mltswitch.capabilities import BitRate, Capabilities, PortShare
from mltswitch.targets.addresses import address_text, ipv4_address, ipv4_network, network_text
from mltswitch.targets.common import NO_NEXT_HOP, NULL_INTERFACE, as_discarding, numbers_in
from mltswitch.targets.engine.facts import (
    BIND,
    MAP,
    ROUTE,
    SERVICE,
    STRICT,
    SWITCH,
    THRESHOLD,
    TRUST,
    Fact,
)
from mltswitch.targets.engine.line import Line, Use, Word, Written
from mltswitch.targets.engine.order import Order, Placed
from mltswitch.targets.engine.sheet import REMEMBERED, Block, Sheet
from mltswitch.targets.eos.capabilities import (
    RATE_STEP_BPS,
    SHARED_QUEUE,
    UNICAST_QUEUE,
    queue_word,
)
from mltswitch.targets.remap import HOST_POLICY, UNTRUSTED_POLICY
from mltswitch.targets.state import RouteState
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"Ethernet[1-9][0-9]{0,2}(?:/[1-9][0-9]?){0,2}")
INDENTATION: Final = "   "
TRUSTED: Final = "dscp"
UNTRUSTED: Final = "none"
COS_MAP: Final = "CoS map"
COS: Final = "CoS"
DSCP: Final = "DSCP"
ROUTED: Final = "routed"
POLICY: Final = "policy"
FOREIGN_POLICY: Final = "foreign policy"
GUARANTEE: Final = "guarantee"
SHARE: Final = "share"
CAP: Final = "cap"
COUNT: Final = "count"
QUEUE_LINE: Final = "foreign line of a queue"
"""Name of a fact: (foreign line of a queue, queue, line) → None, another line that affects the queue."""
OBJECT: Final = "object"
"""Name of a fact: (object, line that opens its mode) → None, an object that mltswitch made."""
ENTRY: Final = "entry"
MATCH: Final = "match"
CLASS: Final = "class"
SET_DSCP: Final = "set dscp"
SET_CLASS: Final = "set traffic-class"
SET: Final = "set"
OTHER: Final = "other line"
OTHER_OF_CLASS: Final = "other line of a class"

CLASSES: Final = {
    HOST_POLICY: ("mltswitch-control-ipv4", "mltswitch-control-ipv6"),
    UNTRUSTED_POLICY: ("mltswitch-any-ipv4", "mltswitch-any-ipv6"),
}
"""Policy map → the names that its access lists and class maps share, one for IPv4 and one for IPv6."""
FAMILY_OF: Final = {
    name: family for names in CLASSES.values() for name, family in zip(names, ("ip", "ipv6"), strict=True)
}
LISTS: Final = {name: f"{FAMILY_OF[name]} access-list {name}" for name in FAMILY_OF}
CLASS_MAPS: Final = {name: f"class-map type qos match-any {name}" for name in FAMILY_OF}
POLICY_MAPS: Final = {policy: f"policy-map type quality-of-service {policy}" for policy in CLASSES}
"""Name of a policy map of mltswitch's → the line that opens its mode."""
POLICY_OF_HEAD: Final = {
    **{head: policy for policy, head in POLICY_MAPS.items()},
    **{
        heads[name]: policy
        for heads in (CLASS_MAPS, LISTS)
        for policy, names in CLASSES.items()
        for name in names
    },
}
"""Line that opens the mode of an object of mltswitch's → the policy map for which the object is; users of an
object stand before it."""
_CODE_POINTS: Final = {
    **{str(dscp): dscp for dscp in range(DSCP_COUNT)},
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "ef": 46,
    "default": 0,
}
_OF_A_CODE_POINT: Final = re.compile(r"(.* dscp) (\S+)")
_WAY: Final = re.compile(r"(?: ([A-Za-z]\S*))?(?: ([0-9.]{7,15}))?(?: (.*))?")
"""Interface, next hop and what else stands behind a prefix, each after a space."""
_Foreign = tuple[int, str, int, str]
"""RED/ECN as no plan has it: minimum, unit, maximum, and what stands behind."""


class Phase(IntEnum):
    """The phases of a change, in the order in which their lines are entered."""

    LOOSEN = 0
    """Thresholds are raised or removed, so that queues drop less than before."""
    SERVE = 1
    SCHEDULE = 2
    MARK = 3
    """Ports that are not trusted get another default CoS and DSCP for their packets."""
    DISTRUST = 4
    CLEAR = 5
    """Lines that are not the plan's are removed from mltswitch's policy maps."""
    POLICY = 6
    REPLACE = 7
    """A policy map is taken off a port that gets another one."""
    ATTACH = 8
    BIND = 9
    MAP = 10
    DETACH = 11
    TRUST = 12
    TIGHTEN = 13
    """Thresholds are set or lowered, so that queues drop more than before."""
    SHARE = 14
    """Others' bandwidth shares come back after the guarantees in their place: a queue has one of both."""
    FORGET = 15
    """What is not planned is removed, and what refers to another object before that object."""
    UNROUTE = 16
    """A route of mltswitch's that differs, in its distance say, is removed before it is added again."""
    ROUTE = 17
    FORGET_ROUTE = 18


class SessionOrder(Order):
    """The order of the lines in a config session."""

    def place_undo(self, port: str, fact: Fact, undo: Written) -> Iterator[Placed]:
        """When the line that undoes a fact is entered; some depend on the lines that follow them."""
        if fact[0] == POLICY and any(what == POLICY for what, *_ in self.then[port]):
            yield (Phase.REPLACE,), undo
        elif fact[0] == OBJECT:
            yield (Phase.FORGET, list(POLICY_OF_HEAD).index(fact[1])), undo
        elif fact[0] == ROUTE and _via(fact) in self._planned_routes:
            yield (Phase.UNROUTE,), undo
        else:
            yield from super().place_undo(port, fact, undo)

    @cached_property
    def _planned_routes(self) -> set[tuple[IPv4Network, IPv4Address]]:
        return {_via(fact) for fact in self.then[SWITCH] if fact[0] == ROUTE}


def _via(route: Fact) -> tuple[IPv4Network, IPv4Address]:
    prefix, next_hop, _ = route_of(route[1])
    return prefix, next_hop


def _code_points_in(text: str) -> tuple[int, ...]:
    dscps = tuple(map(int, text.split()))
    if max(dscps) >= DSCP_COUNT or len(set(dscps)) < len(dscps):
        raise ValueError(f"not a list of different code points below {DSCP_COUNT}")
    return dscps


def _numbers_in(text: str) -> tuple[int, ...]:
    """`8 9 10`, `8,9,10` and `8-10`, of code points also by name."""
    numbers: set[int] = set()
    for word in text.replace(",", " ").split():
        numbers.update((_CODE_POINTS[word],) if word in _CODE_POINTS else numbers_in(word, DSCP_COUNT))
    return tuple(sorted(numbers))


def _code_point_in(text: str) -> int:
    if text not in _CODE_POINTS:
        raise ValueError(f"{text!r} is no code point")
    return _CODE_POINTS[text]


def _entry_in(text: str) -> str:
    """An entry of an access list with its code point as a number."""
    match = _OF_A_CODE_POINT.fullmatch(text)
    return f"{match[1]} {_CODE_POINTS.get(match[2], match[2])}" if match else text


def _route_in(text: str) -> str:
    route_of(text)
    return text


def _listed(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


_WORDS: Final = {
    "port": Word(PORT_NAME.pattern),
    "queue": Word("[0-7]", int, holds=int),
    "share": Word("[1-9][0-9]?|100", lambda text: PortShare(int(text)), lambda s: str(s.percent), PortShare),
    "rate": Word(
        "[1-9][0-9]{0,8}",
        lambda text: BitRate(int(text) * RATE_STEP_BPS),
        lambda rate: str(rate.bps // RATE_STEP_BPS),
        BitRate,
    ),
    "minimum": Word("[1-9][0-9]{0,8}", int, holds=int),
    "low": Word("[0-9]+", int, holds=int),
    "high": Word("[0-9]+", int, holds=int),
    "unit": Word(r"\S+"),
    "rest": Word("(?: max-mark-probability [0-9]+)?(?: weight [0-9]+)?"),
    "cos": Word("[0-7]", int, holds=int),
    "dscp": Word("[0-9]|[1-5][0-9]|6[0-3]", int, holds=int),
    "policy": Word("|".join(CLASSES)),
    "name": Word(r"\S+"),
    "dscps": Word("[0-9]{1,2}(?: [0-9]{1,2})*", _code_points_in, _listed, tuple),
    "listed": Word("[0-9a-z][0-9a-z, -]*", _numbers_in, _listed, tuple),
    "classes": Word("[0-7](?:[ ,-]+[0-7])*", _numbers_in, _listed, tuple),
    "traffic-class": Word("[0-6]", int, holds=int),
    "any-class": Word("[0-7]", int, holds=int),
    "precedence": Word("[1-2]", int, holds=int),
    "head": Word("|".join(POLICY_OF_HEAD)),
    "number": Word("[1-9][0-9]{0,9}", int, holds=int),
    "entry": Word(".*", _entry_in),
    "code-point": Word(r"\S+", _code_point_in, holds=int),
    "action": Word(r"\S+"),
    "words": Word(".*"),
    "route": Word(
        rf"[0-9.]{{7,15}}/[0-9]{{1,2}} (?:{NULL_INTERFACE}|{PORT_NAME.pattern} [0-9.]{{7,15}})", _route_in
    ),
}


def _threshold_phase(old: int | str | _Foreign | None, new: int | str | _Foreign | None) -> Phase:
    """LOOSEN where the queue drops no packet that it keeps now."""
    if new is None or old is None or isinstance(new, str) or isinstance(old, str):
        return Phase.LOOSEN if new is None else Phase.TIGHTEN
    (_, old_unit, old_maximum, _), (minimum, unit, _, _) = (
        (each, "bytes", each, "") if isinstance(each, int) else each for each in (old, new)
    )
    return Phase.LOOSEN if unit == old_unit and minimum >= old_maximum else Phase.TIGHTEN


def _trust_phase(_old: str | None, new: str) -> Phase:
    return Phase.TRUST if new == TRUSTED else Phase.DISTRUST


def _class_phase(old: int | None, _new: int) -> Phase:
    """Where a class leads is changed with the maps; all else in a policy only adds to what it moves."""
    return Phase.POLICY if old is None else Phase.MAP


_DETECT: Final = "random-detect ecn minimum-threshold"
_PLANNED_DETECT: Final = f"{_DETECT} {{minimum}} bytes maximum-threshold {{maximum=minimum}} bytes"
_FOREIGN: Final = Use.FOREIGN
_QUEUE_LINES: Final = (
    Line(SERVICE, "priority strict", STRICT, phase=Phase.SERVE),
    Line(SERVICE, "no priority", "no priority", _FOREIGN, Phase.SERVE),
    *(
        Line(GUARANTEE, text, None, use, Phase.SCHEDULE, "no bandwidth guaranteed", Phase.TIGHTEN)
        for text, use in (
            ("bandwidth guaranteed percent {share}", Use.PLANNED),
            ("bandwidth guaranteed {rate} kbps", _FOREIGN),
            ("bandwidth guaranteed {share} percent", _FOREIGN),
        )
    ),
    Line(GUARANTEE, "bandwidth guaranteed {words}", None, _FOREIGN, Phase.SCHEDULE),
    Line(SHARE, "bandwidth percent {share}", None, _FOREIGN, Phase.SHARE, "no bandwidth percent"),
    *(
        Line(CAP, text, None, use, Phase.TIGHTEN, undo, Phase.LOOSEN)
        for text, use, undo in (
            ("shape rate {rate} kbps", Use.PLANNED, "no shape rate"),
            ("shape rate {share} percent", _FOREIGN, "no shape rate"),
            ("shape rate {words}", _FOREIGN, ""),
        )
    ),
    Line(COUNT, "random-detect ecn count", phase=Phase.SCHEDULE, undo="no random-detect ecn count"),
    Line(THRESHOLD, "no random-detect ecn", phase=_threshold_phase),
    Line(THRESHOLD, f"{_PLANNED_DETECT} max-mark-probability 100 weight 0", phase=_threshold_phase),
    *(
        Line(THRESHOLD, text, None, _FOREIGN, _threshold_phase)
        for text in (
            _PLANNED_DETECT,
            f"{_PLANNED_DETECT} max-mark-probability 100",
            f"{_PLANNED_DETECT} weight 0",
            f"{_DETECT} {{low}} {{unit}} maximum-threshold {{high}} {{high-unit=unit}}{{rest}}",
            f"{_DETECT} {{words}}",
        )
    ),
    Line(QUEUE_LINE, "{@words}", use=Use.SHOWN),
)
_ATTACHED: Final = "service-policy type qos input"
_PORT_LINES: Final = (
    Line(
        POLICY,
        f"{_ATTACHED} {{@policy}}",
        phase=Phase.ATTACH,
        undo=f"no {_ATTACHED} {{@policy}}",
        undo_phase=Phase.DETACH,
    ),
    Line(FOREIGN_POLICY, f"{_ATTACHED} {{@name}}", use=_FOREIGN),
    Line(COS, "qos cos {cos}", phase=Phase.MARK, undo="no qos cos", undo_phase=Phase.MARK),
    Line(DSCP, "qos dscp {dscp}", phase=Phase.MARK, undo="no qos dscp", undo_phase=Phase.MARK),
    *(
        Line(TRUST, text, trust, use, _trust_phase, "default qos trust", Phase.DISTRUST)
        for text, trust, use in (
            ("qos trust dscp", TRUSTED, Use.PLANNED),
            ("no qos trust", UNTRUSTED, Use.PLANNED),
            ("qos trust cos", "cos", _FOREIGN),
        )
    ),
    Line(ROUTED, "no switchport", use=_FOREIGN),
)
_TO_CLASS: Final = "qos map dscp {@listed*} to traffic-class {any-class}"
_IN_OBJECT: Final = ("{@head}",)
_IN_CLASS: Final = ("{@head}", "class {@name}")
_SWITCH_LINES: Final = (
    Line(
        ROUTE,
        "ip route {@route}",
        phase=Phase.ROUTE,
        undo="no ip route {@route}",
        undo_phase=Phase.FORGET_ROUTE,
    ),
    Line(BIND, "qos map traffic-class {@traffic-class} to tx-queue {queue}", phase=Phase.BIND),
    Line(BIND, "qos map traffic-class {@classes*} to tx-queue {queue}", use=_FOREIGN),
    Line(BIND, "qos map traffic-class {@classes*} to uc-tx-queue {queue}", use=_FOREIGN),
    Line(MAP, "qos map dscp {@dscps*} to traffic-class {traffic-class}", phase=Phase.MAP),
    Line(MAP, _TO_CLASS, None, _FOREIGN, Phase.MAP),
    Line(MAP, f"{_TO_CLASS} drop-precedence 0", None, _FOREIGN, Phase.MAP),
    Line(MAP, f"{_TO_CLASS} drop-precedence {{precedence}}", None, _FOREIGN, Phase.MAP),
    Line(COS_MAP, "qos map cos {@classes*} to traffic-class {any-class}", use=_FOREIGN),
    Line(OBJECT, "{@head}", phase=Phase.POLICY, undo="no {@head}"),
    *(
        Line(what, text, phase=Phase.POLICY, undo=undo, undo_phase=undo_phase, modes=modes)
        for what, text, undo, undo_phase, modes in (
            (ENTRY, "{@number} {@entry}", "no {@number}", Phase.DETACH, _IN_OBJECT),
            (MATCH, "match {@words}", "no match {@words}", Phase.CLEAR, _IN_OBJECT),
            (CLASS, "class {@name}", "no class {@name}", Phase.CLEAR, _IN_OBJECT),
            (SET_DSCP, "set dscp {code-point}", "no set dscp", Phase.CLEAR, _IN_CLASS),
        )
    ),
    Line(
        SET_CLASS,
        "set traffic-class {any-class}",
        phase=_class_phase,
        undo="no set traffic-class",
        undo_phase=Phase.CLEAR,
        modes=_IN_CLASS,
    ),
    *(
        Line(what, text, None, _FOREIGN, Phase.POLICY, undo, Phase.CLEAR, modes=modes)
        for what, text, undo, modes in (
            (OTHER, "{@words}", "no {@words}", _IN_OBJECT),
            (SET, "set {@action} {words}", "no set {@action}", _IN_CLASS),
            (OTHER_OF_CLASS, "{@words}", "no {@words}", _IN_CLASS),
        )
    ),
)
OF_QUEUES: Final = frozenset({SERVICE, GUARANTEE, SHARE, CAP, COUNT, THRESHOLD, QUEUE_LINE})
_OF_POLICIES: Final = frozenset(
    {OBJECT, ENTRY, MATCH, CLASS, SET_DSCP, SET_CLASS, SET, OTHER, OTHER_OF_CLASS}
)
_HEADINGS: Final = {
    HOST_POLICY: "! what hosts may not use becomes background",
    UNTRUSTED_POLICY: "! what ports send that are not trusted becomes background",
}


def _sheet(word: str) -> Sheet:
    """The sheet of chips on which this word opens the mode of a queue."""
    return Sheet(
        words=_WORDS,
        lines=(
            *(replace(line, modes=(f"{word} {{@queue}}",)) for line in _QUEUE_LINES),
            *_PORT_LINES,
            *(replace(line, of_switch=True) for line in _SWITCH_LINES),
        ),
        blocks=(
            Block(frozenset(), "! queues", is_always_there=True),
            Block(OF_QUEUES),
            Block(frozenset({BIND, MAP}), "! classification", is_always_there=True),
            *(
                Block(
                    _OF_POLICIES,
                    heading,
                    between="!",
                    places=frozenset(head for head, of in POLICY_OF_HEAD.items() if of == policy),
                )
                for policy, heading in _HEADINGS.items()
            ),
            Block(frozenset({POLICY, COS, DSCP, TRUST})),
            Block(frozenset({ROUTE}), "! routes", is_always_there=True),
        ),
        comment=re.compile(" *(?:![ -~]*)?"),
        port_mode="interface {port}",
        indentation=INDENTATION,
        end_of_mode="!",
    )


_SHEETS: Final = {word: _sheet(word) for word in (UNICAST_QUEUE, SHARED_QUEUE)}


def sheet_for(capabilities: Capabilities) -> Sheet:
    """The sheet of lines that a chip takes."""
    return _SHEETS[queue_word(capabilities)]


def report(fact: Fact, value: object) -> str:
    """The text that reports a fact no plan asks for, the same on all chips; empty if plans can ask for it."""
    return _SHEETS[UNICAST_QUEUE].report(fact, value)


def route_text(route: RouteState) -> str:
    """The text of a route behind `ip route`."""
    target, _, others = route.port.partition(" ")
    if target and not target[0].isalpha():
        target, others = "", route.port
    if route.discards:
        target = NULL_INTERFACE
    hop = "" if route.next_hop == NO_NEXT_HOP else address_text(route.next_hop)
    return " ".join(filter(None, (network_text(route.prefix), target, hop, others)))


@lru_cache(REMEMBERED)
def route_of(text: str) -> RouteState:
    """The route whose text stands behind `ip route`; raises ValueError for an invalid address.

    Text behind the next hop, such as a distance, is in its `port`; Null0 is the next hop 0.0.0.0.
    """
    prefix, space, way = text.partition(" ")
    match = _WAY.fullmatch(space + way)
    target, hop, others = match.groups("") if match else ("", "", way)
    next_hop = ipv4_address(hop) if hop else NO_NEXT_HOP
    port = " ".join(filter(None, (target, others)))
    return as_discarding(RouteState(ipv4_network(prefix), next_hop, port), NULL_INTERFACE)
