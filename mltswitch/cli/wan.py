"""`mltswitch lab wan`: sites and slow, unequal links that change, on this machine."""

import sys
from typing import Final

import click

from mltswitch.cli.numbers import NumberRange, parsed
from mltswitch.cli.output import console, json_option, measured_rate, print_json, progress, table
from mltswitch.errors import UserInputError
from mltswitch.lab.wan_lab import PREFIX, WanLab
from mltswitch.overlay.wan import known_wan
from mltswitch.units import format_bps, format_seconds, parse_bps

SCALE: Final = 10.0


@click.group(
    "wan",
    epilog="\b\nExamples:\n  mltswitch lab wan up netstorm9 --scale 10\n  mltswitch lab wan status\n"
    "  mltswitch lab wan run -- python train.py\n  mltswitch lab wan down",
)
def wan_group() -> None:
    """Sites in namespaces of their own, and links between them: each direction has a rate of its own.

    There is one on a machine. Needs root, gcc and networkx.
    """


@wan_group.command(
    epilog="\b\nExamples:\n  mltswitch lab wan up netstorm9\n"
    "  mltswitch lab wan up mesh5:7 --scale 20 --still\n"
    "  mltswitch lab wan up wan.yaml --scale 1"
)
@click.argument("network", default="netstorm9", metavar="WAN")
@click.option(
    "--scale",
    type=NumberRange(1, 1e6),
    default=SCALE,
    help="Rates and delays over it, queues over its square; 10.",
)
@click.option("--still", is_flag=True, help="Rates are drawn once, and stay.")
@json_option
def up(network: str, scale: float, still: bool, as_json: bool) -> None:
    """Build it, and let it stay. WAN: a file, `netstorm9`, or `mesh5` to `mesh16`; `:7` is another draw."""
    wan = known_wan(network).scaled(scale)
    lab = WanLab()
    lab.up(wan, is_changing=not still)
    _print(lab, as_json)


@wan_group.command(epilog="\b\nExample:\n  mltswitch lab wan status --json")
@json_option
def status(as_json: bool) -> None:
    """Links as they are now, and what they have carried since this was asked last.

    `measured` is what the ranks of a job over the topology `fapt`, started by `run`, have told of a link, and
    `age` how long ago; `topology watch` shows the same live.

    Exit code 0, also where no lab is up.
    """
    lab = WanLab()
    if not lab.is_up:
        if as_json:
            print_json({"is_up": False})
        else:
            click.echo("No WAN lab is up.")
        return
    _print(lab, as_json)


@wan_group.command(
    epilog="\b\nExamples:\n  mltswitch lab wan change site1 site2 --rate 2Mbps\n"
    "  mltswitch lab wan change site2 site1 --delay 50 --loss 0.01"
)
@click.argument("source")
@click.argument("target")
@click.option("--rate", metavar="RATE", help="Until rates are drawn next.")
@click.option("--delay", "delay_ms", type=NumberRange(0, 60_000), help="One way [ms].")
@click.option("--loss", type=NumberRange(0, 0.999), help="Of packets.")
def change(source: str, target: str, rate: str | None, delay_ms: float | None, loss: float | None) -> None:
    """Change one direction of a link."""
    update: dict[str, float] = {}
    if rate is not None:
        update["rate_bps"] = parsed("--rate", parse_bps, rate)
    if delay_ms is not None:
        update["delay_seconds"] = delay_ms / 1e3
    if loss is not None:
        update["loss"] = loss
    if not update:
        raise UserInputError("say what changes", where="change", expected="--rate, --delay or --loss")
    WanLab().ask("change", source=source, target=target, **update)


@wan_group.command(epilog="\b\nExample:\n  mltswitch lab wan down")
def down() -> None:
    """Remove everything that `up` made, also after a crash, with what runs on its sites."""
    WanLab().down()


@wan_group.command(
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nExamples:\n  mltswitch lab wan run -- python train.py\n  mltswitch lab wan run -- ip address",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...]) -> int:
    """Run COMMAND on every site, as ranks of one job.

    It has RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, MLTSWITCH_AGENT_CONFIG, and in MLTSWITCH_OVERLAY the
    name of the file of the network, for `topology_settings`. Exit code: the first that is not 0.
    """
    return WanLab().run(command, sys.stdout)


def _print(lab: WanLab, as_json: bool) -> None:
    found = lab.status()
    if as_json:
        print_json({"is_up": True, **found})
        return
    figures = ("rate", "measured", "age", "delay", "loss", "carried", "dropped", "lost")
    columns = ("from", "to", *(f"{name} #" for name in figures))
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
    console().print(table("Links", columns, rows))
    progress(f"drawn {found['draws']} times since the start; namespaces are {PREFIX}-SITE")
