"""The two batch files back into state; a line outside the grammar below is refused with its number."""

import re
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import Final

from mltswitch.capabilities import BytesLimit, Capabilities
from mltswitch.errors import UserInputError
from mltswitch.plan.segments import LOCATOR_BITS
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.base import LineError
from mltswitch.targets.common import NO_NEXT_HOP, UNKNOWN
from mltswitch.targets.linux.ingress import MARK, rewriting_of
from mltswitch.targets.linux.layout import GRADIENT_CLASS, Layout
from mltswitch.targets.linux.render import (
    ANY_PORT,
    PORT_MARK,
    QDISC_FILE,
    QUANTUM_BYTES,
    ROUTE_FILE,
    ROUTE_PROTOCOL,
    named,
    port_body,
    port_pieces,
    segment_text,
)
from mltswitch.targets.linux.tree import Band, Filter, Tree, switch_state
from mltswitch.targets.state import RouteState, SegmentRouteState, SegmentRouting, SwitchState

_COMMENT: Final = re.compile(r"#[\t -~]*|")
_PORT: Final = r"(?P<port>[A-Za-z0-9][A-Za-z0-9_.-]{0,14})"
PORT_NAME: Final = re.compile(_PORT)
_NUMBER: Final = r"[1-9][0-9]{0,18}"
_MINOR: Final = "(?:[1-9a-f]|10)"
_BAND: Final = rf"parent (?:(?:10|30):{_MINOR}|20:{_MINOR}|1[0-9a-f]{{2}}:1)"
_HANDLE: Final = r"handle [12][0-9a-f]{2}:"
_FIRST: Final = re.compile(rf"qdisc replace dev {_PORT} clsact")
_LINE: Final = re.compile(rf"(qdisc replace|class replace|filter add|filter del) dev {_PORT} [ -~]+")
_GRAMMAR: Final = {
    "clsact": re.compile("clsact"),
    "unmark": re.compile("ingress"),
    "mark": re.compile(f"ingress (?P<mark>{MARK.pattern})"),
    "reset": re.compile("root handle ffef: pfifo"),
    "shaper": re.compile(rf"root handle 1: tbf rate (?P<rate>{_NUMBER})bit burst {_NUMBER} limit {_NUMBER}"),
    "prio": re.compile(
        rf"(?:root|parent 1:1|parent 20:1) handle (?P<handle>10|30): "
        rf"prio bands (?P<bands>{_NUMBER}) priomap( [0-9]+){{16}}"
    ),
    "drr": re.compile(rf"(?:root|parent 1:1|parent 10:{_MINOR}) handle 20: drr"),
    "class": re.compile(rf"parent 20: classid 20:(?P<minor>{_MINOR}) drr quantum (?P<quantum>{_NUMBER})"),
    "cap": re.compile(rf"{_BAND} {_HANDLE} tbf rate (?P<rate>{_NUMBER})bit burst {_NUMBER} limit {_NUMBER}"),
    "red": re.compile(
        rf"{_BAND} {_HANDLE} red limit (?P<limit>{_NUMBER}) "
        rf"min (?P<threshold>{_NUMBER}) max {_NUMBER} avpkt {_NUMBER} burst {_NUMBER} "
        "bandwidth 10gbit probability 1 ecn"
    ),
    "bfifo": re.compile(rf"{_BAND} {_HANDLE} bfifo limit (?P<limit>{_NUMBER})"),
}
_FILTER: Final = re.compile(
    r"parent (?P<parent>[123]0:) protocol (?P<protocol>all|arp|ip|ipv6) prio (?P<preference>[1-8]) "
    rf"flower (?P<match>(?:[A-Za-z0-9_./-]+ )*)classid (?P=parent)(?P<minor>{_MINOR})"
)
_FILTER_WORDS: Final = "filter add"
_KINDS: Final = {
    "qdisc replace": ("red", "bfifo", "cap", "prio", "drr", "shaper", "reset", "clsact"),
    "class replace": ("class",),
    "filter del": ("unmark",),
    _FILTER_WORDS: ("mark",),
}
_WORDS: Final = tuple(_KINDS)
"""How the lines of a port begin."""
_SECTION: Final = "\n# "
"""Before the name of a port, whose lines follow: an empty line and a comment."""
_ROUTE: Final = re.compile(
    rf"route replace (?P<prefix>[0-9a-f.:/]+) via (?P<next_hop>[0-9a-f.:]+) "
    rf"dev {_PORT} proto {ROUTE_PROTOCOL}"
)
_DISCARD: Final = re.compile(rf"route replace blackhole (?P<prefix>[0-9./]+) proto {ROUTE_PROTOCOL}")
_SEGMENT: Final = re.compile(
    r"route replace (?P<segment>[0-9a-f:]+)/128 encap seg6local action End "
    rf"dev {_PORT} proto {ROUTE_PROTOCOL}"
)


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`."""
    del capabilities
    text = files[QDISC_FILE]
    found = _ports_as_written(text)
    if found is None:
        found = {name: _parse_block(name, lines) for name, lines in _port_blocks(text).items()}
    routes, segments = _Routes(files[ROUTE_FILE]).parse()
    state = switch_state(found, routes, segments)
    for port in state.ports:
        if port.unexpected:
            raise UserInputError(f"port {port.name}: {port.unexpected[0]}", where=QDISC_FILE)
    return state


_Line = tuple[int, str]
"""(line number, text)."""


def _lines(text: str) -> Iterator[_Line]:
    # Not splitlines: tc and ip end a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        if (line and line[0] != "#") or not _COMMENT.fullmatch(line):
            yield number, line


def _refuse(file: str, line: _Line, problem: str = UNKNOWN) -> UserInputError:
    return UserInputError(f"{problem}: {line[1][:120]!r}", where=f"{file}:{line[0]}")


def _ports_as_written(text: str) -> dict[str, Tree] | None:
    """Port → its tree, of a file whose sections stand as mltswitch's own template writes them.

    None: any other file, and one that is wrong. That is read line by line, which takes ten times as long.
    """
    if PORT_MARK in text and ANY_PORT in text:  # one character is found ten times as fast
        return None
    end = text.find(f"\n{_SECTION}") + 1 or len(text)
    if not all(_COMMENT.fullmatch(line) for line in text[:end].split("\n")):
        return None
    found: dict[str, Tree] = {}
    tree: Tree | None = None
    pieces: list[str] = []
    while end < len(text):
        start = text.find("\n", end + len(_SECTION)) + 1
        name = text[end + len(_SECTION) : start - 1]
        if not start or name in found or not PORT_NAME.fullmatch(name):
            return None
        # Most sections are the one before with another name: they are compared where they stand.
        expected = named(pieces, name)
        end = start + len(expected)
        is_alike = text.startswith(expected, start) and (end == len(text) or text.startswith(_SECTION, end))
        if tree is None or not is_alike:
            end = text.find(f"\n{_SECTION}", start) + 1 or len(text)
            try:
                tree = _parse_port(text[start:end].removesuffix("\n").replace(f" dev {name} ", ANY_PORT))
            except LineError:
                return None
            pieces = port_pieces(tree)
        found[name] = tree
    return found


def _port_blocks(text: str) -> dict[str, list[_Line]]:
    """Port → its lines."""
    blocks: dict[str, list[_Line]] = {}
    current: list[_Line] = []
    beginnings: tuple[str, ...] = ()
    for line in _lines(text):
        if not line[1].startswith(beginnings):
            name = _begun(line, blocks)
            beginnings = tuple(f"{words} dev {name} " for words in _WORDS)
            current = blocks[name] = []
        current.append(line)
    return blocks


def _begun(line: _Line, known: Container[str]) -> str:
    """The port whose lines begin with this one."""
    match = _FIRST.fullmatch(line[1])
    if match is None:
        is_ours = _LINE.fullmatch(line[1])
        raise _refuse(
            QDISC_FILE, line, *(["belongs to another port than the lines above"] if is_ours else [])
        )
    if match["port"] in known:
        raise _refuse(QDISC_FILE, line, "the port stands here a second time")
    return match["port"]


def _parse_block(name: str, lines: list[_Line]) -> Tree:
    text = "\n".join(line for _, line in lines)
    try:
        return _parse_port(text.replace(f" dev {name} ", ANY_PORT))
    except LineError as error:
        number = lines[error.number - 1][0]
        problem = str(error).replace(ANY_PORT, f" dev {name} ")
        raise UserInputError(problem, where=f"{QDISC_FILE}:{number}") from None


@lru_cache(maxsize=64)
def _parse_port(text: str) -> Tree:
    """The tree that the lines of one port build; raises LineError, its number counted in these lines."""
    port = _PortLines()
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        port.take(number, line)
    tree = port.tree(lines)
    _check_canonical(tree, lines)
    return tree


@lru_cache(maxsize=4096)
def _filter(text: str) -> Filter | None:
    """One filter, from what follows the port's name; the ports of a switch have the same. None: no filter."""
    match = _FILTER.fullmatch(text)
    if match is None:
        return None
    return Filter(
        match["parent"],
        int(match["preference"]),
        match["protocol"],
        match["match"].rstrip(),
        int(match["minor"], 16),
    )


class _PortLines:
    """What the lines of one port say so far."""

    def __init__(self) -> None:
        self._shaped_bps: int | None = None
        self._bands: list[Band] = []
        self._cap_bps: int | None = None
        self._prios: dict[str, int] = {}
        self._quanta: dict[int, int] = {}
        self._filters: set[Filter] = set()
        self._marks: list[str] = []

    def take(self, number: int, line: str) -> None:
        words, _, rest = line.partition(ANY_PORT)
        if words == _FILTER_WORDS and (entry := _filter(rest)) is not None:
            self._filters.add(entry)
            return
        for kind in _KINDS.get(words, ()):
            match = _GRAMMAR[kind].fullmatch(rest)
            if match is not None:
                self._add(kind, match)
                return
        raise LineError(number, line, UNKNOWN)

    def _add(self, kind: str, match: re.Match[str]) -> None:
        match kind:
            case "mark":
                self._marks.append(match["mark"])
            case "shaper":
                self._shaped_bps = int(match["rate"])
            case "prio":
                self._prios[match["handle"]] = int(match["bands"])
            case "class":
                self._quanta[int(match["minor"], 16)] = int(match["quantum"])
            case "cap":
                self._cap_bps = int(match["rate"])
            case "red" | "bfifo":
                # Handles follow from the order: what is compared with the canonical text has the right ones.
                number = len(self._bands) + 1
                threshold = int(match["threshold"]) if kind == "red" else None
                limit = BytesLimit(int(match["limit"]))
                self._bands.append(Band(number, threshold, limit, self._cap_bps))
                self._cap_bps = None

    def tree(self, lines: list[str]) -> Tree:
        count, outer, inner = len(self._bands), self._prios.get("10", 0), self._prios.get("30", 0)
        shares = tuple(
            quantum // QUANTUM_BYTES for minor, quantum in self._quanta.items() if minor != GRADIENT_CLASS
        )
        ahead = max(outer - 1, 0) if shares else None
        layout = Layout(count, ahead, len(shares))
        least = 1 if ahead is None else ahead + 1 + len(shares)
        if count < least or (layout.outer, layout.inner) != (outer, inner):
            raise LineError(1, lines[0], f"{count} queues do not fit prios of {outer} and {inner} bands")
        rewriting, _ = rewriting_of(self._marks)
        filters = frozenset(self._filters)
        return Tree(self._shaped_bps, tuple(self._bands), layout, shares, filters, rewriting=rewriting)


def _check_canonical(tree: Tree, lines: list[str]) -> None:
    """Numbers that follow from others (max, burst, handles) and the order must be those that we write."""
    canonical = port_body(tree).splitlines()
    for number, (line, expected) in enumerate(zip(lines, canonical, strict=False), start=1):
        if line != expected:
            raise LineError(number, line, f"not {expected!r}, but")
    if len(lines) != len(canonical):
        raise LineError(len(lines), lines[-1], f"{len(lines)} lines for a port that needs {len(canonical)}")


class _Routes:
    """The file of routes, read line by line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._routes: dict[IPv4Network, RouteState] = {}
        self._segments: dict[IPv6Network, SegmentRouteState] = {}
        self._locator: IPv6Network | None = None

    def parse(self) -> tuple[tuple[RouteState, ...], SegmentRouting | None]:
        """(IPv4 routes, SRv6); raises UserInputError."""
        for line in _lines(self._text):
            try:
                self._take(line)
            except ValueError as error:
                raise _refuse(ROUTE_FILE, line, str(error)) from None
        segments = tuple(self._segments.values())
        return tuple(self._routes.values()), SegmentRouting(self._locator, segments) if segments else None

    def _take(self, line: _Line) -> None:
        if match := _DISCARD.fullmatch(line[1]):
            self._take_route(line, RouteState(ipv4_network(match["prefix"]), NO_NEXT_HOP, ""))
            return
        match = _ROUTE.fullmatch(line[1])
        if match is None:
            match = _SEGMENT.fullmatch(line[1])
            if match is None:
                raise _refuse(ROUTE_FILE, line)
            self._take_segment(line, IPv6Address(match["segment"]))
            return
        if self._locator is not None:
            raise _refuse(ROUTE_FILE, line, "a route after the segment")
        prefix, next_hop, port = match.groups()
        if ":" in prefix:
            segment = SegmentRouteState(IPv6Network(prefix), IPv6Address(next_hop), port)
            if self._segments.setdefault(segment.prefix, segment) is not segment:
                raise _refuse(ROUTE_FILE, line, "a second route for this prefix")
            return
        self._take_route(line, RouteState(ipv4_network(prefix), ipv4_address(next_hop), port))

    def _take_route(self, line: _Line, route: RouteState) -> None:
        if self._segments or self._locator is not None:
            raise _refuse(ROUTE_FILE, line, "IPv4 after IPv6")
        if self._routes.setdefault(route.prefix, route) is not route:
            raise _refuse(ROUTE_FILE, line, "a second route for this prefix")

    def _take_segment(self, line: _Line, segment: IPv6Address) -> None:
        """The first address of a block, on the port of the first route."""
        block = IPv6Network((segment, LOCATOR_BITS), strict=False)
        first = next(iter(self._segments.values()), None)
        if self._locator is not None or first is None:
            raise _refuse(ROUTE_FILE, line, "a segment without routes, or a second one")
        if line[1] != f"route replace {segment_text(block.network_address, first.port)}":
            raise _refuse(ROUTE_FILE, line, f"not the first address of {block} on port {first.port}")
        self._locator = block
