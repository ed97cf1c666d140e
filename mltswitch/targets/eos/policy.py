"""The policy map that sends what hosts may not use to background, on their ports, before the DSCP counts.

A policy map names class maps, and a class map of EOS names access lists; those of IPv4 and of IPv6 are two
(aristanetworks/avd, tested configuration qos.cfg). The names are ours, so all that stands in them is.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final

POLICY: Final = "mltswitch-host"
FAMILIES: Final = ("ip", "ipv6")
CLASS_NAMES: Final = {"ip": "mltswitch-control-ipv4", "ipv6": "mltswitch-control-ipv6"}
"""Of the access list and of the class map."""
POLICY_HEAD: Final = f"policy-map type quality-of-service {POLICY}"
LIST_HEADS: Final = {f"{family} access-list {name}": family for family, name in CLASS_NAMES.items()}
CLASS_HEADS: Final = {f"class-map type qos match-any {name}": family for family, name in CLASS_NAMES.items()}
CLASS_MODES: Final = {f"class {name}": family for family, name in CLASS_NAMES.items()}
"""Within the policy map."""
HEADS: Final = (*LIST_HEADS, *CLASS_HEADS, POLICY_HEAD)
"""What opens a mode of ours, in the order in which one needs the other."""
_HARMLESS: Final = frozenset({"class class-default", "counters per-entry", "statistics per-entry"})
_PERMIT: Final = re.compile(r"([0-9]{1,10}) permit (ip|ipv6) any any dscp (\S+)")
NAMED: Final = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "ef": 46,
    "default": 0,
}


def sequence_number(dscp: int) -> int:
    """Of the entry for a code point: so an entry can be taken out without knowing the others."""
    return dscp + 1


Moved = tuple[tuple[int, ...], int]
"""Code points, ascending, and the traffic class to which a policy moves them."""


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """What stands in our access lists, class maps and policy map."""

    permits: frozenset[tuple[str, int]] = frozenset()
    """(family, DSCP) of the access lists."""
    matches: frozenset[str] = frozenset()
    """Families whose class map names their access list."""
    classes: frozenset[tuple[str, int]] = frozenset()
    """(family, traffic class) in the policy map."""
    others: tuple[tuple[tuple[str, ...], str], ...] = ()
    """(modes, line) of what else stands there."""
    heads: frozenset[str] = field(default=frozenset(), compare=False)
    """Which of them are there at all."""

    @property
    def moved(self) -> Moved | None:
        """What it does, where that is all, for both families alike."""
        dscps = tuple(sorted(dscp for family, dscp in self.permits if family == FAMILIES[0]))
        classes = {traffic_class for _, traffic_class in self.classes}
        if not dscps or len(classes) != 1:
            return None
        traffic_class = classes.pop()
        return (dscps, traffic_class) if self == planned(dscps, traffic_class) else None


def planned(dscps: tuple[int, ...], traffic_class: int) -> HostPolicy:
    """The policy of a plan."""
    return HostPolicy(
        frozenset((family, dscp) for family in FAMILIES for dscp in dscps),
        frozenset(FAMILIES),
        frozenset((family, traffic_class) for family in FAMILIES),
    )


def with_line(policy: HostPolicy, modes: tuple[str, ...], text: str) -> HostPolicy:
    """The policy with one more line of the running configuration; `modes` begins with one of HEADS."""
    head, *inner = modes
    if not inner and head in LIST_HEADS:
        match = _PERMIT.fullmatch(text)
        if match is not None and match[2] == LIST_HEADS[head]:
            dscp = NAMED.get(match[3], int(match[3]) if match[3].isdecimal() else -1)
            if int(match[1]) == sequence_number(dscp):
                return replace(policy, permits=policy.permits | {(match[2], dscp)})
    elif not inner and head in CLASS_HEADS:
        family = CLASS_HEADS[head]
        if text == f"match {family} access-group {CLASS_NAMES[family]}":
            return replace(policy, matches=policy.matches | {family})
    elif not inner and text in CLASS_MODES:
        return policy
    elif inner and inner[0] in CLASS_MODES and (match := re.fullmatch(r"set traffic-class ([0-7])", text)):
        return replace(policy, classes=policy.classes | {(CLASS_MODES[inner[0]], int(match[1]))})
    return policy if text in _HARMLESS else replace(policy, others=(*policy.others, (modes, text)))
