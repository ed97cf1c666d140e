"""Reads an Enterprise SONiC switch's answers as facts.

One answer has it all: `show running-configuration` prints every map, policy and binding that exists, and
there are no defaults that it would leave out. It is indented, or pasted without indentation and without what
leaves a mode. Lines in it that concern neither queues nor our routes are somebody else's and stay.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, PreflightError
from mltswitch.targets.base import Lossless, RunningState
from mltswitch.targets.common import Key, unknown_box
from mltswitch.targets.dell_sonic import sheet
from mltswitch.targets.dell_sonic.capabilities import BOX_CHIPS, QUEUE_COUNT
from mltswitch.targets.dell_sonic.sheet import Tree, objects_in
from mltswitch.targets.dell_sonic.state import bound_by, policies_of, queues_of_code_points, running_state
from mltswitch.targets.engine.facts import FOREIGN_LINE, SWITCH, Fact, Facts, PortFacts
from mltswitch.targets.engine.parse import running_line
from mltswitch.targets.foreign import touches_port, touches_switch
from mltswitch.targets.remap import code_points
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SwitchState

QUERY: Final = "show running-configuration"
VERSION: Final = "show version"
_BOX_LINE: Final = re.compile(r"^[ \t]*(?:Platform|HwSKU)[ \t]*: *(\S+)", re.IGNORECASE | re.MULTILINE)
"""As in Dell's user guides, `Platform : x86_64-dellemc_s5232f_c3538-r0`, `HwSKU : DellEMC-S5232f-C32`."""
_INTERFACE: Final = "interface "
_ROUTE: Final = "ip route "
_SPLIT_PORT: Final = re.compile(r"interface (Eth|Ethernet) ([0-9/]+)")
_FLOW_KEYWORDS: Final = ("description", "match", "class", "set", "police")
_KEYWORDS: Final = {
    f"{sheet.WRED} ": ("green", "yellow", "red", "ecn"),
    f"{sheet.SCHEDULER} ": ("type", "weight", "cir", "pir", "cbs", "pbs", "meter-type"),
    "qos map ": ("dscp", "dot1p", "traffic-class", "pfc-priority"),
    _INTERFACE: (
        *("queue", "scheduler-policy", "qos-map", "priority-flow-control", "flowcontrol", "service-policy"),
    ),
    f"{sheet.CLASS} ": _FLOW_KEYWORDS,
    f"{sheet.POLICY} ": _FLOW_KEYWORDS,
}
"""What opens a mode → first words of the lines that it has, as far as they matter here."""
_INNER: Final = {sheet.SCHEDULER: re.compile(r"queue [0-9]{1,2}|port"), sheet.POLICY: re.compile("class .*")}
"""Beginning of what opens a mode → what opens a mode in it."""
_DSCP_NAMES: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(1, 8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "default": 0,
    "ef": 46,
    "voice-admit": 44,
}
"""Code points that a switch shows by name where it matches them."""
_KNOWN_OF_PORT: Final = re.compile(
    r"priority-flow-control watchdog .*|flowcontrol (?:receive|send) off|ars .*"
)
"""What acts on priorities with flow control alone; adaptive routing."""
_KNOWN: Final = re.compile(
    r"buffer init lossless|roce enable(?: force-defaults)?|priority-flow-control watchdog .*"
)
"""Of the switch: what makes queues 3 and 4 lossless, for good, which no plan uses otherwise (HLD)."""
_BYTES: Final = "meter-type bytes"
"""What rates count anyway."""


def queries_for(_wanted: SwitchState) -> tuple[str, ...]:
    """The commands whose answers `read_answers` needs: the running configuration, and the hardware model."""
    return (QUERY, VERSION)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """The running state of the wanted ports and queues that exist, and the static routes within the plan.

    Raises DeviceError for what cannot be read, for flow control on a queue of the plan, and for a policy-map
    of somebody else where the plan needs its own.
    """
    facts = running_facts(answers, wanted, capabilities)
    notes = tuple(_check_box(answers[VERSION], capabilities.hardware)) if wanted.ports else ()
    objects = objects_in(facts[SWITCH])
    lossless: list[Lossless] = []
    for port in wanted.ports:
        if port.name in facts:
            own = facts[port.name]
            used = {queue.queue for queue in port.queues if not queue.is_lossless}
            lossless += _check_flow_control(objects, own, port.name, used)
            for name in policies_of(own):
                if port.rewritten and not name.startswith(sheet.PREFIX):
                    raise PreflightError(
                        f"it has the policy-map {name} where the plan needs its own: a port takes one",
                        where=f"port {port.name}",
                        hint="take it off first: `no service-policy type qos in`",
                    )
            if (sheet.MEMBER,) in own:
                raise PreflightError(
                    f"is a member of a LAG (channel-group {own[sheet.MEMBER,]}): queues and maps are those "
                    "of the PortChannel, which the plan cannot name",
                    where=f"port {port.name}",
                    hint="take it out first: `no channel-group`",
                )
    state = running_state(facts, wanted, capabilities)
    return RunningState(state, answers, notes, lossless=tuple(lossless))


def _check_box(answer: str, hardware: str) -> Iterator[str]:
    """A note about a box that nobody knows; raises DeviceError for one that is known to have another chip."""
    named = _BOX_LINE.search(answer)
    name = named[1] if named else ""
    chip = next((chip for box, chip in BOX_CHIPS.items() if box in name.lower()), "")
    if chip and chip != hardware:
        raise DeviceError(
            f"is a {name}, hardware {chip}; nothing was sent",
            where=VERSION,
            expected=f"{hardware}, for which the plan was made",
            hint="correct ansible_host if another box answers there; else `hardware` in the fabric file",
        )
    if not chip:
        yield unknown_box(name, hardware)


def _check_flow_control(objects: Tree, own: PortFacts, name: str, used: set[int]) -> Iterator[Lossless]:
    """Priorities with flow control that the plan leaves alone; raises PreflightError for others."""

    def mapped(kind: str, priority: int) -> int:
        entries: Mapping[int, int] = objects[kind].get(own.get((sheet.OTHER_MAP, kind)), {})
        return entries.get(priority, priority)

    for priority in range(QUEUE_COUNT) if (sheet.ASYMMETRIC,) in own else ():
        if (queue := mapped(sheet.PAUSE_QUEUE_MAP, priority)) in used:
            raise PreflightError(
                f"asymmetric flow control heeds pause frames of every priority, and that of priority "
                f"{priority} pauses queue {queue} of the plan",
                where=f"port {name}",
                hint="switch it off first: `no priority-flow-control asymmetric`",
            )
    groups: Mapping[int, int] = objects[sheet.GROUP_MAP].get(own.get((sheet.OTHER_MAP, sheet.GROUP_MAP)), {})
    for priority in sorted(fact[1] for fact in own if fact[0] == sheet.PAUSED):
        queue, group = mapped(sheet.PAUSE_QUEUE_MAP, priority), mapped(sheet.PAUSE_GROUP_MAP, priority)
        # A pause frame holds back a queue, and senders of the group's traffic classes are paused.
        senders = {traffic_class for traffic_class in groups if groups[traffic_class] == group}
        for what, numbers in (("queue", {queue}), ("traffic class", senders)):
            if shared := used & numbers:
                raise PreflightError(
                    f"flow control is on for priority {priority}, which pauses {what} "
                    f"{min(shared)} of the plan: a wred-policy drops packets of a lossless queue",
                    where=f"port {name}",
                    hint=f"switch it off for it first: `no priority-flow-control priority {priority}`",
                )
        maps = (own.get((sheet.PORT_MAP, kind), "") for kind in (sheet.DSCP_MAP, sheet.QUEUE_MAP))
        dscps = code_points(queues_of_code_points(objects, *maps))
        yield Lossless(name, priority, dscps.get(queue, ()))


def running_facts(answers: Mapping[str, str], wanted: SwitchState, _capabilities: Capabilities) -> Facts:
    """All facts of the wanted ports that exist, all objects, the plan's routes, and unknown lines.

    Raises DeviceError for an answer that is empty or cannot be read.
    """
    sections = _sections(answers)
    known: dict[tuple[Key, ...], PortFacts] = {}
    ports: dict[str, PortFacts] = {}
    of_switch: dict[Fact, Any] = {}
    for opener, lines in sections.items():
        if opener.startswith(_INTERFACE):
            key = tuple(lines)
            if key not in known:
                known[key] = dict(_port_facts(lines))
            ports[opener.removeprefix(_INTERFACE)] = known[key]
        elif opener:
            of_switch |= _object(opener, lines)
    if not ports:
        raise DeviceError("the answer has no interface", where=QUERY, expected="lines `interface Eth1/1`")
    planned = {port.name: ports[port.name] for port in wanted.ports if port.name in ports}
    elsewhere = {name: own for name, own in ports.items() if name not in planned}
    for own in elsewhere.values():
        of_switch |= dict.fromkeys((sheet.USED_ELSEWHERE, name) for name in bound_by(own))
    of_switch |= _of_switch(sections[""], wanted)
    beginnings = tuple(f"{name}." for name in planned)  # of sub-interfaces
    if any("switchport" in words for name in planned for _, words in sections[f"{_INTERFACE}{name}"]):
        beginnings = ("Vlan", *beginnings)
    for name, own in elsewhere.items():
        if name.startswith(beginnings):
            policies = (f"service-policy type qos in {policy}" for policy in policies_of(own))
            foreign = (*policies, *(fact[1] for fact in own if fact[0] == FOREIGN_LINE))
            of_switch |= dict.fromkeys((FOREIGN_LINE, f"interface {name}: {line}") for line in foreign)
    return {SWITCH: of_switch, **planned}


def _sections(answers: Mapping[str, str]) -> dict[str, list[Key]]:
    """Lines with their modes by what opens the outermost one; those of the whole switch under "".

    Without indentation, a section has only such lines as it can have, and lines of the whole switch cannot be
    told from those in sections of others, so routes alone count.
    """
    lines = answers[QUERY].splitlines()
    is_indented = any(line[:1].isspace() and line.strip("! ") for line in lines)
    sections: dict[str, list[Key]] = {"": []}
    modes: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    for line in lines:
        words = " ".join(line.split())
        if "interface Eth" in words:
            words = _SPLIT_PORT.sub(r"interface \1\2", words)
        is_outside = not line[:1].isspace()
        if not words or words.startswith("!") or not (is_outside or modes):
            continue  # the last are in a section that is nobody's here
        opener = next(filter(words.startswith, _KEYWORDS), None) if is_outside else None
        if opener is not None:
            modes, keywords = (words,), _KEYWORDS[opener]
            sections.setdefault(words, [])
        elif is_outside and is_indented:
            modes = ()
            sections[""].append((modes, words))
        elif modes and any(modes[0].startswith(kind) and _INNER[kind].fullmatch(words) for kind in _INNER):
            modes = (modes[0], words)
        elif modes and (is_indented or words.partition(" ")[0] in keywords):
            sections[modes[0]].append((modes, words))
        elif words.startswith(_ROUTE):
            sections[""].append(((), words))
    return sections


def _object(opener: str, lines: Sequence[Key]) -> Iterator[tuple[Fact, Any]]:
    """An object and what stands in it; of ours also lines that nobody knows."""
    existing = running_line(sheet.SHEET, (), opener, of_switch=True)
    if existing is None:
        return
    yield from existing.facts
    _, name = existing.facts[0][0]
    seen: dict[Fact, Any] = {}
    for modes, words in lines:
        first, _, last = words.rpartition(" ")
        text = f"{first} {_DSCP_NAMES.get(last, last)}" if first == "match dscp" else words
        try:
            written = running_line(sheet.SHEET, modes, text, of_switch=True)
        except ValueError:
            written = None
        if written is not None and words != _BYTES:
            part = running_line(sheet.SHEET, modes[:-1], modes[-1], of_switch=True)
            yield from (*(part.facts if part else ()), *written.facts)
            is_flow = written.line.what in {sheet.CLASS, sheet.POLICY}
            if is_flow and any(seen.setdefault(*entry) != entry[1] for entry in written.facts):
                yield (sheet.STRANGE, name, words), None
        elif written is None and name.startswith(sheet.PREFIX):
            yield (sheet.STRANGE, name, words), None


def _port_facts(lines: Sequence[Key]) -> Iterator[tuple[Fact, Any]]:
    for _, words in lines:
        try:
            written = running_line(sheet.SHEET, (), words, of_switch=False)
        except ValueError:
            raise DeviceError(f"cannot read {words!r}", where=QUERY) from None
        if written is not None:
            yield from written.facts
        elif touches_port(words) and not _KNOWN_OF_PORT.fullmatch(words):
            yield (FOREIGN_LINE, words), None


def _of_switch(lines: Sequence[Key], wanted: SwitchState) -> Iterator[tuple[Fact, Any]]:
    """Our routes, the plan's first, and lines of the whole switch that nobody knows."""
    own = OwnPrefixes(wanted.routes)
    routes: dict[RouteState, tuple[Fact, Any]] = {}
    for _, words in lines:
        if words.startswith((f"{_ROUTE}vrf ", f"{_ROUTE}distance ")):
            continue
        if words.startswith(_ROUTE):
            try:
                written = running_line(sheet.SHEET, (), words, of_switch=True)
            except ValueError as error:
                raise DeviceError(f"cannot read {words!r}: {error}", where=QUERY) from None
            if written is None:
                raise DeviceError(f"cannot read {words!r}", where=QUERY)
            route = sheet.route_of(*written.facts[0][0])
            if route.prefix in own:
                routes[route] = written.facts[0]
        elif touches_switch(words) and not _KNOWN.fullmatch(words):
            yield (FOREIGN_LINE, words), None
    yield from (routes[route] for route in in_order_of(wanted.routes, routes))
