"""The lines that mltswitch writes for FASTPATH, each as a value: what it sets, on which port.

Ports have the same few bodies between `interface` and `exit` over and over, and lines that name no route are
few, so the meaning of both is remembered by their text.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPV4LENGTH, IPv4Network
from typing import Final, NamedTuple

from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.base import LineError
from mltswitch.targets.common import (
    NO_NEXT_HOP,
    NULL_INTERFACE,
    UNKNOWN,
    PortSetting,
    QueueSetting,
    with_item,
)
from mltswitch.targets.icos.capabilities import QUEUE_COUNT
from mltswitch.targets.icos.policy import (
    CLASS,
    LEAVE,
    OWN_CLASS,
    POLICY_LINES,
    attach_line,
    class_lines,
    policy_line,
    policy_with,
)
from mltswitch.targets.icos.settings import (
    CERTAIN,
    INSTANTANEOUS,
    TRUSTED,
    UNTRUSTED,
    DropCurve,
    PortSettings,
    step_at,
)
from mltswitch.targets.remap import POLICIES
from mltswitch.targets.state import RouteState
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"(?:(?:gi|te|fo)?[1-8]/)?[0-9]/[1-9][0-9]{0,2}")
"""`1/0/1` (unit/slot/port), `0/1` where there is no stack, `te1/0/1` on Dell's N-series."""
REMEMBERED_BODIES: Final = 512
"""A switch has a handful; a file of a user may have one for each port."""
REMEMBERED_LINES: Final = 2048
"""Of an interface there are some 800 that differ, of the DSCP map 448."""
NETMASKS: Final = tuple(str(IPv4Network((0, length)).netmask) for length in range(IPV4LENGTH + 1))
"""Prefix length → mask."""


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

    def former(self, port: PortSettings) -> Iterator["MapPriority"]:
        """What leads priority 0 where the port does."""
        yield MapPriority(port.priorities[0])

    def __str__(self) -> str:
        return f"classofservice dot1p-mapping 0 {self.queue}"


@dataclass(frozen=True, slots=True)
class Minimums:
    """`cos-queue min-bandwidth`: of all queues, in percent."""

    percents: tuple[int, ...]

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        pairs = zip(port.queues, self.percents, strict=True)
        queues = tuple(replace(queue, minimum_percent=percent) for queue, percent in pairs)
        return replace(port, queues=queues)

    def __str__(self) -> str:
        return f"cos-queue min-bandwidth {' '.join(map(str, self.percents))}"


Setting = PortSetting | QueueSetting | MapPriority | Minimums


@dataclass(frozen=True, slots=True)
class PortLine:
    """One line of a port's interface mode."""

    text: str
    port: str
    setting: Setting


def line_of(port: str, setting: Setting) -> PortLine:
    """The line that sets this on a port, also to a value of somebody else's; no service, no policy."""
    text = str(setting)
    match setting:
        case PortSetting("trust", mode):
            text = f"classofservice trust {mode}"
        case PortSetting("weighting_exponent", exponent):
            text = f"random-detect exponential-weighting-constant {exponent}"
        case QueueSetting(queue, "random_detect", on):
            text = f"{'' if on else 'no '}cos-queue random-detect {queue}"
        case QueueSetting(queue, "curve", curve):
            text = f"random-detect queue-parms {queue} {curve}"
    return PortLine(text, port, setting)


@dataclass(frozen=True, slots=True)
class MapLine:
    """One line of the switch's DSCP map."""

    text: str
    dscp: int
    queue: int


class RouteLine(NamedTuple):
    """One line that adds a route."""

    text: str
    route: RouteState


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """One line of our classes and our policies, those that open and leave a mode, too."""

    text: str


Line = PortLine | MapLine | RouteLine | PolicyLine


@dataclass(frozen=True, slots=True)
class Block:
    """A port's lines between `interface` and `exit`."""

    number: int
    """Of the first of them."""
    port: str
    body: tuple[str, ...]


_COMMENT: Final = re.compile(r"![ -~]*|")
_INTERFACE: Final = re.compile(rf"interface ({PORT_NAME.pattern})")
_MAP: Final = re.compile(r"classofservice ip-dscp-mapping ([1-9]?[0-9]) ([0-6])")
_ROUTE_START: Final = "ip route "
_ROUTE: Final = re.compile(rf"ip route ([0-9.]{{7,15}}) ([0-9.]{{7,15}}) ([0-9.]{{7,15}}|{NULL_INTERFACE})")
_ACTION: Final = re.compile(r"assign-queue [0-6]|mark ip-dscp (?:[0-9]|[1-5][0-9]|6[0-3])")
_PERCENTS: Final = r"((?:[1-9][0-9]{0,2} ){4})"


def _curve(match: re.Match[str]) -> Setting:
    rows = [tuple(map(int, match[group].split())) for group in (2, 3, 4)]
    curve = DropCurve(rows[0], rows[1], rows[2], marks=True)
    if curve.percent is None:
        raise ValueError("not one certain step for all colours")
    return QueueSetting(int(match[1]), "curve", step_at(curve.percent))


def _minimums(match: re.Match[str]) -> Setting:
    percents = tuple(map(int, match[1].split()))
    if sum(percents) > CERTAIN:
        raise ValueError("more than 100 % together")
    return Minimums(percents)


_SETTINGS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Setting]], ...]] = (
    (re.compile(r"classofservice dot1p-mapping 0 ([0-6])"), lambda match: MapPriority(int(match[1]))),
    (
        re.compile(f"classofservice trust ({TRUSTED}|{UNTRUSTED})"),
        lambda match: PortSetting("trust", match[1]),
    ),
    (re.compile(r"cos-queue strict ([0-6])"), lambda match: QueueSetting(int(match[1]), "strict", True)),
    (re.compile(r"no cos-queue strict ([0-6])"), lambda match: QueueSetting(int(match[1]), "strict", False)),
    (re.compile(rf"cos-queue min-bandwidth((?: (?:[1-9]?[0-9]|100)){{{QUEUE_COUNT}}})"), _minimums),
    (re.compile(attach_line(f"({'|'.join(POLICIES)})")), lambda match: PortSetting("policy", match[1])),
    (
        re.compile(r"cos-queue random-detect ([0-6])"),
        lambda match: QueueSetting(int(match[1]), "random_detect", True),
    ),
    (
        re.compile(r"no cos-queue random-detect ([0-6])"),
        lambda match: QueueSetting(int(match[1]), "random_detect", False),
    ),
    (
        re.compile(
            rf"random-detect queue-parms ([0-6]) min-thresh {_PERCENTS}max-thresh {_PERCENTS}"
            rf"drop-prob-scale {_PERCENTS}ecn"
        ),
        _curve,
    ),
    (
        re.compile(f"random-detect exponential-weighting-constant {INSTANTANEOUS}"),
        lambda _: PortSetting("weighting_exponent", INSTANTANEOUS),
    ),
)


def parse_entries(text: str) -> Iterator[tuple[int, Line | Block]]:
    """Blocks of ports and single lines with their numbers, comments left out; raises LineError."""
    open_mode = ""
    # Not splitlines: what is pasted into the command line ends a line at a line feed only.
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        line, number = lines[index], index + 1
        index += 1
        if open_mode:
            mode = _mode_after(open_mode, line)
            if mode is None:
                raise LineError(number, line, UNKNOWN)
            open_mode = mode
            yield number, PolicyLine(line)
        elif line.startswith(_ROUTE_START):  # most are
            yield number, _route_line(number, line)
        elif block := _block(lines, index):
            yield block.number, block
            index += len(block.body) + 1
        elif not line or line.startswith("!"):
            _check_comment(number, line)
        elif _opens_policy(line):
            open_mode = line
            yield number, PolicyLine(line)
        else:
            try:
                yield number, _map_line(line)
            except ValueError as error:
                raise LineError(number, line, str(error)) from None
    if open_mode:
        raise LineError(len(lines), lines[-1], f"{open_mode} is not left")


def _block(lines: list[str], index: int) -> Block | None:
    """What stands from this index on, where the line before opens a port's mode; raises LineError."""
    match = _INTERFACE.fullmatch(lines[index - 1])
    if match is None:
        return None
    try:
        end = lines.index(LEAVE, index)
    except ValueError:
        raise LineError(len(lines), lines[-1], f"interface {match[1]} is not left") from None
    return Block(index + 1, match[1], tuple(lines[index:end]))


def parse_lines(text: str) -> Iterator[tuple[int, Line]]:
    """Lines with their numbers, comments and changes of ports left out; raises LineError."""
    for number, entry in parse_entries(text):
        if isinstance(entry, Block):
            for offset, line, setting in settings_of(entry):
                yield number + offset, PortLine(line, entry.port, setting)
        else:
            yield number, entry


def settings_of(block: Block) -> tuple[tuple[int, str, Setting], ...]:
    """(lines after the first, line, what it sets); raises LineError."""
    try:
        return _settings(block.body)
    except LineError as error:
        error.number += block.number
        raise


@lru_cache(maxsize=REMEMBERED_BODIES)
def _settings(body: tuple[str, ...]) -> tuple[tuple[int, str, Setting], ...]:
    found: list[tuple[int, str, Setting]] = []
    for offset, line in enumerate(body):
        if line.startswith("!") or not line:
            _check_comment(offset, line)
            continue
        try:
            found.append((offset, line, _setting(line)))
        except ValueError as error:
            raise LineError(offset, line, str(error)) from None
    return tuple(found)


def _check_comment(number: int, line: str) -> None:
    if not _COMMENT.fullmatch(line):
        raise LineError(number, line, "not a comment that mltswitch writes")


@lru_cache(maxsize=REMEMBERED_LINES)
def _setting(line: str) -> Setting:
    for pattern, make in _SETTINGS:
        if match := pattern.fullmatch(line):
            return make(match)
    raise ValueError("not a line that mltswitch writes for an interface")


def _opens_policy(line: str) -> bool:
    if not line.startswith("class-map "):
        return line in POLICY_LINES
    words = line.split(" ")
    return len(words) == 4 and bool(OWN_CLASS.fullmatch(words[2])) and class_lines(words[2])[0] == line


@lru_cache(maxsize=REMEMBERED_LINES)
def _mode_after(mode: str, line: str) -> str | None:
    """The mode after a line of it; empty: the configuration mode; None: the mode has no such line."""
    in_class = CLASS.fullmatch(mode)
    if line == LEAVE:
        return policy_line(policy_with(in_class[1])) if in_class else ""
    if mode in POLICY_LINES:
        match = CLASS.fullmatch(line)
        if match and OWN_CLASS.fullmatch(match[1]) and policy_with(match[1]) == POLICY_LINES[mode]:
            return line
        return None
    is_known = _ACTION.fullmatch(line) if in_class else class_lines(mode.split()[2])[1] == line
    return mode if is_known else None


def _route_line(number: int, line: str) -> RouteLine:
    """The route; raises LineError."""
    try:
        return RouteLine(line, _route(line))
    except ValueError as error:
        raise LineError(number, line, str(error)) from None


def _route(line: str) -> RouteState:
    match = _ROUTE.fullmatch(line)
    if match is None:
        raise ValueError(UNKNOWN)
    address, mask, next_hop = match.groups()
    prefix = ipv4_network(f"{address}/{mask}")
    if mask != NETMASKS[prefix.prefixlen]:
        raise ValueError("not a network mask")
    if next_hop == NULL_INTERFACE:
        return RouteState(prefix, NO_NEXT_HOP, "")
    return RouteState(prefix, ipv4_address(next_hop), "")


@lru_cache(maxsize=REMEMBERED_LINES)
def _map_line(line: str) -> MapLine:
    match = _MAP.fullmatch(line)
    if match is None:
        raise ValueError(UNKNOWN)
    if int(match[1]) >= DSCP_COUNT:
        raise ValueError("not a code point below 64")
    return MapLine(line, int(match[1]), int(match[2]))
