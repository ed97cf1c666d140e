"""`mltswitch lab`: a leaf-spine network on this machine, and a probe that measures one of its ports."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.text import Text

from mltswitch.app.lab_hosts import lab_of
from mltswitch.cli.command import argument, command, flag, group, option
from mltswitch.cli.images import export_group, lines, results
from mltswitch.cli.options import FOLDER, PATH, PLAN, output_file
from mltswitch.cli.output import Answer, json_text, progress, table
from mltswitch.cli.probe import probe_text
from mltswitch.cli.wan import wan_group
from mltswitch.documents import load_document
from mltswitch.errors import UserInputError
from mltswitch.inventory import load_inventory
from mltswitch.lab import (
    BMV2_PLATFORM,
    LINUX_PLATFORM,
    DeviceAddress,
    Engine,
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

SHIPPED: Final = {LINUX_PLATFORM: Path("inventories/lab"), BMV2_PLATFORM: Path("inventories/bmv2")}
"""Inventories that stand for themselves, by what forwards packets in their labs."""
PROBE_FAILED: Final = 5


def _inventory(context: click.Context, _parameter: click.Parameter, given: Path | None) -> Path:
    if given is not None:
        return given
    switches: str | None = context.params.get("switches")
    if switches is not None:
        return SHIPPED[switches]
    running = (path for path in SHIPPED.values() if lab_of(path).paths.state.exists())
    return next(running, SHIPPED[LINUX_PLATFORM])


INVENTORY: Final[Any] = option(
    "Default: the shipped one whose lab is up, else inventories/lab.",
    FOLDER,
    "-i",
    "--inventory",
    callback=_inventory,
)
FABRIC: Final[Any] = option("Default: fabric.yaml of the inventory.", PATH, "--fabric")


@command("mltswitch lab up --fabric inventories/lab/fabric.yaml", "mltswitch lab up --switches bmv2 --pcap")
def up(
    switches: str | None = option(
        "What forwards packets: without -i it chooses the shipped inventory, with it this is checked.",
        click.Choice(tuple(SHIPPED)),
        is_eager=True,
    ),
    inventory_path: Path = INVENTORY,
    fabric_file: Path | None = FABRIC,
    engine: str = option(
        "What builds a lab of BMv2 switches; auto: mininet where it is installed.",
        click.Choice([each.value for each in Engine]),
        default=Engine.AUTO.value,
        show_default=True,
    ),
    keep_logs: bool = flag("`down` leaves the logs; BMv2 logs every packet, slowly."),
    pcap: bool = flag("BMv2 captures every port; `down` leaves the captures."),
) -> Answer:
    """Build the network; returns when every device answers. BMv2 switches have no program before a push."""
    if not inventory_path.is_dir():
        hint = "name with -i the folder of the lab's fabric.yaml and hosts.yaml"
        raise UserInputError("there is no such folder", where=str(inventory_path), hint=hint)
    file, fabric = _fabric(inventory_path, fabric_file)
    found = {switch.platform for switch in Topology(fabric).switches}
    if switches is not None and switches not in found:
        raise UserInputError(
            f"its switches are {', '.join(sorted(found))}",
            where=str(file),
            expected=f"{switches}, as --switches says",
            hint=f"-i {SHIPPED[switches]} has them",
        )
    devices = [
        DeviceAddress(each.switch, each.platform, each.address, each.port, each.thrift_port or None)
        for each in load_inventory(inventory_path).select()
    ]
    records = Records(keep_logs, pcap)
    lab = lab_of(inventory_path)
    return _status(lab.up(fabric, devices, progress=progress, engine=Engine(engine), records=records))


def _fabric(inventory_path: Path, fabric_file: Path | None) -> tuple[Path, Fabric]:
    file = fabric_file or inventory_path / "fabric.yaml"
    return file, resolve_fabric(load_document(file, Fabric), hardware_capabilities)


@command("mltswitch lab status --json")
def status(inventory_path: Path = INVENTORY) -> Answer:
    """What runs, where it is reached, and what is missing. Exit code 0, also where no lab is up."""
    asked = lab_of(inventory_path)
    found = asked.status()
    if other := asked.another:
        progress(other)
    return _status(found)


@command("mltswitch lab down")
def down(inventory_path: Path = INVENTORY) -> None:
    """Remove everything that `up` made, also after a crash."""
    lab_of(inventory_path).down(progress)


@command(
    "mltswitch lab run -- mltswitch push plan.yaml -i inventories/lab",
    context_settings={"ignore_unknown_options": True},
)
def run(
    inventory_path: Path = INVENTORY,
    command: tuple[str, ...] = argument(None, click.UNPROCESSED, nargs=-1, required=True),
) -> int:
    """Run COMMAND where the lab can be reached. Without root that is inside the lab's own kernel."""
    return lab_of(inventory_path).run(command)


@command("mltswitch lab network -i inventories/bmv2 -o network.json")
def network(
    inventory_path: Path = INVENTORY,
    fabric_file: Path | None = FABRIC,
    output: Path = output_file(
        "The fabric's BMv2 network for mininet; NAME-switches.yaml beside it is the inventory.", required=True
    ),
) -> None:
    """Write the fabric for mininet's command line. Prints the commands that run it and push to it."""
    _, fabric = _fabric(inventory_path, fabric_file)
    inventory = output.with_name(f"{output.stem}-switches.yaml")
    write_outputs([(output, network_description(fabric)), (inventory, network_inventory(fabric))])
    click.echo(f"sudo mn --custom {mininet_file()} --topo mltswitch,{output} --switch bmv2 --controller none")
    click.echo(f"sudo mltswitch push PLAN -i {inventory}")


@command("mltswitch lab probe plan.yaml --loads 0.8,1.1,1.5 --seconds 4", name="probe")
def probe_command(
    plan_file: Path = PLAN,
    inventory_path: Path = INVENTORY,
    loads: str = option("Gradient load over the port rate.", default="0.8,1.1,1.5", show_default=True),
    seconds: float = option("Length of a run.", click.FloatRange(0.5, 120), default=6.0, show_default=True),
    burst: int | None = option(
        "Packets that leave a sender back to back; default: the plan's.", click.IntRange(1, 64)
    ),
    model: str = option(
        "Loss model of the predictions beside the measurements.",
        click.Choice(MODELS),
        default=MODELS[0],
        show_default=True,
    ),
    near: bool = flag("Send from the receiver's own leaf alone: bursts come whole, as the models have it."),
    receiver: str | None = option("Host behind the port under test; default: the last host."),
    output: Path | None = output_file("Write the JSON here, too."),
    seed: int = option("Of the arrivals.", click.IntRange(0, 2**31), default=1, show_default=True),
) -> Answer:
    """Send tagged packets through one overloaded port. Exit code 5 if it breaks a promise of PLAN."""
    plan = load_plan(plan_file)
    if output is not None:
        check_output(output)
    bottleneck = lab_bottleneck(lab_of(inventory_path), plan, receiver)
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
    document = {"result": result, "verdicts": verdicts}
    if output is not None:
        write_outputs([(output, json_text(document))])
    is_broken = any(verdict.holds is False for verdict in verdicts)
    return Answer(document, probe_text(result, verdicts), PROBE_FAILED if is_broken else 0)


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


def _status(found: LabStatus) -> Answer:
    def text() -> Iterator[RenderableType]:
        yield Text(f"Lab {found.fabric or '(none)'}: {found.mode}")
        yield from (Text(f"missing: {line}") for line in found.missing)
        devices = [
            (
                each.name,
                each.platform,
                each.kind,
                f"{each.address}:{each.port}",
                "yes" if each.answers else "no",
            )
            for each in found.devices
        ]
        if devices:
            yield table("Devices", "name | platform | kind | address | answers", devices)
        hosts = [
            (each.name, each.leaf, each.address, " ".join(each.aliases.values()), each.namespace or "-")
            for each in found.hosts
        ]
        if hosts:
            yield table("Hosts", "name | leaf | address | alias addresses | namespace", hosts)

    return Answer(found, text())


lab = group(
    "lab",
    "A network on this machine: Linux or BMv2 switches with real queues, and emulated command lines.",
    *(wan_group, up, status, down, run, network, probe_command, export_group, lines, results),
    examples=("mltswitch lab up", "mltswitch lab status", "mltswitch lab down"),
)
