"""Printing: JSON for programs, tables for people, progress on standard error."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import click
from pydantic import BaseModel
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from mltswitch.units import format_bps

PIPE_WIDTH: Final = 160
"""Columns where no terminal says how many there are."""

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """`--json`: one JSON document on standard output instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def console() -> Console:
    """Standard output as people read it."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: the shell closed it
    return Console(highlight=False, soft_wrap=False, width=None if is_terminal else PIPE_WIDTH)


def json_text(value: object) -> str:
    """Documents, dataclasses, named tuples and plain data as JSON."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
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


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Group:
    """A title and a table; columns whose name ends with `#` or with a unit in brackets stand to the right."""
    made = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(
            Text(column.removesuffix(" #")), justify="right" if column.endswith(("]", "#")) else "left"
        )
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return Group(Text(f"\n{title}", style="bold"), made)


def measured_rate(rate_bps: float | None) -> str:
    """A measured rate with three digits; a dash where nobody has measured it."""
    return "-" if rate_bps is None else format_bps(float(f"{rate_bps:.3g}"))


def progress(line: str) -> None:
    """One line about work under way, on standard error."""
    click.echo(line, err=True)


def last_words(line: str) -> None:
    """`progress` where a run ends early: what else there is to say is not lost because nobody reads that."""
    with suppress(OSError):
        progress(line)


def stderr_console() -> Console:
    """Standard error, for progress bars."""
    return Console(stderr=True)
