"""The lines that mltswitch writes for EOS, each as a value: what it sets, on which port."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from mltswitch.targets.common import LineError, with_item
from mltswitch.targets.eos.capabilities import LARGEST_VALUE, SHARED_QUEUE, UNICAST_QUEUE
from mltswitch.targets.eos.settings import TRUSTED, UNTRUSTED, Detection, Maps, PortSettings
from mltswitch.targets.eos.text import PlacedLine, indented, placed_lines
from mltswitch.targets.state import RouteState
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"Ethernet[1-9][0-9]{0,2}(?:/[1-9][0-9]?){0,2}")


@dataclass(frozen=True, slots=True)
class MapDscp:
    """`qos map dscp`."""

    dscps: tuple[int, ...]
    traffic_class: int

    def apply(self, maps: Maps) -> Maps:
        """The maps with this set."""
        classes, precedence = list(maps.dscp), list(maps.precedence)
        for dscp in self.dscps:
            classes[dscp], precedence[dscp] = self.traffic_class, 0
        return replace(maps, dscp=tuple(classes), precedence=tuple(precedence))


@dataclass(frozen=True, slots=True)
class MapClass:
    """`qos map traffic-class`."""

    traffic_class: int
    queue: int

    def apply(self, maps: Maps) -> Maps:
        """The maps with this set."""
        return replace(maps, queue=with_item(maps.queue, self.traffic_class, self.queue))


@dataclass(frozen=True, slots=True)
class Trust:
    """`qos trust dscp`, or `no qos trust`."""

    mode: str

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return replace(port, trust=self.mode)


@dataclass(frozen=True, slots=True)
class PortCos:
    """`qos cos`."""

    cos: int

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return replace(port, cos=self.cos)


@dataclass(frozen=True, slots=True)
class PortDscp:
    """`qos dscp`."""

    dscp: int

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return replace(port, dscp=self.dscp)


@dataclass(frozen=True, slots=True)
class Strict:
    """`priority strict`."""

    queue: int

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        entry = replace(port.queues[self.queue], strict=True)
        return replace(port, queues=with_item(port.queues, self.queue, entry))


@dataclass(frozen=True, slots=True)
class Detect:
    """`random-detect ecn`, or none."""

    queue: int
    detection: Detection | None

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        entry = replace(port.queues[self.queue], detection=self.detection)
        return replace(port, queues=with_item(port.queues, self.queue, entry))


MapSetting = MapDscp | MapClass
PortSetting = Trust | PortCos | PortDscp | Strict | Detect


@dataclass(frozen=True, slots=True)
class MapLine:
    """One line that concerns the whole switch."""

    placed: PlacedLine
    setting: MapSetting


@dataclass(frozen=True, slots=True)
class PortLine:
    """One line that concerns a port."""

    placed: PlacedLine
    port: str
    queue_word: str
    """`uc-tx-queue` or `tx-queue`; empty outside a queue."""
    setting: PortSetting


@dataclass(frozen=True, slots=True)
class RouteLine:
    """One line that adds a route."""

    placed: PlacedLine
    route: RouteState


Line = MapLine | PortLine | RouteLine

_PORT: Final = re.compile(rf"interface ({PORT_NAME.pattern})")
_QUEUE: Final = re.compile(rf"({UNICAST_QUEUE}|{SHARED_QUEUE}) ([0-6])")
_ROUTE: Final = re.compile(rf"ip route ([0-9.]{{7,15}}/[0-9]{{1,2}}) ({PORT_NAME.pattern}) ([0-9.]{{7,15}})")
_NUMBER: Final = r"([1-9][0-9]{0,8})"


def _map_dscp(match: re.Match[str]) -> MapSetting:
    dscps = tuple(int(word) for word in match[1].split())
    if max(dscps) >= DSCP_COUNT or len(set(dscps)) < len(dscps):
        raise ValueError("not a list of different code points below 64")
    return MapDscp(dscps, int(match[2]))


def _detect(match: re.Match[str], queue: int) -> PortSetting:
    if match[1] != match[2]:
        raise ValueError("minimum and maximum differ")
    threshold_bytes = int(match[1])
    if threshold_bytes > LARGEST_VALUE:
        raise ValueError(f"no threshold is above {LARGEST_VALUE}")
    return Detect(queue, Detection(threshold_bytes, threshold_bytes, "bytes"))


_MAP_LINES: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], MapSetting]], ...]] = (
    (re.compile(r"qos map dscp ((?:[0-9]{1,2} )+)to traffic-class ([0-6])"), _map_dscp),
    (
        re.compile(rf"qos map traffic-class ([0-6]) to {SHARED_QUEUE} ([0-6])"),
        lambda match: MapClass(int(match[1]), int(match[2])),
    ),
)
_PORT_LINES: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], PortSetting]], ...]] = (
    (re.compile("qos trust dscp"), lambda _: Trust(TRUSTED)),
    (re.compile("no qos trust"), lambda _: Trust(UNTRUSTED)),
    (re.compile("qos cos ([0-7])"), lambda match: PortCos(int(match[1]))),
    (re.compile("qos dscp ([0-9]|[1-5][0-9]|6[0-3])"), lambda match: PortDscp(int(match[1]))),
)
_QUEUE_LINES: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int], PortSetting]], ...]] = (
    (re.compile("priority strict"), lambda _, queue: Strict(queue)),
    (re.compile("no random-detect ecn"), lambda _, queue: Detect(queue, None)),
    (
        re.compile(
            rf"random-detect ecn minimum-threshold {_NUMBER} bytes maximum-threshold {_NUMBER} bytes "
            "max-mark-probability 100 weight 0"
        ),
        _detect,
    ),
)


def parse_lines(text: str) -> Iterator[Line]:
    """Lines that set something; those that open a mode and comments are left out; raises LineError."""
    written = text.split("\n")
    for number, line_text in enumerate(written, start=1):
        if not (line_text.isascii() and line_text.isprintable()):
            raise LineError(number, line_text, "not printable ASCII")
    for placed in placed_lines(text):
        try:
            if written[placed.number - 1] != indented(placed.modes, placed.text):
                raise ValueError("not indented as its place asks")  # noqa: TRY301
            line = _parse(placed)
        except ValueError as error:
            raise LineError(placed.number, placed.text, str(error)) from None
        if line is not None:
            yield line


def _parse(placed: PlacedLine) -> Line | None:
    """The line's meaning; None where it opens a mode."""
    port = _PORT.fullmatch(placed.modes[0]) if placed.modes else None
    if not placed.modes:
        if _PORT.fullmatch(placed.text):
            return None
        if match := _ROUTE.fullmatch(placed.text):
            return RouteLine(placed, RouteState(IPv4Network(match[1]), IPv4Address(match[3]), match[2]))
        for map_pattern, make_map in _MAP_LINES:
            if match := map_pattern.fullmatch(placed.text):
                return MapLine(placed, make_map(match))
    elif port and len(placed.modes) == 1:
        if _QUEUE.fullmatch(placed.text):
            return None
        for port_pattern, make_port in _PORT_LINES:
            if match := port_pattern.fullmatch(placed.text):
                return PortLine(placed, port[1], "", make_port(match))
    elif port and len(placed.modes) == 2 and (queue := _QUEUE.fullmatch(placed.modes[1])):
        for queue_pattern, make_queue in _QUEUE_LINES:
            if match := queue_pattern.fullmatch(placed.text):
                return PortLine(placed, port[1], queue[1], make_queue(match, int(queue[2])))
    raise ValueError("not a line that mltswitch writes")
