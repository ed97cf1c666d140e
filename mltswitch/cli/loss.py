"""`mltswitch loss`: a plan, or a bare problem, under any loss model."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group

from mltswitch.cli.bars import progress_bar
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.errors import MltswitchError
from mltswitch.plan import Plan, PortRole, load_plan
from mltswitch.planning.evaluate import PortPrediction, class_rows, predict_ports
from mltswitch.queueing import MODELS, QueuePrediction, QueueThresholds, SimulationSettings, kind_of, predict
from mltswitch.sweep import parse_numbers
from mltswitch.traffic.problem import load_problem
from mltswitch.units import format_bps, format_ratio, format_seconds

GREATEST_LOAD: Final = 10.0
GREATEST_BURST: Final = 1024


class Numbers(click.ParamType[tuple[float, ...]]):
    """A list such as `0.5:1.2:0.1,1.5`, each number in bounds."""

    name = "numbers"

    def __init__(self, least: float, most: float, *, whole: bool = False) -> None:
        self.least, self.most, self.whole = least, most, whole

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """The numbers of one option."""
        if not isinstance(value, str):
            return tuple(value)
        try:
            return parse_numbers(value, self.least, self.most, whole=self.whole)
        except ValueError as error:
            self.fail(str(error), param, ctx)


LOADS: Final = Numbers(0.0, GREATEST_LOAD)
BURSTS: Final = Numbers(1, GREATEST_BURST, whole=True)


def simulation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--packets` and `--seed` of the model `simulate`."""
    defaults = SimulationSettings()
    for option in (
        click.option(
            "--seed", type=click.IntRange(0, 2**31), help=f"Of the simulation; {defaults.seed} by default."
        ),
        click.option(
            "--packets",
            type=click.IntRange(1000, 10**11),
            help=f"To simulate for each table; {defaults.packets:,} by default.",
        ),
    ):
        command = option(command)
    return command


def simulation_settings(models: Sequence[str], packets: int | None, seed: int | None) -> SimulationSettings:
    """The settings asked for; refused where nothing is simulated."""
    if "simulate" not in models and (packets is not None or seed is not None):
        name = "--seed" if packets is None else "--packets"
        raise click.UsageError(f"{name} counts for --model simulate alone")
    defaults = SimulationSettings()
    return SimulationSettings(
        packets=defaults.packets if packets is None else packets,
        seed=defaults.seed if seed is None else seed,
    )


@click.command(
    epilog="\b\nExamples:\n"
    "  mltswitch loss plan.yaml --model simulate --load 0.8,0.9 --burst 1,8\n"
    "  mltswitch loss --spec problem.json --json"
)
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="[PLAN]", required=False)
@click.option(
    "--spec", "spec_file", type=click.Path(path_type=Path), help="A bare problem instead of a plan."
)
@click.option(
    "--model", type=click.Choice(MODELS), default=MODELS[0], show_default=True, help="The loss model."
)
@click.option("--load", "loads", type=LOADS, help="Gradient bits offered over the port's rate: 0.8,0.9.")
@click.option("--burst", "bursts", type=BURSTS, help="Packets of a burst, all gradient classes: 1,8.")
@click.option("--port-role", type=click.Choice([role.value for role in PortRole]))
@simulation_options
@json_option
def loss(
    plan_file: Path | None,
    spec_file: Path | None,
    model: str,
    loads: tuple[float, ...] | None,
    bursts: tuple[float, ...] | None,
    port_role: str | None,
    packets: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Say what a loss model expects of PLAN, or of the problem in a file."""
    if (plan_file is None) == (spec_file is None):
        raise click.UsageError("Give a plan, or --spec" + ", not both" * (plan_file is not None))
    if spec_file is not None:
        for name, value in (("--load", loads), ("--burst", bursts), ("--port-role", port_role)):
            if value is not None:
                raise click.UsageError(f"{name} varies a plan, and no problem")
        _bare_problem(spec_file, model, simulation_settings([model], packets, seed), as_json=as_json)
        return
    plan_path = Path(str(plan_file))
    plan = load_plan(plan_path)
    settings = simulation_settings([model], packets, seed)
    tables: list[PortPrediction] = []
    points = list(product(loads or (None,), bursts or (None,)))
    try:
        with progress_bar() as advance:
            for done, (load, burst) in enumerate(points):
                advance("loads and bursts", done, len(points))
                tables += predict_ports(
                    plan,
                    role=None if port_role is None else PortRole(port_role),
                    load=load,
                    burst_packets=None if burst is None else int(burst),
                    model=model,
                    simulation=settings,
                )
    except MltswitchError as error:
        error.where = f"{plan_path}: {error.where}" if error.where else str(plan_path)
        raise
    if as_json:
        tables_json = [_table_json(plan, entry) for entry in tables]
        print_json({"model": model, "kind": kind_of(model), "tables": tables_json})
        return
    screen = console()
    screen.print(
        f"Plan for {plan.provenance.profile_name} on fabric {plan.fabric.name}; all losses, delays and "
        f"queues are {kind_of(model)}, loss model '{model}'.",
        markup=False,
    )
    for entry in tables:
        screen.print(_port_table(plan, entry))


def _table_json(plan: Plan, entry: PortPrediction) -> dict[str, Any]:
    return {
        "load": entry.load,
        "burst_packets": list(entry.burst_packets),
        "ports": [
            {"platform": profile.platform, "hardware": profile.hardware, "role": profile.role.value}
            for profile in entry.profiles
        ],
        "classes": class_rows(plan, entry),
    }


COLUMNS: Final = (
    "loss unimportant #",
    "loss important #",
    "mean delay #",
    "p50 #",
    "p99 #",
    "p99.9 #",
    "mean queue [B]",
    "CE marks #",
)


def _port_table(plan: Plan, entry: PortPrediction) -> Group:
    first = entry.profiles[0]
    names = ", ".join(f"{profile.platform} {profile.role}" for profile in entry.profiles)
    bursts = sorted(set(entry.burst_packets))
    rows = [
        (
            row["traffic_class"],
            _count(row["ecn_threshold_bytes"]),
            _count(row["limit_bytes"]),
            with_error(row["loss_unimportant"], row["loss_unimportant_error"]),
            with_error(row["loss_important"], row["loss_important_error"]),
            *(format_seconds(row[f"{name}_delay_seconds"]) for name in ("mean", "p50", "p99", "p999")),
            _count(row["mean_queue_bytes"]),
            "-" if row["mark_share"] is None else format_ratio(row["mark_share"]),
        )
        for row in class_rows(plan, entry)
    ]
    title = (
        f"{names}: {format_bps(first.rate_bps)}, load {entry.load:g}, bursts of "
        f"{' and '.join(map(str, bursts))}, buffer {first.buffer_bytes:,} B ({kind_of(entry.model)})"
    )
    return table(title, ("class", "S [B]", "L [B]", *COLUMNS), rows)


def with_error(loss_ratio: float, error: float | None) -> str:
    """A loss, with its confidence interval where it was simulated."""
    if error is None:
        return format_ratio(loss_ratio)
    return f"{format_ratio(loss_ratio)} ± {format_ratio(error)}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{round(value):,}"


def _bare_problem(spec: Path, model: str, settings: SimulationSettings, *, as_json: bool) -> None:
    port, traffic, thresholds = load_problem(spec)
    try:
        queues = predict(port, traffic, thresholds, model, simulation=settings)
    except MltswitchError as error:
        error.where = f"{spec}: {error.where}" if error.where else str(spec)
        raise
    if as_json:
        # JSON has no infinity, which is what a delay without service is.
        records = [
            {
                name: None if isinstance(value, float) and not isfinite(value) else value
                for name, value in asdict(entry).items()
            }
            for entry in queues
        ]
        print_json({"model": model, "kind": kind_of(model), "queues": records})
        return
    console().print(_queue_table(model, thresholds, queues))


def _queue_table(
    model: str, thresholds: Sequence[QueueThresholds], queues: Sequence[QueuePrediction]
) -> Group:
    rows = [
        (
            number,
            _figure(limits.ecn_threshold_packets),
            _figure(limits.limit_packets),
            with_error(entry.loss_unimportant, entry.loss_unimportant_error),
            with_error(entry.loss_important, entry.loss_important_error),
            _figure(entry.mean_delay_packet_times),
            _figure(entry.p50_delay_packet_times),
            _figure(entry.p99_delay_packet_times),
            _figure(entry.p999_delay_packet_times),
            _figure(entry.mean_queue_packets),
            "-" if entry.mark_share is None else format_ratio(entry.mark_share),
        )
        for number, (limits, entry) in enumerate(zip(thresholds, queues, strict=True))
    ]
    columns = (
        "queue #",
        "S [packets]",
        "L [packets]",
        "loss unimportant #",
        "loss important #",
        "mean delay #",
        "p50 #",
        "p99 #",
        "p99.9 #",
        "mean queue [packets]",
        "CE marks #",
    )
    return table(f"All figures {kind_of(model)}, loss model '{model}'; delays in packet times", columns, rows)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
