"""`mltswitch export`: a plan for sites that deploy with tools of their own."""

from pathlib import Path

import click

from mltswitch.cli.output import json_option, print_json, progress
from mltswitch.cli.render import inventory_options, opened, print_doubts, print_unsupported, render_device
from mltswitch.errors import UserInputError
from mltswitch.export import ansible_files
from mltswitch.outputs import write_together
from mltswitch.plan import load_plan


@click.group(epilog="\b\nExample:\n  mltswitch export ansible plan.yaml -i inventories/mixed -o playbook")
def export() -> None:
    """Write a plan for a tool that deploys it without mltswitch."""


@export.command(
    epilog="\b\nExample:\n  mltswitch export ansible plan.yaml -i inventories/mixed -o playbook\n"
    "  cd playbook && ansible-playbook -i inventory.yaml playbook.yaml --check"
)
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLAN")
@inventory_options
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False))
@json_option
def ansible(
    plan_file: Path,
    inventory_paths: tuple[Path, ...],
    output: Path,
    limit: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Write a playbook below OUTPUT.

    It has an inventory and the switches' configurations. No secret is written. The README there says which
    collections the playbook needs, and what `push` does beside it. Switches reached by gRPC (BMv2,
    OpenConfig) are left out, by name.
    """
    plan = load_plan(plan_file)
    inventory = opened(inventory_paths, limit, strict)
    devices = inventory.select(limit, plan.topology.by_name)
    for line in inventory.left_out(limit):
        progress(f"note: {line}")
    all_fitted = {device.name: render_device(plan, device) for device in devices}
    folder = ansible_files(devices, plan, {name: files for name, (_, files) in all_fitted.items()})
    if folder.left_out:
        names = ", ".join(folder.left_out)
        progress(f"warning: not written, Ansible speaks neither P4Runtime nor gNMI: {names}")
    if not folder.files:
        raise UserInputError("no device is left that Ansible reaches", where=", ".join(folder.left_out))
    paths = sorted(output / name for name in folder.files)
    write_together(((output / name, text) for name, text in folder.files.items()), within=output)
    print_doubts(plan)
    unsupported = {name: fitted.unsupported for name, (fitted, _) in all_fitted.items()}
    if as_json:
        print_json(
            {
                "files": [str(path) for path in paths],
                "left_out": folder.left_out,
                "shortfalls": {name: texts for name, texts in unsupported.items() if texts},
            }
        )
        return
    print_unsupported(unsupported)
    for path in paths:
        click.echo(path)
