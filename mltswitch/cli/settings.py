"""Settings as options of commands: NAME=VALUE, and who adds up in a job."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mltswitch.documents import load_document, parse_yaml
from mltswitch.errors import UserInputError
from mltswitch.overlay.routes import Routes

FAPT: Final = "fapt"
"""A topology that wants the network for its trees."""
Command = TypeVar("Command", bound=Callable[..., Any])


def named_values(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Of an option that may be given several times, each `NAME=VALUE` with the value as YAML has it.

    Raises UserInputError naming the option, also for a name that is given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign or name in found:
            expected = "NAME=VALUE, each name once"
            raise UserInputError(f"{text!r:.60}", where=option, expected=expected)
        found[name] = parse_yaml(value, where=f"{option} {name}")
    return found


def topology_options(command: Command) -> Command:
    """Who adds up: `topology`, `topology_texts` and `routes_file`, for `chosen_topology`."""
    for option in (
        click.option("--topology", metavar="NAME", help="Who adds up; star, or tree with --routes."),
        click.option(
            "--topology-setting",
            "topology_texts",
            multiple=True,
            metavar="NAME=VALUE",
            help="Of the topology, `in_degree=2` of a tree, say; again for more.",
        ),
        click.option(
            "--routes",
            "routes_file",
            type=click.Path(path_type=Path),
            help="Trees of `topology plan`, for these ranks.",
        ),
    )[::-1]:
        command = option(command)
    return command


def chosen_topology(
    topology: str | None, texts: Sequence[str], routes_file: Path | None
) -> tuple[str, dict[str, Any]]:
    """A topology's name and its settings; raises UserInputError for routes beside something else."""
    settings = named_values("--topology-setting", texts)
    if routes_file is None:
        return topology or "star", settings
    if topology not in {None, "tree"}:
        raise UserInputError("are of the topology tree", where="--routes", expected="no other --topology")
    return "tree", settings | load_document(routes_file, Routes).topology_settings
