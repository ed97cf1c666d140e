"""`mltswitch render` and `mltswitch export`: a plan in the language of every switch, or for other tools."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import RenderableType

from mltswitch.app.rendering import render_device, unverified
from mltswitch.cli.command import command, group
from mltswitch.cli.options import OUTPUT_FOLDER, PLAN
from mltswitch.cli.output import Answer, progress, progress_bar, table
from mltswitch.cli.switches import Chosen, port_rows, print_doubts, roundings_table, unsupported_lines
from mltswitch.errors import UserInputError, some
from mltswitch.export import ansible_files
from mltswitch.outputs import write_together
from mltswitch.plan import load_plan
from mltswitch.targets import FittedState
from mltswitch.units import format_bytes


@command(
    "mltswitch render plan.yaml -i inventories/lab -o configs",
    "mltswitch render plan.yaml -i inventories/lab -o configs --limit leaf1,onyx",
)
def render(*, plan_file: Path = PLAN, chosen: Chosen, output: Path = OUTPUT_FOLDER) -> Answer:
    """Write each device's configuration below OUTPUT, and report what a device cannot express exactly."""
    plan, inventory = load_plan(plan_file), chosen.inventory()
    devices = inventory.select(chosen.limit, plan.topology.by_name)
    for line in inventory.left_out(chosen.limit):
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
        if path.parent.name in all_fitted or (chosen.limit is None and path.name in names)
    ]
    if old:
        progress(f"warning: not of this plan, and left where it is: {some(old)}")
    print_doubts(plan)
    untested = unverified(plan, devices)
    unsupported = {name: entry.unsupported for name, entry in all_fitted.items() if entry.unsupported}
    document = {
        "files": sorted(map(str, paths)),
        "roundings": {name: entry.roundings for name, entry in all_fitted.items()},
        "shortfalls": unsupported,
        "unverified": untested,
    }

    def text() -> Iterator[RenderableType]:
        yield from unsupported_lines(unsupported)
        yield roundings_table(
            {
                name: (entry.capabilities.platform, entry.capabilities.hardware, entry.roundings)
                for name, entry in all_fitted.items()
            }
        )
        columns = "ports | platform | hardware | ECN thresholds | limits | DSCP trusted"
        yield table("Configurations", columns, port_rows(_configurations(all_fitted)))
        if untested:
            counts = ", ".join(f"{hardware} {len(items)}" for hardware, items in untested.items())
            yield f"unverified on real hardware (`mltswitch targets --unverified` lists them): {counts}"
        yield from map(str, paths)

    return Answer(document, text())


def _configurations(all_fitted: Mapping[str, FittedState]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The device of each port, and how its queues are configured."""
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
            yield device, (can.platform, can.hardware, thresholds, limits, "yes" if port.trusted else "no")


@command(
    "mltswitch export ansible plan.yaml -i inventories/mixed -o playbook\n"
    "  cd playbook && ansible-playbook -i inventory.yaml playbook.yaml --check"
)
def ansible(*, plan_file: Path = PLAN, chosen: Chosen, output: Path = OUTPUT_FOLDER) -> Answer:
    """Write a playbook below OUTPUT.

    It has an inventory and the switches' configurations. No secret is written. The README there says which
    collections the playbook needs, and what `push` does beside it. Switches reached by gRPC (BMv2,
    OpenConfig) are left out, by name.
    """
    plan, inventory = load_plan(plan_file), chosen.inventory()
    devices = inventory.select(chosen.limit, plan.topology.by_name)
    for line in inventory.left_out(chosen.limit):
        progress(f"note: {line}")
    all_fitted = {device.name: render_device(plan, device) for device in devices}
    folder = ansible_files(devices, plan, {name: files for name, (_, files) in all_fitted.items()})
    left_out = ", ".join(folder.left_out)
    if left_out:
        progress(f"warning: not written, Ansible speaks neither P4Runtime nor gNMI: {left_out}")
    if not folder.files:
        raise UserInputError("no device is left that Ansible reaches", where=left_out)
    paths = [str(path) for path in sorted(output / name for name in folder.files)]
    write_together(((output / name, text) for name, text in folder.files.items()), within=output)
    print_doubts(plan)
    unsupported = {name: fitted.unsupported for name, (fitted, _) in all_fitted.items() if fitted.unsupported}
    document = {"files": paths, "left_out": folder.left_out, "shortfalls": unsupported}
    return Answer(document, (*unsupported_lines(unsupported), *paths))


export = group(
    "export",
    "Write a plan for a tool that deploys it without mltswitch.",
    ansible,
    examples=("mltswitch export ansible plan.yaml -i inventories/mixed -o playbook",),
)
