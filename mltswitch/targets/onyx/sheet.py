"""The configuration lines of Onyx, the facts that they set, and what the facts mean as state.

A packet gets a switch-priority from its DSCP where the port on which it arrives trusts layer 3; on the port
on which it leaves, the switch-priority is bound to a traffic class, the queue. An untrusted port gives all
packets the port's own switch-priority (`qos trust port`): trust L2, the default, would believe the priority
in a VLAN tag. A trusted port gives it to what has no DSCP, ARP for one. So it has to be 0, background, on
both. Each port has its own map from DSCP: ports of hosts may lead CS6 and CS7 elsewhere than those of
switches.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from mltswitch.capabilities import Capabilities, Unlimited
from mltswitch.targets.addresses import address_text, ipv4_address, ipv4_network, network_text
from mltswitch.targets.engine.facts import (
    BIND,
    DISTANCE,
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
from mltswitch.targets.engine.line import Line, Use, Word
from mltswitch.targets.engine.routes import route_facts, routes_of
from mltswitch.targets.engine.sheet import Block, Sheet
from mltswitch.targets.onyx.capabilities import LOSSLESS
from mltswitch.targets.onyx.order import TRUSTED, TRUSTING, UNTRUSTED, Phase
from mltswitch.targets.remap import code_points, lossless_queues
from mltswitch.targets.state import PortState, QueueState, SwitchState
from mltswitch.units import KIBIBYTE
from mltswitch.wire.tos import DSCP_COUNT

PREAMBLE: Final = "no cli default prefix-modes enable"
"""The first line of every change, which switches prefix modes off.

With prefix modes, `interface ethernet 1/1 …` may open a sub-mode, and later lines mean something else. The
setting is outside the plan, and saved with the rest: it changes the command line of all later sessions, not
what is forwarded.
"""
PORT_NAME: Final = re.compile(r"[1-9][0-9]?/[1-9][0-9]?(?:/[1-4])?")
NOT_OURS: Final = "set by somebody else, not ours to remove"
REWRITE: Final = "rewrite"
DEFAULT_PRIORITY: Final = "default priority"
SHAPER: Final = "shaper"
GUARANTEE: Final = "bandwidth guaranteed"
CAP: Final = "bandwidth shape"
Threshold = int | tuple[str, str, int, int] | None
"""The ECN threshold S in bytes where RED/ECN is as in plans, else control, mode and two thresholds in KB
or %; None: off.
"""
LARGEST_KB: Final = 9_999_999
"""The largest threshold of a rendered file, in KB."""


def _code_points_in(text: str) -> tuple[int, ...]:
    dscps = tuple(map(int, text.split()))
    if max(dscps) >= DSCP_COUNT or len(set(dscps)) < len(dscps):
        raise ValueError(f"not a list of different code points below {DSCP_COUNT}")
    return dscps


def _next_hop_in(text: str) -> str:
    return text if text == "null0" else address_text(ipv4_address(text))


_WORDS: Final = {
    "port": Word(PORT_NAME.pattern),
    "traffic-class": Word("[0-7]", int, holds=int),
    "priority": Word("[0-7]", int, holds=int),
    "dscps": Word(
        "[0-9]{1,2}(?: [0-9]{1,2})*", _code_points_in, lambda dscps: " ".join(map(str, dscps)), tuple
    ),
    "trust": Word(f"{TRUSTED}|{UNTRUSTED}"),
    "foreign-trust": Word("L2|both"),
    "weight": Word("wrr [1-9][0-9]{0,2}"),
    "control": Word("red|ecn|both"),
    "mode": Word("absolute|relative"),
    "minimum": Word(
        "[1-9][0-9]{0,6}", lambda text: int(text) * KIBIBYTE, lambda size: str(size // KIBIBYTE), int
    ),
    "low": Word("[0-9]+", int, holds=int),
    "high": Word("[0-9]+", int, holds=int),
    "prefix": Word("[0-9.]{7,15}/[0-9]{1,2}", ipv4_network, network_text),
    "hop": Word("[0-9.]{7,15}|null0", _next_hop_in),
    "words": Word("(?s:.*)"),
}


def _threshold_phase(old: Threshold, new: Threshold) -> Phase:
    """LOOSEN where the queue drops no packet that it keeps now."""
    if new is None or old is None:
        return Phase.LOOSEN if new is None else Phase.TIGHTEN
    (old_control, old_mode, _, old_maximum), (control, mode, minimum, _) = (
        ("both", "absolute", red // KIBIBYTE, red // KIBIBYTE) if isinstance(red, int) else red
        for red in (old, new)
    )
    comparable = old_mode == mode == "absolute" and old_control != "ecn" and control in {"both", old_control}
    return Phase.LOOSEN if comparable and minimum >= old_maximum else Phase.TIGHTEN


def threshold_of(control: str, mode: str, minimum: int, maximum: int) -> Threshold:
    """The value of a queue's threshold fact for RED/ECN that is on."""
    is_planned = (control, mode, maximum) == ("both", "absolute", minimum) and 0 < minimum <= LARGEST_KB
    return minimum * KIBIBYTE if is_planned else (control, mode, minimum, maximum)


def _trust_phase(_old: Any, new: Any) -> Phase:
    return Phase.TRUST if new in TRUSTING else Phase.DISTRUST


_CLASS: Final = "traffic-class {@traffic-class} "
_RED: Final = _CLASS + "congestion-control "
_STATIC: Final = "ip route vrf default {@prefix} {@hop}"
_NO_STATIC: Final = f"no {_STATIC}"
SHEET: Final = Sheet(
    words=_WORDS,
    lines=(
        Line(SERVICE, _CLASS + "dcb ets strict", STRICT),
        Line(SERVICE, _CLASS + "dcb ets {weight}", use=Use.FOREIGN),
        Line(SERVICE, _CLASS + "dcb ets {words}", use=Use.SHOWN),
        Line(
            THRESHOLD,
            _RED + "both minimum-absolute {minimum} maximum-absolute {maximum=minimum}",
            phase=_threshold_phase,
        ),
        Line(
            THRESHOLD,
            _RED + "{control} minimum-{mode} {low} maximum-{mode=mode} {high}",
            use=Use.FOREIGN,
            phase=_threshold_phase,
        ),
        Line(THRESHOLD, f"no {_RED}".rstrip(), phase=_threshold_phase),
        Line(REWRITE, "no qos rewrite dscp", value=False),
        Line(REWRITE, "qos rewrite dscp", value=True, use=Use.FOREIGN),
        Line(BIND, "traffic-class {traffic-class} bind switch-priority {@priority}", phase=Phase.BIND),
        Line(MAP, "qos map dscp {@dscps*} to switch-priority {priority}", phase=Phase.MAP),
        Line(TRUST, "qos trust {trust}", phase=_trust_phase),
        Line(TRUST, "qos trust {foreign-trust}", use=Use.FOREIGN, phase=_trust_phase),
        Line(TRUST, "qos trust {words}", use=Use.SHOWN),
        Line(ROUTE, _STATIC, phase=Phase.ROUTE, undo=_NO_STATIC, undo_phase=Phase.FORGET, of_switch=True),
        Line(
            DISTANCE,
            _STATIC + " {@words}",
            None,
            Use.FOREIGN,
            Phase.ROUTE,
            _NO_STATIC,
            Phase.FORGET,
            of_switch=True,
        ),
        Line(DEFAULT_PRIORITY, "default switch-priority {words}", use=Use.SHOWN),
        Line(SHAPER, "bandwidth shape {words} Mbps", use=Use.SHOWN),
        Line(GUARANTEE, f"{_CLASS}BW Gr.(Mbps) {{words}} ({NOT_OURS})", use=Use.SHOWN),
        Line(CAP, f"{_CLASS}BW Sh.(Mbps) {{words}} ({NOT_OURS})", use=Use.SHOWN),
        Line(FOREIGN_LINE, f"{{@words}} ({NOT_OURS})", use=Use.SHOWN),
    ),
    blocks=(
        Block(frozenset({SERVICE, THRESHOLD}), "\n## queues of ethernet {port}"),
        Block(frozenset({REWRITE, BIND, MAP, TRUST}), "\n## classification on ethernet {port}"),
        Block(frozenset({ROUTE, DISTANCE}), "\n## routes"),
    ),
    of_port="interface ethernet {port} ",
    comment=re.compile(r"##[ -~]*|"),
    preamble=PREAMBLE,
)


def facts_of(state: SwitchState, _capabilities: Capabilities) -> Facts:
    """The facts that a state asks for, in the order of the rendered file."""
    facts: dict[str, PortFacts] = {}
    for (queues, trusted), ports in groupby(state.ports, attrgetter("queues", "trusted")):
        own = _port_facts(queues, TRUSTED if trusted else UNTRUSTED)
        facts |= dict.fromkeys((port.name for port in ports), own)
    return facts | {SWITCH: route_facts(state.routes)}


def _port_facts(queues: Sequence[QueueState], trust: str) -> PortFacts:
    facts: dict[Fact, Any] = {}
    for queue in queues:
        if not queue.is_lossless:
            facts[SERVICE, queue.queue] = STRICT
            facts[THRESHOLD, queue.queue] = queue.ecn_threshold_bytes
    facts[REWRITE,] = False
    for queue in queues:
        facts[BIND, queue.queue] = queue.queue
        facts |= dict.fromkeys(((MAP, dscp) for dscp in queue.dscps), queue.queue)
    return {**facts, (TRUST,): trust}


def planned_state(facts: Facts, _capabilities: Capabilities) -> SwitchState:
    """The state of a rendered file; ports that share their facts share their queues."""
    known: dict[int, PortState] = {}
    for port, own in facts.items():
        if port != SWITCH and id(own) not in known:
            known[id(own)] = _planned_port(own)
    ports = (replace(known[id(own)], name=port) for port, own in facts.items() if port != SWITCH)
    return SwitchState(tuple(ports), routes_of(facts.get(SWITCH, {})))


def _planned_port(facts: PortFacts) -> PortState:
    """A port of a rendered file: traffic classes 3 and 4 without a service line are a lossless class."""
    configured = {place[0] for what, *place in facts if what in {SERVICE, THRESHOLD}}
    led = {value for (what, *_), value in facts.items() if what == BIND}
    lossless = lossless_queues(LOSSLESS, configured, led)
    queues = sorted((led | configured).difference(lossless), reverse=True)
    return _port("", facts, [*queues[:-1], *lossless, *queues[-1:]], lossless)


def running_state(facts: Facts, wanted: SwitchState, _capabilities: Capabilities) -> SwitchState:
    """The state that a device's facts give the wanted ports and queues."""
    ports = []
    for port in wanted.ports:
        lossless = [queue.queue for queue in port.queues if queue.is_lossless]
        ports.append(_port(port.name, facts[port.name], [queue.queue for queue in port.queues], lossless))
    return SwitchState(tuple(ports), routes_of(facts[SWITCH]), unexpected=tuple(_foreign(facts[SWITCH])))


def _foreign(facts: PortFacts) -> Iterator[str]:
    return (SHEET.report(fact, None) for fact in facts if fact[0] == FOREIGN_LINE)


def _port(name: str, facts: PortFacts, queues: Sequence[int], lossless: Collection[int]) -> PortState:
    """One port; what is not set is as delivered (Onyx user manual, Quality of Service).

    Of the queues in `lossless` the code points alone count.
    """
    priorities = (facts.get((MAP, dscp), dscp >> 3) for dscp in range(DSCP_COUNT))
    dscps = code_points(facts.get((BIND, priority), priority) for priority in priorities)
    places: list[Fact] = [(what,) for what in (TRUST, DEFAULT_PRIORITY, SHAPER, REWRITE)]
    states: list[QueueState] = []
    for queue in queues:
        is_lossless = queue in lossless
        red = None if is_lossless else facts.get((THRESHOLD, queue))
        threshold = red if isinstance(red, int) else None
        states.append(
            QueueState(queue, dscps.get(queue, ()), threshold, Unlimited(), is_lossless=is_lossless)
        )
        if not is_lossless:
            places += ((what, queue) for what in (SERVICE, GUARANTEE, CAP, THRESHOLD))
    reports = (SHEET.report(fact, facts[fact]) for fact in places if fact in facts)
    unexpected = (*filter(None, reports), *_foreign(facts))
    return PortState(name, facts.get((TRUST,)) == TRUSTED, None, tuple(states), unexpected)
