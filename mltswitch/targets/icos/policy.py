"""The DiffServ policies that make background of what a port may not say, before the map, and rewrite it.

A class of FASTPATH has one code point, or all, and one version of IP, and cannot be changed once it is
defined (M4300, DiffServ Class Commands). So each has a name that says what it is, and is only ever added or
taken away. What a policy does with a class can be changed in place (M4300, DiffServ Policy Commands).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from mltswitch.targets.remap import HOST_POLICY, POLICIES, UNTRUSTED_POLICY, Entrance

FAMILIES: Final = ("ipv4", "ipv6")
CLASS_MAP: Final = re.compile(r"class-map match-all (\S+)(?: (ipv4|ipv6))?")
POLICY_MAP: Final = re.compile(r"policy-map (\S+) in")
CLASS: Final = re.compile(r"class (\S+)")
OWN_CLASS: Final = re.compile(r"mltswitch-(any|[0-9]|[1-5][0-9]|6[0-3])-(ipv4|ipv6)")
_ANY: Final = "any"
_MATCH: Final = re.compile(r"match ip6? dscp (\S+)")
_ACTIONS: Final = re.compile(r"assign-queue ([0-6])(?:\nmark ip-dscp (\S+))?")
_NAMED: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    **{str(dscp): dscp for dscp in range(64)},
    "be": 0,
    "ef": 46,
}
LEAVE: Final = "exit"


def policy_line(policy: str) -> str:
    """The line that opens a policy map, whose classes follow."""
    return f"policy-map {policy} in"


def attach_line(policy: str) -> str:
    """The line that binds a policy map to the packets that arrive at a port."""
    return f"service-policy in {policy}"


POLICY_LINES: Final = {policy_line(policy): policy for policy in POLICIES}


def class_name(dscp: int | None, family: str) -> str:
    """Name of the class of one code point, or of all."""
    return f"mltswitch-{_ANY if dscp is None else dscp}-{family}"


def class_names(dscps: Iterable[int] | None) -> Iterator[str]:
    """Names of the classes of code points, or of all packets."""
    return (class_name(dscp, family) for dscp in ([None] if dscps is None else dscps) for family in FAMILIES)


def policy_with(name: str) -> str:
    """Policy of ours that a class of ours belongs to."""
    return HOST_POLICY if dscp_of(name) is not None else UNTRUSTED_POLICY


def dscp_of(name: str) -> int | None:
    """Code point of a class of ours, from its name; None: it has all, or is somebody else's."""
    match = OWN_CLASS.fullmatch(name)
    return None if match is None or match[1] == _ANY else int(match[1])


def _nothing() -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({})


def _no_policies() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OwnPolicies:
    """Classes with our kind of name, and our policies."""

    classes: Mapping[str, tuple[str, ...]] = field(default_factory=_nothing)
    """Name → its family and its lines."""
    defined: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=_no_policies)
    """Policy of ours that is there → class in it, whose name may be anybody's → its lines there."""
    lent: frozenset[str] = frozenset()
    """Our classes that other policies name, too."""

    def is_as_named(self, name: str) -> bool:
        """Whether a class of ours is there and is what its name says."""
        return is_as_named(name, self.classes.get(name, ()))

    def instances(self, policy: str) -> Mapping[str, tuple[str, ...]]:
        """Classes in a policy → their lines there."""
        return self.defined.get(policy, {})

    def done(self, policy: str, name: str) -> tuple[int, int | None] | None:
        """Queue and DSCP that a policy gives to a class; None: it does not, or does something else."""
        match = _ACTIONS.fullmatch("\n".join(sorted(self.instances(policy).get(name, ()))))
        if match is None or (match[2] and match[2] not in _NAMED):
            return None
        return int(match[1]), _NAMED[match[2]] if match[2] else None

    def queues(self) -> Iterator[tuple[int, int]]:
        """Code point and queue of each class of ours in the policy of hosts."""
        for name in self.instances(HOST_POLICY):
            dscp, done = dscp_of(name), self.done(HOST_POLICY, name)
            if dscp is not None and done is not None:
                yield dscp, done[0]

    def entrance(self, policy: str) -> Entrance | None:
        """What a policy does, where it does no more than a plan asks, for both versions of IP alike."""
        instances = self.instances(policy)
        dscps = None if policy == UNTRUSTED_POLICY else _dscps_of(instances)
        done = {self.done(policy, name) for name in instances}
        if len(done) != 1 or None in done or set(instances) != set(class_names(dscps)):
            return None
        [(queue, dscp)] = filter(None, done)
        return Entrance(dscps, queue, dscp) if all(map(self.is_as_named, instances)) else None


def _dscps_of(names: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({dscp for dscp in map(dscp_of, names) if dscp is not None}))


def is_as_named(name: str, lines: tuple[str, ...]) -> bool:
    """Whether lines (the first one: its family) are those of the class that has this name."""
    named = OWN_CLASS.fullmatch(name)
    if named is None or len(lines) != 2 or lines[0] != named[2]:
        return False
    if named[1] == _ANY:
        return lines[1] == "match any"
    match = _MATCH.fullmatch(lines[1])
    return match is not None and _NAMED.get(match[1]) == int(named[1])


def class_lines(name: str) -> tuple[str, ...]:
    """What defines a class of ours, from the configuration mode."""
    match = OWN_CLASS.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no name of ours")
    matched = _ANY if match[1] == _ANY else f"ip dscp {match[1]}"
    return (f"class-map match-all {name} {match[2]}", f"match {matched}", LEAVE)


def read_policies(lines: Iterable[str]) -> OwnPolicies:
    """Policies from the lines of a running configuration."""
    classes: dict[str, tuple[str, ...]] = {}
    policies: dict[str, dict[str, tuple[str, ...]]] = {}
    open_class, open_policy, instance = "", "", ""
    for line in (" ".join(line.split()) for line in lines):
        if match := CLASS_MAP.fullmatch(line):
            open_class = match[1]
            classes[open_class] = (match[2] or FAMILIES[0],)
        elif match := POLICY_MAP.fullmatch(line):
            open_policy = match[1]
            policies.setdefault(open_policy, {})
        elif line == LEAVE:
            if instance:
                instance = ""
            else:
                open_class = open_policy = ""
        elif open_class and not line.startswith("!"):
            classes[open_class] = (*classes[open_class], line)
        elif open_policy and (match := CLASS.fullmatch(line)):
            instance = match[1]
            policies[open_policy].setdefault(instance, ())
        elif instance and not line.startswith("!"):
            policies[open_policy][instance] = (*policies[open_policy][instance], line)
    lent = {name for policy, names in policies.items() if policy not in POLICIES for name in names}
    own = {name: found for name, found in classes.items() if OWN_CLASS.fullmatch(name)}
    return OwnPolicies(
        MappingProxyType(own),
        MappingProxyType({name: policies[name] for name in POLICIES if name in policies}),
        frozenset(lent.intersection(own)),
    )
