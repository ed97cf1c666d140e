"""`mltswitch plan` and `mltswitch schema`: thresholds from a model and a fabric."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from rich.console import Group

from mltswitch.capabilities import BytesLimit, Limit
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.documents import dump_yaml, load_document, write_together
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent.configuration.document import AgentDocument
from mltswitch.plan import Fabric, Plan, PortProfile, Prediction
from mltswitch.planning import build_plan
from mltswitch.profile import ModelProfile, resolve_profile
from mltswitch.queueing import MODELS, SimulationSettings
from mltswitch.targets import hardware_capabilities
from mltswitch.units import format_bps, format_ratio

DOCUMENTS: dict[str, type[Plan | Fabric | ModelProfile | AgentDocument]] = {
    "plan": Plan,
    "fabric": Fabric,
    "profile": ModelProfile,
    "agent": AgentDocument,
}
REFEREE: Final = "simulate"
"""The loss model that judges plans, and makes none."""
FEWEST_PACKETS: Final = 10_000
MOST_PACKETS: Final = 10_000_000_000
LARGEST_SEED: Final = 2**31 - 1


@click.command(
    epilog="\b\nExamples:\n"
    "  mltswitch plan --profile resnet50 --fabric inventories/lab/fabric.yaml -o plan.yaml\n"
    "  mltswitch plan --profile resnet50 --fabric fabric.yaml --report report.html\n"
    "  mltswitch plan --profile mine.yaml --fabric fabric.yaml --refine simulate --json"
)
@click.option("--profile", "profile_name", required=True, help="A bundled profile's name, or a profile file.")
@click.option(
    "--fabric", "fabric_file", required=True, type=click.Path(path_type=Path), help="The fabric file."
)
@click.option(
    "--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True, help="The loss model."
)
@click.option(
    "--refine",
    type=click.Choice([REFEREE]),
    help="Improve the thresholds against the simulator (extra: sim).",
)
@click.option(
    "--packets",
    type=click.IntRange(FEWEST_PACKETS, MOST_PACKETS),
    help="Packets of each simulation, for --refine and --report.",
)
@click.option(
    "--seed", type=click.IntRange(0, LARGEST_SEED), help="Seed of the simulations, for --refine and --report."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan here.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write pictures of the plan here, one HTML page (extra: report).",
)
@json_option
def plan(
    profile_name: str,
    fabric_file: Path,
    model: str,
    refine: str | None,
    packets: int | None,
    seed: int | None,
    output: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Derive queue thresholds, and print or write the plan."""
    _check_options(model, refine, packets, seed, output, report)
    profile = resolve_profile(profile_name)
    made = _build(profile, fabric_file, model)
    if refine is not None:
        made = _refined(made, profile, packets, seed)
    files = {} if output is None else {output: dump_yaml(made)}
    if report is not None:
        files[report] = _report(made, profile, packets, seed)
    write_together(files.items())
    if as_json:
        print_json(made)
        return
    print_plan(made)
    for file in files:
        click.echo(f"Written: {file}")


@click.command(epilog="\b\nExample:\n  mltswitch schema plan > plan.schema.json")
@click.argument("document", type=click.Choice(tuple(DOCUMENTS)))
def schema(document: str) -> None:
    """Print the JSON Schema of DOCUMENT."""
    print_json(DOCUMENTS[document].model_json_schema(by_alias=True))


def _check_options(
    model: str,
    refine: str | None,
    packets: int | None,
    seed: int | None,
    output: Path | None,
    report: Path | None,
) -> None:
    if model == REFEREE:
        raise UserInputError(
            "the simulator judges thresholds and finds none",
            where="--model",
            expected=f"one of {', '.join(name for name in MODELS if name != REFEREE)}",
            hint=f"--refine {REFEREE} improves a model's thresholds against it",
        )
    if refine is None and report is None:
        for name, value in (("--packets", packets), ("--seed", seed)):
            if value is not None:
                raise UserInputError(
                    "nothing is simulated", where=name, hint="it goes with --refine or --report"
                )
    if output is not None and report is not None and output.resolve() == report.resolve():
        raise UserInputError("plan and report cannot be one file", where="--report")
    for file in (output, report):
        if file is not None and not file.parent.is_dir():
            raise UserInputError("cannot be written: no such folder", where=str(file))


def _build(profile: ModelProfile, fabric_file: Path, model: str) -> Plan:
    fabric = load_document(fabric_file, Fabric)
    try:
        return build_plan(profile, fabric, hardware_capabilities, model)
    except MltswitchError as error:
        error.where = f"{fabric_file}: {error.where}" if error.where else str(fabric_file)
        raise


def _settings(default: SimulationSettings, packets: int | None, seed: int | None) -> SimulationSettings:
    return replace(
        default,
        packets=default.packets if packets is None else packets,
        seed=default.seed if seed is None else seed,
    )


def _refined(made: Plan, profile: ModelProfile, packets: int | None, seed: int | None) -> Plan:
    from mltswitch.planning.refine import refine_plan

    settings = _settings(SimulationSettings(), packets, seed)
    with progress_bar() as advance:
        return refine_plan(made, profile, hardware_capabilities, settings, progress=advance)


def _report(made: Plan, profile: ModelProfile, packets: int | None, seed: int | None) -> str:
    from mltswitch.report import SIMULATION, plan_report

    with progress_bar() as advance:
        return plan_report(made, profile, _settings(SIMULATION, packets, seed), advance)


def print_plan(made: Plan) -> None:
    """The plan as a table per kind of port, and the losses from end to end."""
    screen = console()
    provenance = made.provenance
    how = origin(made)
    screen.print(
        f"Plan for {provenance.profile_name} on fabric {made.fabric.name}; losses and delays are {how}, "
        f"loss model '{provenance.queueing_model}'.",
        markup=False,
    )
    for group in _alike(made.port_profiles):
        screen.print(_port_table(made, group))
        screen.print(_optimum(group[0], how), markup=False)
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
            f"End to end, {made.hops} queues on the path ({how})",
            ("class", "loss unimportant #", "loss important #", "extra rounds #"),
            rows,
        )
    )
    screen.print(f"Loss tolerance: {provenance.sensitivity}", markup=False)
    for note in made.notes:
        click.echo(f"note: {note}")
    for warning in made.warnings:
        click.echo(f"warning: {warning}")


def origin(made: Plan) -> str:
    """How the plan's figures came about."""
    return "simulated" if made.provenance.queueing_model == REFEREE else "predicted"


def _alike(profiles: tuple[PortProfile, ...]) -> list[list[PortProfile]]:
    groups: dict[tuple[object, ...], list[PortProfile]] = {}
    for profile in profiles:
        groups.setdefault((profile.rate_bps, profile.load, profile.queues), []).append(profile)
    return list(groups.values())


def _limit(limit: Limit) -> str:
    return f"{limit.size_bytes:,}" if isinstance(limit, BytesLimit) else str(limit)


def _optimum(profile: PortProfile, how: str) -> str:
    """How good the thresholds are known to be."""
    text = "thresholds: " + (
        "best under this model" if profile.optimum == "global" else "best that was found"
    )
    if profile.extra_rounds is not None:
        text += f"; {profile.extra_rounds:.3g} extra rounds ({how})"
    if profile.gap is not None:
        text += f", gap to the bound {format_ratio(profile.gap)}"
    return text if profile.method is None else f"{text}; method: {profile.method}"


def _port_table(made: Plan, group: list[PortProfile]) -> Group:
    first = group[0]
    names = ", ".join(f"{profile.platform} {profile.role}" for profile in group)
    has_delays = any(
        queue.prediction and queue.prediction.mean_delay_seconds is not None for queue in first.queues
    )
    rows = []
    for queue in first.queues:
        entry = made.class_by_name[queue.traffic_class]
        layers = f"{entry.layers.first}-{entry.layers.last}" if entry.layers else "-"
        rows.append(
            (
                entry.name,
                " ".join(map(str, entry.dscp)),
                layers,
                "-" if queue.ecn_threshold_bytes is None else f"{queue.ecn_threshold_bytes:,}",
                _limit(queue.limit),
                *_predicted(queue.prediction, has_delays=has_delays),
            )
        )
    columns = ("class", "DSCP", "layers", "S [B]", "L [B]", "loss unimportant #", "loss important #")
    delays = ("mean delay [ms]", "p99 delay [ms]") if has_delays else ()
    return table(
        f"{names}: {format_bps(first.rate_bps)}, load {first.load:g}, buffer {first.buffer_bytes:,} B",
        (*columns, *delays),
        rows,
    )


def _predicted(found: Prediction | None, *, has_delays: bool) -> tuple[str, ...]:
    if found is None:
        return ("-",) * (4 if has_delays else 2)
    losses = (
        _loss(found.loss_unimportant, found.loss_unimportant_error),
        _loss(found.loss_important, found.loss_important_error),
    )
    if not has_delays:
        return losses
    delays = (found.mean_delay_seconds, found.p99_delay_seconds)
    return (*losses, *("-" if delay is None else f"{delay * 1e3:.3g}" for delay in delays))


def _loss(ratio: float, error: float | None) -> str:
    """With the half width of its 95 % confidence interval where it was simulated."""
    if error is None:
        return format_ratio(ratio)
    return f"{format_ratio(ratio)} ± {format_ratio(error)}" if ratio else f"0 (≤ {format_ratio(error)})"
