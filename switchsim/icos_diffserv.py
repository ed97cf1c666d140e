"""DiffServ of an emulated FASTPATH switch: classes, policies, and the modes in which they are made.

Source: NETGEAR M4300 CLI manual, DiffServ Class, Policy and Service Commands: the words, names of at most 31
characters, that a match of a class cannot be changed or taken away, that neither a class which a policy names
nor a policy which an interface has can be deleted, that a value of a policy's class can be changed, but only
goes with the class. Ours, because no source says: that one line of a kind is all a class can have, that a
policy can only name a class that is there, that `policy-map NAME in` opens one that is there.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

from switchsim.grammar import Argument, Command, Values, choice, invalid, whole

QUEUES: Final = 7
"""0 to 6; the system keeps queue 7."""
DSCP_COUNT: Final = 64
FAMILIES: Final = ("ipv4", "ipv6")
DSCP_NAMES: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "be": 0,
    "ef": 46,
}
_PRINTED: Final = {number: name for name, number in DSCP_NAMES.items() if name != "be"}
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,31}")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """Packets of one version of IP that meet all matches; `matches` are words after `match`, by kind."""

    family: str
    matches: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def fits(self, family: str, dscp: int) -> bool:
        """Whether packets of a code point are meant; a class without any match fits none."""
        return family == self.family and dict(self.matches) in ({"any": ""}, {"ip dscp": str(dscp)})


@dataclass(frozen=True, slots=True)
class DiffServ:
    """Classes and policies by name."""

    is_on: bool = True
    classes: Mapping[str, TrafficClass] = field(default_factory=lambda: MappingProxyType({}))
    policies: Mapping[str, Mapping[str, Mapping[str, int]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Policy → class → what is done, by `assign-queue` or `mark ip-dscp`."""

    def with_class(self, name: str, entry: TrafficClass) -> "DiffServ":
        """The same with one class changed."""
        return replace(self, classes=_with(self.classes, name, entry))

    def without_class(self, name: str) -> "DiffServ":
        """The same without a class; raises RefusalError while a policy names it."""
        if name not in self.classes:
            raise invalid(f"there is no class {name}")
        if any(name in instances for instances in self.policies.values()):
            raise invalid(f"class {name} is in use")
        return replace(self, classes=_without(self.classes, name))

    def with_policy(self, name: str, instances: Mapping[str, Mapping[str, int]]) -> "DiffServ":
        """The same with one policy changed."""
        return replace(self, policies=_with(self.policies, name, instances))

    def without_policy(self, name: str) -> "DiffServ":
        """The same without a policy."""
        if name not in self.policies:
            raise invalid(f"there is no policy {name}")
        return replace(self, policies=_without(self.policies, name))

    def actions(self, policy: str, family: str, dscp: int) -> Mapping[str, int]:
        """What a policy does with packets; without `assign-queue` it leaves them to the port's trust."""
        if self.is_on:
            for name, actions in self.policies.get(policy, {}).items():
                if self.classes[name].fits(family, dscp):
                    return actions
        return {}

    def lines(self) -> Iterator[str]:
        """As the running configuration prints them."""
        if not self.is_on:
            yield "no diffserv"
        for name, entry in self.classes.items():
            yield f"class-map match-all {name} {entry.family}"
            for kind, value in entry.matches.items():
                yield f"match {_line(kind, value)}"
            yield "exit"
        for name, instances in self.policies.items():
            yield f"policy-map {name} in"
            for class_name, actions in instances.items():
                yield f"class {class_name}"
                yield from (_line(action, str(value)) for action, value in actions.items())
                yield "exit"
            yield "exit"


def _line(words: str, value: str) -> str:
    if words in {"ip dscp", "mark ip-dscp"}:
        value = _PRINTED.get(int(value), value)
    return f"{words} {value}".rstrip()


def _with(entries: Mapping[str, _Value], name: str, entry: _Value) -> Mapping[str, _Value]:
    return MappingProxyType({**entries, name: entry})


def _without(entries: Mapping[str, _Value], name: str) -> Mapping[str, _Value]:
    return MappingProxyType({other: entry for other, entry in entries.items() if other != name})


def parse_dscp(word: str) -> int:
    """Code point by number or name; raises ValueError."""
    if word in DSCP_NAMES:
        return DSCP_NAMES[word]
    if not (re.fullmatch("[0-9]{1,2}", word) and int(word) < DSCP_COUNT):
        raise ValueError("ipdscp is a number from 0 to 63 or a name")
    return int(word)


def _parse_name(word: str) -> str:
    if not _NAME.fullmatch(word) or word == "default":
        raise ValueError("a name has 1 to 31 characters, and is not `default`")
    return word


NAME: Final = Argument("name", _parse_name)
FAMILY: Final = choice("family", *FAMILIES)
_DSCP: Final = Argument("dscp", parse_dscp)
_QUEUE: Final = whole("queue", 0, QUEUES - 1)
_VLAN: Final = whole("vlan", 0, 4093)

ClassChange = Callable[[TrafficClass, Values], TrafficClass]
ActionChange = Callable[[Mapping[str, int], Values], Mapping[str, int]]


def define_class(old: DiffServ, values: Values) -> DiffServ:
    """`class-map match-all`, which opens a class, a new one where there is none of this name."""
    name, family = values.one("name", str), values.maybe("family", str) or FAMILIES[0]
    known = old.classes.get(name)
    if known is not None and known.family != family:
        raise invalid(f"class {name} is of {known.family}")
    return old if known is not None else old.with_class(name, TrafficClass(family))


def _match(kind: str, value: str) -> ClassChange:
    def change(old: TrafficClass, values: Values) -> TrafficClass:
        if kind in old.matches:
            raise invalid("a match of a class cannot be changed")
        return replace(old, matches=_with(old.matches, kind, str(values.one(value, int)) if value else ""))

    return change


def _do(action: str, value: str, excludes: str) -> ActionChange:
    def change(old: Mapping[str, int], values: Values) -> Mapping[str, int]:
        if excludes in old:
            raise invalid(f"{action} does not go with {excludes}")
        return _with(old, action, values.one(value, int))

    return change


IN_CLASS: Final[tuple[Command[ClassChange], ...]] = (
    Command(("match", "ip", "dscp", _DSCP), _match("ip dscp", "dscp")),
    Command(("match", "any"), _match("any", "")),
    Command(("match", "vlan", _VLAN), _match("vlan", "vlan")),
)
IN_POLICY: Final[tuple[Command[bool], ...]] = (
    Command(("class", NAME), True),
    Command(("no", "class", NAME), False),
)
IN_POLICY_CLASS: Final[tuple[Command[ActionChange], ...]] = (
    Command(("assign-queue", _QUEUE), _do("assign-queue", "queue", "drop")),
    Command(("mark", "ip-dscp", _DSCP), _do("mark ip-dscp", "dscp", "drop")),
)
