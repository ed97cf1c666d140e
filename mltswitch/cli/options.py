"""Options that several commands have, and the types of their values."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from mltswitch.app import Computing
from mltswitch.cli.command import argument, flag, option
from mltswitch.cli.output import progress, progress_bar
from mltswitch.errors import UserInputError
from mltswitch.profile import bundled_names
from mltswitch.sweep import parse_numbers
from mltswitch.units import parse_bps, parse_bytes

PATH: Final = click.Path(path_type=Path)
FILE: Final = click.Path(path_type=Path, dir_okay=False)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
SEED: Final = click.IntRange(0, 2**31 - 1)


class NumberRange(click.FloatRange):
    """A number within bounds, as click's FloatRange, that is neither NaN nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; fails as click's does, with a usage error that names the option."""
        if not math.isfinite(number := click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{number} is no number that can be used here", param, ctx)
        return super().convert(value, param, ctx)


class ProfileName(click.ParamType[str]):
    """The name of a bundled profile, or a file, both completed by a shell."""

    name = "text"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002  (click gives them)
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The bundled profiles that begin so, then files."""
        names = [CompletionItem(name) for name in bundled_names() if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


PROFILE: Final = ProfileName()


class Parsed(click.ParamType[Any]):
    """An option's type whose values a function parses from text; its ValueError becomes a UserInputError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """The parsed value; a value that is no text is returned unchanged."""
        assert param is not None  # noqa: S101  (click always names it)
        return parsed(max(param.opts, key=len), self._parse, value) if isinstance(value, str) else value


class Checked(Parsed):
    """An option's type whose values a function parses from text; its ValueError becomes a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value; a value that is no text is returned unchanged."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def numbers(least: float, most: float, *, whole: bool = False) -> Checked:
    """The type of a list such as `0.5:1.2:0.1,1.5`, each number in bounds."""
    return Checked("numbers", lambda text: parse_numbers(text, least, most, whole=whole))


def parsed(where: str, parse: Callable[[str], Any], text: str) -> Any:
    """The parsed text; a ValueError of `parse` becomes a UserInputError that names `where`."""
    try:
        return parse(text)
    except ValueError as error:
        raise UserInputError(str(error), where=where) from None


SIZE: Final = Parsed("size", parse_bytes)
RATE: Final = Parsed("rate", parse_bps)
LOADS: Final = numbers(0.0, 10.0)
BURSTS: Final = numbers(1, 1024, whole=True)

PLAN: Final[Any] = argument("PLAN", PATH)


def output_file(text: str, **settings: Any) -> Any:
    """The option `-o`, which names the file that a command writes."""
    return option(text, FILE, "-o", "--output", **settings)


OUTPUT_FOLDER: Final[Any] = option(None, FOLDER, "-o", "--output", required=True)


@dataclass(frozen=True, slots=True)
class Cells:
    """Options of commands that compute many cells: where to compute, and whether to keep earlier ones."""

    processes: int | None = option(
        "One for each CPU by default.", click.IntRange(1, 256), variable="PROCESSES"
    )
    scheduler: str | None = option(
        "Compute on a Dask scheduler's workers.", None, "--dask", variable="DASK", metavar="ADDRESS"
    )
    restart: bool = flag("Forget what an earlier run finished.")

    def computing(self) -> Computing:
        """These options for use cases, which report and show progress on standard error."""
        processes = self.processes or os.cpu_count() or 1
        return Computing(processes, self.scheduler, self.restart, progress, progress_bar)
