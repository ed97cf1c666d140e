"""The words with values in Onyx commands: what is accepted, and why not."""

import re
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final

from mltswitch.lab.emulators.grammar import Argument, choice, whole
from mltswitch.lab.emulators.onyx_state import DSCP_COUNT, NULL0, TRAFFIC_CLASSES, Control, Trust

MAX_PORTS: Final = 64
MAX_THRESHOLD_KB: Final = 13_619
"""Ours: the largest pool that SONiC gives this chip (13,945,824 B); Onyx names no figure."""
MAX_PREFIX_LENGTH: Final = 32

_PORT: Final = re.compile(r"1/([1-9][0-9]{0,2})\Z")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,19}\Z")
_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)([KM]?)\Z")
_RATE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)G\Z")
_ALPHAS: Final = (
    "0",
    "1/128",
    "1/64",
    "1/32",
    "1/16",
    "1/8",
    "1/4",
    "1/2",
    "1",
    "2",
    "4",
    "8",
    "16",
    "32",
    "64",
    "inf",
)
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20}


def pattern(name: str, expression: re.Pattern[str], what: str) -> Argument:
    """A word of a given form."""

    def parse(word: str) -> str:
        if not expression.match(word):
            raise ValueError(f"{name} is {what}")
        return word

    return Argument(name, parse)


def _parse_ports(word: str) -> tuple[str, ...]:
    first, dash, last = word.partition("-")
    ends = [_PORT.match(end) for end in ((first, last) if dash else (first, first))]
    if ends[0] is None or ends[1] is None:
        raise ValueError("interface ethernet takes 1/N or 1/N-1/M")
    low, high = int(ends[0][1]), int(ends[1][1])
    if not low <= high:
        raise ValueError("a range of interfaces ascends")
    if high > MAX_PORTS:
        raise ValueError(f"there is no interface 1/{high}")
    return tuple(f"1/{number}" for number in range(low, high + 1))


def _parse_size(word: str) -> int:
    found = _SIZE.match(word)
    if found is None:
        raise ValueError("a size is bytes, or a number with K or M")
    return int(float(found[1]) * _FACTORS[found[2]])


def _parse_rate(word: str) -> int:
    found = _RATE.match(word)
    if found is None:
        raise ValueError("a rate is a number with G")
    mbps = int(Decimal(found[1]) * 1000)
    if not mbps:
        raise ValueError("a rate is above 0")
    return mbps


def _parse_next_hop(word: str) -> IPv4Address:
    return NULL0 if word == "null0" else IPv4Address(word)


def _parse_prefix(word: str) -> IPv4Network:
    return IPv4Network(_with_length(word))


def _parse_interface(word: str) -> IPv4Interface:
    interface = IPv4Interface(_with_length(word))
    if interface.network.prefixlen < MAX_PREFIX_LENGTH - 1 and interface.ip in {
        interface.network.network_address,
        interface.network.broadcast_address,
    }:
        raise ValueError("an interface cannot have the network's or the broadcast address")
    return interface


def _with_length(word: str) -> str:
    """Only `address/length`: the standard library would also take a mask, or no length at all."""
    _, slash, length = word.partition("/")
    if not (slash and length.isascii() and length.isdigit() and len(length) <= 2):
        raise ValueError("write address/length")
    return word


PORTS: Final = Argument("ports", _parse_ports)
PORT: Final = pattern("port", _PORT, "1/N")
DSCP: Final = whole("dscp", 0, DSCP_COUNT - 1, repeated=True)
TRAFFIC_CLASS: Final = whole("traffic-class", 0, TRAFFIC_CLASSES - 1)
SWITCH_PRIORITY: Final = whole("switch-priority", 0, TRAFFIC_CLASSES - 1)
SWITCH_PRIORITIES: Final = whole("switch-priority", 0, TRAFFIC_CLASSES - 1, repeated=True)
TRUST: Final = choice("trust", *Trust)
CONTROL: Final = choice("control", *Control)
MINIMUM_KB: Final = whole("minimum", 1, MAX_THRESHOLD_KB)
MAXIMUM_KB: Final = whole("maximum", 1, MAX_THRESHOLD_KB)
MINIMUM_PERCENT: Final = whole("minimum", 1, 100)
MAXIMUM_PERCENT: Final = whole("maximum", 1, 100)
WEIGHT: Final = whole("weight", 1, 100)
RATE: Final = Argument("rate", _parse_rate)
"""Mbit/s; with G and a decimal point in public scripts, the bounds are ours."""
MTU: Final = whole("mtu", 1500, 9216)
ALPHA: Final = choice("alpha", *_ALPHAS)
SIZE: Final = Argument("size", _parse_size)
POOL_MODE: Final = choice("type", "dynamic", "static")
NAME: Final = pattern("name", _NAME, "a name of at most 20 characters")
EGRESS_BUFFER: Final = pattern("buffer", re.compile(r"ePort\.tc[0-7]\Z"), "ePort.tc0 to ePort.tc7")
PREFIX: Final = Argument("prefix", _parse_prefix)
NEXT_HOP: Final = Argument("next-hop", _parse_next_hop)
DISTANCE: Final = whole("distance", 1, 255)
ADDRESS: Final = Argument("address", _parse_interface)
