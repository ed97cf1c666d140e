"""Write a manual page for every command, by click-man.

click-man walks the commands of a click group, which ours loads one by one; here they are all loaded.
"""

import re
import sys
from inspect import cleandoc
from pathlib import Path

import click
from click_man.core import write_man_pages

from mltswitch.cli import cli
from mltswitch.version import __version__

AS_IT_STANDS = "\b\n"
"""Tells click not to wrap a paragraph; a manual page wraps none that begins with spaces."""


def as_text(text: str) -> str:
    """The text without what a manual page takes for commands: backslashes, and dots that begin a line."""
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", r"\e"), flags=re.MULTILINE)


def with_examples(command: click.Command) -> click.Command:
    """The command, and those below it, with the examples of its help in its description."""
    command.help = cleandoc(command.help or "")
    if command.epilog:
        command.help += f"\n\n{command.epilog.removeprefix(AS_IT_STANDS)}"
    command.help = as_text(command.help)
    for each in command.params:
        if isinstance(each, click.Option) and each.help:
            each.help = as_text(each.help)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_examples(each)
    return command


def main() -> None:
    """Write the pages into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    commands = {name: command for name, command in found.items() if command is not None}
    everything = click.Group("mltswitch", commands, params=cli.params, help=cli.help, epilog=cli.epilog)
    write_man_pages("mltswitch", with_examples(everything), version=__version__, target_dir=str(folder))
    print(f"{len([*folder.glob('*.1')])} pages in {folder}")


if __name__ == "__main__":
    main()
