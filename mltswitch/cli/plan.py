"""`mltswitch plan` and `mltswitch schema`: thresholds from a model and a fabric."""

from pathlib import Path

import click
from rich.console import Group

from mltswitch.capabilities import BytesLimit, Limit
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.documents import dump_yaml, load_document, write_atomically
from mltswitch.errors import MltswitchError
from mltswitch.plan import Fabric, Plan, PortProfile, build_plan
from mltswitch.profile import ModelProfile, resolve_profile
from mltswitch.queueing import MODELS
from mltswitch.targets import hardware_capabilities
from mltswitch.units import format_bps, format_ratio

DOCUMENTS: dict[str, type[Plan | Fabric | ModelProfile]] = {
    "plan": Plan,
    "fabric": Fabric,
    "profile": ModelProfile,
}


@click.command(
    epilog="\b\nExamples:\n"
    "  mltswitch plan --profile resnet50 --fabric inventories/lab/fabric.yaml -o plan.yaml\n"
    "  mltswitch plan --profile mine.yaml --fabric fabric.yaml --json"
)
@click.option("--profile", "profile_name", required=True, help="A bundled profile's name, or a profile file.")
@click.option(
    "--fabric", "fabric_file", required=True, type=click.Path(path_type=Path), help="The fabric file."
)
@click.option(
    "--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True, help="The loss model."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan here.")
@json_option
def plan(profile_name: str, fabric_file: Path, model: str, output: Path | None, as_json: bool) -> None:
    """Derive queue thresholds, and print or write the plan."""
    made = _build(resolve_profile(profile_name), fabric_file, model)
    if output is not None:
        write_atomically(output, dump_yaml(made))
    if as_json:
        print_json(made)
        return
    print_plan(made)
    if output is not None:
        click.echo(f"Written: {output}")


@click.command(epilog="\b\nExample:\n  mltswitch schema plan > plan.schema.json")
@click.argument("document", type=click.Choice(tuple(DOCUMENTS)))
def schema(document: str) -> None:
    """Print the JSON Schema of DOCUMENT."""
    print_json(DOCUMENTS[document].model_json_schema(by_alias=True))


def _build(profile: ModelProfile, fabric_file: Path, model: str) -> Plan:
    fabric = load_document(fabric_file, Fabric)
    try:
        return build_plan(profile, fabric, hardware_capabilities, model)
    except MltswitchError as error:
        error.where = f"{fabric_file}: {error.where}" if error.where else str(fabric_file)
        raise


def print_plan(made: Plan) -> None:
    """The plan as a table per kind of port, and the losses from end to end."""
    screen = console()
    provenance = made.provenance
    screen.print(
        f"Plan for {provenance.profile_name} on fabric {made.fabric.name}; all losses are predicted, "
        f"loss model '{provenance.queueing_model}'.",
        markup=False,
    )
    for group in _alike(made.port_profiles):
        screen.print(_port_table(made, group))
    rows = [
        (
            p.traffic_class,
            format_ratio(p.loss_unimportant),
            format_ratio(p.loss_important),
            f"{p.extra_rounds:.3g}",
        )
        for p in made.end_to_end
    ]
    screen.print(
        table(
            f"End to end, {made.hops} queues on the path (predicted)",
            ("class", "loss unimportant #", "loss important #", "extra rounds #"),
            rows,
        )
    )
    screen.print(f"Loss tolerance: {provenance.sensitivity}", markup=False)
    for note in made.notes:
        click.echo(f"note: {note}")


def _alike(profiles: tuple[PortProfile, ...]) -> list[list[PortProfile]]:
    groups: dict[tuple[object, ...], list[PortProfile]] = {}
    for profile in profiles:
        groups.setdefault((profile.rate_bps, profile.load, profile.queues), []).append(profile)
    return list(groups.values())


def _limit(limit: Limit) -> str:
    return f"{limit.size_bytes:,}" if isinstance(limit, BytesLimit) else str(limit)


def _port_table(made: Plan, group: list[PortProfile]) -> Group:
    first = group[0]
    names = ", ".join(f"{profile.platform} {profile.role}" for profile in group)
    rows = []
    for queue in first.queues:
        entry = made.class_by_name[queue.traffic_class]
        layers = f"{entry.layers.first}-{entry.layers.last}" if entry.layers else "-"
        prediction = queue.prediction
        rows.append(
            (
                entry.name,
                " ".join(map(str, entry.dscp)),
                layers,
                "-" if queue.ecn_threshold_bytes is None else f"{queue.ecn_threshold_bytes:,}",
                _limit(queue.limit),
                "-" if prediction is None else format_ratio(prediction.loss_unimportant),
                "-" if prediction is None else format_ratio(prediction.loss_important),
            )
        )
    return table(
        f"{names}: {format_bps(first.rate_bps)}, load {first.load:g}, buffer {first.buffer_bytes:,} B",
        ("class", "DSCP", "layers", "S [B]", "L [B]", "loss unimportant #", "loss important #"),
        rows,
    )
