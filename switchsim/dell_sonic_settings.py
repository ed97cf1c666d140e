"""The configuration of an emulated Enterprise SONiC switch: what its blocks refer to, and its routes.

Sources: see dell_sonic_modes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType
from typing import Final

from switchsim.dell_sonic_modes import (
    ARGUMENTS,
    AS_DELIVERED,
    MAP_KINDS,
    SCHEDULER,
    kind_of,
    name_in,
    printed,
    refused,
)
from switchsim.grammar import Command, Values
from switchsim.settings import NO_FACTS, Block, patterns

MAX_ROUTES: Final = 10_000
_SMALLEST_KBPS: Final = 32
_BITS_OF_KBPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Route:
    """One next hop of one prefix; the first four values tell it from others."""

    prefix: IPv4Network
    next_hop: IPv4Address | None
    interface: str = ""
    blackhole: bool = False
    tag: int = 0
    distance: int = 0
    """Administrative distance; 0 where the line names none."""

    @property
    def key(self) -> tuple[object, ...]:
        """What `no ip route` names."""
        return self.prefix, self.next_hop, self.interface, self.blackhole

    def __str__(self) -> str:
        words = ["ip route", str(self.prefix)]
        words += ["blackhole"] if self.blackhole else []
        words += [str(self.next_hop)] if self.next_hop is not None else []
        words += ["interface", self.interface] if self.interface else []
        words += ["tag", str(self.tag)] if self.tag else []
        words += [str(self.distance)] if self.distance else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class DellSonicConfiguration:
    """Everything that `write memory` saves; a refused line changes nothing of it."""

    blocks: Mapping[str, Block]
    """Head → what stands below it; of a map, each entry's target by its number."""
    routes: tuple[Route, ...] = ()

    def with_block(self, head: str, block: Block) -> "DellSonicConfiguration":
        """The same with one block replaced."""
        return replace(self, blocks=MappingProxyType({**self.blocks, head: block}))

    def without_block(self, head: str) -> "DellSonicConfiguration":
        """This configuration without the block that begins with this line."""
        kept = {other: block for other, block in self.blocks.items() if other != head}
        return replace(self, blocks=MappingProxyType(kept))

    def lines(self, head: str) -> list[str]:
        """Lines of one block, none where there is no such block."""
        return printed(head, self.blocks[head].facts) if head in self.blocks else []

    def heads(self, kind: str) -> list[str]:
        """First lines of the blocks of one kind: `interface`, `class-map` and so on."""
        return [head for head in self.blocks if head.startswith(f"{kind} ")]

    def users(self, words: str) -> list[str]:
        """Heads of the ports that have a line which ends in these words."""
        return [
            head
            for head in self.heads("interface")
            if any(f" {line}".endswith(f" {words}") for line in self.lines(head))
        ]


def default_configuration(names: tuple[str, ...]) -> DellSonicConfiguration:
    """A switch as delivered: no maps, no policies."""
    ports = {f"interface {name}": Block(AS_DELIVERED) for name in names}
    return DellSonicConfiguration(MappingProxyType(ports))


def check_block(old: DellSonicConfiguration, head: str, inner: str, block: Block) -> None:
    """Raise RefusalError where a changed block does not fit the rest of the configuration."""
    kind, name = kind_of(head), name_in(head)
    if kind == "interface":
        lines = printed(head, block.facts)
        for line in set(lines).difference(old.lines(head)):
            _check_binding(old, line, _speed_kbps(lines))
    elif kind == "qos wred-policy" and not _has_green(block) and old.users(f"wred-policy {name}"):
        raise refused("Atleast one of the colors(GREEN/YELLOW/RED) must be present in WRED policy")
    elif kind == SCHEDULER:
        rates = printed(head, block.inner[inner], inner)
        _check_scheduler(rates)
        for port in old.users(f"scheduler-policy {name}"):
            _check_speed(rates, _speed_kbps(old.lines(port)))


def _has_green(block: Block) -> bool:
    return ("", "green") in block.facts


def _check_binding(old: DellSonicConfiguration, line: str, speed_kbps: int) -> None:
    """A line of a port names only what is there, and fits."""
    *_, kind, name = ("", *line.split(" "))
    if line.startswith("qos-map ") and f"qos map {kind} {name}" not in old.blocks:
        raise refused(f"No instance found for '{name}'")
    if line.startswith("service-policy ") and f"policy-map {name} type qos" not in old.blocks:
        raise refused(f"No instance found for '{name}'")
    if kind == "wred-policy":
        if f"qos wred-policy {name}" not in old.blocks:
            raise refused(f"No instance found for '{name}'")
        if not _has_green(old.blocks[f"qos wred-policy {name}"]):
            raise refused("Atleast one of the colors(GREEN/YELLOW/RED) must be present in WRED policy")
    if kind == "scheduler-policy":
        if f"{SCHEDULER} {name}" not in old.blocks:
            raise refused(f"No instance found for {name}")
        head = f"{SCHEDULER} {name}"
        for inner, facts in old.blocks[head].inner.items():
            lines = printed(head, facts, inner)
            if "meter-type packets" in lines:
                raise refused("Invalid scheduler policy meter type for the interface")
            _check_speed(lines, speed_kbps)


def _rates(lines: list[str]) -> dict[str, int]:
    words = (line.split(" ") for line in lines)
    return {word: int(value) for word, value in words if word in {"cir", "pir"}}


def _check_scheduler(lines: list[str]) -> None:
    rates = _rates(lines)
    if "type strict" in lines and any(line.startswith("weight ") for line in lines):
        raise refused("Strict priority scheduling can not be configured with weight")
    for word, rate in sorted(rates.items()):
        if rate < _SMALLEST_KBPS:
            raise refused(f"{word.upper()} must be greater than 32Kbp/4KBps/4000Bps")
    if rates.get("cir", 0) > rates.get("pir", rates.get("cir", 0)):
        raise refused("PIR must be greater than or equal to CIR")


def _check_speed(lines: list[str], speed_kbps: int) -> None:
    if any(rate > speed_kbps for rate in _rates(lines).values()):
        raise refused("PIR/CIR must be less than or equal to port speed")


def _speed_kbps(lines: list[str]) -> int:
    return next(int(line.split(" ")[1]) for line in lines if line.startswith("speed ")) * _BITS_OF_KBPS


Change = Callable[[DellSonicConfiguration, Values, str], DellSonicConfiguration]
"""A line that makes or removes a block, or changes routes; the words are the head of the open mode."""


def _delete(
    kind: str, binding: str, in_use: str, absent: str = "Resource not found", tail: str = ""
) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, _: str) -> DellSonicConfiguration:
        name = values.one("name", str)
        head = f"{kind} {name}{tail}"
        if head not in old.blocks:
            raise refused(absent)
        flows = (inner for each in old.heads("policy-map") for inner in old.blocks[each].inner)
        is_in_flow = kind == "class-map" and any(inner.split(" ")[1] == name for inner in flows)
        if is_in_flow or (binding and old.users(f"{binding} {name}")):
            raise refused(in_use.format(name))
        return old.without_block(head)

    return apply


def open_queue(old: DellSonicConfiguration, inner: str, head: str) -> DellSonicConfiguration:
    """A queue of a scheduler policy, which exists from its first queue on."""
    block = old.blocks.get(head, Block())
    return old.with_block(head, block.with_inner(inner, block.inner.get(inner, NO_FACTS)))


def open_flow(old: DellSonicConfiguration, values: Values, head: str) -> tuple[DellSonicConfiguration, str]:
    """A class of a policy-map, and the head of its mode."""
    name, block = values.one("name", str), old.blocks[head]
    inner = f"class {name} priority {values.one('priority', int)}"
    if f"class-map {name} match-type fields match-all" not in old.blocks:
        raise refused(f"No instance found for '{name}'")
    if any(each != inner and each.split(" ")[1] == name for each in block.inner):
        raise refused("Field update not allowed")
    return old.with_block(head, block.with_inner(inner, block.inner.get(inner, NO_FACTS))), inner


def _delete_queue(old: DellSonicConfiguration, values: Values, head: str) -> DellSonicConfiguration:
    queue = values.maybe("queue", int)
    inner = "port" if queue is None else f"queue {queue}"
    block = old.blocks.get(head, Block())
    if inner not in block.inner:
        raise refused("Instance Not found")
    left = {each: lines for each, lines in block.inner.items() if each != inner}
    if not left and old.users(f"scheduler-policy {name_in(head)}"):
        raise refused("Last scheduler used by interface cannot be deleted")
    return (
        old.with_block(head, Block(block.facts, MappingProxyType(left))) if left else old.without_block(head)
    )


def _route(old: DellSonicConfiguration, values: Values) -> Route:
    interface = values.maybe("port", str) or ""
    if interface and f"interface {interface}" not in old.blocks:
        raise refused(f"No instance found for '{interface}'")
    return Route(
        values.one("prefix", IPv4Network),
        values.maybe("next-hop", IPv4Address),
        interface,
        values.maybe("blackhole", str) is not None,
        values.maybe("tag", int) or 0,
        values.maybe("distance", int) or 0,
    )


def _add_route(old: DellSonicConfiguration, values: Values, _: str) -> DellSonicConfiguration:
    """As a PATCH does: what the line does not say of a next hop that exists stays."""
    route = _route(old, values)
    before = next((one for one in old.routes if one.key == route.key), None)
    if before is not None:
        route = replace(route, tag=route.tag or before.tag, distance=route.distance or before.distance)
    others = tuple(one for one in old.routes if one.key != route.key)
    if len(others) >= MAX_ROUTES:
        raise refused("the routing table is full [emulator]")
    return replace(old, routes=(*others, route))


def _remove_route(old: DellSonicConfiguration, values: Values, _: str) -> DellSonicConfiguration:
    route = _route(old, values)
    left = tuple(one for one in old.routes if one.key != route.key)
    if len(left) == len(old.routes):
        raise refused("Resource not found")
    return replace(old, routes=left)


def _changes(*rows: tuple[str, Change]) -> Iterator[Command[Change]]:
    for text, change in rows:
        yield from (Command(pattern, change) for pattern in patterns(text, ARGUMENTS))


_VIA: Final = ("{next-hop}", "interface {port}", "{next-hop} interface {port}", "{blackhole}")
GLOBAL: Final = tuple(
    _changes(
        (
            "no qos wred-policy {name}",
            _delete("qos wred-policy", "wred-policy", "wred-policy {} is in use [emulator]"),
        ),
        (
            "no qos scheduler-policy {name}",
            _delete(
                *(SCHEDULER, "scheduler-policy"),
                *("Disallow to delete an active scheduler policy", "Instance Not found"),
            ),
        ),
        *(
            (
                f"no qos map {kind} {{name}}",
                _delete(f"qos map {kind}", f"qos-map {kind}", f"map {kind} {{}} is in use [emulator]"),
            )
            for kind in MAP_KINDS
        ),
        (
            "no class-map {name}",
            _delete(
                *("class-map", "", "class-map {} is in use [emulator]"),
                tail=" match-type fields match-all",
            ),
        ),
        (
            "no policy-map {name}",
            _delete(
                *("policy-map", "service-policy type qos in", "policy-map {} is in use [emulator]"),
                tail=" type qos",
            ),
        ),
        *((f"ip route {{prefix}} {via} [tag {{tag}}] [{{distance}}]", _add_route) for via in _VIA),
        *((f"no ip route {{prefix}} {via}", _remove_route) for via in _VIA),
    )
)
"""Commands of the global mode that open no other."""
DELETE_QUEUE: Final = tuple(_changes(("no queue {any-queue}", _delete_queue), ("no port", _delete_queue)))
