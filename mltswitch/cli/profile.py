"""`mltswitch profile`: list, show, make and measure model profiles."""

from pathlib import Path

import click

from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.cli.profile_measure import measure
from mltswitch.documents import dump_yaml
from mltswitch.outputs import write_outputs
from mltswitch.profile import (
    ModelProfile,
    bundled_names,
    bundled_profile,
    profile_from_torch,
    resolve_profile,
)


@click.group(epilog="\b\nExample:\n  mltswitch profile from-torch train:make_model -o mine.yaml")
def profile() -> None:
    """Model profiles: layers in forward order, and how much gradient loss they bear."""


profile.add_command(measure)


@profile.command("list", epilog="\b\nExample:\n  mltswitch profile list --json")
@json_option
def list_command(as_json: bool) -> None:
    """Bundled profiles."""
    profiles = [bundled_profile(name) for name in bundled_names()]
    if as_json:
        print_json([_summary(entry) for entry in profiles])
        return
    rows = [
        (
            entry.name,
            len(entry.layers),
            f"{entry.total_parameters:,}",
            f"{entry.total_bytes / 1e6:,.1f}",
            entry.source,
        )
        for entry in profiles
    ]
    console().print(
        table("Bundled profiles", ("name", "layers #", "parameters #", "size [MB]", "source"), rows)
    )


@profile.command(
    epilog="\b\nExamples:\n  mltswitch profile show resnet50\n  mltswitch profile show mine.yaml --json"
)
@click.argument("name_or_file")
@json_option
def show(name_or_file: str, as_json: bool) -> None:
    """One profile: a bundled one by its name, or a file."""
    found = resolve_profile(name_or_file)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            number,
            layer.name,
            " ".join("x".join(map(str, t.shape)) for t in layer.tensors),
            f"{layer.size_bytes:,}",
        )
        for number, layer in enumerate(found.layers)
    ]
    screen = console()
    screen.print(table(found.name, ("#", "layer", "tensors", "size [B]"), rows))
    screen.print(f"{found.total_parameters:,} parameters, {found.total_bytes:,} B", highlight=False)
    if found.parameter_convention:
        screen.print(f"Count: {found.parameter_convention}", markup=False)
    screen.print(f"Loss tolerance: {found.sensitivity.provenance}", markup=False)


@profile.command(
    "from-torch",
    epilog="\b\nExample:\n  mltswitch profile from-torch mypackage.models:make_model -o mine.yaml",
)
@click.argument("factory", metavar="PACKAGE.MODULE:FACTORY")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the profile here."
)
@json_option
def from_torch(factory: str, output: Path | None, as_json: bool) -> None:
    """Read the layers of any torch.nn.Module that FACTORY() returns."""
    made = profile_from_torch(factory)
    if output is not None:
        write_outputs([(output, dump_yaml(made))])
    if as_json:
        print_json(made)
    elif output is None:
        click.echo(dump_yaml(made), nl=False)
    else:
        click.echo(f"{output}: {len(made.layers)} layers, {made.total_parameters:,} parameters")


def _summary(entry: ModelProfile) -> dict[str, object]:
    return {
        "name": entry.name,
        "layers": len(entry.layers),
        "parameters": entry.total_parameters,
        "size_bytes": entry.total_bytes,
        "source": entry.source,
        "parameter_convention": entry.parameter_convention,
    }
