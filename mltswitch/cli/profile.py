"""`mltswitch profile`: list, show, make and measure model profiles."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from mltswitch.cli.command import argument, command, group
from mltswitch.cli.options import output_file
from mltswitch.cli.output import Answer, table
from mltswitch.cli.profile_measure import measure
from mltswitch.documents import dump_yaml
from mltswitch.outputs import write_outputs
from mltswitch.profile import bundled_names, bundled_profile, profile_from_torch, resolve_profile


@command("mltswitch profile list --json", name="list")
def list_command() -> Answer:
    """Bundled profiles."""
    profiles = [bundled_profile(name) for name in bundled_names()]
    summaries = [
        {
            "name": entry.name,
            "layers": len(entry.layers),
            "parameters": entry.total_parameters,
            "size_bytes": entry.total_bytes,
            "source": entry.source,
            "parameter_convention": entry.parameter_convention,
        }
        for entry in profiles
    ]
    rows = [
        (
            each.name,
            len(each.layers),
            f"{each.total_parameters:,}",
            f"{each.total_bytes / 1e6:,.1f}",
            each.source,
        )
        for each in profiles
    ]
    columns = "name | layers # | parameters # | size [MB] | source"
    return Answer(summaries, (table("Bundled profiles", columns, rows),))


@command("mltswitch profile show resnet50", "mltswitch profile show mine.yaml --json")
def show(name_or_file: str = argument()) -> Answer:
    """One profile: a bundled one by its name, or a file."""
    found = resolve_profile(name_or_file)

    def text() -> Iterator[RenderableType]:
        rows = [
            (
                number,
                layer.name,
                " ".join("x".join(map(str, tensor.shape)) for tensor in layer.tensors),
                f"{layer.size_bytes:,}",
            )
            for number, layer in enumerate(found.layers)
        ]
        yield table(found.name, "# | layer | tensors | size [B]", rows)
        yield f"{found.total_parameters:,} parameters, {found.total_bytes:,} B"
        if found.parameter_convention:
            yield Text(f"Count: {found.parameter_convention}")
        yield Text(f"Loss tolerance: {found.sensitivity.provenance}")

    return Answer(found, text())


@command("mltswitch profile from-torch mypackage.models:make_model -o mine.yaml", name="from-torch")
def from_torch(
    factory: str = argument("PACKAGE.MODULE:FACTORY"),
    output: Path | None = output_file("Write the profile here."),
) -> Answer:
    """Read the layers of any torch.nn.Module that FACTORY() returns."""
    made = profile_from_torch(factory)
    if output is None:
        return Answer(made, (dump_yaml(made).removesuffix("\n"),))
    write_outputs([(output, dump_yaml(made))])
    return Answer(made, (f"{output}: {len(made.layers)} layers, {made.total_parameters:,} parameters",))


profile = group(
    "profile",
    "Model profiles: layers in forward order, and how much gradient loss they bear.",
    *(list_command, show, from_torch, measure),
    examples=("mltswitch profile from-torch train:make_model -o mine.yaml",),
)
