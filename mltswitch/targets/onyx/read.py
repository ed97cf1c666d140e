"""What an Onyx switch answers, as settings and state.

Queues and maps are read from the JSON form of the show commands: that is what is in force, defaults included,
where `show running-config` leaves them out and compresses interface ranges. Static routes stand in
`show running-config` only, complete with those that are not active.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from mltswitch.errors import DeviceError
from mltswitch.targets.base import RunningState
from mltswitch.targets.onyx.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.onyx.settings import ClassSettings, CongestionControl, PortSettings, port_state
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

RUNNING_CONFIG: Final = "show running-config"
_QOS: Final = "show qos interface ethernet {} | json-print"
_SCHEDULING: Final = "show dcb ets interface ethernet {} | json-print"
_CONGESTION: Final = "show interfaces ethernet {} congestion-control | json-print"

_ROUTE: Final = re.compile(r"[ \t]*ip route (?:vrf default )?([0-9.]+(?:/| /)[0-9]+) ([0-9.]+)(?: .*)?")
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


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """Three shows for each port, and the running configuration for the routes."""
    shows = (_QOS, _SCHEDULING, _CONGESTION)
    return (*(show.format(port.name) for port in wanted.ports for show in shows), RUNNING_CONFIG)


def read_answers(answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
    """State of the wanted ports and queues, and our routes; raises DeviceError."""
    ports = tuple(
        port_state(port.name, read_port(answers, port.name), [queue.queue for queue in port.queues])
        for port in wanted.ports
    )
    return RunningState(SwitchState(ports, read_routes(answers, wanted)), answers)


def read_port(answers: Mapping[str, str], name: str) -> PortSettings:
    """Settings of one port; raises DeviceError for an answer of another form."""
    query = _QOS.format(name)
    try:
        settings = _qos(_json(answers, query))
        query = _SCHEDULING.format(name)
        scheduling = _scheduling(_json(answers, query))
        query = _CONGESTION.format(name)
        controls = _congestion_controls(_json(answers, query))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DeviceError(
            f"the answer to {query!r} has another form than known ({type(error).__name__}: {error})",
            where=f"port {name}",
        ) from None
    classes = (ClassSettings(scheduling[number], controls.get(number)) for number in range(TRAFFIC_CLASSES))
    return replace(settings, classes=tuple(classes))


def read_routes(answers: Mapping[str, str], wanted: SwitchState) -> tuple[RouteState, ...]:
    """Our static routes. Onyx names no port in a route: the next hop stands for the plan's."""
    own = OwnPrefixes(wanted.routes)
    port_of = {route.next_hop: route.port for route in wanted.routes}
    found: list[RouteState] = []
    for line in answers[RUNNING_CONFIG].splitlines():
        match = _ROUTE.fullmatch(line)
        if match is None:
            continue
        try:
            prefix, next_hop = IPv4Network(match[1].replace(" ", ""), strict=False), IPv4Address(match[2])
        except ValueError as error:
            raise DeviceError(f"cannot read {line.strip()!r}: {error}", where=RUNNING_CONFIG) from None
        if prefix in own:
            found.append(RouteState(prefix, next_hop, port_of.get(next_hop, "")))
    return in_order_of(wanted.routes, found)


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
        rewrites_dscp=_only(shown, "DSCP rewrite").startswith("enable"),
        switch_priorities=tuple(priorities[dscp] for dscp in range(DSCP_COUNT)),
        bindings=tuple(bindings[number] for number in range(TRAFFIC_CLASSES)),
    )


def _scheduling(shown: Any) -> dict[int, str]:
    words: dict[int, str] = {}
    for key, row in _rows(_only(shown, "ETS per TC")):
        mode = row["S.Mode"].lower()
        words[int(key)] = mode if mode == "strict" else f"{mode} {row['W']}"
    return words


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
