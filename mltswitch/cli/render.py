"""`mltswitch render`: a plan in the language of every switch."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.documents import write_together
from mltswitch.errors import UserInputError
from mltswitch.inventory import Device, load_inventory
from mltswitch.plan import Plan, load_plan
from mltswitch.targets import Quantised, Rounding, target_for
from mltswitch.targets.template import using_templates
from mltswitch.targets.user_templates import UserTemplates, load_templates
from mltswitch.units import format_ratio

Command = TypeVar("Command", bound=Callable[..., Any])


def inventory_options(command: Command) -> Command:
    """`-i`, as often as there are inventories, and `--limit`."""
    command = click.option("--limit", help="Devices or groups, by Ansible's patterns: leafs:!leaf3,spine*.")(
        command
    )
    return click.option(
        "-i",
        "--inventory",
        "inventory_paths",
        required=True,
        multiple=True,
        type=click.Path(path_type=Path),
        help="File or folder, as Ansible reads it; may be given several times.",
    )(command)


@click.command(
    epilog="\b\nExample:\n  mltswitch render plan.yaml -i inventories/lab -o configs\n"
    "  mltswitch render plan.yaml -i inventories/lab -o configs --limit leaf1,onyx"
)
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLAN")
@inventory_options
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--templates",
    "templates_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of templates <platform>/<file>.j2 that replace mltswitch's own.",
)
@json_option
def render(
    plan_file: Path,
    inventory_paths: tuple[Path, ...],
    output: Path,
    limit: str | None,
    templates_folder: Path | None,
    as_json: bool,
) -> None:
    """Write each device's configuration below OUTPUT, and report what a device cannot express exactly."""
    plan = load_plan(plan_file)
    inventory = load_inventory(*inventory_paths)
    templates = None if templates_folder is None else load_templates(templates_folder)
    devices = inventory.select(limit)
    absent = set(plan.topology.by_name) - {device.switch for device in inventory.devices}
    if absent:
        progress(f"warning: in the plan, not in the inventory: {', '.join(sorted(absent))}")
    paths: list[Path] = []
    roundings: dict[str, tuple[Rounding, ...]] = {}
    shortfalls: dict[str, tuple[str, ...]] = {}

    def texts() -> Iterator[tuple[Path, str]]:
        for device in devices:
            quantised, files = render_device(plan, device, templates)
            roundings[device.name], shortfalls[device.name] = quantised.roundings, quantised.shortfalls
            for name, text in files.items():
                paths.append(output / device.name / name)
                yield paths[-1], text

    write_together(texts(), within=output)
    untested = unverified(plan, devices)
    if as_json:
        print_json(
            {
                "files": sorted(str(path) for path in paths),
                "roundings": roundings,
                "shortfalls": {name: found for name, found in shortfalls.items() if found},
                "unverified": untested,
            }
        )
        return
    for path in paths:
        click.echo(path)
    print_roundings(roundings)
    print_shortfalls(shortfalls)
    print_unverified(untested)


def render_device(
    plan: Plan, device: Device, templates: UserTemplates | None = None
) -> tuple[Quantised, dict[str, str]]:
    """The plan as one device can express it, and its files: name → text.

    Raises:
        UserInputError: the inventory contradicts the plan, or a template of the user does.
        UnsupportedPlanError: the device cannot express the plan.
    """
    switch = plan.topology.switch(device.switch)
    if switch.platform != device.platform:
        raise UserInputError(
            f"its platform is {device.platform} in the inventory, {switch.platform} in the plan's fabric",
            where=device.name,
        )
    target = target_for(device.platform, where=device.name)
    quantised = target.quantise(plan, device.switch)
    with using_templates(templates):
        return quantised, target.render(quantised.state)


def unverified(plan: Plan, devices: Iterable[Device]) -> dict[str, tuple[str, ...]]:
    """`platform/hardware` → what nobody has tested on the real device, for the devices in use."""
    found: dict[str, tuple[str, ...]] = {}
    for device in devices:
        capabilities = target_for(device.platform, where=device.name).hardware(
            plan.topology.switch(device.switch).hardware
        )
        if capabilities.unverified:
            found[f"{device.platform}/{capabilities.hardware}"] = capabilities.unverified
    return dict(sorted(found.items()))


def print_shortfalls(shortfalls: Mapping[str, Iterable[str]]) -> None:
    """One line for each thing that the plan asks for and devices cannot do, and which."""
    devices: dict[str, list[str]] = {}
    for device, sentences in shortfalls.items():
        for sentence in sentences:
            devices.setdefault(sentence, []).append(device)
    for sentence, names in devices.items():
        click.echo(f"not done: {sentence} ({', '.join(names)})")


def print_unverified(untested: Mapping[str, Iterable[str]]) -> None:
    """One line for each thing that nobody has tested on real hardware."""
    for hardware, items in untested.items():
        for item in items:
            click.echo(f"unverified on {hardware}: {item}")


def print_roundings(roundings: dict[str, tuple[Rounding, ...]]) -> None:
    """What devices cannot express exactly, alike ports in one row."""
    rows: dict[tuple[object, ...], list[str]] = {}
    for device, entries in roundings.items():
        for entry in entries:
            key = (
                device,
                entry.queue,
                entry.traffic_class,
                entry.field,
                entry.wanted,
                entry.given,
                _effect(entry.loss_unimportant),
                _effect(entry.loss_important),
            )
            rows.setdefault(key, []).append(entry.port)
    if not rows:
        click.echo("Every device expresses the plan exactly.")
        return
    columns = (
        "device",
        "queue #",
        "class",
        "field",
        "planned",
        "rendered",
        "loss unimportant",
        "loss important",
        "ports",
    )
    console().print(
        table(
            "What devices cannot express exactly (losses predicted, planned → rendered)",
            columns,
            [(*key, _ports(ports)) for key, ports in rows.items()],
        )
    )


def _ports(ports: list[str]) -> str:
    return ", ".join(ports) if len(ports) <= 3 else f"{len(ports)} ports"


def _effect(losses: tuple[float, float] | None) -> str:
    return "-" if losses is None else f"{format_ratio(losses[0])} → {format_ratio(losses[1])}"
