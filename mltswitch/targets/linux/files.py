"""A state as batch files for `tc` and `ip`, and back; lines outside the grammar are refused by number."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.base import LineError
from mltswitch.targets.common import UNKNOWN
from mltswitch.targets.engine.facts import Fact, PortFacts
from mltswitch.targets.linux.lines import ANY_PORT, LINES, PORT, ROUTE_PROTOCOL, SHEET, read_line, text_of
from mltswitch.targets.linux.ports import (
    Port,
    check_expressible,
    planned_facts,
    port_facts,
    port_of,
    ports_of,
)
from mltswitch.targets.linux.routes import REPLACE, parse_routes, routes_of
from mltswitch.targets.state import SwitchState

QDISC_FILE: Final = "qdiscs.tc"
ROUTE_FILE: Final = "routes.ip"
_ACTIONS: Final = sorted({line.text.partition(ANY_PORT)[0] for line in LINES if ANY_PORT in line.text})
"""How the lines of a port begin."""
_LINE: Final = re.compile(f"(?:{'|'.join(_ACTIONS)}) dev ({PORT}) ([ -~]+)")
_QDISC_HEADER: Final = """\
# Written by mltswitch: queues and classification of every port of the plan.
# By hand, as root: tc -batch qdiscs.tc   (builds each port anew: packets that wait in it are lost)
# ingress: DSCPs that a port may not use become background's before anything else sees the packet.
# red: min = max = S, capable packets are marked and others dropped above it; limit = L, all are dropped.
# avpkt and burst = the smallest that give the average a weight of 1/2. 10:N in hexadecimal.
# handle 1NN: queue NN, in hexadecimal; 2NN: what waits below its rate cap (tbf).
# drr: quantum 20:2 / (20:1 + 20:2) is what background gets of the port after the queues of 10:.
"""
_ROUTE_HEADER: Final = f"""\
# Written by mltswitch: one route per alias prefix. Protocol {ROUTE_PROTOCOL} marks routes as mltswitch's.
# By hand, as root: ip -batch routes.ip
"""
_SEGMENT_HEADER: Final = """
# SRv6. By hand, as root, before: sysctl -w net.ipv6.conf.all.forwarding=1
"""


def write_files(state: SwitchState, capabilities: Capabilities | None = None) -> dict[str, str]:
    """The batch files, each complete in itself; raises UnsupportedPlanError for what tc cannot express."""
    del capabilities
    check_expressible(state)
    planned = planned_facts(state)
    texts = {
        key: batch(lines_of(facts)) for key, facts in {id(each): each for each in planned.values()}.items()
    }
    ports = [f"\n# {name}\n{on_port(texts[id(facts)], name)}" for name, facts in planned.items()]
    routes = [f"{REPLACE}{text}\n" for text in routes_of(state, state).values()]
    four = len(state.routes)
    segments = [_SEGMENT_HEADER, *routes[four:]] if routes[four:] else []
    return {
        QDISC_FILE: "".join((_QDISC_HEADER, *ports)),
        ROUTE_FILE: "".join((_ROUTE_HEADER, *routes[:four], *segments)),
    }


def lines_of(facts: PortFacts, name: str = "") -> list[str]:
    """The lines that set these facts on a port, with its name; without a name, with ANY_PORT in its place."""
    lines = [text_of(fact, value) for fact, value in facts.items() if fact[0] != "empty"]
    return [on_port(line, name) for line in lines] if name else lines


def batch(lines: Iterable[str]) -> str:
    """The text of a batch file with these lines."""
    return "".join(f"{line}\n" for line in lines)


def on_port(text: str, name: str) -> str:
    """The text with ANY_PORT replaced by this port's name."""
    return text.replace(ANY_PORT, f" dev {name} ")


def read_files(files: Mapping[str, str], capabilities: Capabilities | None = None) -> SwitchState:
    """Read the files of `write_files` back as a state; raises LineError with the first wrong line."""
    del capabilities
    state = state_said_by(files)
    for port in state.ports:
        if port.unexpected:
            raise LineError(0, "", f"port {port.name}: {port.unexpected[0]}")
    return state


def state_said_by(files: Mapping[str, str]) -> SwitchState:
    """The state in files of mltswitch's lines, also of several plans; `unexpected` holds what no plan has.

    Raises LineError with the first other line.
    """
    blocks: dict[str, Port] = {}
    for name, lines in _port_blocks(files[QDISC_FILE]).items():
        text = "\n".join(line for _, line in lines)
        try:
            blocks[name] = _parse_port(text.replace(f" dev {name} ", ANY_PORT))
        except LineError as error:
            raise LineError(lines[error.number - 1][0], "", on_port(str(error), name)) from None
    ports, background_dscp = ports_of(blocks)
    routes, segments = parse_routes(_lines(files[ROUTE_FILE]), ROUTE_FILE)
    return SwitchState(ports, routes, segments, background_dscp=background_dscp)


_Line = tuple[int, str]
"""The number of a line in its file, from 1, and its text."""


def _lines(text: str) -> Iterator[_Line]:
    # Not splitlines: tc and ip end a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        if (line and line[0] != "#") or not SHEET.comment.fullmatch(line):
            yield number, line


def _port_blocks(text: str) -> dict[str, list[_Line]]:
    """Port → its lines, which begin with that of its clsact."""
    blocks: dict[str, list[_Line]] = {}
    current: list[_Line] = []
    beginnings: tuple[str, ...] = ()
    for number, line in _lines(text):
        if not line.startswith(beginnings):
            match = _LINE.fullmatch(line)
            problem = UNKNOWN if match is None else "belongs to another port than the lines above"
            if match and match[2] == "clsact" and line.startswith("qdisc"):
                problem = "the port stands here a second time" if match[1] in blocks else ""
            if match is None or problem:
                raise LineError(number, line, problem)
            beginnings = tuple(f"{words} dev {match[1]} " for words in _ACTIONS)
            current = blocks[match[1]] = []
        current.append((number, line))
    return blocks


@lru_cache(maxsize=64)
def _parse_port(text: str) -> Port:
    """What the lines of one port build; raises LineError, its number counted in these lines.

    Numbers that follow from others (max, burst, handles) and the order must be those that we write.
    """
    facts: dict[Fact, Any] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            facts |= [read_line(line)]
        except ValueError as error:
            raise LineError(number, line, str(error)) from None
    try:
        port = port_of(facts)
    except ValueError as error:
        raise LineError(1, lines[0], str(error)) from None
    filters = [fact for fact in facts if fact[0] == "filter"]
    canonical = lines_of(port_facts(port.state, port.background_dscp, port.ways, filters))
    for number, (line, expected) in enumerate(zip(lines, canonical, strict=False), start=1):
        if line != expected:
            raise LineError(number, line, f"not {expected!r}, but")
    if len(lines) != len(canonical):
        raise LineError(len(lines), lines[-1], f"{len(lines)} lines for a port that needs {len(canonical)}")
    return port
