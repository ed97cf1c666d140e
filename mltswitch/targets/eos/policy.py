"""The policy maps that make background of what a port may not say, before the DSCP counts, and rewrite it.

A policy map names class maps, and a class map of EOS names access lists; those of IPv4 and of IPv6 are two
(aristanetworks/avd, tested configuration qos.cfg). `class-default` is what neither of both is (EOS manual,
Traffic Management), so where every packet is meant, an access list says so. The names are ours, so all that
stands in them is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from mltswitch.targets.remap import HOST_POLICY, UNTRUSTED_POLICY, Entrance
from mltswitch.wire.tos import DSCP_COUNT

FAMILIES: Final = ("ip", "ipv6")
CLASSES: Final = {
    HOST_POLICY: ("mltswitch-control-ipv4", "mltswitch-control-ipv6"),
    UNTRUSTED_POLICY: ("mltswitch-any-ipv4", "mltswitch-any-ipv6"),
}
"""Policy map → names of its access lists and of its class maps, one for each family."""
FAMILY_OF: Final = {name: FAMILIES[n] for names in CLASSES.values() for n, name in enumerate(names)}
LIST_HEADS: Final = {f"{family} access-list {name}": name for name, family in FAMILY_OF.items()}
CLASS_HEADS: Final = {f"class-map type qos match-any {name}": name for name in FAMILY_OF}
POLICY_HEADS: Final = {f"policy-map type quality-of-service {policy}": policy for policy in CLASSES}
POLICY_OF_HEAD: Final = {
    **POLICY_HEADS,
    **{
        head: policy
        for heads in (CLASS_HEADS, LIST_HEADS)
        for head, name in heads.items()
        for policy, names in CLASSES.items()
        if name in names
    },
}
"""What opens a mode of ours → the policy map that it is for; what needs another stands before it."""
_HARMLESS: Final = frozenset({"class class-default", "counters per-entry", "statistics per-entry"})
_PERMIT: Final = re.compile(r"([0-9]{1,10}) permit (ip|ipv6) any any(?: dscp (\S+))?")
_SET: Final = re.compile(r"set (?:(dscp) (\S+)|(traffic-class) ([0-7]))")
NAMED: Final = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "ef": 46,
    "default": 0,
}


def sequence_number(dscp: int | None) -> int:
    """Of the entry for a code point, or for all: so an entry can be taken out without knowing the others."""
    return 1 + (DSCP_COUNT if dscp is None else dscp)


def class_in(head: str, text: str) -> str:
    """Name of the class of ours that a line of our policy map opens; empty: it opens none."""
    name = text.removeprefix("class ")
    return name if name != text and name in CLASSES.get(POLICY_HEADS.get(head, ""), ()) else ""


def _nothing() -> Mapping[tuple[str, str], int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OwnPolicies:
    """What stands in our access lists, class maps and policy maps."""

    permits: frozenset[tuple[str, int | None]] = frozenset()
    """(access list, DSCP); None: all."""
    matches: frozenset[str] = frozenset()
    """Class maps that name their access list."""
    actions: Mapping[tuple[str, str], int] = field(default_factory=_nothing)
    """(class, `dscp` or `traffic-class`) → what its policy map sets."""
    others: tuple[tuple[tuple[str, ...], str], ...] = ()
    """(modes, line) of what else stands there."""
    heads: frozenset[str] = field(default=frozenset(), compare=False)
    """Which of them are there at all."""

    def entrance(self, policy: str) -> Entrance | None:
        """What a policy map does, its queue as a traffic class; None: more, or not to both families alike."""
        names = CLASSES.get(policy, ())
        done = {
            (
                frozenset(dscp for name, dscp in self.permits if name == each),
                self.actions.get((each, "traffic-class")),
                self.actions.get((each, "dscp")),
            )
            for each in names
        }
        is_more = any(POLICY_OF_HEAD[modes[0]] == policy for modes, _ in self.others)
        if len(done) != 1 or is_more or not self.matches.issuperset(names):
            return None
        [(permitted, traffic_class, dscp)] = done
        dscps = tuple(sorted(each for each in permitted if each is not None))
        if traffic_class is None or bool(dscps) is (None in permitted):
            return None
        return Entrance(dscps or None, traffic_class, dscp)


def with_line(policies: OwnPolicies, modes: tuple[str, ...], text: str) -> OwnPolicies:
    """The policies with one more line of a configuration; `modes` begins with a head of ours."""
    head, *inner = modes
    if not inner and head in LIST_HEADS:
        match = _PERMIT.fullmatch(text)
        if match is not None and match[2] == FAMILY_OF[LIST_HEADS[head]]:
            dscp = None if match[3] is None else code_point(match[3])
            if int(match[1]) == sequence_number(dscp):
                return replace(policies, permits=policies.permits | {(LIST_HEADS[head], dscp)})
    elif not inner and head in CLASS_HEADS:
        name = CLASS_HEADS[head]
        if text == f"match {FAMILY_OF[name]} access-group {name}":
            return replace(policies, matches=policies.matches | {name})
    elif not inner and class_in(head, text):
        return policies
    elif inner and (name := class_in(head, inner[0])) and (match := _SET.fullmatch(text)):
        action, value = match[1] or match[3], code_point(match[2] or match[4])
        if value >= 0:
            return replace(policies, actions=MappingProxyType({**policies.actions, (name, action): value}))
    return policies if text in _HARMLESS else replace(policies, others=(*policies.others, (modes, text)))


def code_point(word: str) -> int:
    """By number or by name; -1: neither."""
    number = NAMED.get(word, int(word) if word.isdecimal() else -1)
    return number if number < DSCP_COUNT else -1
