"""The lines of Enterprise SONiC, the facts that they set, and the facts that plans ask for.

A packet gets its traffic class by the dscp-tc map of the port where it arrives, and its queue by the tc-queue
map, which is the same on every port of a plan. The queue's wred-policy marks or drops, the port's scheduler
policy serves, and a policy-map rewrites code points as packets arrive. All of them are named objects that
ports share. The names of mltswitch's objects are made of their contents, so that none is ever changed: a port
goes from one object to the next by one line, and an object that no port refers to any more is removed. Names
have at most 32 characters of A-Z, a-z, 0-9, - and _ (sonic-wred-profile.yang, sonic_types.xml).

That an object exists is a fact of the switch, such as ("qos wred-policy", NAME), and so it is of a part that
has a mode; its lines are facts in it, such as ("qos wred-policy", NAME, "ecn") → "all". As a tree, that is
{"qos wred-policy": {NAME: {"ecn": "all"}}}.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from mltswitch.capabilities import BitRate, Capabilities
from mltswitch.targets.addresses import address_text, ipv4_address, ipv4_network, network_text
from mltswitch.targets.common import NO_NEXT_HOP, numbers_in
from mltswitch.targets.dell_sonic.capabilities import BITS_OF_KBPS, KILOBYTE, QUEUE_COUNT
from mltswitch.targets.engine.facts import ROUTE, SWITCH, Fact, Facts, PortFacts
from mltswitch.targets.engine.line import Line, Use, Word
from mltswitch.targets.engine.sheet import Block, Sheet
from mltswitch.targets.state import QueueState, RouteState, SwitchState, every_dscp_but
from mltswitch.wire.tos import DSCP_COUNT

PREFIX: Final = "mltswitch-"
"""Prefix of the names of all objects that mltswitch makes, and of no others."""
TRUSTED: Final = f"{PREFIX}dscp-"
UNTRUSTED: Final = f"{PREFIX}untrusted-"
QUEUES_NAME: Final = f"{PREFIX}queues"
"""Name of mltswitch's tc-queue map, which is always the same."""
CLASS_NAME: Final = f"{PREFIX}class-"
ANY: Final = "any"
"""Part of the name of a class-map without a match, which fits any packet (FBS)."""
IDENTITY: Final[Mapping[int, int]] = {number: number for number in range(QUEUE_COUNT)}
"""Traffic class N → queue N: mltswitch's map, which a port without a map is taken to have, too."""
BLACKHOLE: Final = "blackhole"
"""The target of a route that drops packets."""
PORT_NAME: Final = re.compile(r"Eth1/[1-9][0-9]{0,2}(?:/[1-9][0-9]?)?|Ethernet(?:0|[1-9][0-9]{0,3})")
"""Port names: `Eth1/1`, a part of a broken-out port `Eth1/1/1`, or with native names `Ethernet0`."""

WRED: Final = "qos wred-policy"
SCHEDULER: Final = "qos scheduler-policy"
DSCP_MAP: Final = "dscp-tc"
QUEUE_MAP: Final = "tc-queue"
GROUP_MAP: Final = "tc-pg"
PAUSE_QUEUE_MAP: Final = "pfc-priority-queue"
PAUSE_GROUP_MAP: Final = "pfc-priority-pg"
CLASS: Final = "class-map"
POLICY: Final = "policy-map"
_MAP_WORDS: Final = {
    DSCP_MAP: ("dscp {@numbers*} traffic-class {number}",),
    QUEUE_MAP: ("traffic-class {@numbers*} queue {number}",),
    GROUP_MAP: ("traffic-class {@numbers*} priority-group {number}", "traffic-class {@numbers*} pg {number}"),
    PAUSE_QUEUE_MAP: ("pfc-priority {@numbers*} queue {number}",),
    PAUSE_GROUP_MAP: (
        "pfc-priority {@numbers*} pg {number}",
        "pfc-priority {@numbers*} priority-group {number}",
    ),
}
"""Kind of a map → its lines. Other kinds classify by something else, or overwrite the DSCP."""
MAPS: Final = frozenset(_MAP_WORDS)
OBJECTS: Final = (WRED, SCHEDULER, *_MAP_WORDS, CLASS, POLICY)
"""Keywords of the kinds of objects, in the order of a rendered file."""
PORT_SECTION: Final = "port"
"""The part of a scheduler policy that shapes the whole port; the others are numbers of queues."""

QUEUE_WRED: Final = "wred-policy of a queue"
PORT_SCHEDULER: Final = "scheduler-policy of a port"
PORT_MAP: Final = "qos-map of a port"
OTHER_MAP: Final = "other qos-map of a port"
"""Name of the fact of a port's map of a kind that no plan binds."""
PORT_POLICY: Final = "policy-map of a port"
"""Name of a fact: (policy-map of a port, name) → None. A port takes another after it has none."""
PAUSED: Final = "priorities with flow control"
ASYMMETRIC: Final = "asymmetric flow control"
MEMBER: Final = "member of a LAG"
STRANGE: Final = "line in an object of ours"
"""Name of a fact: (line in an object of ours, name, line) → None, an unknown line in mltswitch's object."""
USED_ELSEWHERE: Final = "object of another port"
"""Name of a fact: (object of another port, name) → None, for an object that a port outside the plan binds."""

Tree = Mapping[Any, Any]
"""Kind of object → its name → its parts and lines."""
Attributes = Mapping[str, str]
"""First word of a line → the words after it, such as `type` → `strict`."""


class Exists(Enum):
    """The value of a fact that says that an object, or a part of one, exists."""

    OBJECT = 1
    PART = 2


class Phase(IntEnum):
    """The moments of a change at which a line can be entered, in order; passage.py says why."""

    CREATE = 0
    LOOSEN = 1
    SCHEDULE = 2
    DISTRUST = 3
    MAP = 4
    SETTLE = 5
    REFINE = 6
    TIGHTEN = 7
    ROUTE = 8
    REMOVE = 9


def numbers_of(text: str) -> tuple[int, ...]:
    """The numbers, up to 63, in a list such as `0-2,5`; raises ValueError for what is no such list."""
    return tuple(number for part in text.split(",") for number in numbers_in(part, DSCP_COUNT))


def number_list(numbers: int | Iterable[int]) -> str:
    """Numbers in ascending order as klish prints them: `0-2,5`."""
    ranges: list[list[int]] = []
    for number in [numbers] if isinstance(numbers, int) else sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _section_in(text: str) -> int | str:
    return text if text == PORT_SECTION else int(text.removeprefix("queue "))


_LEG: Final = r"(?:interface (?:[A-Za-z]+ )?\S+|nexthop-vrf \S+)"
"""What names a route beside its next hop, where other words do not; `PortChannel 10` stands with a space."""
_NAME: Final = Word(r"\S+")
_WORDS: Final = {
    "port": Word(PORT_NAME.pattern),
    "name": _NAME,
    "kind": Word(f"{DSCP_MAP}|{QUEUE_MAP}"),
    "other-kind": _NAME,
    "bound": _NAME,
    "attribute": Word("green|yellow|red|ecn"),
    "service": Word("type|weight|cir|pir|cbs|pbs|meter-type"),
    "lag": Word("[0-9]+(?: .*)?"),
    "words": Word(r"\S.*"),
    "section": Word(
        f"queue [0-9]{{1,2}}|{PORT_SECTION}",
        _section_in,
        lambda section: section if section == PORT_SECTION else f"queue {section}",
    ),
    "queue": Word("[0-9]{1,2}", int),
    "number": Word("[0-9]{1,2}", int, holds=int),
    "numbers": Word("[0-9,-]{1,200}", numbers_of, number_list, tuple),
    "flow": Word(r"\S.*"),
    "phrase": Word(r"\S.*"),
    "last": _NAME,
    "prefix": Word("[0-9./]{7,31}", lambda text: network_text(ipv4_network(text, strict=False))),
    "target": Word(rf"(?:[0-9.]{{7,15}}|{BLACKHOLE})(?: {_LEG})*|{_LEG}(?: {_LEG})*|\S+"),
    "others": Word("(?: .*)?"),
}


def _line(what: str, text: str, phase: Phase, *modes: str, undo: str = "") -> Line:
    """A line of the switch, and what is taken back by `no` before it."""
    exists, no = Exists.PART if modes else Exists.OBJECT, f"no {undo}" if undo else ""
    return Line(what, text, exists, Use.PLANNED, phase, no, phase, of_switch=True, modes=modes)


def _map_lines(kind: str, texts: Iterable[str]) -> Iterator[Line]:
    opener = f"qos map {kind} {{@name}}"
    yield _line(kind, opener, Phase.REMOVE, undo=opener)
    for text in texts:
        yield _line(kind, text, Phase.MAP, opener, undo=text.partition("*")[0] + "}")


def _on_port(
    what: str, text: str, phase: Phase | Callable[[Any, Any], Phase], undo: str, undo_phase: Phase
) -> Line:
    return Line(what, text, None, Use.PLANNED, phase, f"no {undo}", undo_phase)


def _map_phase(_old: str | None, new: str) -> Phase:
    return Phase.DISTRUST if new.startswith(UNTRUSTED) else Phase.MAP


_WRED: Final = f"{WRED} {{@name}}"
_SCHEDULER: Final = f"{SCHEDULER} {{@name}}"
_CLASS: Final = f"{CLASS} {{@name}} match-type fields match-all"
_POLICY: Final = f"{POLICY} {{@name}} type qos"
_FLOW: Final = "class {@flow}"
_ROUTE: Final = "ip route {@prefix} {@target}"
_QUEUE_WRED: Final = "queue {@queue} wred-policy"
_IN: Final = "service-policy type qos in"
SHEET: Final = Sheet(
    words=_WORDS,
    lines=(
        _line(WRED, _WRED, Phase.REMOVE, undo=_WRED),
        _line(WRED, "{@attribute} {words}", Phase.TIGHTEN, _WRED, undo="{@attribute}"),
        _line(SCHEDULER, _SCHEDULER, Phase.REMOVE, undo=_SCHEDULER),
        _line(SCHEDULER, "{@section}", Phase.REFINE, _SCHEDULER, undo="{@section}"),
        _line(SCHEDULER, "{@service} {words}", Phase.REFINE, _SCHEDULER, "{@section}", undo="{@service}"),
        *(line for kind, texts in _MAP_WORDS.items() for line in _map_lines(kind, texts)),
        _line(CLASS, _CLASS, Phase.REMOVE, undo=f"{CLASS} {{@name}}"),
        _line(CLASS, "{@phrase} {last}", Phase.MAP, _CLASS),
        _line(POLICY, _POLICY, Phase.REMOVE, undo=f"{POLICY} {{@name}}"),
        _line(POLICY, _FLOW, Phase.MAP, _POLICY),
        _line(POLICY, "{@phrase} {last}", Phase.MAP, _POLICY, _FLOW),
        _on_port(QUEUE_WRED, f"{_QUEUE_WRED} {{bound}}", Phase.TIGHTEN, _QUEUE_WRED, Phase.LOOSEN),
        _on_port(PORT_SCHEDULER, "scheduler-policy {bound}", Phase.SETTLE, "scheduler-policy", Phase.SETTLE),
        _on_port(PORT_MAP, "qos-map {@kind} {bound}", _map_phase, "qos-map {@kind}", Phase.DISTRUST),
        _on_port(PORT_POLICY, f"{_IN} {{@name}}", Phase.MAP, _IN, Phase.DISTRUST),
        Line(OTHER_MAP, "qos-map {@other-kind} {bound}", use=Use.SHOWN),
        Line(PAUSED, "priority-flow-control priority {@numbers*}", use=Use.SHOWN),
        Line(MEMBER, "channel-group {lag}", use=Use.SHOWN),
        Line(ASYMMETRIC, "priority-flow-control asymmetric", use=Use.SHOWN),
        _line(ROUTE, f"{_ROUTE}{{@others}}", Phase.ROUTE, undo=_ROUTE),
    ),
    blocks=(
        Block(frozenset(OBJECTS)),
        Block(frozenset({QUEUE_WRED, PORT_SCHEDULER, PORT_MAP, PORT_POLICY}), heading=""),
        Block(frozenset({ROUTE}), heading=""),
    ),
    comment=re.compile(" *(?:![ -~]*)?"),
    port_mode="interface {port}",
    leave="exit",
    indentation=" ",
    preamble="! thresholds in KB of 1000 B, rates in kbit/s",
)


def facts_in(tree: Tree, *place: Any) -> Iterator[tuple[Fact, Any]]:
    """The facts in nested mappings of objects: the keys on the way to a value are the place of its fact."""
    for key, value in tree.items():
        if not isinstance(value, Mapping):
            yield (*place, key), value
            continue
        if place:
            yield (*place, key), Exists(len(place))
        yield from facts_in(value, *place, key)


def objects_in(facts: PortFacts) -> Tree:
    """The inverse of `facts_in`: all objects in the facts of a switch, with an entry for every kind."""
    tree: dict[Any, Any] = {kind: {} for kind in OBJECTS}
    for (what, *place), value in facts.items():
        if what in tree:
            part = tree[what]
            for key in place[:-1]:
                part = part.setdefault(key, {})
            if isinstance(value, Exists):
                part.setdefault(place[-1], {})
            else:
                part[place[-1]] = value
    return tree


def facts_of(state: SwitchState, _capabilities: Capabilities) -> Facts:
    """The facts that a state asks for, in the order of the rendered file."""
    ports: dict[str, PortFacts] = {}
    thresholds: set[int] = set()
    objects: dict[str, dict[str, Any]] = {kind: {} for kind in OBJECTS}
    flows: dict[Fact, Any] = {}
    sharing = attrgetter("queues", "trusted", "rewritten")
    for (queues, trusted, rewritten), alike in groupby(state.ports, sharing):
        marking = {queue.queue: queue.ecn_threshold_bytes for queue in queues if queue.ecn_threshold_bytes}
        scheduler, dscp_map = scheduler_of(queues), dscp_map_of(queues, trusted=trusted)
        own: dict[Fact, Any] = {(QUEUE_WRED, queue): wred_of(size)[0] for queue, size in marking.items()}
        own[PORT_SCHEDULER,], own[PORT_MAP, DSCP_MAP] = scheduler[0], dscp_map[0]
        own[PORT_MAP, QUEUE_MAP] = QUEUES_NAME
        thresholds.update(marking.values())
        objects[SCHEDULER] |= [scheduler]
        # Beside an untrusted port's map stands the one that it would have, so that the file says it.
        objects[DSCP_MAP] |= [dscp_map_of(queues, trusted=True), dscp_map]
        if rewritten:
            name, facts = rewriting_of(rewritten, state.background_dscp)
            own[PORT_POLICY, name] = None
            flows |= facts
        ports |= dict.fromkeys((port.name for port in alike), own)
    objects[WRED] |= map(wred_of, sorted(thresholds))
    objects[QUEUE_MAP] |= {QUEUES_NAME: IDENTITY} if ports else {}
    routes = dict.fromkeys(map(_route_fact, state.routes), Exists.OBJECT)
    return {SWITCH: {**dict(facts_in(objects)), **dict(sorted(flows.items())), **routes}, **ports}


def wred_of(threshold_bytes: int) -> tuple[str, Attributes]:
    """Name and lines of the wred-policy for one ECN threshold; its lines have it in KB."""
    kilobytes = threshold_bytes // KILOBYTE
    step = f"minimum-threshold {kilobytes} maximum-threshold {kilobytes} drop-probability 100"
    return f"{PREFIX}wred-{kilobytes}", {"green": step, "ecn": "all"}


def scheduler_of(queues: Iterable[QueueState]) -> tuple[str, Tree]:
    """Name and parts of the scheduler policy with the order, minimum and maximum of these queues."""
    own = [queue for queue in queues if not queue.is_lossless]
    content = tuple((queue.queue, str(queue.minimum), str(queue.maximum)) for queue in own)
    sections = {queue.queue: {"type": "strict"} for queue in own}
    for queue in own:
        for word, rate in (("pir", queue.maximum), ("cir", queue.minimum)):
            if isinstance(rate, BitRate):
                sections[queue.queue][word] = str(rate.bps // BITS_OF_KBPS)
    return f"{PREFIX}strict-{digest(content)}", sections


def dscp_map_of(queues: Sequence[QueueState], *, trusted: bool) -> tuple[str, Mapping[int, int]]:
    """Name and entries of a port's dscp-tc map, where traffic class N is queue N.

    The map of an untrusted port believes no DSCP, and its name tells which map the port would have if
    trusted.
    """
    name = digest(tuple((queue.queue, queue.dscps) for queue in queues))
    if trusted:
        return TRUSTED + name, {dscp: queue.queue for queue in queues for dscp in queue.dscps}
    return UNTRUSTED + name, dict.fromkeys(range(DSCP_COUNT), queues[-1].queue)


def rewriting_of(dscps: tuple[int, ...], background_dscp: int) -> tuple[str, PortFacts]:
    """Name and facts of the policy-map that rewrites these code points to background's.

    It has a class-map for each code point of IPv4 and of IPv6 packets, or one for any packet.
    """
    name = f"{PREFIX}rewrite-{digest((background_dscp, *dscps))}"
    matches: dict[int | str, Attributes] = {dscp: {"match dscp": str(dscp)} for dscp in dscps}
    if dscps == every_dscp_but(background_dscp):
        matches = {ANY: {"description": ANY}}
    classes = {f"{CLASS_NAME}{match}": lines for match, lines in matches.items()}
    flows = {f"{each} priority 10": {"set dscp": str(background_dscp)} for each in classes}
    return name, dict(facts_in({CLASS: classes, POLICY: {name: flows}}))


@lru_cache(maxsize=1024)
def digest(content: tuple[object, ...]) -> str:
    """The hash of an object's content, with which the object's name ends."""
    return sha256(repr(content).encode()).hexdigest()[:8]


def _route_fact(route: RouteState) -> Fact:
    hop = address_text(route.next_hop)
    way = f"{hop} interface {route.port}" if route.port else hop
    return (ROUTE, network_text(route.prefix), BLACKHOLE if route.discards else way, "")


def route_of(_what: str, prefix: str, target: str, others: str) -> RouteState:
    """The route of a fact; its `port` holds whatever stands beside the next hop, such as a distance."""
    words, next_hop = target.split(), NO_NEXT_HOP
    try:
        next_hop = ipv4_address(words[0])
    except ValueError:
        words = [] if words == [BLACKHOLE] and not others else words
    else:
        words = words[1:]
    words = [word for word in (*words, *others.split()) if word != "interface"]
    return RouteState(ipv4_network(prefix), next_hop, " ".join(words))
