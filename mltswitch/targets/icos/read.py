"""Reads a FASTPATH switch's answers as facts.

Queues and maps are read from show commands: they tell what is in force, where `show running-config` leaves
out whatever equals a default that differs between vendors. From the running configuration come static routes,
mltswitch's policies, and of the plan's ports what no show command tells: default priority, PFC, a DSCP map of
the port alone. All other lines in it are somebody else's and stay.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, PreflightError
from mltswitch.targets.base import Identity, Lossless, RunningState
from mltswitch.targets.common import Key, indices_of, is_on, known_form, numbers_in
from mltswitch.targets.engine.facts import (
    BIND,
    FOREIGN_LINE,
    MAP,
    SERVICE,
    STRICT,
    SWITCH,
    TRUST,
    Fact,
    Facts,
    PortFacts,
)
from mltswitch.targets.engine.routes import read_routes
from mltswitch.targets.foreign import touches_port, touches_switch
from mltswitch.targets.icos.capabilities import QUEUE_COUNT, USER_PRIORITIES, model_of
from mltswitch.targets.icos.sheet import (
    ACTION,
    ATTACHED,
    AVERAGE,
    CAP,
    CERTAIN,
    CLASS,
    CURVE,
    DEFAULT_PRIORITIES,
    DEFAULT_PRIORITY,
    DETECT,
    ELSEWHERE,
    FAMILIES,
    INSTANCE,
    LEAVE,
    LENT,
    MATCH,
    MINIMUMS,
    OWN_CLASS,
    POLICY,
    SHAPER,
    TRUSTED,
    WEIGHTED,
    curve_at,
    running_state,
)
from mltswitch.targets.remap import POLICIES, policy_of, rewriting_map
from mltswitch.targets.state import SwitchState
from mltswitch.wire.tos import DSCP_COUNT

RUNNING_CONFIG: Final = "show running-config"
HOSTS: Final = "show hosts"
VERSION: Final = "show version"
_MODEL_FIELDS: Final = ("system model id", "machine model")
"""Of Dell's N-series, and of other FASTPATHs."""
_DSCP_MAP: Final = "show classofservice ip-dscp-mapping"
_TRUST: Final = "show classofservice trust {}"
_PRIORITIES: Final = "show classofservice dot1p-mapping {}"
_QUEUES: Final = "show interfaces cos-queue {}"
_CURVES: Final = "show interfaces random-detect {}"
_PORT_SHOWS: Final = (_TRUST, _PRIORITIES, _QUEUES, _CURVES)

_TRUSTS: Final = {word.replace("-", " "): word for word in ("dot1p", "ip-dscp", "ip-precedence", "untrusted")}
_MANAGEMENTS: Final = {
    **dict.fromkeys(("wred", "random", "random detect"), True),
    **dict.fromkeys(("tail drop", "taildrop"), False),
}
# What repeats is possessive, and lines are stripped before: a line of many blanks is read once.
_MAP_ROW: Final = re.compile(r"([0-9]++)(?:\s*+\([a-z0-9/]+\))?\s++([0-9]++)")
_FIELD: Final = re.compile(r"([A-Za-z][A-Za-z ]*+)\s*+(?:\.{2,}|:)\s*+(\S.*)")
_QUEUE_ROW: Final = re.compile(r"([0-9]+)\s+([0-9]+)\s+(?:([0-9]+)\s+)?(strict|weighted)\s+(\S.*)")
_PERCENTS: Final = r"((?:[0-9]+\s*/\s*){3}[0-9]+)"
_CURVE_ROW: Final = re.compile(
    rf"\s*([0-9]+)\s+{_PERCENTS}\s+{_PERCENTS}\s+{_PERCENTS}(?:\s+(yes|no|enabled|disabled))?\s*"
)
_ROUTE: Final = re.compile(
    r"ip route (?:vrf (?P<vrf>\S+) )?(?P<address>[0-9.]+)(?:/(?P<length>[0-9]+)| (?P<mask>[0-9.]+))"
    r" (?P<target>interface \S+|\S+)(?P<others>.*)"
)
_OTHER_ROUTES: Final = ("ip route default ", "ip route vrf ", "ip route distance ", "ip route static ")
_ATTACHED: Final = re.compile(r"service-policy in (\S+)")
_CLASS_MAP: Final = re.compile(r"class-map match-all (\S+)(?: (ipv4|ipv6))?")
_POLICY_MAP: Final = re.compile(r"policy-map (\S+) in")
_POLICY_MODES: Final = ("class-map ", "policy-map ")
_CODE_POINT: Final = re.compile(r"(match ip6? dscp|mark ip-dscp) (\S+)")
_NAMED: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "be": 0,
    "ef": 46,
}
_PRIORITY: Final = re.compile(r"classofservice dot1p-mapping ([0-7]) ([0-7])")
_FLOW_CONTROL: Final = re.compile(r"(?:storm-control )?flowcontrol(?: (?:symmetric|asymmetric|auto|on))?")
_MEMBER: Final = re.compile(r"(?:channel-group|addport) \S+.*")
_KNOWN: Final = re.compile(
    r"(?:no )?(?:classofservice|cos-queue|random-detect|traffic-shape|vlan priority|service-policy in"
    r"|priority-flow-control mode|datacenter-bridging|diffserv)\b.*"
    r"|priority-flow-control priority .* (?:no-)?drop|(?:interface|class-map|policy-map) .*"
)
"""What show commands tell of each port, what is read of it from the configuration, and what opens a mode."""


def identify(answers: Mapping[str, str]) -> Identity:
    """The identity that the switch reports; raises DeviceError.

    Manuals of NETGEAR and Dell name the field `Host name` of `show hosts`, public captures have the fields
    of `show version`. Dell's N-series prints its release in a table by unit, which is not read.
    """
    name = _fields(answers[HOSTS]).get("host name", "")
    shown = _fields(answers[VERSION])
    if not shown:
        raise DeviceError(
            "has no line that is known", where=VERSION, expected="lines `System Model ID... N4032F`"
        )
    return Identity(
        name,
        shown.get("serial number") or shown.get("burned in mac address", ""),
        _model(shown),
        shown.get("software version", ""),
    )


def _model(fields: Mapping[str, str]) -> str:
    return next((fields[field] for field in _MODEL_FIELDS if field in fields), "")


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """Four show commands for each port; those for DSCP map, running configuration and model."""
    return (
        *(show.format(port.name) for port in wanted.ports for show in _PORT_SHOWS),
        _DSCP_MAP,
        RUNNING_CONFIG,
        VERSION,
    )


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """The running state of the wanted ports and queues, and the routes within the plan.

    Raises DeviceError for what cannot be read, for PFC on a priority that leads to a queue of the plan, and
    for a foreign DiffServ policy where the plan needs its own.
    """
    facts = running_facts(answers, wanted, capabilities)
    sections = _sections(_lines(answers))
    if any(map(policy_of, wanted.ports)) and any("no diffserv" in lines for lines in sections.values()):
        raise PreflightError(
            "DiffServ is off for the whole switch, so no policy holds",
            hint="switch it on first: `diffserv`; policies of others then hold, too",
        )
    lossless: list[Lossless] = []
    for port in wanted.ports:
        own, block = facts[port.name], sections[port.name]
        if member := next(filter(_MEMBER.fullmatch, block), ""):
            raise PreflightError(
                f"is a member of a LAG ({member}): queues and maps are those of the port channel, which the "
                "plan cannot name",
                where=f"port {port.name}",
                hint="take it out of the LAG, or out of the fabric",
            )
        queues = [queue.queue for queue in port.queues]
        lossless += _check_flow_control(block, port.name, own, queues, facts[SWITCH])
        foreign = next((match[1] for match in map(_ATTACHED.fullmatch, block) if match), "")
        if policy_of(port) and foreign not in {"", *POLICIES}:
            raise PreflightError(
                f"it has the policy {foreign} where the plan needs its own: a port takes one",
                where=f"port {port.name}",
                hint=f"take it off first: `no service-policy in {foreign}`",
            )
    lossless += _moved_elsewhere(sections, wanted, facts[SWITCH])
    state = running_state(facts, wanted, capabilities)
    return RunningState(state, answers, tuple(_model_notes(answers, capabilities)), lossless=tuple(lossless))


def hardware_of(name: str) -> tuple[str, ...]:
    """The model of a switch, if a document tells the scale of its thresholds; else empty."""
    model = model_of(name)
    return () if model is None else (model,)


def _model_notes(answers: Mapping[str, str], wanted: Capabilities) -> Iterator[str]:
    """A sentence where nothing tells the scale."""
    name = _model(_fields(answers[VERSION]))
    if model_of(name) is None:
        yield (
            f"whether {name or 'this switch'} is the model {wanted.hardware}, for which the plan was made, "
            "is not known: a percent of a threshold may be another number of bytes"
        )


def _lines(answers: Mapping[str, str]) -> list[Key]:
    """Lines of the running configuration with their modes, those that open a mode among them.

    Names of interfaces are in lower case and without spaces.
    """
    modes: tuple[str, ...] = ()
    found: list[Key] = []
    for words in map(str.split, answers[RUNNING_CONFIG].splitlines()):
        named = words[:1] == ["interface"]
        line = f"interface {''.join(words[1:]).lower()}" if named else " ".join(words)
        in_policy = bool(modes) and modes[0].startswith("policy-map ")
        if line == LEAVE:
            modes = modes[:-1]
        elif line.startswith(("interface ", *_POLICY_MODES)):
            found.append(((), line))
            modes = (line,)
        elif modes and (line == "datacenter-bridging" or (in_policy and line.startswith("class "))):
            found.append((modes[:1], line))
            modes = (modes[0], line)
        elif line and not line.startswith("!"):
            found.append((modes, line))
    return found


def _sections(lines: Iterable[Key]) -> defaultdict[str, list[str]]:
    """Interface → its lines, with those of modes inside it; empty: the whole switch. Policies have none."""
    found = defaultdict[str, list[str]](list)
    for modes, line in lines:
        mode = modes[0] if modes else ""
        if not mode.startswith(_POLICY_MODES):
            found[mode.removeprefix("interface ")].append(line)
    return found


def running_facts(answers: Mapping[str, str], wanted: SwitchState, _capabilities: Capabilities) -> Facts:
    """All facts of the wanted ports and mltswitch's policies, the plan's routes, and unknown lines.

    Raises DeviceError for an answer of another form.
    """
    lines = _lines(answers)
    sections = _sections(lines)
    with known_form(_DSCP_MAP):
        rows = dict(_rows(answers[_DSCP_MAP]))
        switch: dict[Fact, Any] = {(MAP, dscp): rows[dscp] for dscp in range(DSCP_COUNT)}
    facts: dict[str, PortFacts] = {}
    for port in wanted.ports:
        block = sections[port.name]
        foreign = ((FOREIGN_LINE, line) for line in _foreign_of_port(sections[""], block))
        facts[port.name] = _port_facts(answers, port.name, block) | dict.fromkeys(foreign)
    switch |= _policy_facts(lines)
    for section in sections.keys() - facts.keys():
        attached = filter(None, map(_ATTACHED.fullmatch, sections[section]))
        switch |= dict.fromkeys((ELSEWHERE, match[1]) for match in attached)
    if wanted.ports:
        switch |= dict.fromkeys((FOREIGN_LINE, line) for line in _foreign_of_switch(sections))
    routes = (line for _, line in lines if not line.startswith(_OTHER_ROUTES))
    return facts | {SWITCH: {**switch, **read_routes(routes, _ROUTE, RUNNING_CONFIG, wanted.routes)}}


def _foreign_of_port(of_switch: Iterable[str], block: Iterable[str]) -> Iterator[str]:
    """Lines of a port that nobody here knows, a map of its own, and pause frames, which stop all queues."""
    yield from filter(_FLOW_CONTROL.fullmatch, of_switch)
    for line in block:
        attached = _ATTACHED.fullmatch(line)
        is_known = attached[1] in POLICIES if attached else _KNOWN.fullmatch(line)
        if line.startswith("classofservice ip-dscp-mapping ") or (touches_port(line) and not is_known):
            yield line


def _foreign_of_switch(sections: Mapping[str, list[str]]) -> Iterator[str]:
    """Lines of the whole switch or of a VLAN that nobody here knows, and policies that are bound there."""
    for section, lines in sections.items():
        for line in lines if not section or section.startswith("vlan") else ():
            is_known = _FLOW_CONTROL.fullmatch(line) or _KNOWN.fullmatch(line)
            if line.startswith("service-policy ") or (touches_switch(line) and not is_known):
                yield f"interface {section}: {line}" if section else line


def _policy_facts(lines: Iterable[Key]) -> Iterator[tuple[Fact, Any]]:
    """Our policies, classes with our kind of name, and which of them others name."""
    for modes, line in lines:
        mode, *inner = (*modes, line)
        if (match := _CLASS_MAP.fullmatch(mode)) and OWN_CLASS.fullmatch(match[1]):
            family = match[2] or FAMILIES[0]
            yield (MATCH, match[1], family, _plain(line)) if inner else (CLASS, match[1], family), None
        elif match := _POLICY_MAP.fullmatch(mode):
            policy, name = match[1], inner[0].removeprefix("class ") if inner else ""
            if policy not in POLICIES:
                yield (LENT, name), None
            elif len(inner) > 1:
                action, _, argument = _plain(line).rpartition(" ") if " " in line else (line, "", "")
                yield (ACTION, policy, name, action), argument
            elif not inner or line.startswith("class "):
                yield (INSTANCE, policy, name) if inner else (POLICY, policy), None


def _plain(line: str) -> str:
    """A line of a policy or of a class with the number of a code point that it names."""
    match = _CODE_POINT.fullmatch(line)
    return f"{match[1].replace('ip6', 'ip')} {_NAMED.get(match[2], match[2])}" if match else line


def _port_facts(answers: Mapping[str, str], name: str, block: Iterable[str]) -> dict[Fact, Any]:
    """What shows tell of one port, and what only its lines do; raises DeviceError for an unknown form."""
    trust, priorities, queues, curves = (show.format(name) for show in _PORT_SHOWS)
    facts: dict[Fact, Any] = {}
    with known_form(trust):
        facts[TRUST,] = _TRUSTS[_fields(answers[trust])["class of service trust mode"].lower()]
    with known_form(priorities):
        rows = dict(_rows(answers[priorities]))
        facts |= {(BIND, priority): rows[priority] for priority in range(USER_PRIORITIES)}
    with known_form(queues):
        fields, shown = _fields(answers[queues]), dict(_queue_rows(answers[queues]))
        guarantees = []
        for queue in range(QUEUE_COUNT):
            minimum, maximum, service, management = shown[queue]
            guarantees.append(int(minimum))
            facts[SERVICE, queue] = STRICT if service == "strict" else WEIGHTED
            facts[DETECT, queue] = _MANAGEMENTS[management]
            if int(maximum or 0):
                facts[CAP, queue] = int(maximum)
        if any(guarantees):
            facts[MINIMUMS,] = tuple(guarantees)
        if (shaping := fields["interface shaping rate"]).split()[0] != "0":
            facts[SHAPER,] = shaping
        facts[AVERAGE,] = int(fields["wred decay exponent"])
        if facts[AVERAGE,] < 0:
            raise ValueError(f"exponent {facts[AVERAGE,]}")
    with known_form(curves):
        shown_curves = dict(_curve_rows(answers[curves]))
        facts |= {(CURVE, queue): shown_curves[queue] for queue in range(QUEUE_COUNT)}
    for line in block:
        if (match := _ATTACHED.fullmatch(line)) and match[1] in POLICIES:
            facts[ATTACHED, match[1]] = None
        elif match := re.fullmatch(r"vlan priority ([1-7])", line):
            facts[DEFAULT_PRIORITY,] = int(match[1])
    return facts


def _fields(answer: str) -> dict[str, str]:
    """`Name....... value` and `Name: value` lines."""
    matches = filter(None, map(_FIELD.fullmatch, map(str.strip, answer.splitlines())))
    return {match[1].rstrip().lower(): match[2] for match in matches}


def _rows(answer: str) -> Iterator[tuple[int, int]]:
    """Rows of a table from a code point or priority, perhaps with its name, to a traffic class."""
    for match in filter(None, map(_MAP_ROW.fullmatch, map(str.strip, answer.splitlines()))):
        yield int(match[1]), int(match[2])


def _queue_rows(answer: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    for match in filter(None, map(_QUEUE_ROW.fullmatch, map(str.strip, answer.lower().splitlines()))):
        yield int(match[1]), match.groups()[1:]


def _curve_rows(answer: str) -> Iterator[tuple[int, int | str]]:
    for match in filter(None, map(_CURVE_ROW.fullmatch, map(str.lower, answer.splitlines()))):
        rows = [list(map(int, match[group].split("/"))) for group in (2, 3, 4)]
        low, high, probability = (" ".join(map(str, row)) for row in rows)
        ecn = " ecn" if match[5] in {"yes", "enabled"} else ""
        curve, step = f"min-thresh {low} max-thresh {high} drop-prob-scale {probability}{ecn}", rows[0][0]
        yield int(match[1]), step if curve == curve_at(step) and 0 < step <= CERTAIN else curve


def _flow_control(block: Iterable[str]) -> list[int]:
    """802.1p priorities that PFC protects on a port."""
    is_switched_on = False
    lossless: set[int] = set()
    for line in block:
        words = line.split()
        if words[:2] == ["priority-flow-control", "mode"]:
            is_switched_on = is_on(" ".join(words[2:]), line, RUNNING_CONFIG, {"auto": True})
        elif words[:2] == ["priority-flow-control", "priority"] and words[-1] == "no-drop":
            try:
                for word in re.split(r"[, ]+", " ".join(words[2:-1])):
                    lossless.update(numbers_in(word, USER_PRIORITIES))
            except ValueError:
                raise DeviceError(f"cannot read {line!r}", where=RUNNING_CONFIG) from None
    return sorted(lossless) if is_switched_on else []


def _check_flow_control(
    block: Iterable[str], name: str, facts: PortFacts, queues: Iterable[int], switch: PortFacts
) -> Iterator[Lossless]:
    """Priorities with PFC that lead to no queue of the plan; raises PreflightError for others."""
    default = facts[BIND, facts.get((DEFAULT_PRIORITY,), 0)]
    for priority in _flow_control(block):
        queue, trust = facts[BIND, priority], facts[TRUST,]
        if queue in queues:
            raise PreflightError(
                f"PFC is on for 802.1p priority {priority}, which leads to queue {queue} of the plan: RED on "
                "a lossless queue drops packets that are not ECN-capable",
                where=f"port {name}",
                hint=f"switch PFC off for it first: `priority-flow-control priority {priority} drop` under "
                "`datacenter-bridging`",
            )
        if trust == TRUSTED:
            yield Lossless(name, priority, indices_of(_queues_of_dscps(switch), queue))
        elif queue == default or trust in {"dot1p", "ip-precedence"}:
            yield Lossless(name, priority, (), f"classofservice trust {trust}")


def _queues_of_dscps(switch: PortFacts) -> list[int]:
    return [switch[MAP, dscp] for dscp in range(DSCP_COUNT)]


def _moved_elsewhere(
    sections: Mapping[str, list[str]], wanted: SwitchState, switch: PortFacts
) -> Iterator[Lossless]:
    """Priorities with PFC on other ports, from which the plan's map, the switch's, moves code points.

    Where no line tells what such a port trusts, it is taken to be the DSCP.
    """
    others = sorted(sections.keys() - {"", *(port.name for port in wanted.ports)}) if wanted.ports else []
    of_switch = [line for line in sections[""] if line.startswith("classofservice ")] if others else []
    for name in others:
        if not (lossless := _flow_control(sections[name])):
            continue
        lines = [*of_switch, *sections[name]]
        trust = [line for line in lines if line.startswith("classofservice trust ")]
        if trust[-1:] in ([], [f"classofservice trust {TRUSTED}"]):
            queues = dict(enumerate(DEFAULT_PRIORITIES))
            queues |= {int(match[1]): int(match[2]) for match in map(_PRIORITY.fullmatch, lines) if match}
            for priority in lossless:
                moved = rewriting_map(wanted, "FASTPATH").moved(_queues_of_dscps(switch), queues[priority])
                yield Lossless(name, priority, moved)
