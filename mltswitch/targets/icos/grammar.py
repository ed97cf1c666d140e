"""The lines that mltswitch writes for FASTPATH, each as a value: what it sets, on which port."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from mltswitch.targets.common import LineError, with_item
from mltswitch.targets.icos.capabilities import SCALES
from mltswitch.targets.icos.settings import (
    INSTANTANEOUS,
    TRUSTED,
    UNTRUSTED,
    DropCurve,
    PortSettings,
    step_at,
)
from mltswitch.targets.state import RouteState
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"(?:(?:gi|te|fo)?[1-8]/)?[0-9]/[1-9][0-9]{0,2}")
"""`1/0/1` (unit/slot/port), `0/1` where there is no stack, `te1/0/1` on Dell's N-series."""
LEAVE: Final = "exit"


def enter(port: str) -> str:
    """The line that opens a port's interface mode."""
    return f"interface {port}"


@dataclass(frozen=True, slots=True)
class MapPriority:
    """`classofservice dot1p-mapping 0`: where untrusted packets and packets that are not IP go."""

    queue: int

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return replace(port, priorities=with_item(port.priorities, 0, self.queue))


@dataclass(frozen=True, slots=True)
class Trust:
    """`classofservice trust`."""

    mode: str

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return replace(port, trust=self.mode)


@dataclass(frozen=True, slots=True)
class Strict:
    """`cos-queue strict`."""

    queue: int

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return port.with_queue(self.queue, replace(port.queues[self.queue], strict=True))


@dataclass(frozen=True, slots=True)
class RandomDetect:
    """`cos-queue random-detect`, or without it tail drop."""

    queue: int
    on: bool

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return port.with_queue(self.queue, replace(port.queues[self.queue], random_detect=self.on))


@dataclass(frozen=True, slots=True)
class Curve:
    """`random-detect queue-parms`."""

    queue: int
    curve: DropCurve

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return port.with_queue(self.queue, replace(port.queues[self.queue], curve=self.curve))


@dataclass(frozen=True, slots=True)
class Instantaneous:
    """`random-detect exponential-weighting-constant 0`."""

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return replace(port, weighting_exponent=INSTANTANEOUS)


Setting = MapPriority | Trust | Strict | RandomDetect | Curve | Instantaneous


@dataclass(frozen=True, slots=True)
class PortLine:
    """One line of a port's interface mode."""

    text: str
    port: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class MapLine:
    """One line of the switch's DSCP map."""

    text: str
    dscp: int
    queue: int


@dataclass(frozen=True, slots=True)
class RouteLine:
    """One line that adds a route; its port is the one that the last comment about routes named."""

    text: str
    route: RouteState


@dataclass(frozen=True, slots=True)
class ScaleLine:
    """The comment that tells how many bytes 100 % are: the switch's lines do not say it."""

    text: str
    full_scale_bytes: int


Line = PortLine | MapLine | RouteLine | ScaleLine

_SCALE: Final = re.compile(r"! a threshold of 100 % is ([1-9][0-9]{0,9}) B")
_COMMENT: Final = re.compile(r"![ -~]*|")
_ROUTE_PORT: Final = re.compile(rf"! routes through ({PORT_NAME.pattern})")
_INTERFACE: Final = re.compile(rf"interface ({PORT_NAME.pattern})")
_MAP: Final = re.compile(r"classofservice ip-dscp-mapping ([1-9]?[0-9]) ([0-6])")
_ROUTE: Final = re.compile(r"ip route ([0-9.]{7,15}) ([0-9.]{7,15}) ([0-9.]{7,15})")
_PERCENTS: Final = r"((?:[1-9][0-9]{0,2} ){4})"


def _curve(match: re.Match[str]) -> Setting:
    rows = [tuple(map(int, match[group].split())) for group in (2, 3, 4)]
    curve = DropCurve(rows[0], rows[1], rows[2], marks=True)
    if curve.percent is None:
        raise ValueError("not one certain step for all colours")
    return Curve(int(match[1]), step_at(curve.percent))


_SETTINGS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Setting]], ...]] = (
    (re.compile(r"classofservice dot1p-mapping 0 ([0-6])"), lambda match: MapPriority(int(match[1]))),
    (re.compile(f"classofservice trust ({TRUSTED}|{UNTRUSTED})"), lambda match: Trust(match[1])),
    (re.compile(r"cos-queue strict ([0-6])"), lambda match: Strict(int(match[1]))),
    (re.compile(r"cos-queue random-detect ([0-6])"), lambda match: RandomDetect(int(match[1]), on=True)),
    (re.compile(r"no cos-queue random-detect ([0-6])"), lambda match: RandomDetect(int(match[1]), on=False)),
    (
        re.compile(
            rf"random-detect queue-parms ([0-6]) min-thresh {_PERCENTS}max-thresh {_PERCENTS}"
            rf"drop-prob-scale {_PERCENTS}ecn"
        ),
        _curve,
    ),
    (
        re.compile(f"random-detect exponential-weighting-constant {INSTANTANEOUS}"),
        lambda _: Instantaneous(),
    ),
)


def parse_lines(text: str) -> Iterator[tuple[int, Line]]:
    """Lines with their numbers, comments and changes of mode left out; raises LineError."""
    route_port = open_port = ""
    number, line = 0, ""
    # Not splitlines: what is pasted into the command line ends a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        if match := _ROUTE_PORT.fullmatch(line):
            route_port = match[1]
        elif (match := _INTERFACE.fullmatch(line)) and not open_port:
            open_port = match[1]
        elif line == LEAVE and open_port:
            open_port = ""
        elif line.startswith("!") or not line:
            if not _COMMENT.fullmatch(line):
                raise LineError(number, line, "not a comment that mltswitch writes")
            if match := _SCALE.fullmatch(line):
                if int(match[1]) not in SCALES:
                    raise LineError(number, line, "not a scale that any document gives")
                yield number, ScaleLine(line, int(match[1]))
        else:
            try:
                yield number, _port_line(line, open_port) if open_port else _line(line, route_port)
            except ValueError as error:
                raise LineError(number, line, str(error)) from None
    if open_port:
        raise LineError(number, line, f"interface {open_port} is not left")


def _port_line(line: str, port: str) -> Line:
    for pattern, make in _SETTINGS:
        if match := pattern.fullmatch(line):
            return PortLine(line, port, make(match))
    raise ValueError("not a line that mltswitch writes for an interface")


def _line(line: str, route_port: str) -> Line:
    if match := _MAP.fullmatch(line):
        if int(match[1]) >= DSCP_COUNT:
            raise ValueError("not a code point below 64")
        return MapLine(line, int(match[1]), int(match[2]))
    if match := _ROUTE.fullmatch(line):
        prefix = IPv4Network(f"{match[1]}/{match[2]}")
        if str(prefix.netmask) != match[2]:
            raise ValueError("not a network mask")
        return RouteLine(line, RouteState(prefix, IPv4Address(match[3]), route_port))
    raise ValueError("not a line that mltswitch writes")
