"""Use cases: what the commands do, for the command line, tests and benchmarks alike. Nothing here prints."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mltswitch.errors import MltswitchError

Tell = Callable[[str], None]
"""Hears one line about work under way."""
Advance = Callable[[str, int, int], None]
"""Hears what is going on, steps done, steps in all."""
Bar = Callable[[], AbstractContextManager[Advance]]
"""Shows the progress of long work."""


@dataclass(frozen=True, slots=True)
class Computing:
    """Where many cells are computed, whether earlier ones count, and who hears of it."""

    processes: int
    scheduler: str | None
    """The address of a Dask scheduler; None: on this machine."""
    restart: bool
    tell: Tell
    bar: Bar


@contextmanager
def naming(file: Path | str, *, named: tuple[str, ...] = ()) -> Iterator[None]:
    """Errors inside name the file, unless their place begins with one of those that are `named` already."""
    try:
        yield
    except MltswitchError as error:
        if not error.where.startswith(named):
            error.where = f"{file}: {error.where}" if error.where else str(file)
            lines = enumerate(error.listed)
            error.listed = tuple(f"{'  ' * (place > 0)}{file}: {line}" for place, line in lines)
        raise
