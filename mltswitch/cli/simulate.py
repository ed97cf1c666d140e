"""`mltswitch simulate`: a whole fabric in packets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from mltswitch.app.simulated_network import Played, Simulation, load_scenario, simulated_network
from mltswitch.cli.command import argument, command, option
from mltswitch.cli.options import FILE, PATH, SEED, Cells, output_file
from mltswitch.cli.output import Answer, figure, table
from mltswitch.cli.reproduce import reproduce
from mltswitch.cli.runs import COMPUTED, SIGNAL_EXIT_CODE, STATE, computing_of
from mltswitch.network.results import Figure
from mltswitch.units import format_ratio, format_seconds


class _OrReproduce(click.Command):
    """`simulate`, which hands over to a command of its own where its first argument is `reproduce`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command that the arguments are for."""
        if args[:1] == [reproduce.name]:
            return reproduce.make_context(f"{info_name} {reproduce.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@command(
    "mltswitch simulate incast.yaml",
    "mltswitch simulate incast.yaml --transport dctcp --seed 1 --seed 2 --seed 3 -o flows.parquet",
    "mltswitch simulate incast.yaml --state incast.state --processes 4 --report incast.html",
    "mltswitch simulate plan.yaml --profile resnet50 --transport mlt,dctcp --json",
    "mltswitch simulate reproduce mlt-fig14 --hosts 36",
    name="simulate",
    cls=_OrReproduce,
)
def simulate(
    scenario_file: Path = argument("SCENARIO", PATH),
    profile: str | None = option(
        "Where SCENARIO is a plan: workers push this model's gradients, sliced evenly over the servers."
    ),
    transports: str | None = option(
        "In the place of the scenario's: every play of a transport, or the one with a title of the table.",
        None,
        "--transport",
        metavar="NAME[,NAME]",
    ),
    seeds: tuple[int, ...] = option(
        "In the place of the scenario's; again for more.", SEED, "--seed", multiple=True
    ),
    output: Path | None = output_file(
        "A row for each flow, .parquet or .csv; and beside it one for each queue and each training step."
    ),
    report: Path | None = option(
        "A page of completion times, queues over time and link loads.", FILE, "--report"
    ),
    state: Path | None = STATE,
    computed: Cells = COMPUTED,
) -> Answer:
    """Simulate a fabric, packet by packet.

    SCENARIO says what is sent over which fabric, by which transports, and what the switches do: follow a
    plan, mark at K, or drop where they are full. Every transport is played by itself with every seed.
    `mltswitch simulate reproduce` plays figures of papers; see its own `--help`.
    For the time of training steps without packets, take `mltswitch train simulate`.
    """
    scenario, folder = load_scenario(scenario_file, profile=profile, transports=transports, seeds=seeds)
    computing = computing_of(computed, state)
    found = simulated_network(
        scenario, folder, output=output, computing=computing, state=state, report=report
    )
    return Answer(_document(found), _text(found), SIGNAL_EXIT_CODE + found.ended_by if found.ended_by else 0)


def _document(found: Simulation) -> dict[str, Any]:
    return {
        "scenario": found.scenario.name,
        "missing_runs": found.missing_runs,
        "transports": [
            {
                "transport": each.transport,
                "figures": each.figures,
                "runs": [
                    {"seed": run.seed, "summary": run.summary, "classes": run.classes} for run in each.runs
                ],
                "beside_plan": each.beside_plan,
            }
            for each in found.played
        ],
        "outputs": [str(path) for path in found.outputs],
    }


def _text(found: Simulation) -> Iterator[RenderableType]:
    if not found.played:
        return
    yield table(
        f"{found.scenario.name} (simulated)",
        "transport | mean FCT # | p99 # | max # | sent/needed # | busiest link [%] | marked # | dropped # | "
        "open #",
        map(_row, found.played),
    )
    training = [each for each in found.played if each.figures["step_mean_seconds"] is not None]
    if training:
        yield table(
            "training steps of all workers (simulated)",
            "transport | mean # | p99 # | max #",
            map(_steps, training),
        )
    for each in found.played:
        if each.beside_plan:
            yield table(
                f"{each.transport}: loss from end to end, planned load predicted and this scenario simulated",
                "class | unimportant, predicted # | simulated # | important, predicted # | simulated #",
                (
                    (
                        row.traffic_class,
                        format_ratio(row.predicted_unimportant),
                        _ratio(row.simulated_unimportant),
                        format_ratio(row.predicted_important),
                        _ratio(row.simulated_important),
                    )
                    for row in each.beside_plan
                ),
            )
    yield from (f"Written: {path}" for path in found.outputs)


def _row(each: Played) -> tuple[object, ...]:
    figures = each.figures
    totals = [run.summary for run in each.runs]
    return (
        each.transport,
        *(_time(figures[f"fct_{name}_seconds"]) for name in ("mean", "p99", "max")),
        _number(figures["sent_over_needed"]),
        _number(figures["most_link_load"], 100),
        sum(summary.marked_packets for summary in totals),
        sum(summary.dropped_packets for summary in totals),
        sum(summary.open_flows for summary in totals),
    )


def _steps(each: Played) -> tuple[object, ...]:
    return each.transport, *(_time(each.figures[f"step_{name}_seconds"]) for name in ("mean", "p99", "max"))


def _time(value: Figure | None) -> str:
    if value is None:
        return "-"
    error = "" if value.half_width is None else f" ± {format_seconds(value.half_width)}"
    return format_seconds(value.mean) + error


def _number(value: Figure | None, factor: float = 1) -> str:
    if value is None:
        return "-"
    error = "" if value.half_width is None else f" ± {figure(value.half_width, '.2g', factor)}"
    return figure(value.mean, ".4g", factor) + error


def _ratio(value: float | None) -> str:
    return "-" if value is None else format_ratio(value)
