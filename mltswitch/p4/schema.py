"""What a program lets a controller set and read: P4Info, reduced to what lines of text need."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class MatchKind(StrEnum):
    """How a field of a table's key is compared."""

    EXACT = "exact"
    LPM = "lpm"


@dataclass(frozen=True, slots=True)
class MatchField:
    """One field of a table's key."""

    identifier: int
    name: str
    bits: int
    kind: MatchKind


@dataclass(frozen=True, slots=True)
class Restriction:
    """What must hold between values of an entry (`@entry_restriction` or `@action_restriction`)."""

    left: str
    operator: str
    """`<=` or `!=`."""
    right: str
    """A name, or a number."""

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it does for these."""
        left, right = values[self.left], values[self.right] if self.right in values else int(self.right)
        return left <= right if self.operator == "<=" else left != right

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that an action takes."""

    identifier: int
    name: str
    bits: int


@dataclass(frozen=True, slots=True)
class Action:
    """What a table can do with a packet."""

    identifier: int
    name: str
    parameters: tuple[Parameter, ...]
    restrictions: tuple[Restriction, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One table, and the actions that its entries may have (not those that are its default only)."""

    identifier: int
    name: str
    fields: tuple[MatchField, ...]
    actions: Mapping[str, Action]
    size: int
    restrictions: tuple[Restriction, ...] = ()
    """Of the key."""
    is_shared: bool = False
    """An entry holds the parameters of several members, one of which a packet gets (an action selector)."""


@dataclass(frozen=True, slots=True)
class CellArray:
    """A meter or a counter: an array of cells."""

    identifier: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A program as its controller sees it; names are P4Info's aliases, the shortest that are unique."""

    tables: Mapping[str, Table]
    meters: Mapping[str, CellArray]
    counters: Mapping[str, CellArray]
