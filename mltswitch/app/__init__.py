"""Use cases: what the commands do, for the command line, tests and benchmarks alike. Nothing here prints."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mltswitch.errors import MltswitchError

Tell = Callable[[str], None]
"""Called with one line about work under way."""
Advance = Callable[[str, int, int], None]
"""Called with progress: the present activity, steps done, steps in all."""
Bar = Callable[[], AbstractContextManager[Advance]]
"""A context in which a progress bar for long work is shown."""


@dataclass(frozen=True, slots=True)
class Computing:
    """Where many cells are computed, whether earlier ones are kept, and who is told of progress."""

    processes: int
    scheduler: str | None
    """The address of a Dask scheduler; None: cells are computed on this machine."""
    restart: bool
    tell: Tell
    bar: Bar


@contextmanager
def naming(file: Path | str, *, named: tuple[str, ...] = ()) -> Iterator[None]:
    """Make errors inside name the file, unless their place begins with a name in `named`."""
    try:
        yield
    except MltswitchError as error:
        if not error.where.startswith(named):
            error.where = f"{file}: {error.where}" if error.where else str(file)
            lines = enumerate(error.listed)
            error.listed = tuple(f"{'  ' * (place > 0)}{file}: {line}" for place, line in lines)
        raise
