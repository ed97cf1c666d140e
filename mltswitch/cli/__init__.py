"""The command line: parse, call, print. One module per command group, loaded when it is used."""

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

from mltswitch.cli.variables import check_variables
from mltswitch.cli.verbose import VERBOSE, shortened
from mltswitch.errors import MachineError, MltswitchError, did_you_mean, printable
from mltswitch.inputs import inputs_noted
from mltswitch.version import __version__

DEBUG_VARIABLE: Final = "MLTSWITCH_DEBUG"
"""Environment variable that, when set, lets a bug in mltswitch end in a traceback."""
MISSING_PACKAGE: Final = (
    "the Python package {} is missing. `pip install mltswitch` installs what every command needs, and "
    "`mltswitch doctor` names the extras of the others"
)
OUTPUT_ERRORS: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Errors of printing where standard output accepts nothing more."""

COMMANDS: Final = {
    "profile": ("mltswitch.cli.profile", "profile", "List, show and make model profiles."),
    "init": ("mltswitch.cli.init", "init", "Ask what a rack is, and write its fabric and inventory."),
    "plan": ("mltswitch.cli.plan", "plan", "Derive thresholds from a model and a fabric."),
    "schema": ("mltswitch.cli.plan", "schema", "Print the JSON Schema of a document."),
    "loss": ("mltswitch.cli.loss", "loss", "What a loss model expects of a plan or a problem."),
    "sweep": ("mltswitch.cli.sweep", "sweep", "A grid of loads, bursts and buffers into one table."),
    "simulate": ("mltswitch.cli.simulate", "simulate", "Simulate a whole fabric, packet by packet."),
    "render": ("mltswitch.cli.render", "render", "Write a plan in the language of every switch."),
    "export": ("mltswitch.cli.render", "export", "Write a plan for Ansible."),
    "trust": ("mltswitch.cli.trust", "trust", "Record which box stands at each address."),
    "diff": ("mltswitch.cli.deploy", "diff", "Show what a push would change."),
    "push": ("mltswitch.cli.deploy", "push", "Make the switches run a plan."),
    "verify": ("mltswitch.cli.deploy", "verify", "Compare what the switches run with a plan."),
    "capture": ("mltswitch.cli.capture", "capture", "What switches answer, redacted, for tests."),
    "watch": ("mltswitch.cli.watch", "watch", "What the queues of the switches do, live."),
    "status": ("mltswitch.cli.changes", "status", "What the switches of a change run now."),
    "resume": ("mltswitch.cli.changes", "resume", "Finish a change that broke off."),
    "confirm": ("mltswitch.cli.changes", "confirm", "Keep a change that has a timer."),
    "rollback": ("mltswitch.cli.changes", "rollback", "Take a change back."),
    "remove": ("mltswitch.cli.changes", "remove", "Take everything of ours off the switches."),
    "history": ("mltswitch.cli.changes", "history", "List the changes that pushes made."),
    "show": ("mltswitch.cli.changes", "show", "What became of a change, step by step."),
    "acceptance": (
        "mltswitch.cli.acceptance",
        "acceptance",
        "Test on the wire that a port does what the plan says.",
    ),
    "traffic": ("mltswitch.cli.traffic", "traffic", "Fit arrival processes to captures and counters."),
    "targets": ("mltswitch.cli.targets", "targets_command", "What each switch OS can do."),
    "wire": ("mltswitch.cli.wire", "wire", "Packet headers, and a Wireshark dissector of them."),
    "p4": ("mltswitch.cli.p4", "p4_group", "The P4 program of BMv2 switches."),
    "agent": ("mltswitch.cli.agent", "agent", "Tensors between the hosts of a training job."),
    "train": ("mltswitch.cli.train", "train", "Training over the host agent, measured beside gloo."),
    "topology": ("mltswitch.cli.topology", "topology", "Trees for a job's exchange, planned and compared."),
    "lab": ("mltswitch.cli.lab", "lab", "A leaf-spine network on this machine."),
    "doctor": ("mltswitch.cli.doctor", "doctor", "What this machine has of what commands need."),
    "completion": ("mltswitch.cli.completion", "completion", "Make a shell complete commands and options."),
}
"""Command → module, attribute, one line of help (so that `--help` loads none of them)."""


class _LazyGroup(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            check_variables()
            with inputs_noted():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            with suppress(OSError):  # click would end with 1 where nobody reads standard error any more
                click.echo(err=True)
            raise click.Abort from None

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if close := did_you_mean(cmd_name, COMMANDS):
                ctx.fail(f"No such command {cmd_name!r}{close}")
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin so, without loading one: a shell asks at every Tab."""
        names = [
            CompletionItem(name, help=text)
            for name, (_, _, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

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
    """Run one command and leave with its exit code; whatever goes wrong is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    VERBOSE.set(False)
    try:
        code = cli.main(args=arguments, prog_name="mltswitch", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail([_usage(error)], error.exit_code)
    except MltswitchError as error:
        _fail(error.lines(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _fail(["interrupted"], 130)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        _end_on(error)
    sys.exit(code if isinstance(code, int) else 0)


def _end_on(error: Exception) -> NoReturn:
    """End with one line about an error that is none of ours."""
    if "KeyboardInterrupt" in f"{error} {error.__context__!r}":  # a library has made an error of it
        _fail(["interrupted"], 130)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("mltswitch"):
        _fail([MISSING_PACKAGE.format(error.name.partition(".")[0])], MachineError.exit_code)
    if isinstance(error, BrokenPipeError):  # whoever read it has gone, and click ends quietly then, too
        discard_output()
        sys.exit(1)
    if isinstance(error, OSError) and error.filename is None and error.errno in OUTPUT_ERRORS:
        discard_output()
        _fail([f"standard output cannot be written: {error.strerror}"], 1)
    _fail([f"bug: {type(error).__name__}: {error}; set {DEBUG_VARIABLE}=1 for the traceback"], 1)


def discard_output() -> None:
    """Discard output that still waits to be written; else the interpreter fails on it again as it ends."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def _fail(lines: Sequence[str], exit_code: int) -> NoReturn:
    text = "\n".join(printable(" ".join(line.splitlines())) for line in shortened(lines))
    with suppress(OSError):  # whoever read it has gone: the exit code still says it
        click.echo(f"mltswitch: {text}", err=True)
    sys.exit(exit_code)


def _usage(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = " ".join(error.format_message().split()).rstrip(".")  # click lists choices below one another
    return f"{message} (see {context.command_path} --help)" if context else message
