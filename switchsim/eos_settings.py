"""The configuration of an emulated Arista switch: its modes with their lines, maps and routes.

Source: the templates, tested configurations and schema of aristanetworks/avd (spelling, ranges, that a name
may be used before it is defined), Arista's QoS manual (what is bound to what, what a default is). Ours,
because no source says: that minimum may not be above maximum, that host bits of a route are 0, where a
route's distance stands, that another one replaces it; that code points of policies are printed by name, that
an entry of an access list without a number gets the next multiple of ten, that an entry with the number of
another one is refused, that what is not there can be taken out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from switchsim.grammar import PREFIX, Argument, Command, Values, choice, invalid, whole, with_length
from switchsim.settings import HERE, NO, NO_FACTS, Block, Edit, Facts, Setting, Sheet, patterns

MAX_PORTS: Final = 64
MAX_ROUTES: Final = 10_000
TRAFFIC_CLASSES: Final = 8
DSCP_COUNT: Final = 64
CONTROL_CLASS: Final = TRAFFIC_CLASSES - 1
"""Bound to queue 7 for good."""
LOW_ORDER: Final = (1, 0, 2, 3, 4, 5, 6, 7)
"""Traffic class of CoS n, and of the eight code points from 8 n, as delivered."""
MAX_THRESHOLD: Final = 256_000_000
"""In whatever unit (schema of aristanetworks/avd)."""
_STEP: Final = 10
_NAMES: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(1, 8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "ef": 46,
}
_NUMBERS: Final = {str(number): name for name, number in _NAMES.items()}

# --- words with values -------------------------------------------------------------------------------------

_INTERFACE: Final = re.compile(r"(?:[Ee]t(?:h(?:ernet)?)?)([1-9][0-9]{0,2}(?:/[1-9][0-9]?)?)\Z")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_TIMER: Final = re.compile(r"([0-9]{2}):([0-5][0-9]):([0-5][0-9])\Z")


def _parse_name(word: str) -> str:
    if not _NAME.match(word):
        raise ValueError("a name has letters, digits, `_`, `.` and `-`")
    return word


def _parse_interface(word: str) -> str:
    match = _INTERFACE.match(word)
    if match is None:
        raise ValueError("an interface is EthernetN or EthernetN/M")
    return f"Ethernet{match[1]}"


def _parse_timer(word: str) -> int:
    match = _TIMER.match(word)
    if match is None or not (seconds := 3600 * int(match[1]) + 60 * int(match[2]) + int(match[3])):
        raise ValueError("a timer is hh:mm:ss")
    return seconds


def _parse_code_point(word: str) -> str:
    """By number or by name; as it is printed."""
    if word in _NAMES:
        return word
    if not (word.isascii() and word.isdigit() and len(word) <= 2 and int(word) < DSCP_COUNT):
        raise ValueError("a code point is a number from 0 to 63 or a name")
    return _NUMBERS.get(word, word)


ARGUMENTS: Final[Mapping[str, Argument]] = {
    "name": Argument("name", _parse_name),
    "interface": Argument("interface", _parse_interface),
    "null": choice("interface", "Null0"),
    "timer": Argument("timer", _parse_timer),
    "dscp": whole("dscp", 0, DSCP_COUNT - 1),
    "dscps": whole("dscp", 0, DSCP_COUNT - 1, repeated=True),
    "code-point": Argument("dscp", _parse_code_point),
    "cos": whole("cos", 0, 7),
    "coses": whole("cos", 0, 7, repeated=True),
    "class": whole("traffic-class", 0, TRAFFIC_CLASSES - 1),
    "classes": whole("traffic-class", 0, TRAFFIC_CLASSES - 1, repeated=True),
    "queue": whole("queue", 0, TRAFFIC_CLASSES - 2),
    "any-queue": whole("queue", 0, TRAFFIC_CLASSES - 1),
    "precedence": whole("drop-precedence", 0, 2),
    "priority": whole("priority", 0, 7),
    "minimum": whole("minimum", 1, MAX_THRESHOLD),
    "maximum": whole("maximum", 1, MAX_THRESHOLD),
    "unit": choice("unit", "segments", "bytes", "kbytes", "mbytes", "milliseconds"),
    "probability": whole("probability", 1, 100),
    "weight": whole("weight", 0, 15),
    "percent": whole("percent", 1, 100),
    "rate": whole("rate", 1, 400_000_000),
    "rate-unit": choice("unit", "kbps", "percent", "pps"),
    "channel": whole("channel", 1, 999_999),
    "direction": choice("direction", "receive", "send"),
    "mtu": whole("mtu", 68, 10_178),
    "prefix": PREFIX,
    "next-hop": Argument("next-hop", IPv4Address),
    "address": Argument("address", lambda word: IPv4Interface(with_length(word))),
    "distance": whole("distance", 1, 255),
    "width": whole("width", 0, 32_767),
    "number": whole("number", 1, 4_294_967_295),
    "sense": choice("sense", "permit", "deny"),
    "vlan": whole("vlan", 1, 4094),
}

ROUTING: Final = "ip routing"


def _check_class(_: Facts, __: str, values: Values) -> None:
    if CONTROL_CLASS in values.all("traffic-class", int):
        raise invalid(f"traffic class {CONTROL_CLASS} stays with queue {CONTROL_CLASS}")


# --- modes -------------------------------------------------------------------------------------------------


def _on_and_off(*lines: str) -> tuple[Setting, ...]:
    """Rows that are named as their lines are: the words joined by dashes, then the keys."""
    rows = []
    for words in (line.split(" ") for line in lines):
        keys = [word for word in words if word.startswith("{")]
        name = "-".join(word for word in words if word not in keys)
        rows.append(Setting(" ".join((name, *keys)), " ".join(words), NO))
    return tuple(rows)


GLOBAL: Final = Sheet(
    (
        *_on_and_off(
            "hardware counter feature ecn out",
            "priority-flow-control all off",
            "qos random-detect ecn allow non-ect",
            "qos random-detect ecn allow non-ect chip-based",
            "qos rewrite cos",
            "qos rewrite dscp",
            ROUTING,
        ),
        Setting(
            "class-of-cos {coses}",
            "qos map cos {coses} to traffic-class {class}",
            default=lambda cos: LOW_ORDER[cos],
        ),
        Setting(
            "class-of-dscp {dscps}",
            "qos map dscp {dscps} to traffic-class {class} [drop-precedence {precedence}]",
            default=lambda dscp: (LOW_ORDER[dscp >> 3], 0),
            omitted=0,
        ),
        Setting(
            "queue-of-class {classes}",
            "qos map traffic-class {classes} to tx-queue {queue}",
            default=lambda number: number,
            check=_check_class,
        ),
    ),
    ARGUMENTS,
)
"""Settings of the whole switch: what is on or off, and maps of code points and classes."""
_SERVICE_POLICY: Final = "service-policy type qos input"


def _check_address(facts: Facts, _: str, __: Values) -> None:
    if ("", "switchport") not in facts:
        raise invalid("the interface is a switch port, it needs `no switchport` first")


def _take_policy_off(facts: Facts, values: Values, _: Sequence[str]) -> Facts:
    if facts.get(("", "service-policy")) != values.one("name", str):
        raise invalid("another policy map is there, or none")
    return MappingProxyType({fact: facts[fact] for fact in facts if fact != ("", "service-policy")})


_PORT: Final = (
    Setting("description", "description {name}"),
    *_on_and_off("shutdown"),
    Setting("mtu", "mtu {mtu}"),
    Setting("switchport", {"no switchport": False}, NO, default=True, forgets=("address",)),
    Setting("address", "ip address {address}", check=_check_address),
    Setting("channel-group", "channel-group {channel} mode active", NO),
    Setting("flowcontrol {direction}", "flowcontrol {direction} on", ("flowcontrol {direction} off",)),
    Setting("service-profile", "service-profile {name}", NO),
)
_QOS: Final = (
    Setting("service-policy", f"{_SERVICE_POLICY} {{name}}", NO),
    Setting("flow-control", "priority-flow-control on", ("no priority-flow-control",)),
    *_on_and_off("priority-flow-control priority {priority} no-drop"),
    Setting(
        "trust",
        {"qos trust dscp": "dscp", "qos trust cos": "cos", "no qos trust": "none"},
        ("default qos trust",),
    ),
    Setting("cos", "qos cos {cos}", NO),
    Setting("dscp", "qos dscp {dscp}", NO),
    Setting("shape", "shape rate {rate} {rate-unit}", NO),
)
_TAKE_POLICY_OFF: Final[Command[Edit]] = Command(
    (*f"no {_SERVICE_POLICY}".split(), ARGUMENTS["name"]), _take_policy_off
)


def _check_threshold(_: Facts, __: str, values: Values) -> None:
    minimum, maximum = values.one("minimum", int), values.one("maximum", int)
    if len(set(values.all("unit", str))) != 1:
        raise invalid("minimum and maximum have the same unit")
    if minimum > maximum:
        raise invalid(f"minimum {minimum} is above maximum {maximum}")


_RANGE: Final = "minimum-threshold {minimum} {unit} maximum-threshold {maximum} {unit}"
_QUEUE: Final = Sheet(
    (
        Setting("priority", {"no priority": False}, ("priority strict",), default=True),
        Setting(
            "bandwidth",
            {
                f"bandwidth {words} {values}": words
                for words, values in (
                    ("percent", "{percent}"),
                    ("guaranteed percent", "{percent}"),
                    ("guaranteed", "{rate} {rate-unit}"),
                )
            },
            ("no bandwidth percent", "no bandwidth guaranteed"),
        ),
        Setting("shape", "shape rate {rate} {rate-unit}", NO),
        *_on_and_off("random-detect ecn count"),
        Setting(
            "ecn",
            f"random-detect ecn {_RANGE} [max-mark-probability {{probability}}] [weight {{weight}}]",
            ("no random-detect ecn",),
            check=_check_threshold,
        ),
        Setting(
            "drop",
            f"random-detect drop {_RANGE} drop-probability {{probability}} [weight {{weight}}]",
            check=_check_threshold,
        ),
    ),
    ARGUMENTS,
)


def _check_entry(facts: Facts, _: str, values: Values) -> None:
    number, entry = values.one("number", int), (values.one("sense", str), values.maybe("dscp", str))
    if facts.get(("", "entry", number), entry) != entry:
        raise invalid(f"entry {number} is there already")


def _numbered(edit: Edit) -> Edit:
    """An entry without a number gets the next multiple of ten."""

    def numbered(facts: Facts, values: Values, places: Sequence[str]) -> Facts:
        number = (max((fact[2] for fact in facts), default=0) // _STEP + 1) * _STEP
        return edit(facts, Values({**values.raw, "number": [number]}), places)

    return numbered


class Mode(NamedTuple):
    """What may be entered below a head of one kind, and how the prompt names it."""

    prompt: str
    sheet: Sheet
    inner: Sheet = Sheet((), ARGUMENTS)
    has_queues: bool = False
    """Whether its inner modes are queues; else, where there are any, classes."""
    commands: tuple[Command[Edit], ...] = ()
    """What the sheet does not have."""


def _access_list(family: str) -> Mode:
    text = f"{{number}} {{sense}} {family} any any [dscp {{code-point}}]"
    sheet = Sheet((Setting("entry {number}", text, ("no {number}",), check=_check_entry),), ARGUMENTS)
    sets = [command for command in sheet.commands if command.pattern[0] != "no"]
    return Mode(
        "acl", sheet, commands=tuple(Command(each.pattern[1:], _numbered(each.action)) for each in sets)
    )


MODES: Final[Mapping[str, Mode]] = {
    "qos": Mode("qos-profile", Sheet(_QOS, ARGUMENTS), _QUEUE, True, (_TAKE_POLICY_OFF,)),
    "interface": Mode("if", Sheet((*_PORT, *_QOS), ARGUMENTS), _QUEUE, True, (_TAKE_POLICY_OFF,)),
    "ip": _access_list("ip"),
    "ipv6": _access_list("ipv6"),
    "class-map": Mode(
        "cmap",
        Sheet(
            _on_and_off(
                *("match ip access-group {name}", "match ipv6 access-group {name}"),
                *("match vlan {vlan}", "match cos {cos}"),
            ),
            ARGUMENTS,
        ),
    ),
    "policy-map": Mode(
        "pmap",
        Sheet((), ARGUMENTS),
        Sheet(
            [
                Setting(action, f"set {action} {{{value}}}", NO)
                for action, value in (
                    ("traffic-class", "class"),
                    ("dscp", "code-point"),
                    ("cos", "cos"),
                    ("drop-precedence", "precedence"),
                )
            ],
            ARGUMENTS,
        ),
    ),
}
"""First word of the head that opens a mode, in the order of a running configuration → what it takes."""
NAMED_HEADS: Final = (
    *("ip access-list", "ipv6 access-list"),
    *("class-map type qos match-any", "policy-map type quality-of-service"),
)
"""Heads of what the line exists for, and `no` takes away; a name follows."""

# --- the whole switch --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """A static route as the line `ip route` of EOS sets it."""

    prefix: IPv4Network
    interface: str
    next_hop: IPv4Address | None
    """None: Null0, or the interface alone."""
    distance: int = 1

    def __str__(self) -> str:
        hop = "" if self.next_hop is None else str(self.next_hop)
        distance = str(self.distance) if self.distance != 1 else ""
        return " ".join(filter(None, ("ip route", str(self.prefix), self.interface, hop, distance)))


@dataclass(frozen=True, slots=True)
class EosConfiguration:
    """Everything that `write memory` saves; immutable, so that a refused line changes nothing."""

    blocks: Mapping[str, Block]
    """Head → what stands below it; an empty head is the margin."""
    routes: tuple[Route, ...] = ()

    def lines(self, head: str, inner: str = "") -> list[str]:
        """The lines in one mode, none where it is not there; an empty head is the margin."""
        block = self.blocks.get(head, Block())
        mode = MODES[head.split(" ", maxsplit=1)[0]] if head else Mode("", GLOBAL)
        if inner:
            return mode.inner.printed(block.inner.get(inner, NO_FACTS), *HERE)
        return mode.sheet.printed(block.facts, *HERE)

    def fact(self, what: str, *keys: int) -> Any:
        """One setting of the whole switch: `fact("class-of-dscp", 48)`."""
        return GLOBAL.fact(self.blocks.get("", Block()).facts, "", what, *keys)

    def with_block(self, head: str, block: Block) -> "EosConfiguration":
        """The same with one block replaced."""
        return replace(self, blocks=MappingProxyType({**self.blocks, head: block}))

    def without_block(self, head: str) -> "EosConfiguration":
        """This configuration without the block that begins with this line."""
        kept = {other: block for other, block in self.blocks.items() if other != head}
        return replace(self, blocks=MappingProxyType(kept))


def default_configuration(port_count: int) -> EosConfiguration:
    """A switch as delivered, with ports Ethernet1/1 to Ethernet`port_count`/1."""
    ports = {f"interface Ethernet{number}/1": Block() for number in range(1, port_count + 1)}
    return EosConfiguration(MappingProxyType(ports))


Change = Callable[[EosConfiguration, Values], EosConfiguration]


def _route(values: Values) -> Route:
    return Route(
        values.one("prefix", IPv4Network),
        values.maybe("interface", str) or "",
        values.maybe("next-hop", IPv4Address),
        values.maybe("distance", int) or 1,
    )


def _add_route(old: EosConfiguration, values: Values) -> EosConfiguration:
    route = _route(values)
    if route in old.routes:
        return old
    if route.interface.startswith("Ethernet") and f"interface {route.interface}" not in old.blocks:
        raise invalid(f"there is no {route.interface}")
    if len(old.routes) >= MAX_ROUTES:
        raise invalid(f"there are {MAX_ROUTES} routes already")
    via = (route.prefix, route.interface, route.next_hop)
    kept = (each for each in old.routes if (each.prefix, each.interface, each.next_hop) != via)
    return replace(old, routes=(*kept, route))


def _remove_route(old: EosConfiguration, values: Values) -> EosConfiguration:
    """What the line does not name, it does not ask for."""
    asked = _route(values)
    distance = values.maybe("distance", int)

    def is_meant(route: Route) -> bool:
        return (
            route.prefix == asked.prefix
            and asked.interface in {"", route.interface}
            and asked.next_hop in {None, route.next_hop}
            and distance in {None, route.distance}
        )

    kept = tuple(route for route in old.routes if not is_meant(route))
    if kept == old.routes:
        raise invalid(f"there is no such route to {asked.prefix}")
    return replace(old, routes=kept)


def _whole_switch() -> Iterator[Command[Change]]:
    rows: tuple[tuple[str, Change], ...] = (
        ("ip route {prefix} [{interface}] {next-hop} [{distance}]", _add_route),
        ("ip route {prefix} {null} [{distance}]", _add_route),
        ("no ip route {prefix}", _remove_route),
        ("no ip route {prefix} [{interface}] {next-hop} [{distance}]", _remove_route),
        ("no ip route {prefix} {null} [{distance}]", _remove_route),
    )
    for text, change in rows:
        yield from (Command(pattern, change) for pattern in patterns(text, ARGUMENTS))


WHOLE_SWITCH: Final = tuple(_whole_switch())
"""Lines of configuration mode that set static routes."""
