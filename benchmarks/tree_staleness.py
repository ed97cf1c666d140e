"""Caches along trees: whether pulls have what their staleness promises, and what it gains and costs.

    python -m benchmarks.tree_staleness [--quick] [--json]

All in virtual time, by the caches of production. Random runs (up to 8 workers, 3 servers, any in-degree,
staleness and network, pauses of exponential length) count updates in every pull. Then 16 workers over trees
of in-degree 4 whose clocks take 50 ms and a pause of 50 ms on average, over links of 1 Gbit/s. Last, 8
workers train a perceptron on scikit-learn's digits by plain SGD, from the same parameters, batches and
pauses a seed; beside them `osp` with share 1 and `late: carry`, which is a step behind by another way.

    runs                            random ones
    bound_violations                pulls that lack an update that they should have, or have one twice, and
                                    ends without all updates
    clock_ratio_sS_to_s0            seconds of 60 clocks under staleness S over those without
    bytes_ratio_sS_to_s0            of what crosses links
    accuracy_sS, …_interval_sS      mean over the seeds, and half of its 95 % interval (normal)
    accuracy_osp_carry, …           likewise
    seconds                         of the benchmark
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from math import sqrt
from statistics import fmean, stdev
from typing import Any, Final

import click
import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.figures import print_figures
from benchmarks.stale_runs import PAUSE_SECONDS, play
from benchmarks.sync_convergence import OPTIMIZERS, _perceptron
from benchmarks.virtual_training import train
from mltswitch.training.axes import Elements, Network
from mltswitch.training.caches import shape_of
from mltswitch.training.job import Job, make_job
from mltswitch.training.tolerance import TrainingTask, load_task
from mltswitch.training.virtual_caches import VirtualCaches

RUNS, QUICK_RUNS = 10_000, 400
SEEDS, QUICK_SEEDS = 5, 2
CLOCKS: Final = 60
WORKERS: Final = 16
RANKS: Final = 8
STEPS: Final = 200
STALENESSES: Final = (0, 1, 3, 8)
RATE: Final = 0.5


def clocks_of(staleness: int) -> tuple[float, int]:
    """Seconds and bytes of some clocks."""
    settings = {"in_degree": 4}
    job = make_job([("a", 250_000)], world=WORKERS, topology="tree", topology_settings=settings)
    random = np.random.default_rng(1)
    pauses = PAUSE_SECONDS * (1 + random.exponential(1.0, (WORKERS, CLOCKS)))
    zeros = np.zeros(job.elements, np.float32)
    caches = VirtualCaches(job, shape_of(job), Network(1e9, 50e-6), zeros, staleness)
    report = caches.run(CLOCKS, lambda rank, clock, _: (float(pauses[rank, clock]), zeros))
    return report.seconds, report.crossed_bytes


def trained(seed: int, staleness: int) -> float:
    """Accuracy of what all have in the end."""
    torch.set_num_threads(1)
    task = _task()
    torch.manual_seed(seed)
    model = task.model()
    job, values = _job_of(model)
    batches = [_endless(task, seed, rank) for rank in range(RANKS)]
    random = np.random.default_rng(seed)

    def compute(rank: int, clock: int, values: Elements) -> tuple[float, Elements]:  # noqa: ARG001
        vector_to_parameters(torch.from_numpy(values.copy()), model.parameters())
        model.zero_grad()
        with torch.enable_grad():
            task.loss(model, next(batches[rank])).backward()
        gradient = parameters_to_vector([parameter.grad for parameter in model.parameters()]).numpy()
        return float(PAUSE_SECONDS * (1 + random.exponential(1.0))), -RATE / RANKS * gradient

    report = VirtualCaches(job, shape_of(job), Network(1e9, 50e-6), values, staleness).run(STEPS, compute)
    vector_to_parameters(torch.from_numpy(report.values[0]), model.parameters())
    with torch.no_grad():
        return task.metric(model)


def trained_by_osp(seed: int) -> float:
    """The same, a step behind by `osp`."""
    torch.set_num_threads(1)
    settings = {"share": 1.0, "late": "carry", "growth": "none", "steps_per_epoch": 1}
    options: dict[str, Any] = {"topology": "tree", "topology_settings": {"in_degree": 2}}
    return train(_task(), "osp", seed=seed, steps=STEPS, settings=settings, **options).final_accuracy


def _task() -> TrainingTask:
    task = load_task("digits", ranks=RANKS)
    return replace(task, model=_perceptron, optimizer=OPTIMIZERS["plain"])


def _job_of(model: torch.nn.Module) -> tuple[Job, Elements]:
    values = parameters_to_vector(model.parameters()).detach().numpy().copy()
    settings = {"in_degree": 2}
    return make_job([("all", len(values))], world=RANKS, topology="tree", topology_settings=settings), values


def _endless(task: TrainingTask, seed: int, rank: int) -> Any:
    while True:
        yield from task.batches(seed, rank, RANKS)


def _mean(found: dict[str, float], name: str, accuracies: list[float]) -> None:
    found[f"accuracy_{name}"] = fmean(accuracies)
    found[f"accuracy_interval_{name}"] = 1.96 * stdev(accuracies) / sqrt(len(accuracies))


def measure(runs: int, seeds: int) -> dict[str, float]:
    """All figures."""
    began = time.monotonic()
    found: dict[str, float] = {"runs": float(runs)}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found["bound_violations"] = float(sum(pool.map(play, range(1, runs + 1), chunksize=50)))
        seconds, sizes = zip(*pool.map(clocks_of, STALENESSES), strict=True)
        for at, staleness in enumerate(STALENESSES[1:], 1):
            found[f"clock_ratio_s{staleness}_to_s0"] = seconds[at] / seconds[0]
            found[f"bytes_ratio_s{staleness}_to_s0"] = sizes[at] / sizes[0]
        for staleness in STALENESSES:
            _mean(found, f"s{staleness}", [*pool.map(trained, range(seeds), repeat(staleness))])
        _mean(found, "osp_carry", [*pool.map(trained_by_osp, range(seeds))])
    return found | {"seconds": time.monotonic() - began}


@click.command()
@click.option("--quick", is_flag=True, help="Fewer runs and seeds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Bounded staleness over trees."""
    figures = measure(QUICK_RUNS if quick else RUNS, QUICK_SEEDS if quick else SEEDS)
    print_figures(figures, as_json=as_json)


if __name__ == "__main__":
    main()
