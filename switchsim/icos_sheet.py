"""The command modes of FASTPATH, with the lines that configure queues, packet classes and routes.

Sources: the Class of Service, Routing and Data Center Bridging chapters of public FASTPATH manuals (NETGEAR
M4300, Extreme 200 Series, Dell EMC Networking N-series with `drop-prob-scale` and `ecn`). In interface mode a
command concerns the port, in global mode all ports. Documented defaults: trust, the RED parameters, priority
0 in queue 1; other defaults are our own. So is, because no source says it: that thresholds end at 250 % (Dell
has an example with 200), that a route with another preference replaces the old one, and that host bits of a
route are 0.

DiffServ: NETGEAR M4300 CLI manual, DiffServ Class, Policy and Service Commands: the words, names of at most
31 characters, that a match of a class cannot be changed or taken away, that neither a class which a policy
names nor a policy which an interface has can be deleted, that a value of a policy's class can be changed, but
only goes with the class. Our own choice, because no source says: that one line of a kind is all a class can
have, that a policy can only name a class that is there, that `policy-map NAME in` opens one that is there.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from switchsim.grammar import CODE_POINTS, Argument, Values, arguments, invalid
from switchsim.modes import Action, Check, Mode, Session, goes_to, leaves
from switchsim.settings import NO, Facts, Setting

QUEUES: Final = 7
"""How many queues of a port a user can configure (0 to 6); the system keeps queue 7 for itself."""
DSCP_COUNT: Final = 64
FAMILIES: Final = ("ipv4", "ipv6")
DSCP_NAMES: Final = {**CODE_POINTS, "be": 0}
_PRINTED: Final = {number: name for name, number in DSCP_NAMES.items() if name != "be"}
NO_INTERFACE: Final = "An invalid interface has been used for this function"
"""The refusal for an unknown port as PowerConnect and N-series switches word it, with no percent sign."""
PRIORITIES: Final = 8
COLOURS: Final = 4
"""How many RED curves a queue has: green, yellow and red TCP packets, and all others."""
NULL0: Final = IPv4Address(0)
"""The address that stands for the next hop `Null0`, which drops packets."""
TRUSTS: Final = {"dot1p": "Dot1P", "ip-dscp": "IP DSCP", "untrusted": "Untrusted"}
"""Keyword for the header field that chooses a packet's queue → how the switch shows it."""
DEFAULT_CURVE: Final = ("drop", *(40, 30, 20, 100), *(100, 90, 80, 100), *(10, 10, 10, 10))
"""RED setting of a queue as delivered: the action ("drop": not marked), then for the four colours in turn
their minimum, their maximum thresholds and their drop probabilities, all in percent."""


def _parse_mask(word: str) -> int:
    try:
        network = IPv4Network(f"0.0.0.0/{word}")
    except ValueError:
        raise ValueError("write a subnet mask") from None
    if str(network.netmask) != word:
        raise ValueError("write a subnet mask")
    return network.prefixlen


def _parse_dscp(word: str) -> int:
    if word in DSCP_NAMES:
        return DSCP_NAMES[word]
    if not (re.fullmatch("[0-9]{1,2}", word) and int(word) < DSCP_COUNT):
        raise ValueError("ipdscp is a number from 0 to 63 or a name")
    return int(word)


def _parse_name(word: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_.-]{1,31}", word) or word == "default":
        raise ValueError("a name has 1 to 31 characters, and is not `default`")
    return word


ARGUMENTS: Final[Mapping[str, Argument]] = {
    **arguments(
        "queue 0-6; queues queue 0-6+; priority 0-7; preference 1-255; bandwidth 0-100; family ipv4|ipv6;"
        "constant 0-15; min-thresh 0-250; max-thresh 0-250; drop-prob-scale 0-100; vlan 0-4093;"
        "bandwidths bandwidth 0-100+"
    ),
    "dscp": Argument("dscp", _parse_dscp),
    "code-point": Argument("dscp", _parse_dscp, spell=lambda dscp: _PRINTED.get(dscp, str(dscp))),
    "interface": Argument("interface", str.lower),
    "length": Argument("length", int),
    "address": Argument("address", IPv4Address),
    "mask": Argument("mask", _parse_mask, spell=lambda length: str(IPv4Network((0, length)).netmask)),
    "next-hop": Argument(
        "next-hop",
        lambda word: NULL0 if word.lower() == "null0" else IPv4Address(word),
        spell=lambda hop: "Null0" if hop == NULL0 else str(hop),
    ),
    "name": Argument("name", _parse_name),
}


def _check_bandwidths(_: Facts, __: str, values: Values) -> None:
    shares = values.all("bandwidth", int)
    if len(shares) != QUEUES or sum(shares) > 100:
        raise invalid(f"bandwidths are {QUEUES} percentages of at most 100 together")


def _check_policy(facts: Facts, port: str, values: Values) -> None:
    policy = values.one("name", str)
    if (f"policy-map {policy} in", "") not in facts:
        raise invalid(f"there is no policy {policy}")
    if any(fact[:2] == (port, "policy") and fact[2] != policy for fact in facts):
        raise invalid("an interface has one policy, and there is another")


def _check_route(_: Facts, __: str, values: Values) -> None:
    try:
        IPv4Network((values.one("address", IPv4Address), values.one("mask", int)))
    except ValueError as error:
        raise invalid(str(error)) from None


def _check_curve(_: Facts, __: str, values: Values) -> Values:
    """Dell: a maximum below the minimum becomes the minimum plus one."""
    pairs = zip(values.all("min-thresh", int), values.all("max-thresh", int), strict=True)
    return Values({**values.raw, "max-thresh": [high if high >= low else low + 1 for low, high in pairs]})


def _check_match(what: str) -> Check:
    def check(facts: Facts, place: str, _: Values) -> None:
        if (place, what) in facts:
            raise invalid("a match of a class cannot be changed")

    return check


def _check_class_removal(facts: Facts, place: str, values: Values) -> None:
    name = values.one("name", str)
    if (place, "") not in facts:
        raise invalid(f"there is no class {name}")
    if any(f"class {name}" in facts.heads("", policy) for policy in facts.heads("policy-map ")):
        raise invalid(f"class {name} is in use")


def _check_policy_removal(facts: Facts, place: str, values: Values) -> None:
    name = values.one("name", str)
    if any(fact[1:] == ("policy", name) for fact in facts):
        raise invalid(f"policy {name} is in use")
    if (place, "") not in facts:
        raise invalid(f"there is no policy {name}")


def _check_class(facts: Facts, _: str, values: Values) -> None:
    name = values.one("name", str)
    if (f"class-map match-all {name}", "") not in facts:
        raise invalid(f"there is no class {name}")


def _check_exclusion(facts: Facts, place: str, values: Values) -> None:
    if (place, "") not in facts:
        raise invalid(f"class {values.one('name', str)} is not in this policy")


_PARAMETERS: Final = "random-detect queue-parms {queues}"
_NUMBERS: Final = ("min-thresh", "max-thresh", "drop-prob-scale")
_CURVE: Final = " ".join((_PARAMETERS, *(f"{word}{f' {{{word}}}' * COLOURS}" for word in _NUMBERS)))
OF_PORT: Final = (
    Setting("shutdown", "shutdown", NO),
    Setting("flow-control", "storm-control flowcontrol", NO),
    Setting("default-priority", "vlan priority {priority}", default=0),
)
EVERYWHERE: Final = (
    Setting(
        "policy {name}",
        "service-policy in {name}",
        NO,
        check=_check_policy,
        absent=str(invalid("policy {name} is not attached")),
    ),
    Setting(
        "trust",
        {f"classofservice trust {mode}": mode for mode in TRUSTS},
        ("no classofservice trust",),
        default="dot1p",
    ),
    Setting(
        "queue-of-priority {priority}",
        "classofservice dot1p-mapping {priority} {queue}",
        ("no classofservice dot1p-mapping",),
        default=(1, 0, 0, 1, 2, 2, 3, 3).__getitem__,
    ),
    Setting("strict {queues}", "cos-queue strict {queues}", NO),
    Setting("random-detect {queues}", "cos-queue random-detect {queues}", NO),
    Setting(
        "min-bandwidth",
        "cos-queue min-bandwidth {bandwidths}",
        NO,
        default=(0,) * QUEUES,
        check=_check_bandwidths,
    ),
    Setting(
        "curve {queues}",
        {_CURVE: "drop", f"{_CURVE} ecn": "ecn"},
        (f"no {_PARAMETERS}",),
        default=lambda _: DEFAULT_CURVE,
        check=_check_curve,
        joined=False,
    ),
    Setting("exponent", "random-detect exponential-weighting-constant {constant}", NO, default=9),
    Setting("shape", "traffic-shape {bandwidth}", NO, default=0),
)
"""Configuration lines of a port that, entered in global mode, concern all ports."""
BRIDGING: Final = (
    Setting(
        "pfc",
        "priority-flow-control mode on",
        ("priority-flow-control mode off", "no priority-flow-control mode"),
    ),
    Setting(
        "lossless {priority}",
        "priority-flow-control priority {priority} no-drop",
        ("priority-flow-control priority {priority} drop",),
    ),
)
"""Configuration lines of the datacenter-bridging mode inside an interface."""
ROUTED: Final = (Setting("routing", "routing", NO), Setting("address", "ip address {address} {mask}"))
SWITCH: Final = (
    Setting("routing", "ip routing", NO),
    Setting(
        "route {address} {mask} {next-hop}",
        "ip route {address} {mask} {next-hop} [{preference}]",
        ("no ip route {address} {mask} [{next-hop}]",),
        check=_check_route,
        absent=str(invalid("there is no such route")),
        omitted=1,
        most=10_000,
    ),
    Setting("flow-control", "flowcontrol", NO),
    Setting(
        "queue-of-dscp {dscp}",
        "classofservice ip-dscp-mapping {dscp} {queue}",
        ("no classofservice ip-dscp-mapping",),
        default=(*(1,) * 8, *(0,) * 16, *(1,) * 8, *(2,) * 16, *(3,) * 16).__getitem__,
    ),
    Setting("diffserv", {"no diffserv": False}, ("diffserv",), default=True),
)


def open_class(session: Session, values: Values) -> None:
    """Execute `class-map match-all`: open the mode of a class, which is made if it does not exist."""
    name, family = values.one("name", str), values.maybe("family", str) or FAMILIES[0]
    place = f"class-map match-all {name}"
    known = session.facts.get((place, "family"), family)
    if known != family:
        raise invalid(f"class {name} is of {known}")
    session.open("class", place, values)
    session.facts = Facts({**session.facts, (place, "family"): family})


INSIDE: Final[Mapping[str, Action]] = {"exit": leaves, "end": goes_to("exec")}
BLOCKS: Final[Mapping[str, Mode]] = {
    "interface": Mode(
        "({device}) (Interface {head})#",
        {**INSIDE, "datacenter-bridging": goes_to("bridging")},
        "config",
        "interface {interface}",
        (*OF_PORT, *EVERYWHERE, *(replace(row, is_fixed=True) for row in BRIDGING), *ROUTED),
        made_by="nothing",
        absent=NO_INTERFACE,
    ),
    "bridging": Mode("({device}) (config-if-dcb)#", INSIDE, "interface", rows=BRIDGING),
    "class": Mode(
        "({device}) (Config-classmap)#",
        INSIDE,
        "config",
        "class-map match-all {name}",
        (
            Setting("ip-dscp", "match ip dscp {code-point}", check=_check_match("ip-dscp")),
            Setting("any", "match any", check=_check_match("any")),
            Setting("vlan", "match vlan {vlan}", check=_check_match("vlan")),
            Setting("family", {}),
        ),
        removed_by="no class-map {name}",
        check_removal=_check_class_removal,
    ),
    "policy": Mode(
        "({device}) (Config-policy-map)#",
        INSIDE,
        "config",
        "policy-map {name} in",
        removed_by="no policy-map {name}",
        check_removal=_check_policy_removal,
    ),
    "policy-class": Mode(
        "({device}) (Config-policy-classmap)#",
        INSIDE,
        "policy",
        "class {name}",
        (
            Setting("assign-queue", "assign-queue {queue}"),
            Setting("mark-ip-dscp", "mark ip-dscp {code-point}"),
        ),
        check=_check_class,
        removed_by="no class {name}",
        check_removal=_check_exclusion,
    ),
}
