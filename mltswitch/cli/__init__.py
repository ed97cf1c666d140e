"""The command line: parse, call, print. One module per command group, loaded when it is used."""

import importlib
import sys
from collections.abc import Sequence
from typing import Final

import click

from mltswitch import __version__
from mltswitch.errors import MltswitchError

COMMANDS: Final = {
    "profile": ("mltswitch.cli.profile", "profile", "List, show and make model profiles."),
    "plan": ("mltswitch.cli.plan", "plan", "Derive thresholds from a model and a fabric."),
    "schema": ("mltswitch.cli.plan", "schema", "Print the JSON Schema of a document."),
    "render": ("mltswitch.cli.render", "render", "Write a plan in the language of every switch."),
    "diff": ("mltswitch.cli.deploy", "diff", "Show what a push would change."),
    "push": ("mltswitch.cli.deploy", "push", "Make the switches run a plan."),
    "verify": ("mltswitch.cli.deploy", "verify", "Compare what the switches run with a plan."),
    "lab": ("mltswitch.cli.lab", "lab", "A leaf-spine network on this machine."),
}
"""Command → module, attribute, one line of help (so that `--help` loads none of them)."""


class _LazyGroup(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


EPILOG: Final = """\b
Examples:
  mltswitch plan --profile resnet50 --fabric inventories/lab/fabric.yaml -o plan.yaml
  mltswitch render plan.yaml -i inventories/lab -o configs
  mltswitch push plan.yaml -i inventories/lab
"""


@click.group(cls=_LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mltswitch")
def cli() -> None:
    """From a neural network and a switch fabric to queue thresholds that hold on the wire."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code; our errors are one line on standard error."""
    try:
        code = cli.main(args=arguments, prog_name="mltswitch", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except MltswitchError as error:
        click.echo(f"mltswitch: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("mltswitch: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)
