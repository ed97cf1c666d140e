"""The configuration lines of Onyx 3.7-3.10 (SN2100) for queues and routes, and how the switch prints them.

Source: "Quality of Service", "QoS Commands" and "Shared Buffer Commands" of the Onyx manual, the Ansible
collection mellanox.onyx, saved configurations, and for `bandwidth shape` of a port public scripts of a
research group. Our own choice, because no source says: the bounds of weight, percentages, rates and
thresholds, that the host bits of a route are 0, where a route's distance stands, that another distance
replaces it, that leaving the advanced buffer mode forgets what it held. There is no command for the
bandwidths of a traffic class and the default switch-priority of a port, because no source has its words:
tests set them by hand.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface
from itertools import chain
from typing import Final

from switchsim.grammar import (
    PREFIX,
    Argument,
    Values,
    arguments,
    choice,
    form,
    invalid,
    with_length,
)
from switchsim.settings import NO, Facts, Setting

MAX_PORTS: Final = 64
TRAFFIC_CLASSES: Final = 8
DSCP_COUNT: Final = 64
NULL0: Final = IPv4Address(0)
"""The address that stands for the next hop `null0`, which drops packets."""

# --- words with values -------------------------------------------------------------------------------------

_NUMBER: Final = r"([0-9]{1,%d}(?:\.[0-9]{1,3})?)"
_PORT: Final = r"1/([1-9][0-9]{0,2})"
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20}
_ALPHAS: Final = ("0", *(f"1/{2**n}" for n in range(7, 0, -1)), *(str(2**n) for n in range(7)), "inf")


def _ports(first: str, last: str | None) -> tuple[str, ...]:
    low, high = int(first), int(last or first)
    if not low <= high:
        raise ValueError("a range of interfaces ascends")
    if high > MAX_PORTS:
        raise ValueError(f"there is no interface 1/{high}")
    return tuple(f"1/{number}" for number in range(low, high + 1))


def _mbps(gbps: str) -> int:
    mbps = int(Decimal(gbps) * 1000)
    if not mbps:
        raise ValueError("a rate is above 0")
    return mbps


def _interface(word: str) -> IPv4Interface:
    interface = IPv4Interface(with_length(word))
    ends = {interface.network.network_address, interface.network.broadcast_address}
    if interface.network.num_addresses > len(ends) and interface.ip in ends:
        raise ValueError("an interface cannot have the network's or the broadcast address")
    return interface


ARGUMENTS: Final[Mapping[str, Argument]] = {
    **arguments(
        "dscp 0-63+; traffic-class 0-7; switch-priority 0-7; switch-priorities switch-priority 0-7+;"
        # A threshold's bound is ours: the largest pool that SONiC gives this chip (13,945,824 B).
        "trust port|L2|L3|both; control red|ecn|both; minimum-kb minimum 1-13619; maximum-kb maximum 1-13619;"
        "minimum-percent minimum 1-100; maximum-percent maximum 1-100; weight 1-100; mtu 1500-9216;"
        "type dynamic|static; distance 1-255"
    ),
    "ports": form("ports", f"{_PORT}(?:-{_PORT})?", "interface ethernet takes 1/N or 1/N-1/M", _ports),
    "port": form("port", f"({_PORT})", "port is 1/N", lambda word, _: word),
    # Mbit/s; with G and a decimal point in public scripts, the bounds are ours.
    "rate": form("rate", f"{_NUMBER % 3}G", "a rate is a number with G", _mbps, lambda n: f"{n / 1000:g}G"),
    "alpha": choice("alpha", *_ALPHAS),
    "size": form(
        *("size", f"{_NUMBER % 12}([KM]?)", "a size is bytes, or a number with K or M"),
        lambda number, unit: int(float(number) * _FACTORS[unit]),
    ),
    "name": form("name", "[A-Za-z][A-Za-z0-9_.-]{0,19}", "name is a name of at most 20 characters"),
    "access-list": form("name", r"\S{1,64}", "name is a name of at most 64 characters [emulator]"),
    "buffer": form(
        "buffer", r"ePort\.tc([0-7])", "buffer is ePort.tc0 to ePort.tc7", int, "ePort.tc{}".format
    ),
    "prefix": PREFIX,
    "next-hop": Argument(
        "next-hop",
        lambda word: NULL0 if word == "null0" else IPv4Address(word),
        spell=lambda hop: "null0" if hop == NULL0 else str(hop),
    ),
    "address": Argument("address", _interface),
}

# --- which lines do not fit --------------------------------------------------------------------------------


def _check_thresholds(_: Facts, __: str, values: Values) -> None:
    minimum, maximum = values.one("minimum", int), values.one("maximum", int)
    if minimum > maximum:
        raise invalid(f"minimum {minimum} is above maximum {maximum}")


def _check_routed(facts: Facts, port: str, _: Values) -> None:
    if (port, "switchport") not in facts:
        raise invalid("the interface is a switch port, it needs `no switchport force` first")


def _check_pool(facts: Facts, _: str, values: Values) -> None:
    """Pools, and what lies in one of them, need the advanced mode."""
    if ("", "advanced-buffers") not in facts:
        raise invalid("this needs `advanced buffer management force` first")
    if values.maybe("buffer", int) is not None and ("", "pool", values.one("name", str)) not in facts:
        raise invalid(f"there is no pool {values.one('name', str)}")


# --- the rows ----------------------------------------------------------------------------------------------

PORT_WORDS: Final = "interface ethernet {ports} "
_CLASS: Final = "traffic-class {traffic-class}"
_PFC: Final = "dcb priority-flow-control"


def _of_ports(*settings: Setting) -> tuple[Setting, ...]:
    """Rows whose lines begin with the ports."""
    return tuple(
        replace(
            setting,
            lines={f"{PORT_WORDS}{line}": word for line, word in setting.words_of_lines().items()},
            undone_by=tuple(f"{PORT_WORDS}{line}" for line in setting.undoing_lines()),
        )
        for setting in settings
    )


def _thresholds(mode: str, unit: str) -> str:
    words = (f"{limit}-{mode} {{{limit}-{unit}}}" for limit in ("minimum", "maximum"))
    return f"{_CLASS} congestion-control {{control}} {' '.join(words)}"


SECTIONS: Final[Mapping[str, tuple[Setting, ...]]] = {
    "Interface Ethernet configuration": _of_ports(
        Setting("mtu", "mtu {mtu} force", default=1500),
        Setting("shutdown", "shutdown", NO),
        Setting("switchport", {"no switchport force": False}, NO, default=True, forgets=("address",)),
    ),
    "Shared Buffers advanced configuration": (
        Setting(
            *("advanced-buffers", "advanced buffer management force", NO),
            forgets=("pool", "egress-buffer"),
        ),
        Setting("pool {name}", "pool {name} size {size} type {type}", check=_check_pool, most=8),
        *_of_ports(
            Setting(
                "egress-buffer {buffer}",
                "egress-buffer {buffer} map pool {name} reserved {size} shared alpha {alpha}",
                check=_check_pool,
            )
        ),
    ),
    "QoS configuration": _of_ports(
        Setting("trust", "qos trust {trust}", NO, default="L2"),
        Setting("rewrite-dscp", "qos rewrite dscp", NO),
        Setting("rewrite-pcp", {"no qos rewrite pcp": False}, NO, default=True),
        Setting("shaper-mbps", "bandwidth shape {rate}", NO),
        Setting(
            "switch-priority {dscp}",
            "qos map dscp {dscp} to switch-priority {switch-priority}",
            default=lambda dscp: dscp >> 3,
        ),
        Setting(
            "traffic-class {switch-priorities}",
            f"{_CLASS} bind switch-priority {{switch-priorities}}",
            default=lambda priority: priority,
        ),
        Setting(
            "congestion-control {traffic-class}",
            {_thresholds("absolute", "kb"): "absolute", _thresholds("relative", "percent"): "relative"},
            NO,
            check=_check_thresholds,
        ),
        Setting(
            "scheduling {traffic-class}",
            {f"{_CLASS} dcb ets strict": "strict", f"{_CLASS} dcb ets wrr {{weight}}": "wrr"},
            default=lambda number: ("wrr", 12 + number % 2),
        ),
    ),
    "ACL configuration": (Setting("access-list {access-list}", "ipv4 access-list {access-list}", NO),),
    "DCBX PFC configuration": (
        Setting("pfc", f"{_PFC} enable force", NO),
        Setting("pfc-priority {switch-priority}", f"{_PFC} priority {{switch-priority}} enable", NO),
        *_of_ports(Setting("pfc-mode", f"{_PFC} mode on force", (f"no {_PFC} mode force",))),
    ),
    "L3 configuration": (
        Setting("routing", "ip routing vrf default", NO),
        *_of_ports(Setting("address", "ip address {address} [primary]", check=_check_routed)),
    ),
    "Other IP configuration": (
        Setting(
            "route {prefix} {next-hop}",
            "ip route vrf default {prefix} {next-hop} [{distance}]",
            ("no ip route vrf default {prefix} [{next-hop}]",),
            absent=str(invalid("there is no such route to {prefix}")),
            omitted=1,
            most=10_000,
        ),
    ),
}
"""Title of a section of the running configuration → the settings that it prints."""
_UNPRINTED: Final = (
    Setting("prefix-modes", {"no cli default prefix-modes enable": False}, NO, default=True),
    Setting("default-switch-priority", {}, default=0),
    Setting("class-shaper-mbps", {}),
    Setting("class-guaranteed-mbps", {}, default=0),
)
ROWS: Final = (*chain(*SECTIONS.values()), *_UNPRINTED)
