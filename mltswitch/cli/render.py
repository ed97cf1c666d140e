"""`mltswitch render`: a plan in the language of every switch."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from mltswitch.capabilities import Unverified
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.errors import UserInputError, some
from mltswitch.inventory import Device, Inventory, load_inventory
from mltswitch.outputs import write_together
from mltswitch.plan import Plan, load_plan
from mltswitch.targets import FittedState, Rounding, target_for
from mltswitch.targets.state import FIELD_WORDS
from mltswitch.units import format_bytes

Command = TypeVar("Command", bound=Callable[..., Any])


def inventory_options(command: Command) -> Command:
    """`-i`, as often as there are inventories, `--limit` and `--strict`."""
    command = click.option("--strict", is_flag=True, help="Refuse hosts that are no switches of ours.")(
        command
    )
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


def opened(inventory_paths: tuple[Path, ...], limit: str | None, strict: bool) -> Inventory:
    """The inventory; raises UserInputError where a strict one has hosts of other platforms."""
    inventory = load_inventory(*inventory_paths)
    if strict:
        inventory.refuse_foreign(limit)
    return inventory


@click.command(
    epilog="\b\nExample:\n  mltswitch render plan.yaml -i inventories/lab -o configs\n"
    "  mltswitch render plan.yaml -i inventories/lab -o configs --limit leaf1,onyx"
)
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLAN")
@inventory_options
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False))
@json_option
def render(
    plan_file: Path,
    inventory_paths: tuple[Path, ...],
    output: Path,
    limit: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Write each device's configuration below OUTPUT, and report what a device cannot express exactly."""
    plan = load_plan(plan_file)
    inventory = opened(inventory_paths, limit, strict)
    devices = inventory.select(limit, plan.topology.by_name)
    for line in inventory.left_out(limit):
        progress(f"note: {line}")
    absent = set(plan.topology.by_name) - {each.switch for each in inventory.hosts}
    if absent:
        progress(f"warning: in the plan, not in the inventory: {', '.join(sorted(absent))}")
    paths: list[Path] = []
    all_fitted: dict[str, FittedState] = {}

    def texts() -> Iterator[tuple[Path, str]]:
        for device in devices:
            advance("configurations", len(all_fitted), len(devices))
            all_fitted[device.name], files = render_device(plan, device)
            for name, text in files.items():
                paths.append(output / device.name / name)
                yield paths[-1], text

    with progress_bar() as advance:
        write_together(texts(), within=output)
    names = {path.name for path in paths}
    old = [
        str(path)
        for path in sorted({*output.glob("*/*")}.difference(paths))
        if path.parent.name in all_fitted or (limit is None and path.name in names)
    ]
    if old:
        progress(f"warning: not of this plan, and left where it is: {some(old)}")
    print_doubts(plan)
    untested = unverified(plan, devices)
    if as_json:
        print_json(
            {
                "files": sorted(str(path) for path in paths),
                "roundings": {name: entry.roundings for name, entry in all_fitted.items()},
                "shortfalls": {
                    name: entry.unsupported for name, entry in all_fitted.items() if entry.unsupported
                },
                "unverified": untested,
            }
        )
        return
    print_unsupported({name: entry.unsupported for name, entry in all_fitted.items()})
    print_roundings(
        {
            name: (entry.capabilities.platform, entry.capabilities.hardware, entry.roundings)
            for name, entry in all_fitted.items()
        }
    )
    _print_configurations(all_fitted)
    if untested:
        counts = ", ".join(f"{hardware} {len(items)}" for hardware, items in untested.items())
        click.echo(f"unverified on real hardware (`mltswitch targets --unverified` lists them): {counts}")
    for path in paths:
        click.echo(path)


def print_doubts(plan: Plan) -> None:
    """On standard error: that a plan leaves losses beyond the tolerance, or was edited by hand."""
    if plan.provenance.is_edited:
        click.echo("warning: the plan's thresholds were changed by hand", err=True)
    for text in plan.unmet:
        click.echo(f"warning: the plan does not hold at its load: {text}", err=True)


def render_device(plan: Plan, device: Device) -> tuple[FittedState, dict[str, str]]:
    """The plan as one device can express it, and its files: name → text.

    Raises:
        UserInputError: the inventory contradicts the plan.
        UnsupportedPlanError: the device cannot express the plan.
    """
    switch = plan.topology.switch(device.switch)
    if switch.platform != device.platform:
        raise UserInputError(
            f"its platform is {device.platform} in the inventory, {switch.platform} in the plan's fabric",
            where=device.name,
        )
    target = target_for(device.platform, where=device.name)
    fitted = target.fit_to_hardware(plan, device.switch)
    return fitted, target.render(fitted.state, fitted.capabilities)


def unverified(plan: Plan, devices: Iterable[Device]) -> dict[str, tuple[Unverified, ...]]:
    """`platform/hardware` → what nobody has tested on the real device, for the devices in use."""
    found: dict[str, tuple[Unverified, ...]] = {}
    for device in devices:
        capabilities = target_for(device.platform, where=device.name).hardware(
            plan.topology.switch(device.switch).hardware
        )
        if capabilities.unverified:
            found[f"{device.platform}/{capabilities.hardware}"] = capabilities.unverified
    return dict(sorted(found.items()))


def print_unsupported(unsupported: Mapping[str, Iterable[str]]) -> None:
    """One line for each thing that the plan asks for and devices cannot do, and which."""
    devices: dict[str, list[str]] = {}
    for device, sentences in unsupported.items():
        for sentence in sentences:
            devices.setdefault(sentence, []).append(device)
    for sentence, names in devices.items():
        click.echo(f"not done: {sentence} ({name_ranges(names)})")


def print_roundings(roundings: Mapping[str, tuple[str, str, tuple[Rounding, ...]]]) -> None:
    """What devices cannot express exactly, from device → (platform, hardware, roundings).

    One row for all ports, of all devices, that are rounded alike.
    """
    rows: dict[tuple[str, ...], dict[str, int]] = {}
    for device, (platform, hardware, entries) in roundings.items():
        of_port: dict[str, list[Rounding]] = {}
        for entry in entries:
            of_port.setdefault(entry.port, []).append(entry)
        for found in of_port.values():
            ports = rows.setdefault((platform, hardware, _in_words(found)), {})
            ports[device] = ports.get(device, 0) + 1
    if not rows:
        click.echo("Every device expresses the plan exactly.")
        return
    columns = ("ports", "platform", "hardware", "planned → rendered")
    console().print(table("Rounded", columns, [(_places(ports), *key) for key, ports in rows.items()]))


def _in_words(roundings: Iterable[Rounding]) -> str:
    """A line for each field; classes that get the same are told by what that is."""
    lines: dict[str, list[Rounding]] = {}
    for entry in roundings:
        lines.setdefault(FIELD_WORDS.get(entry.field, entry.field), []).append(entry)
    return "\n".join(
        f"{field}: {found[0].given} for {', '.join(entry.traffic_class for entry in found)}"
        if len(found) > 1 and len({entry.given for entry in found}) == 1
        else f"{field}: " + ", ".join(f"{each.traffic_class} {each.wanted} → {each.given}" for each in found)
        for field, found in lines.items()
    )


def _print_configurations(all_fitted: Mapping[str, FittedState]) -> None:
    """One row for all ports, of all devices, whose queues are configured alike."""
    rows: dict[tuple[str, ...], dict[str, int]] = {}
    for device, fitted in all_fitted.items():
        class_of = {queue: name for name, queue in fitted.class_queues.items()}
        for port in fitted.state.ports:
            thresholds = ", ".join(
                f"{class_of.get(queue.queue, queue.queue)} {format_bytes(queue.ecn_threshold_bytes)}"
                for queue in port.queues
                if queue.ecn_threshold_bytes is not None
            )
            limits = ", ".join(dict.fromkeys(str(queue.limit) for queue in port.queues))
            can = fitted.capabilities
            trust = "yes" if port.trusted else "no"
            ports = rows.setdefault((can.platform, can.hardware, thresholds, limits, trust), {})
            ports[device] = ports.get(device, 0) + 1
    columns = ("ports", "platform", "hardware", "ECN thresholds", "limits", "DSCP trusted")
    console().print(table("Configurations", columns, [(_places(ports), *key) for key, ports in rows.items()]))


def _places(ports: Mapping[str, int]) -> str:
    """Devices and their ports, `leaf1, 20 ports each`; devices with other numbers of ports apart."""
    groups: dict[int, list[str]] = {}
    for device, count in ports.items():
        groups.setdefault(count, []).append(device)
    return "; ".join(
        f"{name_ranges(names)}, {count} port{'s' * (count > 1)}{' each' * (len(names) > 1)}"
        for count, names in groups.items()
    )


def name_ranges(names: Iterable[str]) -> str:
    """Names, joined to a range where they count up."""
    runs: list[list[tuple[str, int | None]]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        number = int(name[len(stem) :]) if name != stem else None
        if runs and number is not None and runs[-1][-1] == (stem, number - 1):
            runs[-1].append((stem, number))
        else:
            runs.append([(stem, number)])
    ends = (
        [f"{stem}{'' if number is None else number}" for stem, number in (run[0], run[-1])] for run in runs
    )
    return ", ".join(
        first if first == last else f"{first}–{last}"  # noqa: RUF001  (a range)
        for first, last in ends
    )
