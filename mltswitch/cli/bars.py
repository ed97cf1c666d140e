"""A progress bar on standard error, for long work of which the total is known."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mltswitch.cli.output import stderr_console

Advance = Callable[[str, int, int], None]
"""What is going on, steps done, steps in all."""


@contextmanager
def progress_bar() -> Iterator[Advance]:
    """A bar where standard error is a terminal; nothing elsewhere."""
    screen = stderr_console()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    with bar:
        task, at_work = bar.add_task("", total=None), ""

        def advance(what: str, done: int, total: int) -> None:
            nonlocal at_work
            if what != at_work:  # the speed of one kind of work says nothing of the next
                bar.reset(task, total=total, description=what)
                at_work = what
            bar.update(task, completed=done, total=total)

        yield advance
