"""The DiffServ policy that sends what hosts may not use to background, on their ports, before the DSCP map.

A class of FASTPATH has one code point and one version of IP, and cannot be changed once it is defined (M4300,
DiffServ Class Commands). So each has a name that says what it is, and is only ever added or taken away.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from mltswitch.targets.remap import Remap

POLICY: Final = "mltswitch-host"
POLICY_LINE: Final = f"policy-map {POLICY} in"
ATTACH_LINE: Final = f"service-policy in {POLICY}"
FAMILIES: Final = ("ipv4", "ipv6")
CLASS_MAP: Final = re.compile(r"class-map match-all (\S+)(?: (ipv4|ipv6))?")
POLICY_MAP: Final = re.compile(r"policy-map (\S+) in")
CLASS: Final = re.compile(r"class (\S+)")
OWN_CLASS: Final = re.compile(r"mltswitch-([0-9]|[1-5][0-9]|6[0-3])-(ipv4|ipv6)")
_MATCH: Final = re.compile(r"match ip6? dscp (\S+)")
_ASSIGN: Final = re.compile(r"assign-queue ([0-6])")
_NAMED: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "be": 0,
    "ef": 46,
}
LEAVE: Final = "exit"


def class_name(dscp: int, family: str) -> str:
    """Name of the class of one code point."""
    return f"mltswitch-{dscp}-{family}"


def class_names(dscps: Iterable[int]) -> Iterator[str]:
    """Names of the classes of code points."""
    return (class_name(dscp, family) for dscp in dscps for family in FAMILIES)


def dscp_of(name: str) -> int | None:
    """Code point of a class of ours, from its name; None: it is somebody else's."""
    match = OWN_CLASS.fullmatch(name)
    return None if match is None else int(match[1])


def _nothing() -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """Classes with our kind of name, and our policy."""

    classes: Mapping[str, tuple[str, ...]] = field(default_factory=_nothing)
    """Name → its family and its lines."""
    instances: Mapping[str, tuple[str, ...]] = field(default_factory=_nothing)
    """Class in our policy, whose name may be anybody's → its lines there."""
    is_defined: bool = False
    """Whether the policy is there at all."""
    lent: frozenset[str] = frozenset()
    """Our classes that other policies name, too."""

    def is_as_named(self, name: str) -> bool:
        """Whether a class of ours is there and is what its name says."""
        return is_as_named(name, self.classes.get(name, ()))

    def queue_of(self, name: str) -> int | None:
        """Where our policy sends a class; None: it does not, or does something else."""
        lines = self.instances.get(name, ())
        match = _ASSIGN.fullmatch(lines[0]) if len(lines) == 1 else None
        return None if match is None else int(match[1])

    def queues(self) -> Iterator[tuple[int, int]]:
        """Code point and queue of each class of ours in the policy."""
        for name in self.instances:
            dscp, queue = dscp_of(name), self.queue_of(name)
            if dscp is not None and queue is not None:
                yield dscp, queue

    @property
    def remap(self) -> Remap | None:
        """What the policy does, where it does no more than a plan asks, for both versions of IP alike."""
        dscps = sorted({int(match[1]) for match in map(OWN_CLASS.fullmatch, self.instances) if match})
        queues = {self.queue_of(name) for name in self.instances}
        queue = queues.pop() if len(queues) == 1 else None
        if queue is None or set(self.instances) != set(class_names(dscps)):
            return None
        return Remap(tuple(dscps), queue) if all(map(self.is_as_named, self.instances)) else None


def is_as_named(name: str, lines: tuple[str, ...]) -> bool:
    """Whether lines (the first one: its family) are those of the class that has this name."""
    named = OWN_CLASS.fullmatch(name)
    match = _MATCH.fullmatch(lines[1]) if len(lines) == 2 else None
    if named is None or match is None or lines[0] != named[2]:
        return False
    return _NAMED.get(match[1], match[1]) in {int(named[1]), named[1]}


def class_lines(name: str) -> tuple[str, ...]:
    """What defines a class of ours, from the configuration mode."""
    match = OWN_CLASS.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no name of ours")
    return (f"class-map match-all {name} {match[2]}", f"match ip dscp {match[1]}", LEAVE)


def read_policy(lines: Iterable[str]) -> HostPolicy:
    """Policy from the lines of a running configuration."""
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
    lent = {name for policy, instances in policies.items() if policy != POLICY for name in instances}
    own = {name: found for name, found in classes.items() if OWN_CLASS.fullmatch(name)}
    return HostPolicy(
        MappingProxyType(own),
        MappingProxyType(policies.get(POLICY, {})),
        POLICY in policies,
        frozenset(lent.intersection(own)),
    )
