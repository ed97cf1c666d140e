"""Reads an EOS switch's answers as facts.

All managed settings stand in `show running-config`; what is left out there is as delivered. States of config
sessions and the model are read from JSON.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.addresses import ipv4_network
from mltswitch.targets.base import Identity, RunningState
from mltswitch.targets.common import NOT_SAVED, Key, json_in, known_form
from mltswitch.targets.engine.facts import (
    FOREIGN_LINE,
    ROUTE,
    SERVICE,
    STRICT,
    SWITCH,
    THRESHOLD,
    Fact,
    Facts,
    PortFacts,
)
from mltswitch.targets.engine.parse import running_line
from mltswitch.targets.engine.sheet import Sheet
from mltswitch.targets.eos.capabilities import BOX_CHIPS, R_SERIES, TRAFFIC_CLASSES, queue_word
from mltswitch.targets.eos.mapping import MAPS_AS_DELIVERED, USED_ELSEWHERE, running_state
from mltswitch.targets.eos.preflight import check_preflight
from mltswitch.targets.eos.sessions import SESSIONS, read_sessions, waiting_sessions
from mltswitch.targets.eos.sheet import (
    CLASSES,
    INDENTATION,
    OF_QUEUES,
    OTHER,
    POLICY_OF_HEAD,
    ROUTED,
    route_of,
    route_text,
    sheet_for,
)
from mltswitch.targets.foreign import touches_port, touches_switch
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import PortState, RouteState, SwitchState

RUNNING_CONFIG: Final = "show running-config"
VERSION: Final = "show version | json"
HOSTNAME: Final = "show hostname | json"
UNSAVED: Final = "show running-config diffs"
"""The query for what runs and is not in the startup configuration; its answer is empty where all is saved."""

_FREE_TEXT: Final = re.compile(r"(?:banner (?:login|motd)|action bash|comment)")
"""Lines after which free text follows, up to a line `EOF`."""
_MAP_OF_OTHERS: Final = re.compile(
    r"qos map (?:exp .*|(?:dscp|cos) to traffic-class name .*"
    r"|traffic-class .* to (?:cos|dscp|exp|mc-tx-queue|pause-group|priority-group) .*)"
)
"""Maps that lead none of our packets to a queue; a named one counts where a port takes it."""
_ROUTE: Final = re.compile(
    r"ip route (?:vrf (?P<vrf>\S+) )?(?P<address>[0-9.]+)(?:/(?P<length>[0-9]+)| (?P<mask>[0-9.]+))"
    r"(?P<way>(?: .*)?)"
)
_VLAN: Final = "interface Vlan"
_POLICY: Final = re.compile(r"service-policy type qos input (\S+)")
_HARMLESS: Final = frozenset({"class class-default", "counters per-entry", "statistics per-entry"})
"""What may stand in a policy of ours."""
_KNOWN: Final = re.compile(
    r"mc-tx-queue [0-7]|priority-flow-control (?:(?:mode )?on|priority [0-7] (?:no-)?drop|pause watchdog.*)"
    r"|flowcontrol (?:receive|send) off|dcbx mode .*"
)
"""Of a port: queues for packets to several receivers, flow control that `preflight` reads, its watchdog
(AVD's tested qos.cfg), what DCBX tells."""
_KNOWN_GLOBAL: Final = re.compile(
    r"qos map .*|qos profile .*|qos rewrite cos|(?:policy|class)-map .*|traffic-policies|queue-monitor .*"
    r"|priority-flow-control (?:all off|pause watchdog .*)|interface .*|(?:ip|ipv6|mac) access-list .*"
    r"|(?!qos ).* qos dscp .*|hardware (?:counter|tcam|port-group|speed-group) .*"
    r"|platform trident mmu queue profile \S+"
)
"""Of the switch: maps, which are read; what only does something where it is bound; PFC; measuring; the tag's
priority; and the DSCP of the switch's own packets (EOS manual, Quality of Service; AVD's tested qos.cfg)."""


def placed_lines(text: str) -> Iterator[Key]:
    """Each line that is no comment, with the modes around it, found by indentation; free text is left out."""
    modes: list[str] = []
    in_free_text = False
    # Not splitlines: a configuration ends a line at a line feed only.
    for line in text.split("\n"):
        stripped = line.strip(" \r")
        if in_free_text:
            in_free_text = stripped != "EOF"
            continue
        if not stripped or stripped.startswith("!"):
            continue
        depth = (len(line) - len(line.lstrip(" "))) // len(INDENTATION)
        del modes[depth:]
        yield tuple(modes), stripped
        modes.append(stripped)
        in_free_text = _FREE_TEXT.fullmatch(stripped) is not None


def identify(answers: Mapping[str, str]) -> Identity:
    """The identity that the switch reports; raises DeviceError.

    The fields are those that napalm's driver reads for its facts. A vEOS has no serial number and answers an
    empty one: its system MAC address stands there.
    """
    with known_form(HOSTNAME):
        name = str(json_in(answers[HOSTNAME])["hostname"])
    with known_form(VERSION):
        shown = json_in(answers[VERSION])
        serial = str(shown.get("serialNumber") or shown.get("systemMacAddress", ""))
        return Identity(name, serial, str(shown["modelName"]), str(shown["version"]))


def queries_for(_wanted: SwitchState) -> tuple[str, ...]:
    """The commands for the running configuration, its unsaved part, the config sessions, and the model."""
    return (RUNNING_CONFIG, UNSAVED, SESSIONS, VERSION)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """The running state of the wanted ports and queues, and the routes within the plan.

    Raises DeviceError for what cannot be read, for a port that is not there or is a member of a port channel,
    and for settings of the whole switch or PFC that break what the plan promises.
    """
    notes = [*_hardware_notes(answers, capabilities.hardware), *_unsaved_notes(answers)]
    lines = list(placed_lines(answers[RUNNING_CONFIG]))
    if ((), "end") not in lines:  # one in a banner is no end
        shown = answers[RUNNING_CONFIG].strip().rpartition("\n")[2][:80]
        raise DeviceError(
            f"is cut short: {shown!r} is its last line", where=RUNNING_CONFIG, expected="a line `end`"
        )
    waiting = waiting_sessions(read_sessions(answers[SESSIONS]))
    facts = running_facts(answers, wanted, capabilities)
    lossless = tuple(check_preflight(lines, wanted, facts))
    state = running_state(facts, wanted, capabilities)
    return RunningState(state, answers, tuple(notes), tuple(map(_unconfirmed, waiting)), lossless)


def _unconfirmed(session: str) -> str:
    return (
        f"config session {session} waits to be confirmed, and the switch undoes it when its timer runs out: "
        f"push again, or `configure session {session} commit` and `write memory`; "
        f"`configure session {session} abort` undoes it now"
    )


def _unsaved_notes(answers: Mapping[str, str]) -> Iterator[str]:
    if any(line.strip() for line in answers[UNSAVED].splitlines()):
        yield NOT_SAVED


def hardware_of(model: str) -> set[str]:
    """The chip names of a box; its model text also says how it is cooled and equipped (DCS-7050CX3-32S-F)."""
    name = model.lower().removeprefix("dcs-")
    if name.startswith(R_SERIES) and "r" in name.partition("-")[0]:
        return {"jericho"}
    return {chip for box, chip in BOX_CHIPS.items() if name == box or name.startswith(f"{box}-")}


def _hardware_notes(answers: Mapping[str, str], wanted: str) -> Iterator[str]:
    with known_form(VERSION):
        model = str(json_in(answers[VERSION])["modelName"])
    if not hardware_of(model):
        yield f"whether {model} has the chip {wanted}, for which the plan was made, is not known"


def running_facts(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> Facts:
    """The facts of the wanted ports, the switch's maps, mltswitch's policies and routes, and unknown lines.

    Maps, service and thresholds are complete; of other settings, defaults are left out. Raises DeviceError.
    """
    sheet = sheet_for(capabilities)
    own: dict[str, list[Key]] = {f"interface {port.name}": [] for port in wanted.ports}
    switch: dict[Fact, Any] = dict(MAPS_AS_DELIVERED)
    present: dict[str, None] = {}
    for modes, text in placed_lines(answers[RUNNING_CONFIG]):
        head = modes[0] if modes else ""
        of_port = own.get(head.partition(".")[0])
        if not head:
            present[text] = None
            if text in POLICY_OF_HEAD or (text.startswith("qos map ") and not _MAP_OF_OTHERS.fullmatch(text)):
                switch |= _of_switch(sheet, text)
            elif touches_switch(text) and not _KNOWN_GLOBAL.fullmatch(text):
                switch[FOREIGN_LINE, text] = None
        elif head in own:
            own[head].append((modes, text))
        elif of_port is not None and touches_switch(text):
            of_port.append(((head,), f"{head}: {text}"))
        elif head in POLICY_OF_HEAD:
            switch |= _of_object(sheet, modes, text)
        elif (match := _POLICY.fullmatch(text)) and match[1] in CLASSES:
            switch[USED_ELSEWHERE, match[1]] = None
        if head.startswith(_VLAN) and touches_switch(text):
            switch[FOREIGN_LINE, f"{head}: {text}"] = None
    for head in own:
        if head not in present:
            raise DeviceError(f"there is no {head}", where=RUNNING_CONFIG)
    word = queue_word(capabilities)
    facts = {port.name: _of_port(sheet, own[f"interface {port.name}"], port, word) for port in wanted.ports}
    if all((ROUTED,) in each for each in facts.values()):
        switch = {fact: value for fact, value in switch.items() if not _is_of_vlan(fact)}
    lines = (line for line in present if line.startswith("ip route "))
    return facts | {SWITCH: {**switch, **_routes(lines, wanted)}}


def _is_of_vlan(fact: Fact) -> bool:
    return fact[0] == FOREIGN_LINE and str(fact[1]).startswith(_VLAN)


def _said(sheet: Sheet, modes: Sequence[str], text: str, *, of_switch: bool) -> PortFacts | None:
    """The facts that a line sets; None where no line of the sheet does."""
    try:
        written = running_line(sheet, tuple(modes), text, of_switch=of_switch)
    except ValueError:
        return None
    return dict(written.facts) if written else None


def _of_switch(sheet: Sheet, text: str) -> PortFacts:
    facts = _said(sheet, (), text, of_switch=True)
    if facts is None:
        raise DeviceError(f"cannot read {text!r}", where=RUNNING_CONFIG)
    return facts


def _of_object(sheet: Sheet, modes: Sequence[str], text: str) -> PortFacts:
    """What a line says in an object of ours; one below a line of a class goes with that."""
    if text in _HARMLESS or len(modes) > 2:
        return {}
    return _said(sheet, modes, text, of_switch=True) or {(OTHER, modes[0], text): None}


def _of_port(sheet: Sheet, lines: Iterable[Key], port: PortState, word: str) -> PortFacts:
    """Facts of one port and of its queues in the plan; of the last queue whether it is strict."""
    facts: dict[Fact, Any] = {}
    modes_of_queues = {f"{word} {TRAFFIC_CLASSES - 1}": frozenset({SERVICE})}
    for queue in port.queues:
        if not queue.is_lossless:
            facts |= {(SERVICE, queue.queue): STRICT, (THRESHOLD, queue.queue): None}
            modes_of_queues[f"{word} {queue.queue}"] = OF_QUEUES
    for (_, *modes), text in lines:
        said = _said(sheet, modes[:1], text, of_switch=False)
        if modes:
            whats = modes_of_queues.get(modes[0], frozenset())
            facts |= {fact: value for fact, value in (said or {}).items() if fact[0] in whats}
        elif said is not None:
            facts |= said
        elif not re.fullmatch(f"{word} [0-7]", text) and touches_port(text) and not _KNOWN.fullmatch(text):
            facts[FOREIGN_LINE, text] = None
    return facts


def _routes(lines: Iterable[str], wanted: SwitchState) -> PortFacts:
    """Our static routes of the default VRF, those of the plan first."""
    own = OwnPrefixes(wanted.routes)
    found: list[RouteState] = []
    for line in lines:
        match = _ROUTE.fullmatch(line)
        if match is None:
            raise DeviceError(f"cannot read {line!r}", where=RUNNING_CONFIG)
        try:
            prefix = ipv4_network(f"{match['address']}/{match['length'] or match['mask']}", strict=False)
            route = route_of(f"{prefix}{match['way']}")
        except ValueError as error:
            raise DeviceError(f"cannot read {line!r}: {error}", where=RUNNING_CONFIG) from None
        if prefix in own and match["vrf"] in {None, "default"}:
            found.append(route)
    return {(ROUTE, route_text(route)): None for route in in_order_of(wanted.routes, found)}
