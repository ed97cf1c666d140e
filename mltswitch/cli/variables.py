"""Environment variables: what a user says once for a day, and what of it a command has taken."""

import os
from difflib import get_close_matches
from typing import Final, NamedTuple

import click
from click.core import ParameterSource

from mltswitch.errors import UserInputError, printable

PREFIX: Final = "MLTSWITCH_"


class Variable(NamedTuple):
    """One environment variable, without the prefix in its name."""

    text: str
    """What it says, for the documentation."""
    is_told: bool = False
    """A command that takes it says so on standard error, for it decides about switches or about results."""


VARIABLES: Final = {
    "INVENTORY": Variable("The inventory, or several with `:` between them.", is_told=True),
    "LIMIT": Variable("Devices or groups, by Ansible's patterns.", is_told=True),
    "CONFIRM": Variable(
        "Seconds after which a push is undone by the switches unless `mltswitch confirm` keeps it.",
        is_told=True,
    ),
    "CONCURRENCY": Variable("Devices at once."),
    "PROFILE": Variable("The model's profile.", is_told=True),
    "SSH_CONFIG": Variable("Configuration file for ssh to hosts.", is_told=True),
    "PROCESSES": Variable("Processes that compute a grid of cells."),
    "DASK": Variable("Address of the Dask scheduler that computes a grid of cells.", is_told=True),
    "AGENT_CONFIG": Variable("The configuration file of this host's agent; training jobs take it, too."),
    "LOSS_BOUND": Variable("Training: the share of the gradients that a sum may be without."),
    "TRANSPORT": Variable("Training: how tensors cross the network."),
    "STATE": Variable("The folder of the journal of changes; `~/.local/state/mltswitch` without it."),
    "DEBUG": Variable("With any value, a bug of ours ends in a traceback."),
    "OVERLAY": Variable("Set by `lab wan run` for the ranks that it starts: the network, as a file."),
}
"""Every variable that a user may set or meet. Options name theirs in `option(variable=…)`."""


def check_variables() -> None:
    """Raise UserInputError for a variable that would silently say nothing.

    Its name is nearly one of ours, or it decides about switches or results and is empty: of
    `MLTSWITCH_LIMIT=$X` without X would remain the whole fleet.
    """
    for name in sorted(os.environ):
        known = VARIABLES.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        if known is not None and known.is_told and not os.environ[name].strip():
            raise UserInputError("is empty", where=name, expected="a value", hint=f"`unset {name}`")
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in VARIABLES:
            close = get_close_matches(name.removeprefix(PREFIX), VARIABLES, n=1)
            if close:
                raise UserInputError(
                    "is no environment variable of mltswitch",
                    where=printable(name),
                    expected=PREFIX + close[0],
                    hint=f"`unset {printable(name)}`",
                )


def is_taken(parameter: str) -> bool:
    """Whether the command that runs has this parameter from a variable, and not from its user's line."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.ENVIRONMENT


def taken() -> str:
    """What the command that runs has taken from variables, as a line for standard error; empty: nothing."""
    context = click.get_current_context()
    found = []
    for each in context.command.params:
        name = each.envvar if isinstance(each.envvar, str) else ""
        known = VARIABLES.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        if known is not None and known.is_told and is_taken(str(each.name)):
            found.append(f"{name}={printable(os.environ[name])}")
    return f"from the environment: {', '.join(found)}" if found else ""
