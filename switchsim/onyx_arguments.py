"""The words with values in Onyx commands: what is accepted, and why not."""

import re
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final

from switchsim.grammar import Argument, choice, whole
from switchsim.onyx_state import DSCP_COUNT, NULL0, TRAFFIC_CLASSES, Control, Trust

MAX_PORTS: Final = 64
MAX_THRESHOLD_KB: Final = 13_619
"""Ours: the largest pool that SONiC gives this chip (13,945,824 B); Onyx names no figure."""
MAX_PREFIX_LENGTH: Final = 32

_PORT: Final = re.compile(r"1/([1-9][0-9]{0,2})\Z")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,19}\Z")
_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)([KM]?)\Z")
_RATE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)G\Z")
_WHOLE_ALPHAS: Final = ("1", "2", "4", "8", "16", "32", "64", "inf")
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


ARGUMENTS: Final[Mapping[str, Argument]] = {
    "ports": Argument("ports", _parse_ports),
    "port": pattern("port", _PORT, "1/N"),
    "dscp": whole("dscp", 0, DSCP_COUNT - 1, repeated=True),
    "traffic-class": whole("traffic-class", 0, TRAFFIC_CLASSES - 1),
    "switch-priority": whole("switch-priority", 0, TRAFFIC_CLASSES - 1),
    "switch-priorities": whole("switch-priority", 0, TRAFFIC_CLASSES - 1, repeated=True),
    "trust": choice("trust", *Trust),
    "control": choice("control", *Control),
    "minimum-kb": whole("minimum", 1, MAX_THRESHOLD_KB),
    "maximum-kb": whole("maximum", 1, MAX_THRESHOLD_KB),
    "minimum-percent": whole("minimum", 1, 100),
    "maximum-percent": whole("maximum", 1, 100),
    "weight": whole("weight", 1, 100),
    # Mbit/s; with G and a decimal point in public scripts, the bounds are ours.
    "rate": Argument("rate", _parse_rate),
    "mtu": whole("mtu", 1500, 9216),
    "alpha": choice("alpha", "0", *(f"1/{2**n}" for n in range(7, 0, -1)), *_WHOLE_ALPHAS),
    "size": Argument("size", _parse_size),
    "type": choice("type", "dynamic", "static"),
    "name": pattern("name", _NAME, "a name of at most 20 characters"),
    "access-list": pattern("name", re.compile(r"\S{1,64}"), "a name of at most 64 characters [emulator]"),
    "buffer": pattern("buffer", re.compile(r"ePort\.tc[0-7]\Z"), "ePort.tc0 to ePort.tc7"),
    "prefix": Argument("prefix", lambda word: IPv4Network(_with_length(word))),
    "next-hop": Argument("next-hop", lambda word: NULL0 if word == "null0" else IPv4Address(word)),
    "distance": whole("distance", 1, 255),
    "address": Argument("address", _parse_interface),
}
