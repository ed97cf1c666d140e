"""How long the models, a full plan and the simulators take.

    python -m benchmarks.queueing_speed [--quick] [--json]

Times are medians of several runs in one process. The simulator is compiled before its runs; how long that
takes stands apart. The plain simulators run the very problem that the compiled one runs, and must agree.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from time import perf_counter
from typing import Final

import click

from benchmarks.des_library import simulate_simpy
from benchmarks.heap_simulator import Tally, simulate_heap
from mltswitch.documents import load_document
from mltswitch.plan import Fabric
from mltswitch.planning import build_plan
from mltswitch.profile import Layer, ModelProfile, Tensor, default_sensitivity
from mltswitch.queueing import (
    Batch,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    predict,
)
from mltswitch.targets import hardware_capabilities

QUEUES: Final = 8
LOAD: Final = 0.95
BURST: Final = 8
LAYERS: Final = 1000
PREDICTIONS: Final = {
    "completion_ms": (128, BURST),
    "completion_ms_single_packets": (128, 1),
    "completion_1024_ms": (1024, BURST),
    "completion_1024_ms_single_packets": (1024, 1),
}
"""Figure → (largest limit in packets, burst)."""
PLANS: Final = {"plan_seconds": "completion", "plan_paper_seconds": "paper"}
"""Figure → the loss model of the plan."""
FABRIC: Final = Path(__file__).parent / "fabric.yaml"
PLAIN_RUNS: Final = 8
LEAST_DROPS: Final = 300
"""Fewer expected drops come in too few clumps for an interval from 8 runs."""
STUDENT_999: Final = 5.41
"""Two-sided 99.9 % quantile of Student's distribution with PLAIN_RUNS - 1 degrees of freedom."""
WIDER: Final = 1.7
"""From a 95 % to a 99.9 % interval."""

PlainSimulator = Callable[
    [Port, Sequence[QueueTraffic], Sequence[QueueThresholds], int, int],
    list[Tally],
]


@dataclass(frozen=True, slots=True)
class Effort:
    """How often and how much."""

    runs: int
    plan_runs: int
    simulated_packets: int
    plain_packets: int
    """Of one run of a plain simulator."""


FULL: Final = Effort(9, 3, 40_000_000, 250_000)
QUICK: Final = Effort(3, 1, 4_000_000, 20_000)


def eight_queues(
    limit_packets: int, burst: int, load: float = LOAD
) -> tuple[Port, list[QueueTraffic], list[QueueThresholds]]:
    """Equal loads and limits; S is half of L."""
    traffic = [QueueTraffic(load / QUEUES, 0.5, Batch(burst)) for _ in range(QUEUES)]
    return Port(), traffic, [QueueThresholds(limit_packets // 2, limit_packets)] * QUEUES


def median_seconds(work: Callable[[float], object], runs: int) -> float:
    """After one run that does not count: libraries load, tables fill.

    Each run gets a load of its own, a millionth more than the last, so that no solution is remembered.
    """
    work(1.0)
    times: list[float] = []
    for run in range(runs):
        started = perf_counter()
        work(1.0 + 1e-6 * (run + 1))
        times.append(perf_counter() - started)
    return median(times)


def completion_times(effort: Effort) -> dict[str, float]:
    """Milliseconds of one prediction by the default model."""
    found: dict[str, float] = {}
    for key, (limit, burst) in PREDICTIONS.items():
        runs = effort.runs if limit <= 128 else max(1, effort.runs // 3)
        solve = partial(_solve, limit, burst)
        found[key] = 1000 * median_seconds(solve, runs)
    return found


def _solve(limit_packets: int, burst: int, scale: float) -> None:
    predict(*eight_queues(limit_packets, burst, LOAD * scale))


def deep_profile() -> ModelProfile:
    """A model of many layers whose sizes vary as those of real ones do, by a factor of 64."""
    layers = tuple(
        Layer(
            name=f"layer{index}",
            tensors=(Tensor(name=f"layer{index}.weight", shape=(1024, 16 << (index * 7 % 13) // 2)),),
        )
        for index in range(LAYERS)
    )
    return ModelProfile(
        schema="mltswitch/profile/v1",
        name=f"layers{LAYERS}",
        layers=layers,
        sensitivity=default_sensitivity([layer.size_bytes for layer in layers]),
    )


def plan_times(effort: Effort) -> dict[str, float]:
    """Seconds of a full plan, from profile and fabric in memory to the finished document."""
    profile, fabric = deep_profile(), load_document(FABRIC, Fabric)
    gradients = len(build_plan(profile, fabric, hardware_capabilities, "paper").gradient_classes)
    if gradients != QUEUES:
        raise AssertionError(f"the plan has {gradients} gradient queues instead of {QUEUES}")

    def plan(model: str, scale: float) -> None:
        traffic = fabric.traffic.model_copy(update={"load": fabric.traffic.load * scale})
        build_plan(profile, fabric.model_copy(update={"traffic": traffic}), hardware_capabilities, model)

    return {key: median_seconds(partial(plan, model), effort.plan_runs) for key, model in PLANS.items()}


def simulator_speeds(effort: Effort) -> tuple[dict[str, float], list[str]]:
    """Packets a second of the three simulators on one problem, and how well they agree, in words."""
    problem = eight_queues(32, BURST)
    found, compiled = _compiled(problem, effort)
    lines: list[str] = []
    plain: tuple[tuple[str, str, PlainSimulator], ...] = (
        ("heap_simulator", "heap_simulator", simulate_heap),
        ("simpy", "simpy", simulate_simpy),
    )
    for key, ratio, simulate in plain:
        started = perf_counter()
        runs = [simulate(*problem, effort.plain_packets, 1 + seed) for seed in range(PLAIN_RUNS)]
        found[f"{key}_packets_per_second"] = PLAIN_RUNS * effort.plain_packets / (perf_counter() - started)
        found[f"ratio_to_{ratio}"] = (
            found["simulator_packets_per_second"] / found[f"{key}_packets_per_second"]
        )
        lines += agreement(key, compiled, runs)
    return found, lines


def _compiled(
    problem: tuple[Port, list[QueueTraffic], list[QueueThresholds]], effort: Effort
) -> tuple[dict[str, float], tuple[QueuePrediction, ...]]:
    started = perf_counter()
    predict(*problem, "simulate", simulation=SimulationSettings(packets=1000))
    found = {"simulator_compile_seconds": perf_counter() - started}
    settings = SimulationSettings(packets=effort.simulated_packets)
    times: list[float] = []
    for _ in range(3):
        started = perf_counter()
        compiled = predict(*problem, "simulate", simulation=settings)
        times.append(perf_counter() - started)
    packets = settings.packets * (1 + settings.warmup_share)
    found["simulator_packets_per_second"] = packets / median(times)
    return found, compiled


def agreement(name: str, compiled: Sequence[QueuePrediction], runs: Sequence[Sequence[Tally]]) -> list[str]:
    """One line per queue and kind of packets that drops often enough.

    Raises:
        AssertionError: a loss is farther off than noise explains.
    """
    lines: list[str] = []
    for queue, seen in enumerate(compiled):
        for kind in ("unimportant", "important"):
            losses = [getattr(run[queue], f"loss_{kind}") for run in runs]
            expected = getattr(seen, f"loss_{kind}")
            if expected * sum(getattr(run[queue], f"offered_{kind}") for run in runs) < LEAST_DROPS:
                continue
            own_error = getattr(seen, f"loss_{kind}_error") or 0.0
            width = STUDENT_999 * stdev(losses) / sqrt(len(losses)) + WIDER * own_error
            line = (
                f"{name} queue {queue} {kind}: simulated {fmean(losses):.4e},"
                f" compiled simulator {expected:.4e}, noise {width:.1e}"
            )
            if abs(fmean(losses) - expected) > width:
                raise AssertionError(f"the simulators disagree: {line}")
            lines.append(line)
    return lines


@click.command()
@click.option("--quick", is_flag=True, help="Fewer runs, less simulated.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
def main(quick: bool, as_json: bool) -> None:
    """Speed of the models, of a plan and of the simulators."""
    effort = QUICK if quick else FULL
    found = completion_times(effort) | plan_times(effort)
    speeds, lines = simulator_speeds(effort)
    found |= speeds
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, figure in found.items():
        click.echo(f"{name}: {figure:,.4g} (measured)")
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
