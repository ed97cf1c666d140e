"""The words with values in EOS commands: what is accepted, and why not."""

import re
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final

from mltswitch.lab.emulators.grammar import Argument, choice, whole

MAX_PORTS: Final = 64
TRAFFIC_CLASSES: Final = 8
DSCP_COUNT: Final = 64
MAX_THRESHOLD: Final = 256_000_000
"""In whatever unit (schema of aristanetworks/avd)."""
UNITS: Final = ("segments", "bytes", "kbytes", "mbytes", "milliseconds")

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


def _parse_prefix(word: str) -> IPv4Network:
    return IPv4Network(_with_length(word))


def _parse_address(word: str) -> IPv4Interface:
    return IPv4Interface(_with_length(word))


def _with_length(word: str) -> str:
    """Only `address/length`: the standard library would also take a mask, or no length at all."""
    _, slash, length = word.partition("/")
    if not (slash and length.isascii() and length.isdigit() and len(length) <= 2):
        raise ValueError("write address/length")
    return word


NAME: Final = Argument("name", _parse_name)
INTERFACE: Final = Argument("interface", _parse_interface)
NULL0: Final = choice("interface", "Null0")
TIMER: Final = Argument("timer", _parse_timer)
DSCP: Final = whole("dscp", 0, DSCP_COUNT - 1)
DSCPS: Final = whole("dscp", 0, DSCP_COUNT - 1, repeated=True)
COS: Final = whole("cos", 0, 7)
COSES: Final = whole("cos", 0, 7, repeated=True)
CLASS: Final = whole("traffic-class", 0, TRAFFIC_CLASSES - 1)
CLASSES: Final = whole("traffic-class", 0, TRAFFIC_CLASSES - 1, repeated=True)
QUEUE: Final = whole("queue", 0, TRAFFIC_CLASSES - 2)
ANY_QUEUE: Final = whole("queue", 0, TRAFFIC_CLASSES - 1)
PRECEDENCE: Final = whole("drop-precedence", 0, 2)
PRIORITY: Final = whole("priority", 0, 7)
MINIMUM: Final = whole("minimum", 1, MAX_THRESHOLD)
MAXIMUM: Final = whole("maximum", 1, MAX_THRESHOLD)
UNIT: Final = choice("unit", *UNITS)
PROBABILITY: Final = whole("probability", 1, 100)
WEIGHT: Final = whole("weight", 0, 15)
PERCENT: Final = whole("percent", 1, 100)
RATE: Final = whole("rate", 1, 400_000_000)
RATE_UNIT: Final = choice("unit", "kbps", "percent", "pps")
CHANNEL: Final = whole("channel", 1, 999_999)
DIRECTION: Final = choice("direction", "receive", "send")
MTU: Final = whole("mtu", 68, 10_178)
PREFIX: Final = Argument("prefix", _parse_prefix)
NEXT_HOP: Final = Argument("next-hop", IPv4Address)
ADDRESS: Final = Argument("address", _parse_address)
DISTANCE: Final = whole("distance", 1, 255)
WIDTH: Final = whole("width", 0, 32_767)
