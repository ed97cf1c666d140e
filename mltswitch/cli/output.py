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
"""Columns where no terminal says how many there are."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a command says: a document for programs, or the same as text for people, and its exit code."""

    document: object
    text: Iterable[RenderableType] = ()
    """A string is printed as it stands; anything else is laid out by rich. Made only where it is printed."""
    code: int = 0
    note: str = ""
    """A line that follows on standard error."""
    error: Exception | None = None
    """The command ends with this error once the answer is printed."""

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
    """Standard output as people read it."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: the shell closed it
    return Console(highlight=False, soft_wrap=False, width=None if is_terminal else PIPE_WIDTH)


def json_text(value: object) -> str:
    """Documents, dataclasses, named tuples and plain data as JSON."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json_text(value))


def plain(value: Any) -> Any:
    """What `json` takes, of documents, dataclasses, named tuples and plain data."""
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
        columns: Their names, with `|` between them. A column whose name ends with `#` or with a unit in
            brackets stands to the right.
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
    """A number in a form of Python's, times a factor; a dash where it is not known."""
    return "-" if value is None else format(value * factor if factor != 1 else value, form)


def with_error(ratio: float, error: float | None) -> str:
    """A loss, with its confidence interval where it was simulated."""
    return format_ratio(ratio) + ("" if error is None else f" ± {format_ratio(error)}")


def measured_rate(rate_bps: float | None) -> str:
    """A measured rate with three digits; a dash where nobody has measured it."""
    return "-" if rate_bps is None else format_bps(float(f"{rate_bps:.3g}"))


def progress(line: str) -> None:
    """Print one line about work under way on standard error."""
    click.echo(line, err=True)


def last_words(line: str) -> None:
    """Print a line as `progress` does, and go on where nobody reads it: there may be more to say."""
    with suppress(OSError):
        progress(line)


def stderr_console() -> Console:
    """Standard error, for progress bars."""
    return Console(stderr=True)


@contextmanager
def progress_bar() -> Iterator[Advance]:
    """A bar on standard error for long work of which the total is known; nothing where it is no terminal."""
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
