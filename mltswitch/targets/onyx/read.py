"""What an Onyx switch answers, as settings and state.

Queues and maps are read from the JSON form of the show commands: that is what is in force, defaults included,
where `show running-config` leaves them out and compresses interface ranges. Static routes stand in
`show running-config` only, complete with those that are not active. A route keeps what stands behind its
next hop, such as a distance, in `RouteState.port`; null0 is the next hop 0.0.0.0. Lines there that give a
port of the plan link pause, or one of its traffic classes something that no show of ours tells, are reported
as they stand. A port that is a member of a LAG is refused: the port-channel has the settings then. The lines
of members are those of public saved configurations and of the Ansible collection mellanox.onyx.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import Identity, RunningState
from mltswitch.targets.common import NOT_SAVED, known_form, static_route
from mltswitch.targets.onyx.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.onyx.grammar import PORT_NAME
from mltswitch.targets.onyx.settings import (
    NOT_OURS,
    CongestionControl,
    PortSettings,
    QueueSettings,
    port_state,
)
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import PortState, RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

HOSTS: Final = "show hosts"
_HOSTNAME: Final = re.compile(r"^\s*Hostname\s*:\s*(\S+)", re.MULTILINE)
VERSION: Final = "show version | json-print"
INVENTORY: Final = "show inventory"
_CHASSIS: Final = re.compile(r"(?:CHASSIS|SYSTEM)\s+(\S+)\s+(\S+)", re.IGNORECASE)
"""Module, part number and serial number of the whole box."""
RUNNING_CONFIG: Final = "show running-config"
FILES: Final = "show configuration files"
_UNSAVED: Final = re.compile(r"^\s*Unsaved changes\s*:\s*yes\b", re.MULTILINE)
"""Below the files (HPE's docs-csm, network pages for the SN2100)."""
_QOS: Final = "show qos interface ethernet {} | json-print"
_SCHEDULING: Final = "show dcb ets interface ethernet {} | json-print"
_CONGESTION: Final = "show interfaces ethernet {} congestion-control | json-print"
_FLOW_CONTROL: Final = "show dcb priority-flow-control | json-print"

_ROUTE: Final = re.compile(
    r"ip route (?:vrf (?P<vrf>\S+) )?(?P<address>[0-9.]+)(?: ?/(?P<length>[0-9]+)| (?P<mask>[0-9.]+))"
    r" (?P<target>\S+)(?P<others>.*)"
)
_THRESHOLD: Final = re.compile(r"([0-9]+) ?(KB|%)")
_BRACKET: Final = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
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
_BANDWIDTHS: Final = ("BW Gr.(Mbps)", "BW Sh.(Mbps)")
_NO_RATE: Final = frozenset({"N/A", "0", ""})
_CLASS_LINE: Final = re.compile(
    rf"(?:no )?interface ethernet ({PORT_NAME.pattern})(?:-({PORT_NAME.pattern}))? "
    r"(?:no )?traffic-class ([0-7]) (?!bind switch-priority |congestion-control\b|dcb ets (?:strict|wrr)\b).+"
)
"""What it leaves out, the shows tell: bindings, RED/ECN, scheduling."""
_PAUSE_LINE: Final = re.compile(
    rf"interface ethernet ({PORT_NAME.pattern})(?:-({PORT_NAME.pattern}))? "
    r"flowcontrol (?:receive|send) on(?: force)?"
)
"""Pauses the link, so all traffic classes at once."""
_MEMBER_LINE: Final = re.compile(
    rf"interface ethernet ({PORT_NAME.pattern})(?:-({PORT_NAME.pattern}))? "
    r"((?:mlag-)?channel-group [0-9]+)(?: .*)?"
)


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the switch says it is; raises DeviceError.

    The cliconf plugin of mellanox.onyx reads the same line of `show hosts`. `Product model` of `show version`
    is the same for many boxes, so the model is the part number in the first row of `show inventory` that
    NVIDIA's manuals print (CHASSIS or SYSTEM, part number, serial number).
    """
    name = _HOSTNAME.search(answers[HOSTS])
    if name is None:
        raise DeviceError("does not tell its host name", where=HOSTS, expected="a line `Hostname: leaf1`")
    with known_form(VERSION):
        release = str(json.loads(answers[VERSION])["Product release"])
    box = next(filter(None, map(_CHASSIS.match, map(str.strip, answers[INVENTORY].splitlines()))), None)
    model, serial = box.groups() if box else ("", "")
    return Identity(name[1], serial, model, release)


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """Three shows for each port, one for PFC, the running configuration for the routes, and what is saved."""
    shows = (_QOS, _SCHEDULING, _CONGESTION)
    return (
        *(show.format(port.name) for port in wanted.ports for show in shows),
        _FLOW_CONTROL,
        RUNNING_CONFIG,
        FILES,
    )


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues, and our routes.

    Raises DeviceError for what cannot be read, for a port in a LAG, and for PFC on a switch-priority that the
    plan uses or that leads to a traffic class of the plan.
    """
    del capabilities
    _check_members(answers[RUNNING_CONFIG], wanted)
    settings = {port.name: read_port(answers, port.name) for port in wanted.ports}
    _check_flow_control(answers, wanted, settings)
    ports = (
        port_state(
            port.name,
            settings[port.name],
            [queue.queue for queue in port.queues],
            [queue.queue for queue in port.queues if queue.is_lossless],
        )
        for port in wanted.ports
    )
    lines = tuple(_foreign_lines(answers[RUNNING_CONFIG]))
    found = tuple(_with_foreign_lines(port, lines) for port in ports)
    notes = (NOT_SAVED,) if _UNSAVED.search(answers[FILES]) else ()
    return RunningState(SwitchState(found, read_routes(answers, wanted)), answers, notes)


class _ForeignLine(NamedTuple):
    """A line of the running configuration for one port, or for a range of ports."""

    text: str
    first: tuple[int, ...]
    last: tuple[int, ...]
    traffic_class: int | None
    """None: it concerns the whole port."""

    def concerns(self, port: str) -> bool:
        """Whether the port is in the range; a split port, 1/2/1, is where its whole is."""
        numbers = _port_numbers(port)
        return self.first <= numbers and numbers[: len(self.last)] <= self.last


def _foreign_lines(config: str) -> Iterator[_ForeignLine]:
    for line in map(str.strip, config.splitlines()):
        if match := _CLASS_LINE.fullmatch(line):
            yield _foreign_line(line, match, int(match[3]))
        elif match := _PAUSE_LINE.fullmatch(line):
            yield _foreign_line(line, match, None)


def _foreign_line(text: str, match: re.Match[str], traffic_class: int | None) -> _ForeignLine:
    first, last = match[1], match[2] or match[1]
    return _ForeignLine(text, _port_numbers(first), _port_numbers(last), traffic_class)


def _port_numbers(port: str) -> tuple[int, ...]:
    return tuple(map(int, port.split("/")))


def _with_foreign_lines(port: PortState, lines: Iterable[_ForeignLine]) -> PortState:
    concerned = {None, *(queue.queue for queue in port.queues)}
    found = (
        f"{line.text} ({NOT_OURS})"
        for line in lines
        if line.traffic_class in concerned and line.concerns(port.name)
    )
    return replace(port, unexpected=(*port.unexpected, *found))


def _check_members(config: str, wanted: SwitchState) -> None:
    for line in map(str.strip, config.splitlines()):
        match = _MEMBER_LINE.fullmatch(line)
        if match is None:
            continue
        for port in wanted.ports:
            if _foreign_line(line, match, None).concerns(port.name):
                raise HazardError(
                    f"is a member of a LAG, {match[3]}: queues and maps are those of the port-channel, which "
                    "the plan cannot name",
                    where=f"port {port.name}",
                    hint=f"take it out of the LAG (`{line}`), or out of the fabric",
                )


def read_port(answers: Mapping[str, str], name: str) -> PortSettings:
    """Settings of one port; raises DeviceError for an answer of another form."""
    qos, scheduling, congestion = (show.format(name) for show in (_QOS, _SCHEDULING, _CONGESTION))
    with known_form(qos):
        settings = _qos(_json(answers, qos))
    with known_form(scheduling):
        shown = _json(answers, scheduling)
        classes = _scheduling(shown)
        settings = replace(settings, shaper_mbps=_rate(_only(shown, "Interface Bandwidth Shape")))
    with known_form(congestion):
        controls = _congestion_controls(_json(answers, congestion))
    return replace(
        settings,
        queues=tuple(
            replace(entry, congestion_control=controls.get(number)) for number, entry in enumerate(classes)
        ),
    )


def read_routes(answers: Mapping[str, str], wanted: SwitchState) -> tuple[RouteState, ...]:
    """Our static routes."""
    own = OwnPrefixes(wanted.routes)
    found: list[RouteState] = []
    for line in map(str.strip, answers[RUNNING_CONFIG].splitlines()):
        if not line.startswith("ip route "):
            continue
        match = _ROUTE.fullmatch(line)
        if match is None:
            raise DeviceError(f"cannot read {line!r}", where=RUNNING_CONFIG)
        prefix = f"{match['address']}/{match['length'] or match['mask']}"
        route = static_route(line, RUNNING_CONFIG, prefix, match["target"], match["others"])
        if route.prefix in own and match["vrf"] in {None, "default"}:
            found.append(route)
    return in_order_of(wanted.routes, found)


def _check_flow_control(
    answers: Mapping[str, str], wanted: SwitchState, settings: Mapping[str, PortSettings]
) -> None:
    with known_form(_FLOW_CONTROL):
        shown = {key: value for part in _json(answers, _FLOW_CONTROL) for key, value in part.items()}
        if shown["PFC"].lower() != "enabled":
            return
        lossless = {int(word) for word in shown["Priority Enabled List"].split()}
        ports = [port for port in wanted.ports if _has_flow_control(*shown[f"Eth{port.name}"])]
    for port in ports:
        queues = {queue.queue for queue in port.queues if not queue.is_lossless}
        for priority in sorted(lossless):
            # The plan leads its own switch-priorities to the classes of their numbers, and moves no other.
            traffic_class = settings[port.name].bindings[priority]
            if priority in queues:
                use = "which the plan uses"
            elif traffic_class in queues:
                use = f"which leads to traffic class {traffic_class} of the plan"
            else:
                continue
            raise HazardError(
                f"PFC is on for switch-priority {priority}, {use}: RED on a lossless queue drops "
                "packets that are not ECN-capable",
                where=f"port {port.name}",
                hint="switch PFC off for it first: "
                f"`no dcb priority-flow-control priority {priority} enable`",
            )


def _has_flow_control(row: dict[str, str]) -> bool:
    return row["PFC oper"].lower() == "enabled" or row["PFC admin"].lower() == "on"


# Onyx gives its JSON no schema; whatever has not the known form ends in a DeviceError above.
def _json(answers: Mapping[str, str], query: str) -> Any:
    """The JSON in an answer, which may have lines of text before and after it; raises ValueError."""
    decoder = json.JSONDecoder()
    for match in _BRACKET.finditer(answers[query]):
        try:
            return decoder.raw_decode(answers[query], match.end())[0]
        except ValueError:
            continue
    raise ValueError("no JSON in it")


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


def _qos(shown: Any) -> PortSettings:
    priorities: dict[int, int] = {}
    for _, row in _rows(_only(shown, "PCP(DEI); DSCP to switch-priority mapping")):
        priorities |= {int(dscp): int(row["switch-priority"]) for dscp in row["DSCP"].split()}
    bindings = {
        int(key): int(row["TC"]) for key, row in _rows(_only(shown, "PCP(DEI); DSCP rewrite mapping"))
    }
    return PortSettings(
        trust=_only(shown, "Trust mode"),
        default_priority=int(_only(shown, "Default switch-priority")),
        rewrites_dscp=_only(shown, "DSCP rewrite").startswith("enable"),
        switch_priorities=tuple(priorities[dscp] for dscp in range(DSCP_COUNT)),
        bindings=tuple(bindings[number] for number in range(TRAFFIC_CLASSES)),
    )


def _scheduling(shown: Any) -> list[QueueSettings]:
    classes: dict[int, QueueSettings] = {}
    for key, row in _rows(_only(shown, "ETS per TC")):
        mode = row["S.Mode"].lower()
        classes[int(key)] = QueueSettings(
            mode if mode == "strict" else f"{mode} {row['W']}",
            tuple(f"{field} {row[field]}" for field in _BANDWIDTHS if _rate(row[field])),
        )
    return [classes[number] for number in range(TRAFFIC_CLASSES)]


def _rate(text: str) -> str:
    return "" if text in _NO_RATE else text


def _congestion_controls(shown: Any) -> dict[int, CongestionControl]:
    controls: dict[int, CongestionControl] = {}
    for entry in shown:
        if not entry.get("header", "").startswith("TC-"):
            continue
        control = _control(entry["Mode"])
        if control:
            low, unit = _threshold(entry["Minimum threshold"])
            high, _ = _threshold(entry["Maximum threshold"])
            controls[int(entry["header"].removeprefix("TC-"))] = CongestionControl(
                control, _MODES[unit], low, high
            )
    return controls


def _control(mode: str) -> str:
    words = frozenset(re.findall(r"[a-z]+", mode.lower()))
    if words not in _CONTROLS:
        raise ValueError(f"mode {mode!r}")
    return _CONTROLS[words]


def _threshold(text: str) -> tuple[int, str]:
    match = _THRESHOLD.fullmatch(text)
    if match is None:
        raise ValueError(f"threshold {text!r}")
    return int(match[1]), match[2]
