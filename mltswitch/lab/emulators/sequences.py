"""Tuples with some items replaced: how a line changes a state that is never changed in place."""

from collections.abc import Iterable
from typing import TypeVar

_Value = TypeVar("_Value")


def with_items(sequence: tuple[_Value, ...], indices: Iterable[int], value: _Value) -> tuple[_Value, ...]:
    """The tuple with one value at several places."""
    chosen = set(indices)
    return tuple(value if index in chosen else old for index, old in enumerate(sequence))
