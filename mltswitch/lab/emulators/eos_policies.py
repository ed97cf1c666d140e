"""Access lists, class maps and policy maps of an emulated Arista switch, as far as QoS uses them.

Source: aristanetworks/avd, tested configuration qos.cfg, templates class-maps.j2 and policy-maps-qos.j2: the
words, the modes, and that a name may be used before it is defined: interfaces stand before policy maps there.
That class-default takes neither IPv4 nor IPv6: EOS manual, Traffic Management.
Ours, because no source says: that code points are printed by name, that an entry without a number gets the
next multiple of ten, that an entry with the number of another one is refused, that what is not there can be
taken out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

from mltswitch.lab.emulators import eos_arguments as argument
from mltswitch.lab.emulators.grammar import Argument, Command, Element, Values, choice, invalid, whole

Family = Literal["ip", "ipv6"]
FAMILIES: Final[tuple[Family, ...]] = ("ip", "ipv6")
_STEP: Final = 10
_NAMES: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(1, 8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "ef": 46,
}
_NUMBERS: Final = {number: name for name, number in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """One entry of an access list: any address to any, perhaps of one code point only."""

    permits: bool
    dscp: int | None


@dataclass(frozen=True, slots=True)
class AccessList:
    """Entries by number."""

    family: Family
    entries: Mapping[int, AccessEntry] = field(default_factory=lambda: MappingProxyType({}))

    def permits(self, dscp: int) -> bool:
        """Whether a packet of this code point is meant: by the first entry that fits."""
        for _, entry in sorted(self.entries.items()):
            if entry.dscp in {None, dscp}:
                return entry.permits
        return False


@dataclass(frozen=True, slots=True)
class ClassMap:
    """Packets that fit any of the lines."""

    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyMap:
    """Class → what is set for its packets, by `traffic-class`, `dscp`, `cos`, `drop-precedence`."""

    classes: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))

    def with_class(self, name: str, actions: Mapping[str, int]) -> "PolicyMap":
        """The same with one class changed, or added at the end."""
        return PolicyMap(MappingProxyType({**self.classes, name: MappingProxyType(dict(actions))}))

    def without_class(self, name: str) -> "PolicyMap":
        """The same without it."""
        return PolicyMap(
            MappingProxyType({other: kept for other, kept in self.classes.items() if other != name})
        )


@dataclass(frozen=True, slots=True)
class Policies:
    """All of them, by name."""

    lists: Mapping[tuple[Family, str], AccessList] = field(default_factory=lambda: MappingProxyType({}))
    class_maps: Mapping[str, ClassMap] = field(default_factory=lambda: MappingProxyType({}))
    policy_maps: Mapping[str, PolicyMap] = field(default_factory=lambda: MappingProxyType({}))

    def with_list(self, name: str, entry: AccessList) -> "Policies":
        """The same with one access list changed."""
        return replace(self, lists=MappingProxyType({**self.lists, (entry.family, name): entry}))

    def with_class_map(self, name: str, entry: ClassMap) -> "Policies":
        """The same with one class map changed."""
        return replace(self, class_maps=MappingProxyType({**self.class_maps, name: entry}))

    def with_policy_map(self, name: str, entry: PolicyMap) -> "Policies":
        """The same with one policy map changed."""
        return replace(self, policy_maps=MappingProxyType({**self.policy_maps, name: entry}))

    def without(self, kind: str, name: str) -> "Policies":
        """The same without one: kind is a family, `class-map` or `policy-map`."""
        if kind == "class-map":
            kept = {other: entry for other, entry in self.class_maps.items() if other != name}
            return replace(self, class_maps=MappingProxyType(kept))
        if kind == "policy-map":
            maps = {other: entry for other, entry in self.policy_maps.items() if other != name}
            return replace(self, policy_maps=MappingProxyType(maps))
        lists = {key: entry for key, entry in self.lists.items() if key != (kind, name)}
        return replace(self, lists=MappingProxyType(lists))

    def actions(self, policy: str, family: Family, dscp: int) -> Mapping[str, int]:
        """What a policy sets for a packet of one of these families; class-default is for other packets."""
        found = self.policy_maps.get(policy, PolicyMap())
        for name, actions in found.classes.items():
            if self._fits(self.class_maps.get(name, ClassMap()), family, dscp):
                return actions
        return {}

    def _fits(self, class_map: ClassMap, family: Family, dscp: int) -> bool:
        for line in class_map.lines:
            match = re.fullmatch(rf"match {family} access-group (\S+)", line)
            if match and self.lists.get((family, match[1]), AccessList(family)).permits(dscp):
                return True
        return False

    def lines(self) -> Iterator[str]:
        """As `show running-config` prints them."""
        for (family, name), entry in self.lists.items():
            yield f"{family} access-list {name}"
            yield from (f"   {line}" for line in _list_lines(entry))
            yield "!"
        for name, class_map in self.class_maps.items():
            yield f"class-map type qos match-any {name}"
            yield from (f"   {line}" for line in class_map.lines)
            yield "!"
        for name, policy in self.policy_maps.items():
            yield f"policy-map type quality-of-service {name}"
            for class_name, actions in policy.classes.items():
                yield f"   class {class_name}"
                for action, value in actions.items():
                    yield f"      set {action} {_NUMBERS.get(value, value) if action == 'dscp' else value}"
                yield "   !"
            if "class-default" not in policy.classes:
                yield "   class class-default"
            yield "!"


def _list_lines(access_list: AccessList) -> Iterator[str]:
    for number, entry in sorted(access_list.entries.items()):
        dscp = "" if entry.dscp is None else f" dscp {_NUMBERS.get(entry.dscp, entry.dscp)}"
        yield f"{number} {'permit' if entry.permits else 'deny'} {access_list.family} any any{dscp}"


def _parse_dscp(word: str) -> int:
    if word in _NAMES:
        return _NAMES[word]
    if not (word.isascii() and word.isdigit() and len(word) <= 2 and int(word) < argument.DSCP_COUNT):
        raise ValueError("a code point is a number from 0 to 63 or a name")
    return int(word)


_DSCP: Final = Argument("dscp", _parse_dscp)
_NUMBER: Final = whole("number", 1, 4_294_967_295)
_SENSE: Final = choice("sense", "permit", "deny")
_FAMILY: Final = choice("family", *FAMILIES)
_VLAN: Final = whole("vlan", 1, 4094)

ListChange = Callable[[AccessList, Values], AccessList]
ClassMapChange = Callable[[ClassMap, Values], ClassMap]
ActionChange = Callable[[Mapping[str, int], Values], Mapping[str, int]]


def _add_entry(old: AccessList, values: Values) -> AccessList:
    if values.one("family", str) != old.family:
        raise invalid(f"this is a list of {old.family}")
    entry = AccessEntry(values.one("sense", str) == "permit", values.maybe("dscp", int))
    number = values.maybe("number", int)
    if number is None:
        number = (max(old.entries, default=0) // _STEP + 1) * _STEP
    if old.entries.get(number, entry) != entry:
        raise invalid(f"entry {number} is there already")
    return replace(old, entries=MappingProxyType({**old.entries, number: entry}))


def _remove_entry(old: AccessList, values: Values) -> AccessList:
    number = values.one("number", int)
    kept = {other: entry for other, entry in old.entries.items() if other != number}
    return replace(old, entries=MappingProxyType(kept))


def _entry_change(*, on: bool) -> ListChange:
    return _add_entry if on else _remove_entry


def _entry_patterns() -> Iterator[tuple[Element, ...]]:
    for number in ((), (_NUMBER,)):
        for dscp in ((), ("dscp", _DSCP)):
            yield (*number, _SENSE, _FAMILY, "any", "any", *dscp)


def _match(text: str, *, on: bool) -> ClassMapChange:
    def change(old: ClassMap, values: Values) -> ClassMap:
        words = [
            str(value) for name in ("family", "name", "vlan", "cos") for value in values.all(name, object)
        ]
        line = f"match {text.format(*words)}"
        kept = tuple(other for other in old.lines if other != line)
        return ClassMap((*kept, line) if on else kept)

    return change


def _class_map_commands() -> Iterator[Command[ClassMapChange]]:
    for text, pattern in (
        ("{} access-group {}", (_FAMILY, "access-group", argument.NAME)),
        ("vlan {}", ("vlan", _VLAN)),
        ("cos {}", ("cos", argument.COS)),
    ):
        yield Command(("match", *pattern), _match(text, on=True))
        yield Command(("no", "match", *pattern), _match(text, on=False))


def _set(action: str) -> ActionChange:
    return lambda old, values: {**old, action: values.one(action, int)}


def _unset(action: str) -> ActionChange:
    return lambda old, _: {other: value for other, value in old.items() if other != action}


def is_of_list(words: Sequence[str]) -> bool:
    """Whether a line begins as those of an access list do; the others are tried in the mode around it."""
    first = words[1] if words[:1] == ["no"] and len(words) > 1 else words[0]
    return first.isdecimal() or first in {"permit", "deny"}


LIST_COMMANDS: Final[tuple[Command[ListChange], ...]] = (
    *(Command(pattern, _entry_change(on=True)) for pattern in _entry_patterns()),
    Command(("no", _NUMBER), _entry_change(on=False)),
)
CLASS_MAP_COMMANDS: Final = tuple(_class_map_commands())
ACTION_COMMANDS: Final[tuple[Command[ActionChange], ...]] = tuple(
    command
    for action, value in (
        ("traffic-class", argument.CLASS),
        ("dscp", _DSCP),
        ("cos", argument.COS),
        ("drop-precedence", argument.PRECEDENCE),
    )
    for command in (
        Command(("set", action, value), _set(action)),
        Command(("no", "set", action), _unset(action)),
    )
)
