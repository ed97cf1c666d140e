"""`mltswitch completion`: what a shell loads so that Tab completes commands, options and files."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from mltswitch.cli.command import argument, command
from mltswitch.errors import MachineError

NAME: Final = "mltswitch"
VARIABLE: Final = "_MLTSWITCH_COMPLETE"
"""Click's own: with it set, the command answers a shell's question, and does nothing else."""
SHELLS: Final = ("bash", "zsh", "fish")


@command(
    'eval "$(mltswitch completion bash)"',
    'eval "$(mltswitch completion zsh)"',
    "mltswitch completion fish > ~/.config/fish/completions/mltswitch.fish",
)
def completion(shell: str = argument("SHELL", click.Choice(SHELLS))) -> None:
    """Print the script that makes SHELL complete mltswitch's commands, options and files.

    SHELL is bash, from version 4.4 on, zsh or fish. The line of the example that is your shell's, in its
    start-up file, loads it in every session.
    """
    found = get_completion_class(shell)
    if found is None:
        raise MachineError(f"this version of click knows no {shell}", hint="`pip install 'click>=8.2'`")
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, NAME, VARIABLE).source())
