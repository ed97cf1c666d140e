"""Reads an Onyx switch's answers as facts.

Queues and maps are read from the JSON form of the show commands: that is what is in force, defaults included,
where `show running-config` leaves them out and compresses interface ranges. Static routes stand in
`show running-config` only, complete with those that are not active. Lines there that concern a port or a
class of the plan, or the whole switch, and that no JSON answer tells, are reported as they stand unless they
are known to be about something else. A port that is a member of a LAG is refused: the port-channel has the
settings then. The lines of members are those of public saved configurations and of the Ansible collection
mellanox.onyx.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, PreflightError
from mltswitch.targets.base import Identity, Lossless, RunningState
from mltswitch.targets.common import (
    NOT_SAVED,
    is_on,
    json_in,
    known_form,
    spectrum_hardware,
    unknown_box,
)
from mltswitch.targets.engine.facts import (
    BIND,
    FOREIGN_LINE,
    MAP,
    SERVICE,
    SWITCH,
    THRESHOLD,
    TRUST,
    Fact,
    Facts,
    PortFacts,
)
from mltswitch.targets.engine.routes import read_routes
from mltswitch.targets.foreign import touches_port, touches_switch
from mltswitch.targets.onyx.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.onyx.order import TRUSTED, TRUSTING, UNTRUSTED
from mltswitch.targets.onyx.sheet import (
    CAP,
    DEFAULT_PRIORITY,
    GUARANTEE,
    REWRITE,
    SHAPER,
    running_state,
    threshold_of,
)
from mltswitch.targets.state import PortState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

HOSTS: Final = "show hosts"
_HOSTNAME: Final = re.compile(r"^[ \t]*Hostname[ \t]*:[ \t]*(\S+)", re.MULTILINE)
VERSION: Final = "show version | json-print"
INVENTORY: Final = "show inventory"
_CHASSIS: Final = re.compile(r"(?:CHASSIS|SYSTEM)\s+(\S+)\s+(\S+)", re.IGNORECASE)
"""Module, part number and serial number of the whole box."""
RUNNING_CONFIG: Final = "show running-config"
FILES: Final = "show configuration files"
_UNSAVED: Final = re.compile(r"^[ \t]*Unsaved changes[ \t]*:[ \t]*(\S+)", re.MULTILINE)
"""Below the files (HPE's docs-csm, network pages for the SN2100)."""
_QOS: Final = "show qos interface ethernet {} | json-print"
_SCHEDULING: Final = "show dcb ets interface ethernet {} | json-print"
CONGESTION: Final = "show interfaces ethernet {} congestion-control | json-print"
_FLOW_CONTROL: Final = "show dcb priority-flow-control | json-print"

_ROUTE: Final = re.compile(
    r"ip route (?:vrf (?P<vrf>\S+) )?(?P<address>[0-9.]+)(?: ?/(?P<length>[0-9]+)| (?P<mask>[0-9.]+))"
    r" (?P<target>\S+)(?P<others>.*)"
)
_THRESHOLD: Final = re.compile(r"([0-9]+) ?(KB|%)")
_CONTROLS: Final = {
    frozenset({"none"}): "",
    frozenset({"disabled"}): "",
    frozenset({"ecn"}): "ecn",
    frozenset({"red"}): "red",
    frozenset({"ecn", "red"}): "both",
    frozenset({"both"}): "both",
}
"""Words of the mode shown → word of the command line; no source tells how Onyx shows `both`."""
_MODES: Final = {"KB": "absolute", "%": "relative"}
_NO_RATE: Final = frozenset({"N/A", "0", ""})
_INTERFACE: Final = re.compile(r"(no )?interface (ethernet|vlan) ([0-9/,-]+) (.+)")
_RANGE: Final = re.compile(r"([0-9]{1,3}(?:/[0-9]{1,3}){0,3})(?:-([0-9]{1,3}(?:/[0-9]{1,3}){0,3}))?")
_Interface = tuple[str, str, list[tuple[tuple[int, ...], tuple[int, ...]]]]
"""A line, what stands behind its ports, and the first and the last of each range of them."""
_READ: Final = re.compile(
    r"(?:no )?(?:qos (?:trust|default|rewrite|map)\b.*|dcb priority-flow-control\b.*"
    r"|traffic-class [0-7] (?:bind switch-priority|congestion-control|dcb ets (?:strict|wrr))\b.*"
    r"|bandwidth shape\b.*|flowcontrol (?:receive|send) off(?: force)?)"
)
"""What the shows tell of a port, and pause that is off."""
_GLOBAL_READ: Final = re.compile(
    r"dcb priority-flow-control\b.*|dcb ets enable\b.*|(?:ip|mac|ipv[46]) .*|interface .*|lldp .*|##.*"
)
"""PFC is shown; ETS is on as delivered (user manual, QoS Commands); the others are no settings of queues."""
_CLASSES: Final = re.compile(
    r"(?:ePort\.tc|iPort\.pg|(?:traffic-class|switch-priority|priority) )([0-7](?: [0-7])*)(?![\w.])"
)
"""Classes that a line names: those of the plan have the same number everywhere."""
_POOL: Final = re.compile(r"traffic pool (\S+) .*")
_ADVANCED: Final = re.compile(r"advanced buffer management\b.*|pool \S+ .*")
_ACL: Final = re.compile(r"(?:ipv4|ipv6|ipv4-udk|mac) port access-group (\S+)")
_ACL_CHANGES: Final = re.compile(r"(?:\S+ )access-list (\S+) .*\b(?:action|policer|set)\b.*")
_MEMBER: Final = re.compile(r"((?:mlag-)?channel-group [0-9]+)(?: .*)?")


def identify(answers: Mapping[str, str]) -> Identity:
    """The identity that the switch reports; raises DeviceError.

    The cliconf plugin of mellanox.onyx reads the same line of `show hosts`. `Product model` of `show version`
    is the same for many boxes, so the model is the part number in the first row of `show inventory` that
    NVIDIA's manuals print (CHASSIS or SYSTEM, part number, serial number).
    """
    name = _HOSTNAME.search(answers[HOSTS])
    if name is None:
        raise DeviceError("does not tell its host name", where=HOSTS, expected="a line `Hostname: leaf1`")
    with known_form(VERSION):
        release = str(json_in(answers[VERSION])["Product release"])
    model, serial = _chassis(answers)
    return Identity(name[1], serial, model, release)


def _chassis(answers: Mapping[str, str]) -> tuple[str, str]:
    """(part number, serial number), empty where no row has them."""
    box = next(filter(None, map(_CHASSIS.match, map(str.strip, answers[INVENTORY].splitlines()))), None)
    return (box[1], box[2]) if box else ("", "")


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """Three show commands for each port, and those for PFC, running and saved configuration, and hardware."""
    shows = (_QOS, _SCHEDULING, CONGESTION)
    return (
        *(show.format(port.name) for port in wanted.ports for show in shows),
        _FLOW_CONTROL,
        RUNNING_CONFIG,
        FILES,
        INVENTORY,
    )


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """The running state of the wanted ports and queues, and the routes within the plan.

    Raises DeviceError for what cannot be read, for a port in a LAG, and for PFC on a switch-priority that the
    plan uses or that leads to a traffic class of the plan.
    """
    _check_members(_interfaces(_lines(answers)), wanted)
    facts = running_facts(answers, wanted, capabilities)
    lossless = tuple(_check_flow_control(answers, wanted, facts))
    told = _UNSAVED.search(answers[FILES])
    notes: tuple[str, ...] = (NOT_SAVED,) if told and is_on(told[1], "Unsaved changes", FILES) else ()
    if wanted.ports and not spectrum_hardware(model := _chassis(answers)[0]):
        notes = (*notes, unknown_box(model, capabilities.hardware))
    return RunningState(running_state(facts, wanted, capabilities), answers, notes, lossless=lossless)


def running_facts(answers: Mapping[str, str], wanted: SwitchState, _capabilities: Capabilities) -> Facts:
    """All facts of the wanted ports, the routes within the plan's prefixes, and unknown lines.

    Raises DeviceError for an answer of another form.
    """
    lines = _lines(answers)
    interfaces = _interfaces(lines)
    changing = {match[1] for match in map(_ACL_CHANGES.fullmatch, lines) if match}
    facts: dict[str, PortFacts] = {}
    for port in wanted.ports:
        own: dict[Fact, Any] = {}
        for show, read in ((_QOS, _qos), (_SCHEDULING, _scheduling), (CONGESTION, _thresholds)):
            with known_form(show.format(port.name)):
                own |= read(json_in(answers[show.format(port.name)]))
        facts[port.name] = own | dict.fromkeys(
            (FOREIGN_LINE, line) for line in _foreign_lines(interfaces, changing, port)
        )
    foreign = _foreign_of_switch(lines, wanted) if wanted.ports else ()
    of_switch = dict.fromkeys(((FOREIGN_LINE, line) for line in foreign), None)
    return facts | {SWITCH: {**of_switch, **read_routes(lines, _ROUTE, RUNNING_CONFIG, wanted.routes)}}


def _lines(answers: Mapping[str, str]) -> list[str]:
    return [" ".join(line.split()) for line in answers[RUNNING_CONFIG].splitlines() if line.strip()]


def _interfaces(lines: Iterable[str]) -> list[_Interface]:
    """Lines for ports or ranges of them; raises DeviceError for ports of another form."""
    found: list[_Interface] = []
    for line in lines:
        match = _INTERFACE.fullmatch(line)
        if match and match[2] == "ethernet":
            parts = [_RANGE.fullmatch(part) for part in match[3].split(",")]
            if not all(parts):
                raise DeviceError(f"cannot read {line[:120]!r}", where=RUNNING_CONFIG)
            ranges = [(_port_numbers(part[1]), _port_numbers(part[2] or part[1])) for part in parts if part]
            found.append((line, f"{match[1] or ''}{match[4]}", ranges))
    return found


def _port_lines(lines: Iterable[_Interface], port: str) -> Iterator[tuple[str, str]]:
    """(line, what stands behind the port) of lines for one port or for a range with it."""
    numbers = _port_numbers(port)
    for line, words, ranges in lines:
        # A split port, 1/2/1, is where its whole is.
        if any(first <= numbers and numbers[: len(last)] <= last for first, last in ranges):
            yield line, words


def _port_numbers(port: str) -> tuple[int, ...]:
    return tuple(map(int, port.split("/")))


def _foreign_lines(lines: Iterable[_Interface], changing: set[str], port: PortState) -> Iterator[str]:
    """Lines of one port that nobody here knows, but for those of classes that are not the plan's."""
    planned = _planned(port)
    for line, words in _port_lines(lines, port.name):
        named = _named(words)
        if _READ.fullmatch(words) or (named and not named & planned):
            continue
        acl = _ACL.fullmatch(words)
        if acl[1] in changing if acl else touches_port(words):
            yield line


def _foreign_of_switch(lines: list[str], wanted: SwitchState) -> Iterator[str]:
    """The same of lines of the whole switch, and of VLANs; of pools, those with a priority of the plan."""
    planned = set().union(*map(_planned, wanted.ports))
    pools: dict[str, set[int]] = {}
    for line in lines:
        if match := _POOL.fullmatch(line):
            pools.setdefault(match[1], set()).update(_named(line))
    for line in lines:
        pool, interface, named = _POOL.fullmatch(line), _INTERFACE.fullmatch(line), _named(line)
        if pool:
            is_foreign = bool(pools[pool[1]] & planned)
        elif interface:
            is_foreign = interface[2] == "vlan" and touches_switch(f"{interface[1] or ''}{interface[4]}")
        elif named and not named & planned:
            is_foreign = False
        else:
            is_foreign = not _GLOBAL_READ.fullmatch(line) and (
                touches_switch(line) or _ADVANCED.fullmatch(line) is not None
            )
        if is_foreign:
            yield line


def _named(words: str) -> set[int]:
    return {int(number) for match in _CLASSES.finditer(words) for number in match[1].split()}


def _planned(port: PortState) -> set[int]:
    return {queue.queue for queue in port.queues if not queue.is_lossless}


def _check_members(lines: Iterable[_Interface], wanted: SwitchState) -> None:
    for port in wanted.ports:
        for line, words in _port_lines(lines, port.name):
            if match := _MEMBER.fullmatch(words):
                raise PreflightError(
                    f"is a member of a LAG, {match[1]}: queues and maps are those of the port-channel, which "
                    "the plan cannot name",
                    where=f"port {port.name}",
                    hint=f"take it out of the LAG (`{line}`), or out of the fabric",
                )


def _check_flow_control(answers: Mapping[str, str], wanted: SwitchState, facts: Facts) -> Iterator[Lossless]:
    """Priorities with PFC that the plan leaves alone; raises PreflightError for others."""
    with known_form(_FLOW_CONTROL):
        shown = {key: value for part in json_in(answers[_FLOW_CONTROL]) for key, value in part.items()}
        if not is_on(shown["PFC"], "PFC", _FLOW_CONTROL):
            return
        lossless = {_class(word) for word in shown["Priority Enabled List"].split()}
        ports = [port for port in wanted.ports if _has_flow_control(*shown[f"Eth{port.name}"])]
    for port in ports:
        own, queues = facts[port.name], _planned(port)
        trust = own[TRUST,]
        for priority in sorted(lossless):
            # The plan leads its own switch-priorities to the classes of their numbers, and moves no other.
            traffic_class = own[BIND, priority]
            if priority in queues:
                use = "which the plan uses"
            elif traffic_class in queues:
                use = f"which leads to traffic class {traffic_class} of the plan"
            else:
                believed = range(DSCP_COUNT) if trust in TRUSTING else ()
                dscps = tuple(dscp for dscp in believed if own[MAP, dscp] == priority)
                default = int(own.get((DEFAULT_PRIORITY,), 0))
                is_left = trust == UNTRUSTED and default != priority
                otherwise = "" if is_left or trust == TRUSTED else f"qos trust {trust}"
                yield Lossless(port.name, priority, dscps, otherwise)
                continue
            raise PreflightError(
                f"PFC is on for switch-priority {priority}, {use}: RED on a lossless queue drops "
                "packets that are not ECN-capable",
                where=f"port {port.name}",
                hint="switch PFC off for it first: "
                f"`no dcb priority-flow-control priority {priority} enable`",
            )


def _has_flow_control(row: dict[str, str]) -> bool:
    oper, admin = row["PFC oper"], row["PFC admin"]
    return is_on(oper, "PFC oper", _FLOW_CONTROL) or is_on(admin, "PFC admin", _FLOW_CONTROL, {"auto": False})


def _tables(shown: Any, title: str) -> Iterator[Any]:
    """Values of every key that starts with `title`, at any depth."""
    if isinstance(shown, list):
        for entry in shown:
            yield from _tables(entry, title)
    elif isinstance(shown, dict):
        for key, value in shown.items():
            if key.startswith(title):
                yield value
            else:
                yield from _tables(value, title)


def _only(shown: Any, title: str) -> Any:
    (value,) = _tables(shown, title)
    return value


def _rows(table: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """(key, row) of a table that is a list of {key: [row]}; entries of another form are headings."""
    for part in table:
        for key, rows in part.items():
            if isinstance(rows, list):
                for row in rows:
                    yield key, row


def _qos(shown: Any) -> Iterator[tuple[Fact, Any]]:
    yield (TRUST,), str(_only(shown, "Trust mode"))
    if default := int(_only(shown, "Default switch-priority")):
        yield (DEFAULT_PRIORITY,), str(default)
    yield (REWRITE,), is_on(_only(shown, "DSCP rewrite"), "DSCP rewrite", _QOS.format("PORT"))
    priorities: dict[int, int] = {}
    for _, row in _rows(_only(shown, "PCP(DEI); DSCP to switch-priority mapping")):
        priorities |= {int(dscp): _class(row["switch-priority"]) for dscp in row["DSCP"].split()}
    yield from (((MAP, dscp), priorities[dscp]) for dscp in range(DSCP_COUNT))
    rows = _rows(_only(shown, "PCP(DEI); DSCP rewrite mapping"))
    classes = {int(key): _class(row["TC"]) for key, row in rows}
    yield from (((BIND, priority), classes[priority]) for priority in range(TRAFFIC_CLASSES))


def _class(text: str) -> int:
    """The number of a traffic class or of a switch-priority."""
    number = int(text)
    if number not in range(TRAFFIC_CLASSES):
        raise ValueError(f"{text!r} is no traffic class")
    return number


def _scheduling(shown: Any) -> Iterator[tuple[Fact, Any]]:
    rows = {int(key): row for key, row in _rows(_only(shown, "ETS per TC"))}
    for number in range(TRAFFIC_CLASSES):
        row = rows[number]
        mode = row["S.Mode"].lower()
        yield (SERVICE, number), mode if mode == "strict" else f"{mode} {row['W']}"
        for what, field in ((GUARANTEE, "BW Gr.(Mbps)"), (CAP, "BW Sh.(Mbps)")):
            if row[field] not in _NO_RATE:
                yield (what, number), str(row[field])
    shaper = _only(shown, "Interface Bandwidth Shape")
    if shaper not in _NO_RATE:
        yield (SHAPER,), str(shaper)


def _thresholds(shown: Any) -> Iterator[tuple[Fact, Any]]:
    found: dict[int, Any] = {}
    for entry in shown:
        if entry.get("header", "").startswith("TC-"):
            words = frozenset(re.findall(r"[a-z]+", entry["Mode"].lower()))
            if words not in _CONTROLS:
                raise ValueError(f"mode {entry['Mode']!r}")
            number = _class(entry["header"].removeprefix("TC-"))
            if number in found:
                raise ValueError(f"traffic class {number} stands twice")
            found[number] = None
            if control := _CONTROLS[words]:
                low, unit = _threshold(entry["Minimum threshold"])
                high, other_unit = _threshold(entry["Maximum threshold"])
                if other_unit != unit:
                    raise ValueError(f"thresholds in {unit} and {other_unit}")
                found[number] = threshold_of(control, _MODES[unit], low, high)
    yield from (((THRESHOLD, number), found[number]) for number in range(TRAFFIC_CLASSES))


def _threshold(text: str) -> tuple[int, str]:
    match = _THRESHOLD.fullmatch(text)
    if match is None:
        raise ValueError(f"threshold {text!r}")
    return int(match[1]), match[2]
