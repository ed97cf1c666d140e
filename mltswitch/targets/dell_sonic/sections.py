"""Configuration text of klish as lines with their place, and lines as a configuration.

Two texts have these lines: what `show running-configuration` prints, indented or pasted without indentation
and without `exit`, with lines of everybody; and our own file, with an `exit` for each mode.

Ports have the same few lines over and over, and routes the same next hops, so the meaning of both is
remembered by their text.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address
from itertools import groupby, takewhile
from types import MappingProxyType
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.base import LineError
from mltswitch.targets.common import numbers_in
from mltswitch.targets.dell_sonic.names import PREFIX
from mltswitch.targets.dell_sonic.rewriting import with_number
from mltswitch.targets.dell_sonic.settings import (
    NO_NEXT_HOP,
    Attributes,
    Configuration,
    PortSettings,
    SchedulerPolicy,
    StaticRoute,
)
from mltswitch.targets.foreign import touches_port, touches_switch
from mltswitch.wire.tos import DSCP_COUNT

Path = tuple[str, ...]
"""The lines that opened the modes in which a line stands, outermost first."""
Placed = tuple[Path, str]

LEAVE: Final = "exit"
BLACKHOLE: Final = "blackhole"
"""Target of a route that drops."""
REMEMBERED_PORTS: Final = 512
"""A switch has a handful that differ; a running configuration may have one for each port."""
REMEMBERED_NEXT_HOPS: Final = 4096
_ROUTE: Final = "ip route "
_WRED: Final = "qos wred-policy "
_SCHEDULER: Final = "qos scheduler-policy "
_MAP: Final = "qos map "
_INTERFACE: Final = "interface "
_POLICY_MAP: Final = "policy-map "
_FLOWS: Final = ("class-map ", _POLICY_MAP)
_OPENERS: Final = (_WRED, _SCHEDULER, _MAP, _INTERFACE, *_FLOWS)
_QUEUE: Final = re.compile(r"queue ([0-9]{1,2})")
_PORT: Final = "port"
_SPLIT_PORT: Final = re.compile(r"interface (Eth|Ethernet) ([0-9/]+)")
_KEYWORDS: Final = {
    _WRED: ("green", "yellow", "red", "ecn"),
    _SCHEDULER: ("type", "weight", "cir", "pir", "cbs", "pbs", "meter-type"),
    _MAP: ("dscp", "dot1p", "traffic-class", "pfc-priority"),
    _INTERFACE: (
        *("queue", "scheduler-policy", "qos-map", "priority-flow-control", "flowcontrol", "service-policy"),
    ),
    **dict.fromkeys(_FLOWS, ("description", "match", "class", "set", "police")),
}
"""First words of the lines that a mode has, as far as they matter here."""
_ENTRY: Final = re.compile(
    r"(?:dscp|dot1p|traffic-class|pfc-priority) ([0-9,-]{1,200}) "
    r"(?:traffic-class|queue|priority-group|pg|dscp|dot1p) ([0-9]{1,2})"
)
_BOUND: Final = re.compile(r"queue ([0-9]{1,2}) wred-policy (\S+)")
_PAUSED: Final = re.compile(r"priority-flow-control priority ([0-9,-]{1,15})")
_SERVICE_POLICY: Final = "service-policy type qos in "
_ASYMMETRIC: Final = "priority-flow-control asymmetric"
_KNOWN_OF_PORT: Final = re.compile(
    r"priority-flow-control watchdog .*|flowcontrol (?:receive|send) off|ars .*"
)
"""What acts on priorities with flow control alone; adaptive routing."""
_KNOWN: Final = re.compile(
    r"buffer init lossless|roce enable(?: force-defaults)?|priority-flow-control watchdog .*"
)
"""Of the switch: what makes queues 3 and 4 lossless, for good, which no plan uses otherwise (HLD)."""
_COMMENT: Final = re.compile(r"![ -~]*")


def running_lines(text: str) -> Iterator[Placed]:
    """Lines of `show running-configuration`; without indentation, only such as a section can have."""
    lines = text.splitlines()
    is_indented = _is_indented(lines)
    path: Path = ()
    keywords: tuple[str, ...] = ()
    for line in lines:
        words = " ".join(line.split())
        if not words or words.startswith("!"):
            continue
        is_outside = not line[0].isspace()
        if not is_outside and not path:
            continue  # of a section that is nobody's here
        if is_outside and (opener := _opener(words)):
            path = (_SPLIT_PORT.sub(r"interface \1\2", words),)
            keywords = _KEYWORDS[opener]
        elif is_outside and is_indented:
            path = ()
            yield path, words
        elif path and (_opens_inner(path, words) or (words == _PORT and path[0].startswith(_SCHEDULER))):
            path = (path[0], words)
        else:
            is_inside = is_indented or words.partition(" ")[0] in keywords
            yield (path if is_inside else ()), words


def _is_indented(lines: Iterable[str]) -> bool:
    return any(line[:1].isspace() and line.strip("! ") for line in lines)


def file_lines(text: str) -> Iterator[tuple[int, Placed]]:
    """Lines of our own file with their numbers, comments and changes of mode left out; raises LineError."""
    path: Path = ()
    is_empty = False
    number, words = 0, ""
    # Not splitlines: what is pasted into the command line ends a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.strip(" ")
        if not words:
            continue
        if words[0] == "!":
            if not _COMMENT.fullmatch(words):
                raise LineError(number, line, "not a comment that mltswitch writes")
        elif path and words == LEAVE:
            if is_empty:
                raise LineError(number, path[-1], "a mode without a line")
            path = path[:-1]
        elif (not path and words.startswith(_OPENERS)) or (len(path) == 1 and _opens_inner(path, words)):
            path = (*path, words)
            is_empty = True
        else:
            is_empty = False
            yield number, (path, words)
    if path:
        raise LineError(number, words, f"{path[-1]!r} is not left")


def _opener(words: str) -> str | None:
    return next((opener for opener in _OPENERS if words.startswith(opener)), None)


def _opens_inner(path: Path, words: str) -> bool:
    if path[0].startswith(_POLICY_MAP):
        return words.startswith("class ")
    return path[0].startswith(_SCHEDULER) and _QUEUE.fullmatch(words) is not None


def with_modes(lines: Iterable[Placed]) -> Iterator[Placed]:
    """The lines, and between them those that open and leave modes."""
    current: Path = ()
    for path, words in lines:
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(current, path, strict=False)))
        while len(current) > shared:
            current = current[:-1]
            yield current, LEAVE
        for depth in range(shared, len(path)):
            yield current, path[depth]
            current = path[: depth + 1]
        yield current, words
    while current:
        current = current[:-1]
        yield current, LEAVE


def configuration_of(lines: Iterable[Placed], openers: Iterable[str] = ()) -> Configuration:
    """What the lines say together; `openers` are sections that have no lines, such as an empty interface."""
    builder = _Builder()
    for opener in openers:
        builder.open(opener)
    for opener, section in groupby(lines, _opener_of):
        builder.add(opener, section)
    return builder.configuration()


def _opener_of(line: Placed) -> str:
    path, _ = line
    return path[0] if path else ""


def running_configuration(text: str) -> Configuration:
    """Configuration that a switch prints; raises DeviceError for a static route that cannot be read."""
    openers = (
        _SPLIT_PORT.sub(r"interface \1\2", " ".join(line.split()))
        for line in text.splitlines()
        if line and not line[0].isspace() and _opener(line)
    )
    found = configuration_of(running_lines(text), openers)
    # Pasted, lines of the whole switch cannot be told from those in sections of others.
    return found if _is_indented(text.splitlines()) else replace(found, foreign=())


class _Builder:
    def __init__(self) -> None:
        self._wred: dict[str, dict[str, str]] = {}
        self._queues: dict[str, dict[int, dict[str, str]]] = {}
        self._port_sections: dict[str, dict[str, str]] = {}
        self._maps: dict[str, dict[str, dict[int, int]]] = {}
        self._ports: dict[str, list[str]] = {}
        self._routes: list[StaticRoute] = []
        self._strange: dict[str, list[str]] = {}
        self._flows: dict[str, list[Placed]] = {}
        self._foreign: list[str] = []

    def configuration(self) -> Configuration:
        return Configuration(
            self._wred,
            {
                name: SchedulerPolicy(queues, self._port_sections.get(name))
                for name, queues in self._queues.items()
            },
            self._maps,
            {name: _port_settings(tuple(lines)) for name, lines in self._ports.items()},
            tuple(self._routes),
            {name: tuple(lines) for name, lines in self._strange.items()},
            {name: tuple(lines) for name, lines in self._flows.items()},
            tuple(self._foreign),
        )

    def open(self, opener: str) -> None:
        """A section, whether or not lines of it follow."""
        if opener.startswith(_WRED):
            self._wred.setdefault(opener.removeprefix(_WRED), {})
        elif opener.startswith(_SCHEDULER):
            self._queues.setdefault(opener.removeprefix(_SCHEDULER), {})
        elif opener.startswith(_MAP):
            kind, _, name = opener.removeprefix(_MAP).partition(" ")
            self._maps.setdefault(kind, {}).setdefault(name, {})
        elif opener.startswith(_FLOWS):
            self._flows.setdefault(_kind_and_name(opener), [])
        else:
            self._ports.setdefault(opener.removeprefix(_INTERFACE), [])

    def add(self, opener: str, lines: Iterable[Placed]) -> None:
        """Lines of one section, or outside of all, where `opener` is empty."""
        if not opener:
            for _, words in lines:
                if words.startswith(_ROUTE):
                    self._add_route(words)
                elif touches_switch(words) and not _KNOWN.fullmatch(words):
                    self._foreign.append(words)
            return
        self.open(opener)
        if opener.startswith(_INTERFACE):
            self._ports[opener.removeprefix(_INTERFACE)] += (words for _, words in lines)
            return
        if opener.startswith(_FLOWS):
            self._flows[_kind_and_name(opener)] += ((path, with_number(words)) for path, words in lines)
            return
        for path, words in lines:
            if opener.startswith(_MAP):
                self._add_entry(opener, words)
            else:
                self._add_attribute(path, words)

    def _add_attribute(self, path: Path, words: str) -> None:
        opener = path[0]
        prefix = _WRED if opener.startswith(_WRED) else _SCHEDULER
        name = opener.removeprefix(prefix)
        word, _, rest = words.partition(" ")
        if word not in _KEYWORDS[prefix] or (prefix == _SCHEDULER and len(path) == 1):
            self._note(name, words)
        elif prefix == _WRED:
            self._wred[name][word] = rest
        elif path[1] == _PORT:
            self._port_sections.setdefault(name, {})[word] = rest
        elif (word, rest) != ("meter-type", "bytes"):
            # Bytes are what rates count anyway.
            self._queues[name].setdefault(int(path[1].split()[1]), {})[word] = rest

    def _add_entry(self, opener: str, words: str) -> None:
        kind, _, name = opener.removeprefix(_MAP).partition(" ")
        match = _ENTRY.fullmatch(words)
        numbers = None if match is None else numbers_of(match[1])
        if match is None or numbers is None:
            self._note(name, words)
        else:
            self._maps[kind][name].update(dict.fromkeys(numbers, int(match[2])))

    def _note(self, name: str, words: str) -> None:
        if name.startswith(PREFIX):
            self._strange.setdefault(name, []).append(words)

    def _add_route(self, words: str) -> None:
        prefix, _, way = words.removeprefix(_ROUTE).partition(" ")
        if prefix in {"vrf", "distance"}:
            return
        try:
            network = ipv4_network(prefix, strict=False)
        except ValueError as error:
            raise DeviceError(f"cannot read {words!r}: {error}") from None
        if not way or way.isspace():
            raise DeviceError(f"cannot read {words!r}: it has no next hop")
        next_hop, port, target = _way(way)
        self._routes.append(StaticRoute(network, next_hop, port, target, way))


def _kind_and_name(opener: str) -> str:
    return " ".join(opener.split()[:2])


@lru_cache(maxsize=REMEMBERED_PORTS)
def _port_settings(lines: tuple[str, ...]) -> PortSettings:
    wred: dict[int, str] = {}
    scheduler = ""
    maps: dict[str, str] = {}
    paused: list[int] = []
    is_asymmetric = False
    policy = ""
    others: list[str] = []
    for words in lines:
        word, _, rest = words.partition(" ")
        if word == "queue" and (match := _BOUND.fullmatch(words)):
            wred[int(match[1])] = match[2]
        elif word == "scheduler-policy":
            scheduler = rest
        elif word == "qos-map":
            kind, _, name = rest.partition(" ")
            maps[kind] = name
        elif word == "priority-flow-control" and (match := _PAUSED.fullmatch(words)):
            if (numbers := numbers_of(match[1])) is None:
                raise DeviceError(f"cannot read {words!r}")
            paused += numbers
        elif words == _ASYMMETRIC:
            is_asymmetric = True
        elif words.startswith(_SERVICE_POLICY):
            policy = words.removeprefix(_SERVICE_POLICY)
        elif touches_port(words) and not _KNOWN_OF_PORT.fullmatch(words):
            others.append(words)
    return PortSettings(
        MappingProxyType(wred),
        scheduler,
        MappingProxyType(maps),
        tuple(sorted(paused)),
        tuple(others),
        is_asymmetric,
        policy,
        lines,
    )


def numbers_of(text: str) -> list[int] | None:
    """`0-2,5` as numbers up to 63; None for what is no such list."""
    try:
        return [number for part in text.split(",") for number in numbers_in(part, DSCP_COUNT)]
    except ValueError:
        return None


def number_list(numbers: Iterable[int]) -> str:
    """Numbers in ascending order as klish prints them: `0-2,5`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


@lru_cache(maxsize=REMEMBERED_NEXT_HOPS)
def _way(text: str) -> tuple[IPv4Address, str, str]:
    """(next hop, port, target) of a static route, from what stands behind its prefix.

    Next hop, interface and nexthop-vrf name the route, other words do not.
    """
    words = _SPLIT_PORT.sub(r"interface \1\2", text).split()
    next_hop = NO_NEXT_HOP
    named: list[str] = []
    rest = words
    try:
        next_hop = ipv4_address(words[0])
    except ValueError:
        if words[0] == BLACKHOLE:
            named, rest = words[:1], words[1:]
    else:
        named, rest = words[:1], words[1:]
    port: list[str] = []
    while len(rest) > 1 and rest[0] in {"interface", "nexthop-vrf"}:
        # `PortChannel 10` is printed with a space, `Eth1/1` is not.
        length = 3 if rest[0] == "interface" and len(rest) > 2 and rest[1].isalpha() else 2
        named += rest[:length]
        port += rest[1:length] if rest[0] == "interface" else rest[:length]
        rest = rest[length:]
    if words[0] == BLACKHOLE and rest:
        port = [BLACKHOLE]
    return next_hop, " ".join((*port, *rest)), " ".join(named)


def attributes_text(attributes: Attributes) -> tuple[str, ...]:
    """Lines of attributes."""
    return tuple(f"{word} {rest}".rstrip() for word, rest in attributes.items())
