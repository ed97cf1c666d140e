"""The command modes of an emulated Arista switch, with the configuration lines of each.

Source: the templates, tested configurations and schema of aristanetworks/avd (spelling, ranges, that a name
may be used before it is defined), Arista's QoS manual (what is bound to what, what a default is). Our own
choice, because no source says: that minimum may not be above maximum, that host bits of a route are 0, where
a route's distance stands, that another one replaces it; that code points of policies are printed by name,
that an entry of an access list without a number gets the next multiple of ten, that an entry with the number
of another one is refused, that what is not there can be taken out.
"""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface
from typing import Any, Final

from switchsim.grammar import (
    CODE_POINTS,
    PREFIX,
    Argument,
    Values,
    arguments,
    form,
    invalid,
    with_length,
)
from switchsim.modes import Mode, Session
from switchsim.settings import NO, Facts, Setting

MAX_ROUTES: Final = 10_000
TRAFFIC_CLASSES: Final = 8
CONTROL_CLASS: Final = TRAFFIC_CLASSES - 1
"""The traffic class of control traffic, always bound to queue 7."""
LOW_ORDER: Final = (1, 0, 2, 3, 4, 5, 6, 7)
"""Traffic class of each CoS n (0 to 7), and of the eight DSCPs 8 n to 8 n + 7, on a switch as delivered."""
QUEUE_WORDS: Final = ("uc-tx-queue", "tx-queue")
"""Keywords that open a queue's mode: on chips with separate unicast queues, and on all others."""
ROUTING: Final = "ip routing"
_STEP: Final = 10
_NAMES: Final = {name: number for name, number in CODE_POINTS.items() if number}
_NUMBERS: Final = {str(number): name for name, number in _NAMES.items()}


def _seconds(hours: str, minutes: str, seconds: str) -> int:
    total = 3600 * int(hours) + 60 * int(minutes) + int(seconds)
    if not total:
        raise ValueError("a timer is hh:mm:ss")
    return total


def _parse_code_point(word: str) -> str:
    """By number or by name; as it is printed."""
    if word in _NAMES:
        return word
    if not (word.isascii() and word.isdigit() and len(word) <= 2 and int(word) < 64):
        raise ValueError("a code point is a number from 0 to 63 or a name")
    return _NUMBERS.get(word, word)


_PORT_NAME: Final = r"[Ee]t(?:h(?:ernet)?)?([1-9][0-9]{0,2}(?:/[1-9][0-9]?)?)"
ARGUMENTS: Final[Mapping[str, Argument]] = {
    **arguments(
        "dscp 0-63; dscps dscp 0-63+; cos 0-7; coses cos 0-7+; class traffic-class 0-7; width 0-32767;"
        "queue 0-6; any-queue queue 0-7; precedence drop-precedence 0-2; priority 0-7; probability 1-100;"
        # A threshold's bound holds in whatever unit (schema of aristanetworks/avd).
        "minimum 1-256000000; maximum 1-256000000; unit segments|bytes|kbytes|mbytes|milliseconds;"
        "percent 1-100; weight 0-15; rate 1-400000000; rate-unit unit kbps|percent|pps; channel 1-999999;"
        "direction receive|send; distance 1-255; classes traffic-class 0-7+; number 1-4294967295;"
        "vlan 1-4094; mtu 68-10178; sense permit|deny; null interface Null0"
    ),
    "name": form("name", "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "a name has letters, digits, `_`, `.` and `-`"),
    "interface": form(
        "interface", _PORT_NAME, "an interface is EthernetN or EthernetN/M", "Ethernet{}".format
    ),
    "timer": form("timer", "([0-9]{2}):([0-5][0-9]):([0-5][0-9])", "a timer is hh:mm:ss", _seconds),
    "code-point": Argument("dscp", _parse_code_point),
    "prefix": PREFIX,
    "next-hop": Argument("next-hop", IPv4Address),
    "address": Argument("address", lambda word: IPv4Interface(with_length(word))),
}

# --- which lines do not fit --------------------------------------------------------------------------------


def _check_class(_: Facts, __: str, values: Values) -> None:
    if CONTROL_CLASS in values.all("traffic-class", int):
        raise invalid(f"traffic class {CONTROL_CLASS} stays with queue {CONTROL_CLASS}")


def _check_address(facts: Facts, port: str, _: Values) -> None:
    if (port, "switchport") not in facts:
        raise invalid("the interface is a switch port, it needs `no switchport` first")


def _check_threshold(_: Facts, __: str, values: Values) -> None:
    minimum, maximum = values.one("minimum", int), values.one("maximum", int)
    if len(set(values.all("unit", str))) != 1:
        raise invalid("minimum and maximum have the same unit")
    if minimum > maximum:
        raise invalid(f"minimum {minimum} is above maximum {maximum}")


def _check_entry(facts: Facts, place: str, values: Values) -> Values:
    """An entry without a number gets the next multiple of ten."""
    number, entry = values.maybe("number", int), (values.one("sense", str), values.maybe("dscp", str))
    if number is None:
        numbers = (fact[2] for fact in facts if fact[:2] == (place, "entry"))
        number = (max(numbers, default=0) // _STEP + 1) * _STEP
    if facts.get((place, "entry", number), entry) != entry:
        raise invalid(f"entry {number} is there already")
    return Values({**values.raw, "number": [number]})


def _check_route(facts: Facts, _: str, values: Values) -> None:
    port = values.maybe("interface", str) or "Null0"
    if port != "Null0" and (f"interface {port}", "") not in facts:
        raise invalid(f"there is no {port}")


# --- the rows ----------------------------------------------------------------------------------------------


def _on_and_off(*lines: str) -> tuple[Setting, ...]:
    """Rows that are named as their lines are: the words joined by dashes, then the keys."""
    rows = []
    for words in (line.split(" ") for line in lines):
        keys = [word for word in words if word.startswith("{")]
        name = "-".join(word for word in words if word not in keys)
        rows.append(Setting(" ".join((name, *keys)), " ".join(words), NO))
    return tuple(rows)


GLOBAL: Final = (
    *_on_and_off(
        "hardware counter feature ecn out",
        "priority-flow-control all off",
        "qos random-detect ecn allow non-ect",
        "qos random-detect ecn allow non-ect chip-based",
        "qos rewrite cos",
        "qos rewrite dscp",
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
)
"""The configuration lines of the whole switch: features on or off, and the DSCP, CoS and class maps."""
ROUTES: Final = (
    *_on_and_off(ROUTING),
    Setting(
        "route {prefix} {interface} {next-hop}",
        {
            "ip route {prefix} [{interface}] {next-hop} [{distance}]": None,
            "ip route {prefix} {null} [{distance}]": None,
        },
        (
            "no ip route {prefix}",
            "no ip route {prefix} [{interface}] {next-hop} [{distance}]",
            "no ip route {prefix} {null} [{distance}]",
        ),
        check=_check_route,
        absent=str(invalid("there is no such route to {prefix}")),
        omitted=1,
        most=MAX_ROUTES,
        as_entered=True,
    ),
)
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
    Setting("service-policy", "service-policy type qos input {name}", NO),
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
_RANGE: Final = "minimum-threshold {minimum} {unit} maximum-threshold {maximum} {unit}"
_QUEUE: Final = (
    Setting("priority", {"no priority": False}, ("priority strict",), default=True),
    Setting(
        "bandwidth",
        {
            "bandwidth percent {percent}": "percent",
            "bandwidth guaranteed percent {percent}": "guaranteed percent",
            "bandwidth guaranteed {rate} {rate-unit}": "guaranteed",
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
)
_CLASS: Final = tuple(
    Setting(action, f"set {action} {{{value}}}", NO)
    for action, value in (
        *(("traffic-class", "class"), ("dscp", "code-point")),
        *(("cos", "cos"), ("drop-precedence", "precedence")),
    )
)

# --- the modes ---------------------------------------------------------------------------------------------


def _take_policy_off(session: Session, values: Values) -> None:
    place = session.path[0]
    if session.facts.get((place, "service-policy")) != values.one("name", str):
        raise invalid("another policy map is there, or none")
    session.facts = Facts({f: v for f, v in session.facts.items() if f != (place, "service-policy")})
    session.go(session.modes.name_at(place))


def _is_of_list(words: Sequence[str]) -> bool:
    """Whether a line begins as those of an access list do; the others are tried in the mode around it."""
    first = words[1] if words[0] == "no" and len(words) > 1 else words[0]
    return first.isdecimal() or first in {"permit", "deny"}


def _mode(prompt: str, head: str, rows: Sequence[Setting] = (), **more: Any) -> Mode:
    around = "policy-map" if head.startswith("class ") else "config"
    return Mode(
        f"{{device}}(config{{session}}-{prompt}-{{head}})#", around=around, head=head, rows=rows, **more
    )


def _access_list(family: str) -> Mode:
    text, head = f"{{sense}} {family} any any [dscp {{code-point}}]", f"{family} access-list {{name}}"
    lines = {text: None, f"{{number}} {text}": None}
    entry = Setting("entry {number}", lines, ("no {number}",), check=_check_entry)
    return _mode("acl", head, (entry,), removed_by=f"no {head}", takes=_is_of_list)


_TAKE_POLICY_OFF: Final = {"no service-policy type qos input {name}": _take_policy_off}
_CLASS_MAP: Final = "class-map type qos match-any {name}"
_POLICY_MAP: Final = "policy-map type quality-of-service {name}"
_WITH_QUEUES: Final[Mapping[str, Mode]] = {
    "qos profile": _mode("qos-profile", "qos profile {name}", _QOS, lines=_TAKE_POLICY_OFF),
    "interface": _mode(
        *("if", "interface {interface}", (*_PORT, *_QOS)),
        lines=_TAKE_POLICY_OFF,
        made_by="nothing",
        absent=str(invalid("there is no {}")),
    ),
}
_OTHERS: Final[Mapping[str, Mode]] = {
    "ip access-list": _access_list("ip"),
    "ipv6 access-list": _access_list("ipv6"),
    "class-map": _mode(
        "cmap",
        _CLASS_MAP,
        _on_and_off(
            *("match ip access-group {name}", "match ipv6 access-group {name}"),
            *("match vlan {vlan}", "match cos {cos}"),
        ),
        removed_by=f"no {_CLASS_MAP}",
    ),
    "policy-map": _mode("pmap", _POLICY_MAP, removed_by=f"no {_POLICY_MAP}"),
    "class-default": _mode("pmap-c", "class class-default", _CLASS, made_by="lines"),
    "class": _mode("pmap-c", "class {name}", _CLASS, removed_by="no class {name}"),
}


def modes(queue_word: str) -> Mapping[str, Mode]:
    """The command modes of a switch with this keyword for queues, in running-configuration order."""
    queues = {
        f"queue of {around}": Mode(
            mode.prompt.replace("{head}", "{head}-{inner}"),
            around=around,
            head=f"{queue_word} {{any-queue}}",
            rows=_QUEUE,
            made_by="lines",
        )
        for around, mode in _WITH_QUEUES.items()
    }
    return {**_WITH_QUEUES, **queues, **_OTHERS}
