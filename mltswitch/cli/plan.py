"""`mltswitch plan` and `mltswitch schema`: thresholds from a model and a fabric."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from rich.console import Group

from mltswitch.capabilities import BytesLimit, Limit
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.documents import dump_yaml, load_document
from mltswitch.errors import MltswitchError, UserInputError, VerificationError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.outputs import check_output, write_outputs
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.routes import Routes
from mltswitch.overlay.wan import Wan
from mltswitch.plan import Fabric, Plan, PortProfile, Prediction, QueueSettings, load_plan
from mltswitch.planning import build_plan, predict_edited
from mltswitch.profile import ModelProfile, resolve_profile
from mltswitch.queueing import MODELS, SimulationSettings
from mltswitch.targets import hardware_capabilities
from mltswitch.units import BITS_PER_BYTE, format_bps, format_ratio

DOCUMENTS: dict[str, type[Plan | Fabric | ModelProfile | AgentConfig | Overlay | Routes | Wan]] = {
    "plan": Plan,
    "fabric": Fabric,
    "profile": ModelProfile,
    "agent": AgentConfig,
    "overlay": Overlay,
    "routes": Routes,
    "wan": Wan,
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
    "  mltswitch plan --profile resnet50 --edited plan.yaml -o plan.yaml\n"
    "  mltswitch plan --profile mine.yaml --fabric fabric.yaml --refine simulate --json"
)
@click.option("--profile", "profile_name", required=True, help="A bundled profile's name, or a profile file.")
@click.option("--fabric", "fabric_file", type=click.Path(path_type=Path), help="The fabric file.")
@click.option(
    "--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True, help="The loss model."
)
@click.option(
    "--at-load",
    type=click.FloatRange(0, 10, min_open=True),
    help="Choose thresholds for this gradient load alone, not for the scenarios around the planned one.",
)
@click.option("--free-order", is_flag=True, help="A class of higher priority may have a larger S.")
@click.option(
    "--edited",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Take this plan, whose thresholds were changed by hand, predict it anew and mark it as edited.",
)
@click.option(
    "--force", is_flag=True, help="Write a plan, too, that leaves a class beyond its loss tolerance."
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
    fabric_file: Path | None,
    model: str,
    at_load: float | None,
    free_order: bool,
    edited: Path | None,
    force: bool,
    refine: str | None,
    packets: int | None,
    seed: int | None,
    output: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Derive queue thresholds, and print or write the plan.

    Where no thresholds keep a class within its loss tolerance at the planned load, the exit code is 5 and
    nothing is written, unless --force says so.
    """
    _check_options(model, refine, packets, seed, output, report)
    profile = resolve_profile(profile_name)
    if (fabric_file is None) == (edited is None):
        raise UserInputError("one of --fabric and --edited is needed", where="--fabric")
    if edited is not None:
        given = click.get_current_context().get_parameter_source("model")
        if at_load is not None or free_order or given is not click.core.ParameterSource.DEFAULT:
            raise UserInputError(
                "an edited plan has its thresholds, its load and its model already",
                where="--edited",
                expected="no --at-load, --free-order or --model beside it",
            )
        changed = load_plan(edited, accepts_edits=True)
        _check_outputs(output, report, edited)
        with _named(edited):
            made = predict_edited(changed, profile, hardware_capabilities)
    else:
        assert fabric_file is not None  # noqa: S101  (for the type checker)
        fabric = load_document(fabric_file, Fabric)
        _check_outputs(output, report, None)
        with _named(fabric_file):
            made = _build(profile, fabric, model, at_load, is_order_free=free_order)
    if refine is not None:
        made = _refined(made, profile, packets, seed)
    is_written = force or not made.unmet
    files = {} if output is None else {output: dump_yaml(made)}
    if report is not None:
        files[report] = _report(made, profile, packets, seed)
    if is_written:
        write_outputs(files.items(), replaces=edited)
    if as_json:
        print_json(made)
    else:
        print_plan(made)
        for file in files if is_written else ():
            click.echo(f"Written: {file}")
    if made.unmet:
        kept = "; nothing was written, --force writes it all the same" if files and not is_written else ""
        losses = "1 loss" if len(made.unmet) == 1 else f"{len(made.unmet)} losses"
        raise VerificationError(
            f"the plan leaves {losses} beyond the tolerance at the planned load{kept}",
            where=str(fabric_file or edited),
        )


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


def _check_outputs(output: Path | None, report: Path | None, edited: Path | None) -> None:
    """A plan that was edited may take its own place; raises UserInputError before the plan is made."""
    for file, replaces in ((output, edited), (report, None)):
        if file is not None:
            check_output(file, replaces=replaces)


def _build(
    profile: ModelProfile, fabric: Fabric, model: str, at_load: float | None, *, is_order_free: bool
) -> Plan:
    with progress_bar() as advance:
        return build_plan(
            profile,
            fabric,
            hardware_capabilities,
            model,
            at_load=at_load,
            is_order_free=is_order_free,
            progress=advance,
        )


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Errors inside name the file."""
    try:
        yield
    except MltswitchError as error:
        error.where = f"{file}: {error.where}" if error.where else str(file)
        error.listed = tuple(f"{'  ' * (place > 0)}{file}: {line}" for place, line in enumerate(error.listed))
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
    scenarios = [
        (
            entry.name,
            f"{entry.weight:.2g}",
            "-" if entry.extra_rounds is None else f"{entry.extra_rounds:.3g}",
        )
        for entry in made.scenarios
    ]
    screen.print(table(f"Scenarios ({how})", ("scenario", "weight #", "extra rounds #"), scenarios))
    screen.print(f"Loss tolerance: {provenance.sensitivity}", markup=False)
    for note in made.notes:
        click.echo(f"note: {note}")
    for warning in made.warnings:
        click.echo(f"warning: {warning}")
    for missed in made.unmet:
        click.echo(f"not met: {missed}")


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


def _port_table(made: Plan, group: list[PortProfile]) -> Group:
    first = group[0]
    names = ", ".join(f"{profile.platform} {profile.hardware} {profile.role}" for profile in group)
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
                *_queued(queue, first.rate_bps),
                _limit(queue.limit),
                *_predicted(queue.prediction, has_delays=has_delays),
            )
        )
    columns = (
        "class",
        "DSCP",
        "layers",
        "S [B]",
        "S [µs]",
        "bound [µs]",
        "L [B]",
        "loss unimportant #",
        "loss important #",
    )
    delays = ("mean delay [µs]", "p99 delay [µs]") if has_delays else ()
    return table(
        f"{names}: {format_bps(first.rate_bps)}, load {first.load:g}, buffer {first.buffer_bytes:,} B",
        (*columns, *delays),
        rows,
    )


def _queued(queue: QueueSettings, rate_bps: int) -> tuple[str, str]:
    """How long the port sends at what waits at S, and the bound of that."""
    at_threshold = (queue.ecn_threshold_bytes or 0) * BITS_PER_BYTE / rate_bps
    threshold, bound = (
        f"{time * 1e6:.3g}" if time else "-" for time in (at_threshold, queue.delay_bound_seconds)
    )
    return threshold, bound


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
    return (*losses, *("-" if delay is None else f"{delay * 1e6:.3g}" for delay in delays))


def _loss(ratio: float, error: float | None) -> str:
    """With the half width of its 95 % confidence interval where it was simulated."""
    if error is None:
        return format_ratio(ratio)
    return f"{format_ratio(ratio)} ± {format_ratio(error)}" if ratio else f"0 (≤ {format_ratio(error)})"
