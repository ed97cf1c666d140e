"""What a user's settings hold: numbers, choices, and other settings.

A number may be of any type that stands for one, but no truth value, which Python takes for 1.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from enum import StrEnum
from math import inf, isfinite
from operator import index
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_type_hints

import numpy as np

from mltswitch.errors import UserInputError

_Choice = TypeVar("_Choice", bound=StrEnum)
_SHOWN_LETTERS: Final = 60
"""Of a value that cannot be used."""
_LARGEST: Final = (1 << 63) - 1
"""Nanoseconds, bytes and packets stand in 64 bits."""


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """Any integer type's; raises UserInputError."""
    expected = f"a whole number, {least} to {most}"
    number = integer(value)
    if number is None:
        raise UserInputError(f"{shown(value)} is no number", where=name, expected=expected)
    if not least <= number <= most:
        raise UserInputError(f"{shown(number)} is out of range", where=name, expected=expected)
    return number


def integer(value: object) -> int | None:
    """None for what is none: fractions and text, too."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return index(value)  # type: ignore[arg-type]  # what is none says so itself
    except TypeError:
        return None


def real(value: object) -> float | None:
    """None for what is none: text, too, although `float` takes it."""
    if isinstance(value, bool | np.bool_ | str | bytes):
        return None
    try:
        return float(value)  # type: ignore[arg-type]  # the question is whether it can
    except OverflowError:  # an integer beyond every float
        return inf if value > 0 else -inf  # type: ignore[operator]  # it is a number
    except (TypeError, ValueError):
        return None


def check_numbers(name: str, settings: Any, one_or_more: Collection[str]) -> None:
    """Raise UserInputError for a field that is not the number that its type says, 0 or more and finite.

    `one_or_more`: whole numbers that are not 0 either.
    """
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        hint, value = hints[field.name], getattr(settings, field.name)
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        if value is None and type(None) in kinds:
            continue
        if int in kinds:
            whole_number(f"{name}.{field.name}", value, int(field.name in one_or_more), _LARGEST)
        elif float in kinds:
            number = real(value)
            if number is None or not isfinite(number) or number < 0:
                raise UserInputError(
                    f"{shown(value)} cannot be",
                    where=f"{name}.{field.name}",
                    expected="a finite number, 0 or more",
                )


def check_types(settings: object, types: Mapping[str, type | UnionType]) -> None:
    """Raise UserInputError for a field that is not of its type, or of none of several."""
    for name, kind in types.items():
        value = getattr(settings, name)
        if not isinstance(value, kind):
            kinds = get_args(kind) or (kind,)
            raise UserInputError(
                f"{shown(value)} cannot be",
                where=name,
                expected=" or ".join("None" if each is NoneType else each.__name__ for each in kinds),
            )


def in_order(name: str, values: object) -> tuple[Any, ...]:
    """Of a tuple or a list; raises UserInputError for all else: a set has no order, a text has letters."""
    if not isinstance(values, list | tuple):
        raise UserInputError(f"{shown(values)} cannot be", where=name, expected="a tuple or a list")
    return tuple(values)


def choice(name: str, value: object, choices: type[_Choice]) -> _Choice:
    """By itself, or by its text; raises UserInputError."""
    found = next((each for each in choices if isinstance(value, str) and each == value), None)
    if found is None:
        raise UserInputError(f"there is no {shown(value)}", where=name, expected=", ".join(choices))
    return found


def shown(value: object) -> str:
    """Short, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (the user's own; Python's, too, of integers with thousands of digits)
        return f"this {type(value).__name__}"
    return text if len(text) <= _SHOWN_LETTERS else text[:_SHOWN_LETTERS] + "…"
