"""The option `--verbose`, for all lines of an error; imported first, so it imports little itself."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

import click

MOST_LINES: Final = 5
"""The most lines printed of one error, or of one device's errors, without `--verbose`."""
VERBOSE: Final[ContextVar[bool]] = ContextVar("verbose", default=False)


def verbose_option() -> click.Option:
    """The option `--verbose`, which every command has."""
    return click.Option(
        ["--verbose"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=lambda _context, _option, value: VERBOSE.set(value),
        help="Every line of what is wrong.",
    )


def shortened(lines: Sequence[str]) -> list[str]:
    """The first lines of what is wrong, and how many more there are; with `--verbose`, all."""
    if VERBOSE.get() or len(lines) <= MOST_LINES:
        return list(lines)
    shown = lines[: MOST_LINES - 1]
    return [*shown, f"and {len(lines) - len(shown)} more: `--verbose` shows them"]
