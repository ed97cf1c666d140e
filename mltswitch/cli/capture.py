"""`mltswitch capture`: what switches answer to our questions, redacted, for a test of the readers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from rich.console import RenderableType

from mltswitch.cli.command import argument, command, option
from mltswitch.cli.fleet import Bar, report_answer
from mltswitch.cli.options import PLAN, output_file
from mltswitch.cli.output import Answer, progress
from mltswitch.cli.switches import Switches
from mltswitch.cli.variables import PREFIX, is_taken
from mltswitch.deploy.capture import ABOUT, DEVICE_SECONDS
from mltswitch.deploy.capture import capture as ask_switches
from mltswitch.documents import dump_yaml
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.outputs import check_output, write_outputs
from mltswitch.plan import load_plan

LONGEST_ABOUT: Final = 400


@command(
    "mltswitch capture plan.yaml leaf1 -i inventories/rack -o capture.yaml",
    "mltswitch capture plan.yaml -i inventories/rack --limit 'leaf*' -o capture.yaml",
)
def capture(
    *,
    plan_file: Path = PLAN,
    names: tuple[str, ...] = argument("[DEVICE]...", nargs=-1),
    switches: Switches,
    about: str = option("Where it comes from, in your words.", default=ABOUT, show_default=False),
    device_timeout: float = option(
        "Hang up on a switch that takes longer.",
        click.FloatRange(1),
        default=DEVICE_SECONDS,
        show_default=True,
        metavar="SECONDS",
    ),
    output: Path = output_file("The capture, one YAML document.", required=True),
) -> Answer:
    """Ask switches what a push of PLAN would ask, and write the answers to OUTPUT, redacted.

    Only words that mltswitch's own reader knows, numbers and names of ports stay; all else is renamed: names,
    addresses, serial numbers, secrets. Read the file before you send it. Nothing is changed on a switch.
    """
    if names and switches.limit is not None:
        if not is_taken("limit"):
            raise UserInputError("stands beside names of devices", where="--limit", expected="one of them")
        progress(f"note: devices are named, so {PREFIX}LIMIT chooses none")
    if len(about) > LONGEST_ABOUT or not about.isprintable():
        raise UserInputError("is no short line of text", where="--about")
    plan, inventory = load_plan(plan_file), switches.inventory()
    limit = ",".join(names) or switches.limit
    check_output(output)
    with Bar("asking", len(inventory.select(limit)), switches.concurrency, device_timeout) as bar:
        asked = ask_switches(plan, inventory, limit=limit, about=about, fleet=bar.fleet)
    answer = report_answer(asked.report)
    if asked.capture is None:
        failed = "; ".join(each.error for each in asked.report.devices)
        raise DeviceError(f"no switch answered, so nothing is written: {failed}")
    write_outputs([(output, dump_yaml(asked.capture))])
    document = {"file": str(output), "warnings": asked.report.warnings, "devices": asked.report.devices}

    def text() -> Iterator[RenderableType]:
        yield from answer.text
        yield str(output)

    return Answer(document, text(), answer.code, note="read it before you send it: docs/real-images.md")
