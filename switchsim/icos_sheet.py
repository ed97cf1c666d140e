"""The configuration lines of FASTPATH that concern queues and paths, and how it prints them.

Sources: the Class of Service, Routing and Data Center Bridging chapters of public FASTPATH manuals (NETGEAR
M4300, Extreme 200 Series, Dell EMC Networking N-series with `drop-prob-scale` and `ecn`). In interface mode a
command concerns the port, in global mode all ports. Documented defaults: trust, the RED parameters, priority
0 in queue 1; the others are ours. Ours, too, because no source says: that thresholds end at 250 % (Dell has
an example with 200), that a route with another preference replaces the old one, and that host bits of a route
are 0.
"""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from switchsim.grammar import Argument, Command, Values, invalid, whole
from switchsim.icos_diffserv import NAME, QUEUES, DiffServ, parse_dscp
from switchsim.settings import NO, Edit, Facts, Setting, Sheet

GREATEST_PERCENT: Final = 250
PRIORITIES: Final = 8
COLOURS: Final = 4
"""Green, yellow, red TCP, and what is not TCP."""
NULL0: Final = IPv4Address(0)
"""Stands for the next hop Null0, which drops."""
TRUSTS: Final = {"dot1p": "Dot1P", "ip-dscp": "IP DSCP", "untrusted": "Untrusted"}
"""Which header field names the queue of a packet → how it is shown."""
DEFAULT_CURVE: Final = ("drop", *(40, 30, 20, 100), *(100, 90, 80, 100), *(10, 10, 10, 10))
"""Whether packets are marked, then minimum, maximum and probability in percent, for each colour."""


def _parse_mask(word: str) -> int:
    try:
        network = IPv4Network(f"0.0.0.0/{word}")
    except ValueError:
        raise ValueError("write a subnet mask") from None
    if str(network.netmask) != word:
        raise ValueError("write a subnet mask")
    return network.prefixlen


ARGUMENTS: Final[Mapping[str, Argument]] = {
    "queue": whole("queue", 0, QUEUES - 1),
    "queues": whole("queue", 0, QUEUES - 1, repeated=True),
    "priority": whole("priority", 0, PRIORITIES - 1),
    "dscp": Argument("dscp", parse_dscp),
    "address": Argument("address", IPv4Address),
    "mask": Argument("mask", _parse_mask, spell=lambda length: str(IPv4Network((0, length)).netmask)),
    "next-hop": Argument(
        "next-hop",
        lambda word: NULL0 if word.lower() == "null0" else IPv4Address(word),
        spell=lambda hop: "Null0" if hop == NULL0 else str(hop),
    ),
    "preference": whole("preference", 1, 255),
    "name": NAME,
    "bandwidth": whole("bandwidth", 0, 100),
    "bandwidths": whole("bandwidth", 0, 100, repeated=True),
    "constant": whole("constant", 0, 15),
    "min-thresh": whole("min-thresh", 0, GREATEST_PERCENT),
    "max-thresh": whole("max-thresh", 0, GREATEST_PERCENT),
    "drop-prob-scale": whole("drop-prob-scale", 0, 100),
}


def _check_bandwidths(_: Facts, __: str, values: Values) -> None:
    shares = values.all("bandwidth", int)
    if len(shares) != QUEUES or sum(shares) > 100:
        raise invalid(f"bandwidths are {QUEUES} percentages of at most 100 together")


def _check_policy(facts: Facts, port: str, values: Values) -> None:
    policy = values.one("name", str)
    if policy not in SWITCH.fact(facts, "", "diffserv").policies:
        raise invalid(f"there is no policy {policy}")
    if any(fact[:2] == (port, "policy") and fact[2] != policy for fact in facts):
        raise invalid("an interface has one policy, and there is another")


def _check_route(_: Facts, __: str, values: Values) -> None:
    try:
        IPv4Network((values.one("address", IPv4Address), values.one("mask", int)))
    except ValueError as error:
        raise invalid(str(error)) from None


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
        joined=False,
    ),
    Setting("exponent", "random-detect exponential-weighting-constant {constant}", NO, default=9),
    Setting("shape", "traffic-shape {bandwidth}", NO, default=0),
)
"""Rows of ports whose lines the global mode takes, too, for all ports."""
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
"""Rows of the datacenter-bridging mode inside an interface."""
ROUTED: Final = (Setting("routing", "routing", NO), Setting("address", "ip address {address} {mask}"))
PORT: Final = Sheet((*OF_PORT, *EVERYWHERE, *BRIDGING, *ROUTED), ARGUMENTS)
SWITCH: Final = Sheet(
    (
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
        Setting("diffserv", {}, default=DiffServ()),
    ),
    ARGUMENTS,
)


def _raised(edit: Edit) -> Edit:
    """Dell: a maximum below the minimum becomes the minimum plus one."""

    def raised(facts: Facts, values: Values, places: Sequence[str]) -> Facts:
        pairs = zip(values.all("min-thresh", int), values.all("max-thresh", int), strict=True)
        maximum = [high if high >= low else low + 1 for low, high in pairs]
        return edit(facts, Values({**values.raw, "max-thresh": maximum}), places)

    return raised


def commands(*settings: Setting) -> tuple[Command[Edit], ...]:
    """What some rows of ports take."""
    return tuple(
        Command(each.pattern, _raised(each.action) if "max-thresh" in each.pattern else each.action)
        for each in Sheet(settings, ARGUMENTS).commands
    )
