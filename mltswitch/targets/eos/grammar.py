"""The lines that mltswitch writes for EOS, each as a value: what it sets, on which port.

A file is taken apart into entries: a line that stands alone, or one that opens a mode with the lines in it.
Ports have the same few bodies over and over, and the lines that stand in them are few, so the meaning of both
is remembered by their text.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, PortShare
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
from mltswitch.targets.eos import policy as own
from mltswitch.targets.eos.capabilities import (
    LARGEST_VALUE,
    RATE_STEP_BPS,
    SHARED_QUEUE,
    UNICAST_QUEUE,
)
from mltswitch.targets.eos.policy import OwnPolicies, with_line
from mltswitch.targets.eos.settings import TRUSTED, UNTRUSTED, Detection, Maps
from mltswitch.targets.eos.text import INDENTATION
from mltswitch.targets.state import RouteState
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"Ethernet[1-9][0-9]{0,2}(?:/[1-9][0-9]?){0,2}")
REMEMBERED_BODIES: Final = 512
"""A switch has a handful; a file of a user may have one for each port."""
REMEMBERED_LINES: Final = 2048
"""But for thresholds, there are some 100 that differ."""


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
class PolicyText:
    """One line in our access lists, class maps or policy maps."""

    modes: tuple[str, ...]
    text: str

    def apply(self, policies: OwnPolicies) -> OwnPolicies:
        """The policies with this line."""
        return with_line(policies, self.modes, self.text)


MapSetting = MapDscp | MapClass
OwnSetting = PortSetting | QueueSetting
Setting = MapSetting | OwnSetting | PolicyText | RouteState


@dataclass(frozen=True, slots=True)
class BodyLine:
    """One line of a mode that sets something."""

    offset: int
    """Lines after the one that opens the mode."""
    inner: tuple[str, ...]
    """The mode within the mode, such as a queue of a port."""
    text: str
    setting: OwnSetting | PolicyText


class Entry(NamedTuple):
    """A line at the margin, and what stands under it."""

    number: int
    """Counts from 1."""
    text: str
    setting: MapSetting | RouteState | None
    """None: it opens a mode."""
    body: str = ""

    @property
    def port(self) -> str:
        """The port whose mode it opens; empty: none."""
        return self.text.removeprefix(_INTERFACE) if self.text.startswith(_INTERFACE) else ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that sets something, with its place."""

    number: int
    modes: tuple[str, ...]
    text: str
    setting: Setting

    @property
    def port(self) -> str:
        """The port that it concerns; empty: none."""
        return self.modes[0].removeprefix(_INTERFACE) if self.modes else ""


_INTERFACE: Final = "interface "
_ENTRY: Final = re.compile(r"\n(?=[^ !\n])")
"""Before a line at the margin that is no comment."""
_PORT: Final = re.compile(rf"{_INTERFACE}{PORT_NAME.pattern}")
_QUEUE: Final = re.compile(rf"(?:{UNICAST_QUEUE}|{SHARED_QUEUE}) [0-6]")
_ROUTE_START: Final = "ip route "
_ROUTE: Final = re.compile(
    rf"{_ROUTE_START}([0-9.]{{7,15}}/[0-9]{{1,2}}) "
    rf"(?:{NULL_INTERFACE}|({PORT_NAME.pattern}) ([0-9.]{{7,15}}))"
)
_NUMBER: Final = r"([1-9][0-9]{0,8})"
_DSCPS: Final = r"([0-9]|[1-5][0-9]|6[0-3])"


def _map_dscp(match: re.Match[str]) -> MapSetting:
    dscps = tuple(int(word) for word in match[1].split())
    if max(dscps) >= DSCP_COUNT or len(set(dscps)) < len(dscps):
        raise ValueError("not a list of different code points below 64")
    return MapDscp(dscps, int(match[2]))


def _detect(match: re.Match[str]) -> Detection:
    if match[1] != match[2]:
        raise ValueError("minimum and maximum differ")
    threshold_bytes = int(match[1])
    if threshold_bytes > LARGEST_VALUE:
        raise ValueError(f"no threshold is above {LARGEST_VALUE}")
    return Detection(threshold_bytes, threshold_bytes, "bytes")


_MAP_LINES: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], MapSetting]], ...]] = (
    (re.compile(r"qos map dscp ((?:[0-9]{1,2} )+)to traffic-class ([0-6])"), _map_dscp),
    (
        re.compile(rf"qos map traffic-class ([0-6]) to {SHARED_QUEUE} ([0-6])"),
        lambda match: MapClass(int(match[1]), int(match[2])),
    ),
)
_Meaning = Callable[[re.Match[str]], object]
_PORT_LINES: Final[tuple[tuple[re.Pattern[str], str, _Meaning], ...]] = (
    (re.compile("qos trust dscp"), "trust", lambda _: TRUSTED),
    (re.compile("no qos trust"), "trust", lambda _: UNTRUSTED),
    (re.compile("qos cos ([0-7])"), "cos", lambda match: int(match[1])),
    (re.compile(f"qos dscp {_DSCPS}"), "dscp", lambda match: int(match[1])),
    (
        re.compile(f"service-policy type qos input ({'|'.join(own.CLASSES)})"),
        "policy",
        lambda match: match[1],
    ),
)
_QUEUE_LINES: Final[tuple[tuple[re.Pattern[str], str, _Meaning], ...]] = (
    (re.compile("priority strict"), "strict", lambda _: True),
    (
        re.compile("bandwidth guaranteed percent ([1-9][0-9]?|100)"),
        "minimum",
        lambda match: PortShare(int(match[1])),
    ),
    (
        re.compile(rf"shape rate {_NUMBER} kbps"),
        "maximum",
        lambda match: BitRate(int(match[1]) * RATE_STEP_BPS),
    ),
    (re.compile("random-detect ecn count"), "counts", lambda _: True),
    (re.compile("no random-detect ecn"), "detection", lambda _: None),
    (
        re.compile(
            rf"random-detect ecn minimum-threshold {_NUMBER} bytes maximum-threshold {_NUMBER} bytes "
            "max-mark-probability 100 weight 0"
        ),
        "detection",
        _detect,
    ),
)
_PERMIT: Final = re.compile(rf"{_NUMBER} permit (?:ip|ipv6) any any(?: dscp {_DSCPS})?")
_MATCH: Final = re.compile(rf"match (?:ip|ipv6) access-group (?:{'|'.join(own.FAMILY_OF)})")
_SET: Final = re.compile(rf"set (?:dscp {_DSCPS}|traffic-class [0-6])")


def parse_entries(text: str) -> Iterator[Entry]:
    """What stands at the margin, comments left out; raises LineError."""
    if not (text.isascii() and text.replace("\n", "").isprintable()):
        number, line = next(
            (number, line) for number, line in enumerate(text.split("\n"), start=1) if not _is_plain(line)
        )
        raise LineError(number, line, "not printable ASCII")
    number = 1
    for part in _ENTRY.split(text):
        head, _, body = part.partition("\n")
        if head and not head.startswith((" ", "!")):
            yield _entry(number, head, body)
        elif stray := next(_uncommented(part), None):
            offset, line = stray
            raise LineError(number + offset, line, UNKNOWN)
        number += part.count("\n") + 1


def parse_lines(text: str) -> Iterator[Line]:
    """Lines that set something; those that open a mode and comments are left out; raises LineError."""
    for entry in parse_entries(text):
        if entry.setting is not None:
            yield Line(entry.number, (), entry.text, entry.setting)
        for line in lines_of(entry):
            yield Line(entry.number + line.offset, (entry.text, *line.inner), line.text, line.setting)


def lines_of(entry: Entry) -> tuple[BodyLine, ...]:
    """What stands under an entry; raises LineError."""
    try:
        return _body("" if entry.port else entry.text, entry.body)
    except LineError as error:
        error.number += entry.number
        raise


def _is_plain(line: str) -> bool:
    return line.isascii() and line.isprintable()


def _uncommented(part: str) -> Iterator[tuple[int, str]]:
    for offset, line in enumerate(part.split("\n")):
        if line.strip(" ") and not line.lstrip(" ").startswith("!"):
            yield offset, line


def _entry(number: int, text: str, body: str) -> Entry:
    """The line's meaning; with lines under it that none may have, their refusal is `lines_of`'s business."""
    is_route = text.startswith(_ROUTE_START)  # most are
    if not is_route and (_PORT.fullmatch(text) or text in own.POLICY_OF_HEAD):
        return Entry(number, text, None, body)
    try:
        setting = _route(text) if is_route else _map_setting(text)
    except ValueError as error:
        raise LineError(number, text, str(error)) from None
    if body and (stray := next(_uncommented(body), None)):
        raise LineError(number + 1 + stray[0], stray[1], UNKNOWN)
    return Entry(number, text, setting)


def _route(text: str) -> RouteState:
    match = _ROUTE.fullmatch(text)
    if match is None:
        raise ValueError(UNKNOWN)
    prefix, port, next_hop = match.groups()
    if port is None:
        return RouteState(ipv4_network(prefix), NO_NEXT_HOP, "")
    return RouteState(ipv4_network(prefix), ipv4_address(next_hop), port)


def _map_setting(text: str) -> MapSetting:
    for pattern, make in _MAP_LINES:
        if match := pattern.fullmatch(text):
            return make(match)
    raise ValueError(UNKNOWN)


@lru_cache(maxsize=REMEMBERED_BODIES)
def _body(head: str, body: str) -> tuple[BodyLine, ...]:
    """Lines under a head of our policies, or under a port (head empty); offsets count from the head."""
    lines: list[BodyLine] = []
    inner: tuple[str, ...] = ()
    for offset, line in _uncommented(body):
        text = line.strip(" ")
        depth = (len(line) - len(line.lstrip(" "))) // len(INDENTATION)
        inner = inner[: max(0, depth - 1)]
        try:
            if line != INDENTATION * depth + text or depth != 1 + len(inner):
                raise ValueError("not indented as its place asks")  # noqa: TRY301
            setting = _port_line(inner, text) if not head else _policy_line(head, inner, text)
        except ValueError as error:
            raise LineError(1 + offset, text, str(error)) from None
        if setting is None:
            inner = (text,)
        else:
            lines.append(BodyLine(1 + offset, inner, text, setting))
    return tuple(lines)


@lru_cache(maxsize=REMEMBERED_LINES)
def _port_line(inner: tuple[str, ...], text: str) -> OwnSetting | None:
    """The line's meaning; None where it opens a queue's mode."""
    if inner:
        queue = int(inner[0].rpartition(" ")[2])
        for pattern, field, value in _QUEUE_LINES:
            if match := pattern.fullmatch(text):
                return QueueSetting(queue, field, value(match))
    elif _QUEUE.fullmatch(text):
        return None
    else:
        for pattern, field, value in _PORT_LINES:
            if match := pattern.fullmatch(text):
                return PortSetting(field, value(match))
    raise ValueError(UNKNOWN)


@lru_cache(maxsize=REMEMBERED_LINES)
def _policy_line(head: str, inner: tuple[str, ...], text: str) -> PolicyText | None:
    """The line's meaning; None where it opens the mode of a class."""
    if not inner and own.class_in(head, text):
        return None
    pattern = _PERMIT if head in own.LIST_HEADS else _MATCH if head in own.CLASS_HEADS else _SET
    setting = PolicyText((head, *inner), text)
    if not pattern.fullmatch(text) or setting.apply(OwnPolicies()).others:
        raise ValueError(UNKNOWN)
    return setting
