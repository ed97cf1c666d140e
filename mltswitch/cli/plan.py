"""`mltswitch plan` and `mltswitch schema`: thresholds from a model and a fabric."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import Group, RenderableType
from rich.text import Text

from mltswitch.app import naming
from mltswitch.capabilities import BytesLimit
from mltswitch.cli.command import argument, command, flag, option
from mltswitch.cli.options import FILE, PATH, PROFILE, SEED, output_file, parsed
from mltswitch.cli.output import Answer, figure, print_json, progress_bar, table, with_error
from mltswitch.cli.what_if import what_if_document, what_if_text
from mltswitch.documents import dump_yaml, load_document
from mltswitch.errors import UserInputError, VerificationError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.outputs import check_output, write_outputs
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.routes import Routes
from mltswitch.overlay.wan import Wan
from mltswitch.plan import Fabric, Plan, PortProfile, QueueSettings, load_plan
from mltswitch.planning import build_plan, predict_edited
from mltswitch.planning.what_if import parse_changes, what_if
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
"""Name of the loss model that judges plans, and makes none."""
MODEL: Final[Any] = option("The loss model.", click.Choice(MODELS), default=MODELS[0], show_default=True)


@command(
    "mltswitch plan --profile resnet50 --fabric inventories/lab/fabric.yaml -o plan.yaml",
    "mltswitch plan --profile resnet50 --fabric fabric.yaml --report report.html",
    "mltswitch plan --profile resnet50 --edited plan.yaml -o plan.yaml",
    "mltswitch plan --profile mine.yaml --fabric fabric.yaml --refine simulate --json",
    "mltswitch plan --profile resnet50 --fabric fabric.yaml --what-if buffer=2x,load=0.9",
)
def plan(
    profile_name: str = option(
        "A bundled profile's name, or a profile file.",
        PROFILE,
        "--profile",
        variable="PROFILE",
        required=True,
    ),
    fabric_file: Path | None = option("The fabric file.", PATH, "--fabric"),
    model: str = MODEL,
    at_load: float | None = option(
        "Choose thresholds for this gradient load alone, not for the scenarios around the planned one.",
        click.FloatRange(0, 10, min_open=True),
    ),
    free_order: bool = flag("A class of higher priority may have a larger S."),
    edited: Path | None = option(
        "Take this plan, whose thresholds were changed by hand, predict it anew and mark it as edited.", FILE
    ),
    force: bool = flag("Write a plan, too, that leaves a class beyond its loss tolerance."),
    changes: str | None = option(
        "Compare with other buffers, loads or bursts (buffer=2x,load=0.9): the thresholds as they are, and "
        "new ones. Writes nothing, unless -o asks for the new plan.",
        None,
        "--what-if",
        metavar="KEY=VALUE[,...]",
    ),
    refine: str | None = option(
        "Improve the thresholds against the simulator (extra: sim).", click.Choice([REFEREE])
    ),
    packets: int | None = option(
        "Packets of each simulation, for --refine and --report.", click.IntRange(10_000, 10**10)
    ),
    seed: int | None = option("Seed of the simulations, for --refine and --report.", SEED),
    output: Path | None = output_file("Write the plan here."),
    report: Path | None = option("Write pictures of the plan here, one HTML page (extra: report).", FILE),
) -> Answer:
    """Derive queue thresholds, and print or write the plan.

    Where no thresholds keep a class within its loss tolerance at the planned load, the exit code is 5 and
    nothing is written, unless --force says so.
    """
    _check_options(model, refine, packets, seed, output, report)
    wanted = None if changes is None else parsed("--what-if", parse_changes, changes)
    if wanted is not None and refine is not None:
        raise UserInputError("a comparison is of predicted plans", where="--what-if", expected="no --refine")
    profile = resolve_profile(profile_name)
    if (fabric_file is None) == (edited is None):
        raise UserInputError("one of --fabric and --edited is needed", where="--fabric")
    if edited is not None:
        made = _edited(edited, profile, (output, report), has_more=at_load is not None or free_order)
    elif fabric_file is not None:
        fabric = load_document(fabric_file, Fabric)
        _check_outputs(output, report, None)
        with naming(fabric_file), progress_bar() as advance:
            made = build_plan(
                profile,
                fabric,
                hardware_capabilities,
                model,
                at_load=at_load,
                is_order_free=free_order,
                progress=advance,
            )
    compared = None
    if wanted is not None:
        with naming(fabric_file or edited or ""), progress_bar() as advance:
            compared = what_if(made, profile, hardware_capabilities, wanted, progress=advance)
        made = compared.anew
    if refine is not None:
        made = _refined(made, profile, simulation(SimulationSettings(), packets, seed))
    is_written = force or not made.unmet
    files = {} if output is None else {output: dump_yaml(made)}
    if report is not None:
        files[report] = _report(made, profile, packets, seed)
    if is_written:
        write_outputs(files.items(), replaces=edited if compared is None else None)

    document: Any = made if compared is None else what_if_document(compared, str(changes))

    def text() -> Iterator[RenderableType]:
        yield from plan_text(made) if compared is None else what_if_text(document)
        yield from (f"Written: {file}" for file in files if is_written)

    if not made.unmet or (compared is not None and not files):
        return Answer(document, text())
    kept = "; nothing was written, --force writes it all the same" if files and not is_written else ""
    losses = "1 loss" if len(made.unmet) == 1 else f"{len(made.unmet)} losses"
    problem = f"the plan leaves {losses} beyond the tolerance at the planned load{kept}"
    return Answer(document, text(), error=VerificationError(problem, where=str(fabric_file or edited)))


@command("mltswitch schema plan > plan.schema.json")
def schema(document: str = argument(None, click.Choice(tuple(DOCUMENTS)))) -> None:
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
    """Raise UserInputError for options that do not go together."""
    if model == REFEREE:
        raise UserInputError(
            "the simulator judges thresholds and finds none",
            where="--model",
            expected=f"one of {', '.join(name for name in MODELS if name != REFEREE)}",
            hint=f"--refine {REFEREE} improves a model's thresholds against it",
        )
    for name, value in (("--packets", packets), ("--seed", seed)):
        if value is not None and refine is None and report is None:
            raise UserInputError("nothing is simulated", where=name, hint="it goes with --refine or --report")
    if output is not None and report is not None and output.resolve() == report.resolve():
        raise UserInputError("plan and report cannot be one file", where="--report")


def _check_outputs(output: Path | None, report: Path | None, edited: Path | None) -> None:
    """Raise UserInputError before the plan is made; a plan that was edited may take its own place."""
    for file, replaces in ((output, edited), (report, None)):
        if file is not None:
            check_output(file, replaces=replaces)


def _edited(
    file: Path, profile: ModelProfile, outputs: tuple[Path | None, Path | None], *, has_more: bool
) -> Plan:
    """A plan that was changed by hand, predicted anew."""
    given = click.get_current_context().get_parameter_source("model")
    if has_more or given is not ParameterSource.DEFAULT:
        raise UserInputError(
            "an edited plan has its thresholds, its load and its model already",
            where="--edited",
            expected="no --at-load, --free-order or --model beside it",
        )
    changed = load_plan(file, accepts_edits=True)
    _check_outputs(*outputs, file)
    with naming(file):
        return predict_edited(changed, profile, hardware_capabilities)


def simulation(default: SimulationSettings, packets: int | None, seed: int | None) -> SimulationSettings:
    """The simulation settings, with packets and seed replaced where they are given."""
    given = {"packets": packets, "seed": seed}
    return replace(default, **{name: value for name, value in given.items() if value is not None})


def _refined(made: Plan, profile: ModelProfile, settings: SimulationSettings) -> Plan:
    from mltswitch.planning.refine import refine_plan

    with progress_bar() as advance:
        return refine_plan(made, profile, hardware_capabilities, settings, progress=advance)


def _report(made: Plan, profile: ModelProfile, packets: int | None, seed: int | None) -> str:
    from mltswitch.report import SIMULATION, plan_report

    with progress_bar() as advance:
        return plan_report(made, profile, simulation(SIMULATION, packets, seed), advance)


def plan_text(made: Plan) -> Iterator[RenderableType]:
    """The plan as a table per kind of port, and the losses from end to end."""
    provenance = made.provenance
    how = "simulated" if provenance.queueing_model == REFEREE else "predicted"
    yield Text(
        f"Plan for {provenance.profile_name} on fabric {made.fabric.name}; losses and delays are {how}, "
        f"loss model '{provenance.queueing_model}'."
    )
    groups: dict[tuple[object, ...], list[PortProfile]] = {}
    for each in made.port_profiles:
        groups.setdefault((each.rate_bps, each.load, each.queues), []).append(each)
    for group in groups.values():
        yield _port_table(made, group)
    losses = [
        (
            each.traffic_class,
            *map(format_ratio, (each.loss_unimportant, each.loss_important)),
            figure(each.extra_rounds),
        )
        for each in made.end_to_end
    ]
    title = f"End to end, {made.hops} queues on the path ({how})"
    yield table(title, "class | loss unimportant # | loss important # | extra rounds #", losses)
    scenarios = [(each.name, f"{each.weight:.2g}", figure(each.extra_rounds)) for each in made.scenarios]
    yield table(f"Scenarios ({how})", "scenario | weight # | extra rounds #", scenarios)
    yield Text(f"Loss tolerance: {provenance.sensitivity}")
    for kind, lines in (("note", made.notes), ("warning", made.warnings), ("not met", made.unmet)):
        yield from (f"{kind}: {line}" for line in lines)


def _port_table(made: Plan, group: list[PortProfile]) -> Group:
    first = group[0]
    names = ", ".join(f"{profile.platform} {profile.hardware} {profile.role}" for profile in group)
    has_delays = any(
        each.prediction and each.prediction.mean_delay_seconds is not None for each in first.queues
    )
    columns = (
        "class | DSCP | layers | S [B] | S [µs] | bound [µs] | L [B] | loss unimportant # | loss important #"
    )
    return table(
        f"{names}: {format_bps(first.rate_bps)}, load {first.load:g}, buffer {first.buffer_bytes:,} B",
        columns + (" | mean delay [µs] | p99 delay [µs]" if has_delays else ""),
        [_queue_row(made, queue, first.rate_bps, has_delays=has_delays) for queue in first.queues],
    )


def _queue_row(made: Plan, queue: QueueSettings, rate_bps: int, *, has_delays: bool) -> tuple[str, ...]:
    entry, found = made.class_by_name[queue.traffic_class], queue.prediction
    # How long the port sends at what waits at S, and the bound of that.
    at_threshold = (queue.ecn_threshold_bytes or 0) * BITS_PER_BYTE / rate_bps
    times = [figure(time or None, factor=1e6) for time in (at_threshold, queue.delay_bound_seconds)]
    losses, delays = ["-"] * 2, ["-"] * 2
    if found is not None:
        losses = [
            _loss(found.loss_unimportant, found.loss_unimportant_error),
            _loss(found.loss_important, found.loss_important_error),
        ]
        delays = [figure(each, factor=1e6) for each in (found.mean_delay_seconds, found.p99_delay_seconds)]
    return (
        entry.name,
        " ".join(map(str, entry.dscp)),
        f"{entry.layers.first}-{entry.layers.last}" if entry.layers else "-",
        figure(queue.ecn_threshold_bytes, ","),
        *times,
        f"{queue.limit.size_bytes:,}" if isinstance(queue.limit, BytesLimit) else str(queue.limit),
        *losses,
        *(delays if has_delays else ()),
    )


def _loss(ratio: float, error: float | None) -> str:
    """With the half width of its 95 % confidence interval where it was simulated."""
    return with_error(ratio, error) if ratio or error is None else f"0 (≤ {format_ratio(error)})"
