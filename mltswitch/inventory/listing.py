"""What both loaders make of an inventory, before its variables are checked."""

from dataclasses import dataclass
from typing import Any, Final

MAXIMUM_QUOTED_CHARACTERS: Final = 60

Variables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Listed:
    """One host: all its variables, the strongest of each name, and all its groups, sorted."""

    variables: Variables
    groups: tuple[str, ...]


def shown(value: object) -> str:
    """A value as an error message may quote it: short, and never a whole structure."""
    if isinstance(value, str):
        return repr(value[:MAXIMUM_QUOTED_CHARACTERS])
    if isinstance(value, int | float) and abs(value) < 10**12:
        return repr(value)
    return f"a value of type {type(value).__name__}"
