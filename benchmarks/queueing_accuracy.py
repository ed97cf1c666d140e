"""How far the loss models are from the simulator, and the simulator from exact results.

    python -m benchmarks.queueing_accuracy [--quick] [--json] [--processes N]

A comparison is one kind of packets (unimportant, important) of one queue of one cell. A cell's error is that
of its worst comparison. Comparisons that the simulation cannot decide, because its 95 % interval is wider
than the bar, are counted apart and judge nothing.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import ceil, inf
from multiprocessing import get_context
from typing import Any, Final

import click
import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.cells import Cell, held_out_cells, tuning_cells
from benchmarks.simulator_exactness import ExactComparison, compare_with_exact
from mltswitch.queueing import SimulationSettings, predict

LARGE_LOSS: Final = 1e-3
SMALL_LOSS: Final = 1e-5
BAR: Final = 0.15
WIDE_BAR: Final = 0.40
SMALL_BAR: Final = 0.5
"""Half width over the loss: beyond it the interval leaves the factor of 2."""
AIM: Final = 1 / 3
"""Part of the bar that the interval should be at most, where enough packets can be simulated."""
FACTOR: Final = 2.0
MOST_FACTOR: Final = 1e99
"""Stands for infinity, which JSON does not know: a loss predicted as 0."""
MODELS: Final = ("completion", "paper")
WORST_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated."""

    first_packets: int
    most_packets: int
    exact_packets: int
    cell_step: int
    """Every so many-th cell."""


FULL: Final = Effort(3_000_000, 30_000_000, 4_000_000, 1)
QUICK: Final = Effort(1_000_000, 4_000_000, 400_000, 19)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One kind of packets of one queue: simulated, and predicted by each model."""

    queue: int
    kind: str
    simulated: float
    half_width: float
    predicted: dict[str, float]

    @property
    def is_large(self) -> bool:
        """Judged by its relative error."""
        return self.simulated >= LARGE_LOSS

    @property
    def is_small(self) -> bool:
        """Judged by a factor."""
        return SMALL_LOSS <= self.simulated < LARGE_LOSS

    @property
    def is_undecided(self) -> bool:
        """The interval is wider than the bar, and does not lie wholly below what is judged."""
        bar = BAR if self.is_large else SMALL_BAR
        return self.simulated + self.half_width >= SMALL_LOSS and self.half_width > bar * self.simulated

    @property
    def may_be_judged(self) -> bool:
        """Simulated as large enough; else undecided means only that it might be."""
        return self.simulated >= SMALL_LOSS

    def relative_error(self, model: str) -> float:
        """Distance of the prediction over the simulated loss."""
        return abs(self.predicted[model] - self.simulated) / self.simulated

    def factor(self, model: str) -> float:
        """Predicted over simulated or the reverse, whichever is above 1."""
        predicted = self.predicted[model]
        return max(predicted / self.simulated, self.simulated / predicted) if predicted > 0 else inf

    def packets_needed(self, packets: int) -> tuple[float, float]:
        """Packets that (decide it, leave little noise in the judgement), if these gave this interval."""
        if self.simulated + self.half_width < SMALL_LOSS:
            return 0.0, 0.0
        if self.simulated == 0:
            decide = packets * self.half_width / SMALL_LOSS
            return decide, decide
        bar = BAR if self.is_large else SMALL_BAR
        decide = packets * (self.half_width / (bar * max(self.simulated, SMALL_LOSS))) ** 2
        return decide, decide / AIM**2


@dataclass(frozen=True, slots=True)
class Judged:
    """A cell and its comparisons."""

    cell: Cell
    comparisons: tuple[Comparison, ...]

    def large(self) -> list[Comparison]:
        """Decided comparisons of losses that are judged by their relative error."""
        return [one for one in self.comparisons if one.is_large and not one.is_undecided]

    def small(self) -> list[Comparison]:
        """Decided comparisons of losses that are judged by a factor."""
        return [one for one in self.comparisons if one.is_small and not one.is_undecided]

    def error(self, model: str) -> float | None:
        """The worst relative error; None where nothing is judged by it."""
        return max((one.relative_error(model) for one in self.large()), default=None)


def judge(cell: Cell, seed: int, effort: Effort) -> Judged:
    """Simulate one cell, a second time and longer where that decides more, and ask every model."""
    predicted = {model: predict(cell.port, cell.traffic, cell.thresholds, model) for model in MODELS}
    packets = effort.first_packets
    judged = Judged(cell, tuple(_compare(cell, predicted, packets, seed)))
    needed = [one.packets_needed(packets) for one in judged.comparisons]
    wanted = 1.3 * max((clear for decide, clear in needed if decide <= effort.most_packets), default=0.0)
    if wanted > packets:
        packets = min(effort.most_packets, ceil(wanted))
        judged = Judged(cell, tuple(_compare(cell, predicted, packets, seed + 1)))
    return judged


def _compare(cell: Cell, predicted: dict[str, Any], packets: int, seed: int) -> Iterator[Comparison]:
    settings = SimulationSettings(packets=packets, seed=seed)
    found = predict(cell.port, cell.traffic, cell.thresholds, "simulate", simulation=settings)
    for queue, seen in enumerate(found):
        for kind in ("unimportant", "important"):
            name = f"loss_{kind}"
            yield Comparison(
                queue=queue,
                kind=kind,
                simulated=getattr(seen, name),
                half_width=getattr(seen, f"{name}_error") or 0.0,
                predicted={model: getattr(predicted[model][queue], name) for model in MODELS},
            )


def judge_all(
    cells: Sequence[Cell], effort: Effort, processes: int, advance: Callable[[], None]
) -> list[Judged]:
    """Every cell in turn, or in worker processes; the result does not depend on which."""
    seeds = [1000 + 2 * index for index in range(len(cells))]
    efforts = [effort] * len(cells)
    judged: list[Judged] = []
    if processes == 1:
        for one in map(judge, cells, seeds, efforts):
            judged.append(one)
            advance()
        return judged
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for one in pool.map(judge, cells, seeds, efforts):
            judged.append(one)
            advance()
    return judged


def figures(judged: Sequence[Judged], prefix: str = "") -> dict[str, float | int]:
    """The named figures of one set of cells."""
    found: dict[str, float | int] = {
        "cells": len(judged),
        "cells_of_large_losses": sum(bool(one.large()) for one in judged),
        "comparisons_of_large_losses": sum(len(one.large()) for one in judged),
    }
    for model in MODELS:
        errors = [error for one in judged if (error := one.error(model)) is not None] or [0.0]
        name = "" if model == "completion" else f"{model}_"
        factors = [max(one.factor(model) for one in entry.large()) for entry in judged if entry.large()]
        found[f"{name}factor_median"] = float(min(MOST_FACTOR, np.median(factors or [1.0])))
        found[f"{name}relative_error_median"] = float(np.median(errors))
        for percent in (95, 99):
            found[f"{name}relative_error_p{percent}"] = float(np.percentile(errors, percent))
        found[f"{name}relative_error_max"] = max(errors)
        if model != "completion":
            own = float(found["relative_error_p95"])
            found[f"ratio_to_{model}"] = float(found[f"{name}relative_error_p95"]) / own if own else 0.0
    alone = [one.relative_error("completion") for entry in judged for one in entry.large()] or [0.0]
    found["comparison_relative_error_p95"] = float(np.percentile(alone, 95))
    small = [entry.small() for entry in judged if entry.small()]
    beyond = sum(any(one.factor("completion") > FACTOR for one in entry) for entry in small)
    found["small_loss_cells"] = len(small)
    found["small_loss_beyond_factor_2"] = beyond
    found["small_loss_beyond_factor_2_share"] = beyond / len(small) if small else 0.0
    undecided = [one for entry in judged for one in entry.comparisons if one.is_undecided]
    found["undecided"] = sum(one.may_be_judged for one in undecided)
    found["undecided_below_1e-5"] = len(undecided) - int(found["undecided"])
    found["comparisons"] = sum(len(entry.comparisons) for entry in judged)
    return {prefix + name: figure for name, figure in found.items()}


def meets_bars(found: dict[str, float | int], prefix: str) -> bool:
    """Whether the default model is as good as is promised."""
    return (
        found[f"{prefix}relative_error_p95"] <= BAR
        and found[f"{prefix}relative_error_p99"] <= WIDE_BAR
        and found[f"{prefix}small_loss_beyond_factor_2_share"] <= 0.05
    )


def describe(entry: Judged) -> str:
    """A cell with all its comparisons, and the problem as `mltswitch loss --spec` reads it."""
    lines = [f"{entry.cell.name}: load {entry.cell.load:.3f}, {len(entry.cell.traffic)} queues"]
    for one in entry.comparisons:
        if one.is_large or one.is_small:
            predictions = ", ".join(f"{model} {one.predicted[model]:.3e}" for model in MODELS)
            apart = " (undecided)" if one.is_undecided else ""
            lines.append(
                f"  queue {one.queue} {one.kind:11}: simulated {one.simulated:.3e} ± {one.half_width:.1e}"
                f"{apart}; predicted by {predictions}"
            )
    return "\n".join([*lines, "  " + json.dumps(entry.cell.as_spec())])


def _badness(entry: Judged) -> float:
    """Over the bar of its kind, so that large and small losses can be ranked together."""
    small = max((one.factor("completion") / FACTOR for one in entry.small()), default=0.0)
    return max((entry.error("completion") or 0.0) / BAR, small)


def report(found: dict[str, float | int], judged: Sequence[Judged], exact: Sequence[ExactComparison]) -> str:
    """Everything in words, the worst cells in full."""
    lines = [f"{name}: {figure:.4g}" for name, figure in found.items()]
    for prefix, name in (("", "tuning cells"), ("held_out_", "held-out cells")):
        verdict = "meets" if meets_bars(found, prefix) else "misses"
        lines.append(
            f"completion {verdict} the bars on the {name}: from a simulated loss of {LARGE_LOSS:g},"
            f" error at most {BAR:.0%} in 95 % and {WIDE_BAR:.0%} in 99 % of the cells;"
            f" from {SMALL_LOSS:g}, within a factor of {FACTOR:g} in 95 %"
        )
    lines += [
        f"simulator outside its 95 % interval: {one.name}: exact {one.exact:.6g},"
        f" simulated {one.simulated:.6g} ± {one.half_width:.2g}"
        for one in exact
        if one.is_outside
    ]
    worst = sorted(judged, key=_badness, reverse=True)[:WORST_SHOWN]
    return "\n".join([*lines, "worst cells:", *map(describe, worst)])


@click.command()
@click.option("--quick", is_flag=True, help="A fixed part of the cells, less simulated; below a minute.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True)
def main(quick: bool, as_json: bool, processes: int) -> None:
    """Loss models against the simulator, the simulator against exact results."""
    effort = QUICK if quick else FULL
    tuning, held_out = (cells[:: effort.cell_step] for cells in (tuning_cells(), held_out_cells()))
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("cells", total=len(tuning) + len(held_out))
        judged = judge_all([*tuning, *held_out], effort, processes, lambda: progress.advance(task))
        progress.update(task, description="exact results")
        exact = list(compare_with_exact(effort.exact_packets))
    found = figures(judged[: len(tuning)]) | figures(judged[len(tuning) :], "held_out_")
    found["simulator_outside_interval"] = sum(one.is_outside for one in exact)
    found["simulator_comparisons"] = len(exact)
    click.echo(json.dumps(found) if as_json else report(found, judged, exact))


if __name__ == "__main__":
    main()
