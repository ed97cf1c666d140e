"""The lines that mltswitch writes for Onyx, each as a value: what it sets, on which port."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.common import NO_NEXT_HOP, UNKNOWN, PortSetting, QueueSetting, each_line, with_item
from mltswitch.targets.onyx.settings import (
    ABSOLUTE,
    PLANNED_CONTROL,
    STRICT,
    TRUSTED,
    UNTRUSTED,
    CongestionControl,
    PortSettings,
)
from mltswitch.targets.remap import code_points
from mltswitch.targets.state import RouteState
from mltswitch.wire.tos import DSCP_COUNT

PREAMBLE: Final = "no cli default prefix-modes enable"
"""Without it `interface ethernet 1/1 …` may open a sub-mode, and later lines mean something else.

Not ours, and saved with the rest: it changes the command line of all later sessions, not what is forwarded.
"""

_INTERFACE: Final = "interface ethernet "
_SERVICE: Final = re.compile(f"{STRICT}|wrr [1-9][0-9]{{0,2}}")
PORT_NAME: Final = re.compile(r"[1-9][0-9]?/[1-9][0-9]?(?:/[1-4])?")


@dataclass(frozen=True, slots=True)
class MapDscp:
    """`qos map dscp`."""

    dscps: tuple[int, ...]
    switch_priority: int

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        priorities = list(port.switch_priorities)
        for dscp in self.dscps:
            priorities[dscp] = self.switch_priority
        return replace(port, switch_priorities=tuple(priorities))

    def former(self, port: PortSettings) -> Iterator["MapDscp"]:
        """What sets the same code points to what the port has."""
        for priority, dscps in code_points(port.switch_priorities).items():
            if moved := tuple(dscp for dscp in dscps if dscp in self.dscps):
                yield MapDscp(moved, priority)

    def __str__(self) -> str:
        return f"qos map dscp {' '.join(map(str, self.dscps))} to switch-priority {self.switch_priority}"


@dataclass(frozen=True, slots=True)
class Bind:
    """`traffic-class N bind switch-priority`."""

    queue: int
    switch_priority: int

    def apply(self, port: PortSettings) -> PortSettings:
        """The port with this set."""
        return replace(port, bindings=with_item(port.bindings, self.switch_priority, self.queue))

    def former(self, port: PortSettings) -> Iterator["Bind"]:
        """What binds the same switch-priority as the port does."""
        yield Bind(port.bindings[self.switch_priority], self.switch_priority)

    def __str__(self) -> str:
        return f"traffic-class {self.queue} bind switch-priority {self.switch_priority}"


Setting = PortSetting | QueueSetting | MapDscp | Bind


class PortLine(NamedTuple):
    """One line that concerns a port."""

    text: str
    port: str
    words: str
    """What stands behind the port."""
    setting: Setting


def line_of(port: str, setting: Setting) -> PortLine:
    """The line that sets this on a port, also to a value of somebody else's; raises ValueError."""
    match setting:
        case PortSetting("trust", "L2" | "L3" | "both" | "port"):
            words = f"qos trust {setting.value}"
        case PortSetting("rewrites_dscp", on):
            words = "qos rewrite dscp" if on else "no qos rewrite dscp"
        case QueueSetting(queue, "congestion_control", None):
            words = f"no traffic-class {queue} congestion-control"
        case QueueSetting(queue, "congestion_control", control):
            words = f"traffic-class {queue} {control}"
        case QueueSetting(queue, "scheduling", service) if _SERVICE.fullmatch(service):
            words = f"traffic-class {queue} dcb ets {service}"
        case PortSetting(field, value):
            raise ValueError(f"{field} {value}")
        case QueueSetting(queue, field, value):
            raise ValueError(f"traffic-class {queue} {field} {value}")
        case MapDscp() | Bind():
            words = str(setting)
    return PortLine(f"{_INTERFACE}{port} {words}", port, words, setting)


class RouteLine(NamedTuple):
    """One line that adds a route."""

    text: str
    route: RouteState


_ROUTE: Final = re.compile(r"ip route vrf default ([0-9.]{7,15}/[0-9]{1,2}) ([0-9.]{7,15}|null0)")
DISCARD: Final = "null0"
_COMMENT: Final = re.compile(r"##[ -~]*|")
_NUMBER: Final = r"([1-9][0-9]{0,6})"
_MEMORY: Final = 4096
"""Lines remembered: those of one port come again with the next."""


def _map_dscp(match: re.Match[str]) -> Setting:
    dscps = tuple(int(word) for word in match[1].split())
    if max(dscps) >= DSCP_COUNT or len(set(dscps)) < len(dscps):
        raise ValueError("not a list of different code points below 64")
    return MapDscp(dscps, int(match[2]))


def _congestion(match: re.Match[str]) -> Setting:
    if match[2] != match[3]:
        raise ValueError("minimum and maximum differ")
    threshold_kb = int(match[2])
    control = CongestionControl(PLANNED_CONTROL, ABSOLUTE, threshold_kb, threshold_kb)
    return QueueSetting(int(match[1]), "congestion_control", control)


_SETTINGS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Setting]], ...]] = (
    (re.compile(f"qos trust ({TRUSTED}|{UNTRUSTED})"), lambda match: PortSetting("trust", match[1])),
    (re.compile("no qos rewrite dscp"), lambda _: PortSetting("rewrites_dscp", False)),
    (re.compile(r"qos map dscp ((?:[0-9]{1,2} )+)to switch-priority ([0-7])"), _map_dscp),
    (
        re.compile(r"traffic-class ([0-7]) bind switch-priority ([0-7])"),
        lambda match: Bind(int(match[1]), int(match[2])),
    ),
    (
        re.compile(
            rf"traffic-class ([0-7]) congestion-control {PLANNED_CONTROL} "
            rf"minimum-{ABSOLUTE} {_NUMBER} maximum-{ABSOLUTE} {_NUMBER}"
        ),
        _congestion,
    ),
    (
        re.compile(r"no traffic-class ([0-7]) congestion-control"),
        lambda match: QueueSetting(int(match[1]), "congestion_control", None),
    ),
    (
        re.compile(r"traffic-class ([0-7]) dcb ets strict"),
        lambda match: QueueSetting(int(match[1]), "scheduling", STRICT),
    ),
)


def parse_lines(text: str) -> Iterator[tuple[int, PortLine | RouteLine]]:
    """Lines with their numbers, comments and the preamble left out; raises FileError."""
    return each_line(text, _parse_line)


def _parse_line(line: str) -> PortLine | RouteLine | None:
    if line.startswith(_INTERFACE):
        port, _, words = line[len(_INTERFACE) :].partition(" ")
        if not _is_port(port):
            raise ValueError(UNKNOWN)
        return PortLine(line, port, words, parse_setting(words))
    if match := _ROUTE.fullmatch(line):
        next_hop = NO_NEXT_HOP if match[2] == DISCARD else ipv4_address(match[2])
        return RouteLine(line, RouteState(ipv4_network(match[1]), next_hop, ""))
    if line and line != PREAMBLE and not _COMMENT.fullmatch(line):
        raise ValueError(UNKNOWN)
    return None


@lru_cache(maxsize=_MEMORY)
def _is_port(name: str) -> bool:
    return PORT_NAME.fullmatch(name) is not None


@lru_cache(maxsize=_MEMORY)
def parse_setting(words: str) -> Setting:
    """What stands behind the port's name; raises ValueError."""
    for pattern, make in _SETTINGS:
        if match := pattern.fullmatch(words):
            return make(match)
    raise ValueError(UNKNOWN)
