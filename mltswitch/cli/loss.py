"""`mltswitch loss`: a plan, or a bare problem, under any loss model."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.text import Text

from mltswitch.app import naming
from mltswitch.cli.command import argument, command, option
from mltswitch.cli.options import BURSTS, LOADS, PATH
from mltswitch.cli.output import Answer, figure, progress_bar, table, with_error
from mltswitch.cli.plan import MODEL, simulation
from mltswitch.plan import Plan, PortRole, load_plan
from mltswitch.planning.evaluate import PortPrediction, class_rows, predict_ports
from mltswitch.queueing import QueuePrediction, QueueThresholds, SimulationSettings, kind_of, predict
from mltswitch.traffic.problem import load_problem
from mltswitch.units import format_bps, format_ratio, format_seconds

DEFAULTS = SimulationSettings()
ROLE: Final[Any] = option(None, click.Choice([role.value for role in PortRole]), "--port-role")
OPTIONAL_PLAN: Final[Any] = argument("[PLAN]", PATH, required=False)


@dataclass(frozen=True, slots=True)
class Simulation:
    """Options of the loss model `simulate`."""

    packets: int | None = option(
        f"To simulate for each table; {DEFAULTS.packets:,} by default.", click.IntRange(1000, 10**11)
    )
    seed: int | None = option(f"Of the simulation; {DEFAULTS.seed} by default.", click.IntRange(0, 2**31))

    def settings(self, models: Sequence[str]) -> SimulationSettings:
        """The simulation settings in the options; raises UsageError if some are given without `simulate`."""
        if "simulate" not in models and (self.packets is not None or self.seed is not None):
            name = "--seed" if self.packets is None else "--packets"
            raise click.UsageError(f"{name} counts for --model simulate alone")
        return simulation(DEFAULTS, self.packets, self.seed)


@command(
    "mltswitch loss plan.yaml --model simulate --load 0.8,0.9 --burst 1,8",
    "mltswitch loss --spec problem.json --json",
)
def loss(
    *,
    plan_file: Path | None = OPTIONAL_PLAN,
    spec_file: Path | None = option("A bare problem instead of a plan.", PATH, "--spec"),
    model: str = MODEL,
    loads: tuple[float, ...] | None = option(
        "Gradient bits offered over the port's rate: 0.8,0.9.", LOADS, "--load"
    ),
    bursts: tuple[float, ...] | None = option(
        "Packets of a burst, all gradient classes: 1,8.", BURSTS, "--burst"
    ),
    port_role: str | None = ROLE,
    simulated: Simulation,
) -> Answer:
    """Say what a loss model expects of PLAN, or of the problem in a file."""
    if (plan_file is None) == (spec_file is None):
        raise click.UsageError("Give a plan, or --spec" + ", not both" * (plan_file is not None))
    if spec_file is not None:
        for name, value in (("--load", loads), ("--burst", bursts), ("--port-role", port_role)):
            if value is not None:
                raise click.UsageError(f"{name} varies a plan, and no problem")
        return _bare_problem(spec_file, model, simulated.settings([model]))
    plan_path = Path(str(plan_file))
    plan = load_plan(plan_path)
    settings = simulated.settings([model])
    entries: list[PortPrediction] = []
    points = list(product(loads or (None,), bursts or (None,)))
    with naming(plan_path), progress_bar() as advance:
        for done, (load, burst) in enumerate(points):
            advance("loads and bursts", done, len(points))
            entries += predict_ports(
                plan,
                role=None if port_role is None else PortRole(port_role),
                load=load,
                burst_packets=None if burst is None else int(burst),
                model=model,
                simulation=settings,
            )

    def text() -> Iterator[RenderableType]:
        yield Text(
            f"Plan for {plan.provenance.profile_name} on fabric {plan.fabric.name}; all losses, delays and "
            f"queues are {kind_of(model)}, loss model '{model}'."
        )
        yield from (_port_table(plan, entry) for entry in entries)

    tables = [_table_json(plan, entry) for entry in entries]
    return Answer({"model": model, "kind": kind_of(model), "tables": tables}, text())


def _table_json(plan: Plan, entry: PortPrediction) -> dict[str, Any]:
    ports = [
        {"platform": each.platform, "hardware": each.hardware, "role": each.role.value}
        for each in entry.profiles
    ]
    bursts = list(entry.burst_packets)
    return {"load": entry.load, "burst_packets": bursts, "ports": ports, "classes": class_rows(plan, entry)}


def _port_table(plan: Plan, entry: PortPrediction) -> Group:
    first = entry.profiles[0]
    names = ", ".join(f"{profile.platform} {profile.role}" for profile in entry.profiles)
    rows = [
        (
            row["traffic_class"],
            figure(row["ecn_threshold_bytes"], ",.0f"),
            figure(row["limit_bytes"], ",.0f"),
            with_error(row["loss_unimportant"], row["loss_unimportant_error"]),
            with_error(row["loss_important"], row["loss_important_error"]),
            *(format_seconds(row[f"{name}_delay_seconds"]) for name in ("mean", "p50", "p99", "p999")),
            figure(row["mean_queue_bytes"], ",.0f"),
            None if row["mark_share"] is None else format_ratio(row["mark_share"]),
        )
        for row in class_rows(plan, entry)
    ]
    title = (
        f"{names}: {format_bps(first.rate_bps)}, load {entry.load:g}, bursts of "
        f"{' and '.join(map(str, sorted(set(entry.burst_packets))))}, buffer {first.buffer_bytes:,} B "
        f"({kind_of(entry.model)})"
    )
    return table(title, _columns("class", "B"), rows)


def _columns(what: str, unit: str) -> str:
    return (
        f"{what} | S [{unit}] | L [{unit}] | loss unimportant # | loss important # | mean delay # | p50 # | "
        f"p99 # | p99.9 # | mean queue [{unit}] | CE marks #"
    )


def _bare_problem(spec: Path, model: str, settings: SimulationSettings) -> Answer:
    port, traffic, thresholds = load_problem(spec)
    with naming(spec):
        queues = predict(port, traffic, thresholds, model, simulation=settings)
    # JSON has no infinity, which is what a delay without service is.
    records = [
        {
            name: None if isinstance(value, float) and not isfinite(value) else value
            for name, value in asdict(entry).items()
        }
        for entry in queues
    ]
    document = {"model": model, "kind": kind_of(model), "queues": records}
    return Answer(document, (_queue_table(model, thresholds, queues),))


def _queue_table(
    model: str, thresholds: Sequence[QueueThresholds], queues: Sequence[QueuePrediction]
) -> Group:
    rows = [
        (
            number,
            figure(limits.ecn_threshold_packets, ".4g"),
            figure(limits.limit_packets, ".4g"),
            with_error(entry.loss_unimportant, entry.loss_unimportant_error),
            with_error(entry.loss_important, entry.loss_important_error),
            figure(entry.mean_delay_packet_times, ".4g"),
            figure(entry.p50_delay_packet_times, ".4g"),
            figure(entry.p99_delay_packet_times, ".4g"),
            figure(entry.p999_delay_packet_times, ".4g"),
            figure(entry.mean_queue_packets, ".4g"),
            None if entry.mark_share is None else format_ratio(entry.mark_share),
        )
        for number, (limits, entry) in enumerate(zip(thresholds, queues, strict=True))
    ]
    title = f"All figures {kind_of(model)}, loss model '{model}'; delays in packet times"
    return table(title, _columns("queue #", "packets"), rows)
