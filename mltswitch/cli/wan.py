"""`mltswitch lab wan`: sites and slow, unequal links that change, on this machine."""

import sys
from collections.abc import Iterator
from typing import Final

import click
from rich.console import RenderableType

from mltswitch.cli.command import argument, command, flag, group, option
from mltswitch.cli.options import RATE, NumberRange
from mltswitch.cli.output import Answer, measured_rate, progress, table
from mltswitch.errors import UserInputError
from mltswitch.lab.wan_lab import PREFIX, WanLab
from mltswitch.overlay.wan import known_wan
from mltswitch.units import format_bps, format_seconds

SCALE: Final = 10.0


@command(
    "mltswitch lab wan up netstorm9",
    "mltswitch lab wan up mesh5:7 --scale 20 --still",
    "mltswitch lab wan up wan.yaml --scale 1",
)
def up(
    network: str = argument("WAN", default="netstorm9"),
    scale: float = option(
        "Divides rates and delays, and by its square queues; 10 by default.",
        NumberRange(1, 1e6),
        default=SCALE,
    ),
    still: bool = flag("Rates are drawn once, and stay."),
) -> Answer:
    """Build an emulated WAN on this machine, and leave it running.

    WAN: a topology file, `netstorm9`, or `mesh5` to `mesh16`; with `:7` behind it rates are drawn by seed 7.
    """
    lab = WanLab()
    lab.up(known_wan(network).scaled(scale), is_changing=not still)
    return _links(lab)


@command("mltswitch lab wan status --json")
def status() -> Answer:
    """Links as they are now, and what they have carried since this was asked last.

    `measured` is what the ranks of a job over the topology `fapt`, started by `run`, have told of a link, and
    `age` how long ago; `topology watch` shows the same live.

    Exit code 0, also where no lab is up.
    """
    lab = WanLab()
    return _links(lab) if lab.is_up else Answer({"is_up": False}, ("No WAN lab is up.",))


@command(
    "mltswitch lab wan change site1 site2 --rate 2Mbps",
    "mltswitch lab wan change site2 site1 --delay 50 --loss 0.01",
)
def change(
    source: str = argument(),
    target: str = argument(),
    rate: int | None = option("Until rates are drawn next.", RATE),
    delay_ms: float | None = option("One way [ms].", NumberRange(0, 60_000), "--delay"),
    loss: float | None = option("Of packets.", NumberRange(0, 0.999)),
) -> None:
    """Change one direction of a link."""
    delay = None if delay_ms is None else delay_ms / 1e3
    update = {"rate_bps": rate, "delay_seconds": delay, "loss": loss}
    given = {name: value for name, value in update.items() if value is not None}
    if not given:
        raise UserInputError("say what changes", where="change", expected="--rate, --delay or --loss")
    WanLab().ask("change", source=source, target=target, **given)


@command("mltswitch lab wan down")
def down() -> None:
    """Remove everything that `up` made, also after a crash, with what runs on its sites."""
    WanLab().down()


@command(
    "mltswitch lab wan run -- python train.py",
    "mltswitch lab wan run -- ip address",
    context_settings={"ignore_unknown_options": True},
)
def run(command: tuple[str, ...] = argument(None, click.UNPROCESSED, nargs=-1, required=True)) -> int:
    """Run COMMAND on every site, as ranks of one job.

    It has RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, MLTSWITCH_AGENT_CONFIG, and in MLTSWITCH_OVERLAY the
    name of the file of the network, for `topology_settings`. Exit code: the first that is not 0.
    """
    return WanLab().run(command, sys.stdout)


def _links(lab: WanLab) -> Answer:
    found = lab.status()
    rows = [
        (
            link["source"],
            link["target"],
            format_bps(link["rate_bps"]),
            measured_rate(link["measured_bps"]),
            format_seconds(link["measured_age_seconds"]),
            format_seconds(link["delay_seconds"]),
            f"{link['loss']:g}",
            format_bps(link["carried_bps"]),
            link["dropped"],
            link["lost"],
        )
        for link in found["links"]
    ]
    columns = "from | to | rate # | measured # | age # | delay # | loss # | carried # | dropped # | lost #"
    drawn = f"drawn {found['draws']} times since the start; namespaces are {PREFIX}-SITE"

    def text() -> Iterator[RenderableType]:
        yield table("Links", columns, rows)
        progress(drawn)

    return Answer({"is_up": True, **found}, text())


wan_group = group(
    "wan",
    """Sites in namespaces of their own, and links between them: each direction has a rate of its own.

    There is one on a machine. Needs root, gcc and networkx.
    """,
    *(up, status, change, down, run),
    examples=(
        "mltswitch lab wan up netstorm9 --scale 10",
        "mltswitch lab wan status",
        "mltswitch lab wan run -- python train.py",
        "mltswitch lab wan down",
    ),
)
