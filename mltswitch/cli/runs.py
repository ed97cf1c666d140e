"""Options of commands that play simulated runs: where, how many at once, and whether killed ones go on."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import click

from mltswitch.app import Computing
from mltswitch.cli.command import option
from mltswitch.cli.options import FOLDER, Cells

SIGNAL_EXIT_CODE: Final = 128
"""Before the number of the signal that ended a command."""
STATE: Final[Any] = option(
    "Keep snapshots of all runs in a folder; the same command goes on from there.", FOLDER, "--state"
)
COMPUTED: Final[Any] = {each.name: each.default for each in fields(Cells)} | {
    "processes": option(
        "That play runs at the same time, each with a fabric in its memory; 1 by default.",
        click.IntRange(1, 256),
        variable="PROCESSES",
        default=1,
    )
}


def computing_of(computed: Cells, state: Path | None) -> Computing:
    """What the options say to use cases; raises UsageError where there is nothing to forget."""
    if computed.restart and state is None:
        raise click.UsageError("--restart forgets what lies in --state")
    return computed.computing()
