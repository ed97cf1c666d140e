"""The loss models against a real Linux queue: prio, red and tbf of the lab, as a plan is rendered for it.

    python -m benchmarks.lab_queue [--quick] [--json] [--rate 10Mbps] [--seconds 20]

Needs root and what `mltswitch lab up` needs. Poisson bursts of one class each go through one port of the lab.
A prediction is for an endless run; the interval says what the length of the run leaves open. `replay` leaves
nothing open: it sends the very same packets through the port in virtual time (benchmarks.linux_port), with as
much of Linux's ways as its name says.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from statistics import median
from typing import Final

import click
from rich.console import Console

from benchmarks.lab_port import running_port
from benchmarks.linux_port import AVERAGING, PLAIN, PortModel, Replayed, replay
from mltswitch.cli.output import table
from mltswitch.errors import MltswitchError
from mltswitch.measure import Bottleneck, LoadResult, Offer, offered_problem, offered_run, open_probe
from mltswitch.measure.schedule import merged
from mltswitch.plan import ClassKind, Plan
from mltswitch.queueing import QueuePrediction, SimulationSettings, predict
from mltswitch.targets.linux.lines import shaper_burst_bytes
from mltswitch.units import format_ratio

LOADS: Final = (0.8, 1.1, 1.5)
BURSTS: Final = (1, 8, 16)
QUICK_OFFERS: Final = (Offer(1.1, 1), Offer(1.1, 8))
QUICK_SECONDS: Final = 4.0
LINUX_WEIGHT: Final = 0.5
JUDGED_LOSS: Final = 0.01
"""Smaller losses rest on too few packets to compare."""
KEPT_UP: Final = 0.98
"""Share of the line's packets below which the machine, not the queue, was measured."""
SIMULATION: Final = SimulationSettings(packets=2_000_000)
SEED: Final = 3
MODELS: Final = ("completion", "simulate", "averaging", "paper", "replay_plain", "replay_averaging", "replay")


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of packets of one class at one load and burst; losses from 0 to 1, waits in seconds.

    `averaging` is `simulate` with red's average; `replay_…` see benchmarks.linux_port, `replay` follows all.
    """

    load: float
    burst_packets: int
    traffic_class: str
    importance: str
    sent: int
    measured: float
    half_width: float
    completion: float
    simulate: float
    averaging: float
    paper: float
    replay_plain: float
    replay_averaging: float
    replay: float
    wait_p50_seconds: float | None
    completion_wait_p50_seconds: float | None
    replay_wait_p50_seconds: float


@dataclass(frozen=True, slots=True)
class Expected:
    """What every model and replay says of one point, class by class."""

    predictions: dict[str, Sequence[QueuePrediction]]
    replays: dict[str, Sequence[Replayed]]

    def loss(self, name: str, position: int, *, is_important: bool) -> float:
        """Loss of one kind of packets."""
        if name in self.replays:
            return self.replays[name][position].loss[is_important]
        figure = self.predictions[name][position]
        return figure.loss_important if is_important else figure.loss_unimportant


def expect(plan: Plan, bottleneck: Bottleneck, offer: Offer, seconds: float) -> Expected:
    """Predict and replay one point."""
    profile = bottleneck.profile
    port, traffic, thresholds = offered_problem(plan, profile, offer)
    port = replace(port, buffer_packets=None)
    averaged = [replace(entry, average_weight=LINUX_WEIGHT) for entry in thresholds]
    sent = merged(offered_run(plan, bottleneck, offer, seconds, SEED))
    linux = PortModel(LINUX_WEIGHT, True, shaper_burst_bytes(profile.rate_bps) / profile.packet_bytes)
    ways = {"replay_plain": PLAIN, "replay_averaging": AVERAGING, "replay": linux}
    return Expected(
        predictions={
            "completion": predict(port, traffic, thresholds),
            "paper": predict(port, traffic, thresholds, "paper"),
            "simulate": predict(port, traffic, thresholds, "simulate", simulation=SIMULATION),
            "averaging": predict(port, traffic, averaged, "simulate", simulation=SIMULATION),
        },
        replays={name: replay(sent, thresholds, profile.packet_seconds, way) for name, way in ways.items()},
    )


def compare(plan: Plan, bottleneck: Bottleneck, found: LoadResult, expected: Expected) -> Iterator[Row]:
    """The gradient classes' rows of one point."""
    positions = {entry.name: number for number, entry in enumerate(plan.classes)}
    for entry in found.classes:
        position = positions[entry.traffic_class]
        if plan.classes[position].kind is not ClassKind.GRADIENT:
            continue
        yield Row(
            load=found.load,
            burst_packets=found.burst_packets,
            traffic_class=entry.traffic_class,
            importance="important" if entry.is_important else "unimportant",
            sent=entry.sent,
            measured=entry.loss or 0.0,
            half_width=entry.loss_half_width or 0.0,
            wait_p50_seconds=entry.wait_p50_seconds,
            completion_wait_p50_seconds=entry.predicted_wait_p50_seconds,
            replay_wait_p50_seconds=expected.replays["replay"][position].p50_packet_times
            * bottleneck.profile.packet_seconds,
            **{name: expected.loss(name, position, is_important=entry.is_important) for name in MODELS},
        )


def measure(rate: str, offers: Sequence[Offer], seconds: float, progress: Console) -> list[Row]:
    """All points, one after the other; raises MachineError."""
    rows: list[Row] = []
    progress.print("bringing the lab up")
    with running_port(rate) as (plan, bottleneck), open_probe(plan, bottleneck, SEED) as opened:
        for offer in offers:
            found = opened.load(offer, model="completion", seconds=seconds, seed=SEED)
            progress.print(
                f"load {offer.load:g}, bursts of {offer.burst_packets}: "
                f"senders at most {found.late_seconds * 1e3:.1f} ms late"
            )
            rows += compare(plan, bottleneck, found, expect(plan, bottleneck, offer, seconds))
    return rows


def figures(rows: Sequence[Row]) -> dict[str, float | int]:
    """How far each prediction is from the measured losses that are large enough to compare."""
    judged = [row for row in rows if row.measured >= JUDGED_LOSS]
    found: dict[str, float | int] = {"comparisons": len(rows), "judged": len(judged)}
    for name in MODELS:
        values = [(getattr(row, name), row.measured, row.half_width) for row in judged]
        errors = [abs(value - measured) / measured for value, measured, _ in values]
        found[f"{name}_relative_error_median"] = median(errors) if errors else 0.0
        found[f"{name}_relative_error_max"] = max(errors, default=0.0)
        found[f"{name}_within_interval"] = sum(
            abs(value - measured) <= width for value, measured, width in values
        )
    found["carried_over_replayed_min"] = min(map(carried_over_replayed, points(rows)), default=1.0)
    return found


def points(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each load and burst."""
    return [list(group) for _, group in groupby(rows, key=lambda row: (row.load, row.burst_packets))]


def carried_over_replayed(rows: Sequence[Row]) -> float:
    """Packets that the port carried at one point, over those of the replay: below 1 the machine was late."""
    carried, replayed = (
        sum(row.sent * (1 - loss) for row, loss in zip(rows, losses, strict=True))
        for losses in ([row.measured for row in rows], [row.replay for row in rows])
    )
    return carried / replayed if replayed else 1.0


def print_rows(rows: Sequence[Row], found: dict[str, float | int]) -> None:
    """A table per point, then the figures."""
    screen = Console(width=210)
    for point in points(rows):
        title = f"Load {point[0].load:g}, bursts of {point[0].burst_packets}"
        columns = (
            "class | importance | sent # | loss measured # | completion # | measured / # | simulate # | "
            "average 1/2 # | paper # | replay plain # | replay Linux # | p50 wait [ms] | completion [ms] | "
            "replay [ms]"
        )
        screen.print(table(title, columns, map(_line, point)))
    for name, value in found.items():
        click.echo(f"{name}: {value:.4g}")
    if found["carried_over_replayed_min"] < KEPT_UP:
        click.echo("the emulated switch did not keep up with the port's rate: lower --rate", err=True)


def _line(row: Row) -> tuple[str, ...]:
    return (
        row.traffic_class,
        row.importance,
        f"{row.sent:,}",
        f"{row.measured:.2%} ± {row.half_width:.2%}",
        format_ratio(row.completion),
        f"{row.measured / row.completion:.2f}" if row.measured >= JUDGED_LOSS and row.completion else "-",
        format_ratio(row.simulate),
        format_ratio(row.averaging),
        format_ratio(row.paper),
        format_ratio(row.replay_plain),
        format_ratio(row.replay),
        *map(
            _milliseconds,
            (row.wait_p50_seconds, row.completion_wait_p50_seconds, row.replay_wait_p50_seconds),
        ),
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


@click.command()
@click.option("--quick", is_flag=True, help="Two points of a few seconds.")
@click.option("--json", "as_json", is_flag=True, help="One object: flat figures, and the rows.")
@click.option("--rate", default="10Mbps", show_default=True, help="Of the port.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(1, 120), help="A point.")
def main(quick: bool, as_json: bool, rate: str, seconds: float) -> None:
    """Measured and predicted loss of a real Linux queue."""
    offers = QUICK_OFFERS if quick else [Offer(load, burst) for burst in BURSTS for load in LOADS]
    try:
        rows = measure(rate, offers, QUICK_SECONDS if quick else seconds, Console(stderr=True))
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    found = figures(rows)
    if as_json:
        click.echo(json.dumps({**found, "rows": [asdict(row) for row in rows]}))
    else:
        print_rows(rows, found)


if __name__ == "__main__":
    main()
