"""Numbers as options of commands."""

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from mltswitch.errors import UserInputError
from mltswitch.units import parse_bytes

Parsed = TypeVar("Parsed")


class NumberRange(click.FloatRange):
    """As click's; and no NaN, which is on neither side of any limit, and no infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Fails as click's does: with a usage error that names the option."""
        if not math.isfinite(number := click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{number} is no number that can be used here", param, ctx)
        return super().convert(value, param, ctx)


def parsed(option: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    """What `parse` makes of an option's text; where it raises ValueError, UserInputError with the option."""
    try:
        return parse(text)
    except ValueError as error:
        raise UserInputError(str(error), where=option) from None


def _parsed_size(_context: click.Context, option: click.Parameter, text: str) -> int:
    return parsed(max(option.opts, key=len), parse_bytes, text)


SIZE: Final[dict[str, Any]] = {"callback": _parsed_size, "metavar": "SIZE"}
"""Of an option with a default that takes `25MB`: bytes; raises UserInputError naming the option."""
