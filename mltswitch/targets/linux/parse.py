"""The two batch files back into state; a line outside the grammar below is refused with its number."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UserInputError
from mltswitch.targets.linux.render import QDISC_FILE, ROUTE_FILE, ROUTE_PROTOCOL, port_text
from mltswitch.targets.linux.tree import Band, Filter, Tree, switch_state
from mltswitch.targets.state import RouteState, SwitchState

_COMMENT: Final = re.compile(r"#[\t -~]*|")
_PORT: Final = r"(?P<port>[A-Za-z0-9][A-Za-z0-9_.-]{0,14})"
_BAND: Final = r"10:(?P<band>[1-9a-f]|10)"
_NUMBER: Final = r"[1-9][0-9]{0,18}"
_GRAMMAR: Final = {
    "reset": re.compile(rf"qdisc replace dev {_PORT} root handle ffef: pfifo"),
    "shaper": re.compile(
        rf"qdisc replace dev {_PORT} root handle 1: tbf "
        rf"rate (?P<rate>{_NUMBER})bit burst {_NUMBER} limit {_NUMBER}"
    ),
    "prio": re.compile(
        rf"qdisc replace dev {_PORT} (root|parent 1:1) handle 10: prio bands {_NUMBER} priomap( [0-9]+){{16}}"
    ),
    "red": re.compile(
        rf"qdisc replace dev {_PORT} parent {_BAND} handle 1[0-9a-f]{{2}}: red limit (?P<limit>{_NUMBER}) "
        rf"min (?P<threshold>{_NUMBER}) max {_NUMBER} avpkt {_NUMBER} burst {_NUMBER} "
        "bandwidth 10gbit probability 1 ecn"
    ),
    "bfifo": re.compile(
        rf"qdisc replace dev {_PORT} parent {_BAND} handle 1[0-9a-f]{{2}}: bfifo limit (?P<limit>{_NUMBER})"
    ),
    "filter": re.compile(
        rf"filter add dev {_PORT} parent 10: protocol (?P<protocol>all|arp|ip|ipv6) "
        rf"prio (?P<preference>[1-5]) flower (?P<match>(?:[A-Za-z0-9_./-]+ )*)classid {_BAND}"
    ),
}
_ROUTE: Final = re.compile(
    rf"route replace (?P<prefix>[0-9./]+) via (?P<next_hop>[0-9.]+) dev {_PORT} proto {ROUTE_PROTOCOL}"
)


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render_files`; raises UserInputError naming file and line."""
    if set(files) != {QDISC_FILE, ROUTE_FILE}:
        raise UserInputError(
            f"the files are {', '.join(sorted(files)) or 'none'}", expected=f"{QDISC_FILE} and {ROUTE_FILE}"
        )
    found = {name: _parse_port(name, lines) for name, lines in _port_blocks(files[QDISC_FILE]).items()}
    state = switch_state(found, tuple(_parse_routes(files[ROUTE_FILE])))
    for port in state.ports:
        if port.unexpected:
            raise UserInputError(f"port {port.name}: {port.unexpected[0]}", where=QDISC_FILE)
    return state


_Line = tuple[int, str]
"""(line number, text)."""


def _lines(text: str) -> Iterator[_Line]:
    # Not splitlines: tc and ip end a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        if not _COMMENT.fullmatch(line):
            yield number, line


def _refuse(file: str, line: _Line, problem: str = "not a line that mltswitch writes") -> UserInputError:
    return UserInputError(f"{problem}: {line[1][:120]!r}", where=f"{file}:{line[0]}")


def _match(line: _Line) -> tuple[str, re.Match[str]]:
    for kind, pattern in _GRAMMAR.items():
        if match := pattern.fullmatch(line[1]):
            return kind, match
    raise _refuse(QDISC_FILE, line)


def _port_blocks(text: str) -> dict[str, list[_Line]]:
    blocks: dict[str, list[_Line]] = {}
    current = ""
    for line in _lines(text):
        kind, match = _match(line)
        port = match["port"]
        if kind == "reset":
            if port in blocks:
                raise _refuse(QDISC_FILE, line, "the port stands here a second time")
            current = port
            blocks[port] = []
        if port != current:
            raise _refuse(QDISC_FILE, line, "belongs to another port than the lines above")
        blocks[port].append(line)
    return blocks


def _parse_port(name: str, lines: list[_Line]) -> Tree:
    shaped_bps: int | None = None
    bands: list[Band] = []
    filters: set[Filter] = set()
    for line in lines:
        kind, match = _match(line)
        match kind:
            case "shaper":
                shaped_bps = int(match["rate"])
            case "red" | "bfifo":
                threshold = int(match["threshold"]) if kind == "red" else None
                bands.append(Band(int(match["band"], 16), threshold, BytesLimit(int(match["limit"]))))
            case "filter":
                preference, band = int(match["preference"]), int(match["band"], 16)
                filters.add(Filter(preference, match["protocol"], match["match"].rstrip(), band))
    if not bands:
        raise _refuse(QDISC_FILE, lines[0], "a port without a queue")
    tree = Tree(shaped_bps, tuple(bands), frozenset(filters))
    _check_canonical(name, tree, lines)
    return tree


def _check_canonical(name: str, tree: Tree, lines: list[_Line]) -> None:
    """Numbers that follow from others (max, burst, handles) and the order must be those that we write."""
    canonical = port_text(name, tree).splitlines()
    for line, expected in zip(lines, canonical, strict=False):
        if line[1] != expected:
            raise UserInputError(
                f"{line[1][:120]!r}", where=f"{QDISC_FILE}:{line[0]}", expected=repr(expected)
            )
    if len(lines) != len(canonical):
        raise _refuse(QDISC_FILE, lines[-1], f"{len(lines)} lines for a port that needs {len(canonical)}")


def _parse_routes(text: str) -> Iterator[RouteState]:
    seen: set[IPv4Network] = set()
    for line in _lines(text):
        match = _ROUTE.fullmatch(line[1])
        if match is None:
            raise _refuse(ROUTE_FILE, line)
        try:
            route = RouteState(IPv4Network(match["prefix"]), IPv4Address(match["next_hop"]), match["port"])
        except ValueError as error:
            raise _refuse(ROUTE_FILE, line, str(error)) from None
        if route.prefix in seen:
            raise _refuse(ROUTE_FILE, line, "a second route for this prefix")
        seen.add(route.prefix)
        yield route
