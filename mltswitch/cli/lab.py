"""`mltswitch lab`: a leaf-spine network on this machine, and a probe that measures one of its ports."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mltswitch.cli.output import console, json_option, json_text, print_json, progress, table
from mltswitch.cli.probe import print_probe
from mltswitch.cli.wan import wan_group
from mltswitch.documents import load_document
from mltswitch.errors import UserInputError
from mltswitch.inventory import load_inventory
from mltswitch.lab import (
    BMV2_PLATFORM,
    LINUX_PLATFORM,
    DeviceAddress,
    Engine,
    Lab,
    LabStatus,
    Records,
    lab_bottleneck,
    mininet_file,
    network_description,
    network_inventory,
)
from mltswitch.measure import judge, probe
from mltswitch.outputs import check_output, write_outputs
from mltswitch.plan import Fabric, Topology, load_plan, resolve_fabric
from mltswitch.queueing import MODELS
from mltswitch.targets import hardware_capabilities

STATE_FOLDER: Final = ".lab"
"""Below the inventory, whose group variables point to its keys."""
SHIPPED: Final = {LINUX_PLATFORM: Path("inventories/lab"), BMV2_PLATFORM: Path("inventories/bmv2")}
"""Inventories that stand for themselves, by what forwards packets in their labs."""
PROBE_FAILED: Final = 5
Command = TypeVar("Command", bound=Callable[..., Any])


def _inventory_option(command: Command) -> Command:
    return click.option(
        "-i",
        "--inventory",
        "inventory_path",
        help="Default: the shipped one whose lab is up, else inventories/lab.",
        callback=_inventory,
        type=click.Path(path_type=Path, file_okay=False),
    )(command)


def _fabric_option(command: Command) -> Command:
    return click.option(
        "--fabric",
        "fabric_file",
        type=click.Path(path_type=Path),
        help="Default: fabric.yaml of the inventory.",
    )(command)


def _inventory(context: click.Context, _parameter: click.Parameter, given: Path | None) -> Path:
    if given is not None:
        return given
    switches: str | None = context.params.get("switches")
    if switches is not None:
        return SHIPPED[switches]
    running = (path for path in SHIPPED.values() if _lab(path).paths.state.exists())
    return next(running, SHIPPED[LINUX_PLATFORM])


@click.group(epilog="\b\nExamples:\n  mltswitch lab up\n  mltswitch lab status\n  mltswitch lab down")
def lab() -> None:
    """A network on this machine: Linux or BMv2 switches with real queues, and emulated command lines."""


lab.add_command(wan_group)


@lab.command(
    epilog="\b\nExamples:\n  mltswitch lab up --fabric inventories/lab/fabric.yaml\n"
    "  mltswitch lab up --switches bmv2 --pcap"
)
@click.option(
    "--switches",
    is_eager=True,
    type=click.Choice(tuple(SHIPPED)),
    help="What forwards packets: without -i it chooses the shipped inventory, with it this is checked.",
)
@_inventory_option
@_fabric_option
@click.option(
    "--engine",
    default=Engine.AUTO.value,
    show_default=True,
    type=click.Choice([engine.value for engine in Engine]),
    help="What builds a lab of BMv2 switches; auto: mininet where it is installed.",
)
@click.option("--keep-logs", is_flag=True, help="`down` leaves the logs; BMv2 logs every packet, slowly.")
@click.option("--pcap", is_flag=True, help="BMv2 captures every port; `down` leaves the captures.")
@json_option
def up(
    switches: str | None,
    inventory_path: Path,
    fabric_file: Path | None,
    engine: str,
    keep_logs: bool,
    pcap: bool,
    as_json: bool,
) -> None:
    """Build the network; returns when every device answers. BMv2 switches have no program before a push."""
    if not inventory_path.is_dir():
        hint = "name with -i the folder of the lab's fabric.yaml and hosts.yaml"
        raise UserInputError("there is no such folder", where=str(inventory_path), hint=hint)
    fabric_file = fabric_file or inventory_path / "fabric.yaml"
    fabric = resolve_fabric(load_document(fabric_file, Fabric), hardware_capabilities)
    _check_switches(fabric, fabric_file, switches)
    status = _lab(inventory_path).up(
        fabric,
        _devices(inventory_path),
        progress=progress,
        engine=Engine(engine),
        records=Records(keep_logs, pcap),
    )
    _print_status(status, as_json)


@lab.command(epilog="\b\nExample:\n  mltswitch lab status --json")
@_inventory_option
@json_option
def status(inventory_path: Path, as_json: bool) -> None:
    """What runs, where it is reached, and what is missing. Exit code 0, also where no lab is up."""
    asked = _lab(inventory_path)
    _print_status(asked.status(), as_json)
    if other := asked.another:
        progress(other)


@lab.command(epilog="\b\nExample:\n  mltswitch lab down")
@_inventory_option
def down(inventory_path: Path) -> None:
    """Remove everything that `up` made, also after a crash."""
    _lab(inventory_path).down(progress)


@lab.command(
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nExample:\n  mltswitch lab run -- mltswitch push plan.yaml -i inventories/lab",
)
@_inventory_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(inventory_path: Path, command: tuple[str, ...]) -> int:
    """Run COMMAND where the lab can be reached. Without root that is inside the lab's own kernel."""
    return _lab(inventory_path).run(command)


@lab.command(epilog="\b\nExample:\n  mltswitch lab network -i inventories/bmv2 -o network.json")
@_inventory_option
@_fabric_option
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The fabric's BMv2 network for mininet; NAME-switches.yaml beside it is the inventory.",
)
def network(inventory_path: Path, fabric_file: Path | None, output: Path) -> None:
    """Write the fabric for mininet's command line. Prints the commands that run it and push to it."""
    fabric = resolve_fabric(
        load_document(fabric_file or inventory_path / "fabric.yaml", Fabric), hardware_capabilities
    )
    inventory = output.with_name(f"{output.stem}-switches.yaml")
    write_outputs([(output, network_description(fabric)), (inventory, network_inventory(fabric))])
    click.echo(f"sudo mn --custom {mininet_file()} --topo mltswitch,{output} --switch bmv2 --controller none")
    click.echo(f"sudo mltswitch push PLAN -i {inventory}")


@lab.command("probe", epilog="\b\nExample:\n  mltswitch lab probe plan.yaml --loads 0.8,1.1,1.5 --seconds 4")
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLAN")
@_inventory_option
@click.option("--loads", default="0.8,1.1,1.5", show_default=True, help="Gradient load over the port rate.")
@click.option(
    "--seconds", default=6.0, show_default=True, type=click.FloatRange(0.5, 120), help="Length of a run."
)
@click.option(
    "--burst",
    type=click.IntRange(1, 64),
    help="Packets that leave a sender back to back; default: the plan's.",
)
@click.option(
    "--model",
    default=MODELS[0],
    show_default=True,
    type=click.Choice(MODELS),
    help="Loss model of the predictions beside the measurements.",
)
@click.option(
    "--near",
    is_flag=True,
    help="Send from the receiver's own leaf alone: bursts come whole, as the models have it.",
)
@click.option("--receiver", help="Host behind the port under test; default: the last host.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the JSON here, too."
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0, 2**31), help="Of the arrivals.")
@json_option
def probe_command(
    plan_file: Path,
    inventory_path: Path,
    loads: str,
    seconds: float,
    burst: int | None,
    model: str,
    near: bool,
    receiver: str | None,
    output: Path | None,
    seed: int,
    as_json: bool,
) -> int:
    """Send tagged packets through one overloaded port. Exit code 5 if it breaks a promise of PLAN."""
    plan = load_plan(plan_file)
    if output is not None:
        check_output(output)
    bottleneck = lab_bottleneck(_lab(inventory_path), plan, receiver)
    if near:
        bottleneck = replace(bottleneck, senders=(bottleneck.near_sender,))
    result = probe(
        plan,
        bottleneck,
        loads=_loads(loads),
        seconds=seconds,
        burst_packets=burst or plan.paths.burst_packets,
        model=model,
        seed=seed,
        progress=progress,
    )
    verdicts = judge(plan, result)
    document = json_text({"result": result, "verdicts": verdicts})
    if output is not None:
        write_outputs([(output, document)])
    if as_json:
        click.echo(document)
    else:
        print_probe(result, verdicts)
    return PROBE_FAILED if any(verdict.holds is False for verdict in verdicts) else 0


def _check_switches(fabric: Fabric, fabric_file: Path, switches: str | None) -> None:
    found = {switch.platform for switch in Topology(fabric).switches}
    if switches is None or switches in found:
        return
    raise UserInputError(
        f"its switches are {', '.join(sorted(found))}",
        where=str(fabric_file),
        expected=f"{switches}, as --switches says",
        hint=f"-i {SHIPPED[switches]} has them",
    )


def _devices(inventory_path: Path) -> list[DeviceAddress]:
    return [
        DeviceAddress(device.switch, device.platform, device.address, device.port, device.thrift_port or None)
        for device in load_inventory(inventory_path).select()
    ]


def _lab(inventory_path: Path) -> Lab:
    return Lab(inventory_path / STATE_FOLDER)


def _loads(text: str) -> list[float]:
    try:
        loads = [float(part) for part in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0 < load <= 10 for load in loads):
        raise UserInputError(
            f"{text!r} is not understood", where="--loads", expected="numbers such as 0.8,1.1,1.5"
        )
    return loads


def _print_status(found: LabStatus, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    screen = console()
    screen.print(f"Lab {found.fabric or '(none)'}: {found.mode}", markup=False)
    for line in found.missing:
        screen.print(f"missing: {line}", markup=False)
    if found.devices:
        rows = [
            (d.name, d.platform, str(d.kind), f"{d.address}:{d.port}", "yes" if d.answers else "no")
            for d in found.devices
        ]
        screen.print(table("Devices", ("name", "platform", "kind", "address", "answers"), rows))
    if found.hosts:
        rows = [
            (h.name, h.leaf, h.address, " ".join(h.aliases.values()), h.namespace or "-") for h in found.hosts
        ]
        screen.print(table("Hosts", ("name", "leaf", "address", "alias addresses", "namespace"), rows))
