"""What a port makes of code points as packets arrive: filters of clsact that rewrite them to background's.

Egress queues can then believe every packet's DSCP, whoever sent it, and so can all switches behind this one.
The ECN bits stay (`retain 0xfc`). A port that is not trusted rewrites every packet, and needs no match.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from mltswitch.targets.linux.answers import FilterAnswer, hexadecimal
from mltswitch.targets.state import every_dscp_but
from mltswitch.wire.tos import DSCP_COUNT, Ecn, TrafficClassByte

DSCP_MASK: Final = 0xFC
_FIELDS: Final = {"ip": "ip dsfield", "ipv6": "ip6 traffic_class"}
_PREFERENCES: Final = {"ip": 1, "ipv6": 2}
_THEN: Final = {"ip": " pipe action csum ip4h", "ipv6": ""}
MARK: Final = re.compile(
    r"protocol (?P<family>ip|ipv6) prio [12] flower (?:ip_tos 0x(?P<tos>[0-9a-f]{2})/0xfc )?"
    r"action pedit ex munge (?:ip dsfield|ip6 traffic_class) set 0x(?P<set>[0-9a-f]{2}) retain 0xfc"
    r"(?: pipe action csum ip4h)?"
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Which code points of packets arriving at a port become which."""

    dscps: tuple[int, ...] = ()
    background_dscp: int = 0

    @property
    def marks(self) -> tuple[str, ...]:
        """Its filters, as tc takes them behind `filter add dev PORT ingress`."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        is_all = self.dscps == every_dscp_but(self.background_dscp)
        matches = [""] if is_all else [dscp_match(dscp) for dscp in self.dscps]
        for family, preference in _PREFERENCES.items():
            for match in matches:
                yield _mark(family, preference, match, _octet(self.background_dscp))


NO_REWRITING: Final = Rewriting()


def dscp_match(dscp: int) -> str:
    """One code point, as flower takes it for IPv4 and IPv6."""
    return _match(_octet(dscp))


def rewriting_of(marks: Iterable[str]) -> tuple[Rewriting, tuple[str, ...]]:
    """Inverse of `Rewriting.marks` in any order, and what of the marks it does not say."""
    marks = frozenset(marks)
    found = [match for match in map(MARK.fullmatch, marks) if match]
    background = min((int(match["set"], 16) >> 2 for match in found), default=0)
    dscps = {int(match["tos"], 16) >> 2 for match in found if match["tos"] is not None}
    is_all = any(match["tos"] is None for match in found)
    rewriting = Rewriting(every_dscp_but(background) if is_all else tuple(sorted(dscps)), background)
    expected = frozenset(rewriting.marks)
    return rewriting, (
        *(f"no ingress filter {text}" for text in sorted(expected - marks)),
        *(f"ingress filter {text}" for text in sorted(marks - expected)),
    )


def mark_of(entry: FilterAnswer) -> str | None:
    """A filter that the kernel holds, as a line; None where it is nothing of ours."""
    options = entry.options
    if options is None or entry.kind != "flower" or options.indev:
        return None
    octet = _octets().get((entry.protocol, tuple(map(_shown, options.actions))))
    names = options.keys.keys() - {"eth_type"}
    if octet is None or names - {"ip_tos", "ip_tos_mask"}:
        return None
    match = ""
    if names:
        if hexadecimal(options.keys.get("ip_tos_mask", 0), 16) != DSCP_MASK:
            return None
        match = _match(hexadecimal(options.keys.get("ip_tos"), 0))
    return _mark(entry.protocol, entry.preference, match, octet)


_Action = tuple[object, ...]


def _shown(action: Mapping[str, Any]) -> _Action:
    """What `tc -j` says of an action, but for its counters."""
    keys = [tuple(sorted(key.items())) for key in action.get("keys", ())]
    return action.get("kind"), action.get("control_action", {}).get("type"), action.get("csum"), *keys


@cache
def _octets() -> Mapping[tuple[str, tuple[_Action, ...]], int]:
    """Family and what pedit and csum say → the octet that they write."""
    return {
        (family, tuple(_actions(family, octet))): octet
        for family in _FIELDS
        for octet in map(_octet, range(DSCP_COUNT))
    }


def _actions(family: str, octet: int) -> Iterator[_Action]:
    """pedit writes the header's first word, but for the bits of the mask."""
    if family == "ip":
        key = {"htype": "ipv4", "offset": 0, "cmd": "set", "val": f"{octet << 16:x}", "mask": "ff03ffff"}
        yield "pedit", "pipe", None, tuple(sorted(key.items()))
        yield "csum", "pass", "iph"
    else:
        key = {"htype": "ipv6", "offset": 0, "cmd": "set", "val": f"{octet << 20:x}", "mask": "f03fffff"}
        yield "pedit", "pass", None, tuple(sorted(key.items()))


def _mark(family: str, preference: int, match: str, octet: int) -> str:
    return (
        f"protocol {family} prio {preference} flower {match}{' ' if match else ''}"
        f"action pedit ex munge {_FIELDS[family]} set 0x{octet:02x} retain 0x{DSCP_MASK:02x}{_THEN[family]}"
    )


def _match(octet: int) -> str:
    return f"ip_tos 0x{octet:02x}/0x{DSCP_MASK:02x}"


def _octet(dscp: int) -> int:
    return int(TrafficClassByte(dscp % DSCP_COUNT, Ecn.NOT_ECT))
