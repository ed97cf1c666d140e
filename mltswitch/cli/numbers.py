"""Numbers as options of commands."""

import math
from typing import Any

import click

from mltswitch.errors import UserInputError
from mltswitch.units import parse_bytes


class NumberRange(click.FloatRange):
    """As click's; and no NaN, which is on neither side of any limit, and no infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Fails as click's does: with a usage error that names the option."""
        if not math.isfinite(number := click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{number} is no number that can be used here", param, ctx)
        return super().convert(value, param, ctx)


def parsed_size(_context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Bytes of `25MB`, for an option's `callback`; raises UserInputError naming the option."""
    try:
        return None if text is None else parse_bytes(text)
    except ValueError as error:
        raise UserInputError(str(error), where=max(option.opts, key=len)) from None
