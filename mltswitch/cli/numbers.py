"""Numbers as options of commands."""

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """As click's; and no NaN, which is on neither side of any limit, and no infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Fails as click's does: with a usage error that names the option."""
        if not math.isfinite(number := click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{number} is no number that can be used here", param, ctx)
        return super().convert(value, param, ctx)
