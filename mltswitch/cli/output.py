"""Printing: JSON for programs, tables for people, progress on standard error."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import click
from pydantic import BaseModel
from rich import box
from rich import progress as bars
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from mltswitch.app import Advance
from mltswitch.units import format_bps, format_ratio

PIPE_WIDTH: Final = 160
"""Width of the output in columns where no terminal tells it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints, as a document for programs or as text for people, and its exit code."""

    document: object
    text: Iterable[RenderableType] = ()
    """A string is printed as it stands; anything else is laid out by rich. Made only where it is printed."""
    code: int = 0
    note: str = ""
    """A line that is printed on standard error after the answer; empty: none."""
    error: Exception | None = None
    """The error with which the command ends after the answer is printed; None: no error."""

    def print(self, *, as_json: bool) -> int:
        """Print the document or the text; return the exit code, or raise the error."""
        if as_json:
            print_json(self.document)
        else:
            for part in self.text:
                if isinstance(part, str):
                    click.echo(part)
                else:
                    console().print(part)
        if self.note:
            progress(self.note)
        if self.error is not None:
            raise self.error
        return self.code


def console() -> Console:
    """Standard output, for text that people read."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: the shell closed it
    return Console(highlight=False, soft_wrap=False, width=None if is_terminal else PIPE_WIDTH)


def json_text(value: object) -> str:
    """Documents, dataclasses, named tuples and plain data as JSON."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json_text(value))


def plain(value: Any) -> Any:
    """A value as plain data that `json` can write, from documents, dataclasses and named tuples."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def table(title: str, columns: str, rows: Iterable[Iterable[object]]) -> Group:
    """A title and a table.

    Args:
        title: Stands above the table.
        columns: The names of the columns, with `|` between them. A column whose name ends with `#` or with a
            unit in brackets is aligned to the right.
        rows: Cells of each row; None is a dash.
    """
    made = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in map(str.strip, columns.split("|")):
        made.add_column(
            Text(column.removesuffix(" #")), justify="right" if column.endswith(("]", "#")) else "left"
        )
    for row in rows:
        made.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    return Group(Text(f"\n{title}", style="bold"), made)


def figure(value: float | None, form: str = ".3g", factor: float = 1) -> str:
    """A number in one of Python's format codes, times a factor; a dash for None."""
    return "-" if value is None else format(value * factor if factor != 1 else value, form)


def with_error(ratio: float, error: float | None) -> str:
    """A loss ratio as text, with its confidence interval if it was simulated."""
    return format_ratio(ratio) + ("" if error is None else f" ± {format_ratio(error)}")


def measured_rate(rate_bps: float | None) -> str:
    """A measured rate with three digits; a dash where nobody has measured it."""
    return "-" if rate_bps is None else format_bps(float(f"{rate_bps:.3g}"))


def progress(line: str) -> None:
    """Print one line about work under way on standard error."""
    click.echo(line, err=True)


def last_words(line: str) -> None:
    """Print a line as `progress` does, but ignore that nobody can read it: there may be more to print."""
    with suppress(OSError):
        progress(line)


def stderr_console() -> Console:
    """Standard error, for progress bars."""
    return Console(stderr=True)


@contextmanager
def progress_bar() -> Iterator[Advance]:
    """A progress bar on standard error for work of known length; nothing where that is no terminal."""
    screen = stderr_console()
    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
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
