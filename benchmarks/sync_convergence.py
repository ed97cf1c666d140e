"""What synchronizations cost in accuracy and steps: real models, in virtual time.

    python -m benchmarks.sync_convergence [--quick] [--json]

Eight ranks train a perceptron on scikit-learn's digits (64-128-10, batches of 16 a rank, learning rate 0.18,
momentum 0.9) and a small convolutional network on images of CIFAR's shape, from the same parameters, batches
and computing times a seed, by the nodes and the optimizer's hooks of production. `osp` has most of the model
later from step 3 on, whatever the loss, which is its hardest case. Compare figures 6b, 6c and 7 of the OSP
paper (Chen et al., ICPP 2023).

    accuracy_X, steps_X             of synchronization X on digits: accuracy in the end, and steps to 95.5 %
                                    (mean of three evaluations; who does not get there counts with all steps)
    accuracy_gap_X                  of `bsp`, less that of X
    steps_ratio_X                   steps of X over those of `bsp`
    X                               bsp, osp, local (predicts p - lr g), no_prediction, carry (an ICS may be
                                    late, and is: the link is slow), r2sp, asp, ssp (3)
    images_…                        the same on images, to 80 %
    no_momentum_…, adam_…, unlike_… digits without momentum, by Adam, and with classes that differ by rank
    apart                           trainings after which ranks of bsp or osp held different bits
    seconds                         of the benchmark
"""

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean
from typing import Any, Final

import click
import numpy as np
import torch

from benchmarks.figures import print_figures
from benchmarks.virtual_training import NETWORK, Trained, train
from mltswitch.training.axes import Network
from mltswitch.training.tolerance import TrainingTask, load_task

RANKS: Final = 8
SEEDS: Final = 8
QUICK_SEEDS: Final = 2
SMOOTHED_OVER: Final = 3
BATCH: Final = 16
SLOW: Final = Network(6e6, 50e-6)
"""An ICS takes about two steps' computing."""
OSP: Final = {"growth": "none", "steps_per_epoch": 1, "share": 0.8, "slice_bytes": 4096}
METHODS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "bsp": ("bsp", {}),
    "osp": ("osp", OSP),
    "local": ("osp", {**OSP, "prediction": "local"}),
    "no_prediction": ("osp", {**OSP, "prediction": "none"}),
    "carry": ("osp", {**OSP, "late": "carry"}),
    "r2sp": ("r2sp", {}),
    "asp": ("asp", {}),
    "ssp": ("ssp", {"staleness": 3}),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A task, and what is trained by which methods."""

    prefix: str
    task: str
    optimizer: str
    steps: int
    target: float
    methods: tuple[str, ...]
    is_unlike: bool = False
    """Whether each rank has a few of the classes."""
    seeds: int = SEEDS


VARIANTS: Final = (
    Variant("", "digits", "momentum", 200, 0.955, tuple(METHODS)),
    Variant("images_", "textures", "images", 250, 0.8, ("bsp", "osp", "no_prediction", "asp")),
    Variant("no_momentum_", "digits", "plain", 200, 0.955, ("bsp", "osp", "asp"), seeds=4),
    Variant("adam_", "digits", "adam", 200, 0.955, ("bsp", "osp", "no_prediction", "asp"), seeds=4),
    Variant(
        "unlike_", "digits", "momentum", 200, 0.955, ("bsp", "osp", "no_prediction", "asp"), True, seeds=4
    ),
)
OPTIMIZERS: Final[Mapping[str, Any]] = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.18, momentum=0.9),
    "images": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.5),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=3e-3),
}


class Standard(torch.nn.Module):  # type: ignore[misc]  # its base is torch's
    """Digits with mean 0 and variance 1."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Pixels are 0 to 1, mostly dark."""
        return (inputs - 0.305) / 0.376


def _perceptron() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(Standard(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


@cache
def _task(variant: Variant) -> TrainingTask:
    torch.set_num_threads(1)
    task = replace(load_task(variant.task, ranks=RANKS), optimizer=OPTIMIZERS[variant.optimizer])
    if variant.task == "digits":
        task = replace(task, model=_perceptron)
    if variant.is_unlike:
        task = replace(
            task, batches=lambda seed, rank, ranks: _unlike(load_task("digits"), seed, rank, ranks)
        )
    return task


def _unlike(task: TrainingTask, seed: int, rank: int, ranks: int) -> Iterator[Any]:
    """Batches of a rank that has mostly images of three classes."""
    wanted = {(rank + step) % 10 for step in (0, 3, 6)}
    random = np.random.default_rng([seed, rank])
    inputs, labels = list[Any](), list[Any]()
    for batch_inputs, batch_labels in task.batches(seed, rank, ranks):
        for one, label in zip(batch_inputs, batch_labels, strict=True):
            if int(label) in wanted or random.random() < 0.1:
                inputs.append(one)
                labels.append(label)
            if len(inputs) == BATCH:
                yield torch.stack(inputs), torch.stack(labels)
                inputs, labels = [], []


@dataclass(slots=True)
class Found:
    """Of one method, by seed."""

    accuracy: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    apart: int = 0


def _play(variant: Variant, method: str, seed: int) -> tuple[float, float, bool]:
    """Accuracy in the end, steps to the target, and whether ranks that must hold the same bits do."""
    name, settings = METHODS[method]
    network = SLOW if method == "carry" else NETWORK
    trained = train(_task(variant), name, seed=seed, steps=variant.steps, settings=settings, network=network)
    bits = {parameters.tobytes() for parameters in trained.parameters}
    return trained.final_accuracy, _steps_to(trained, variant), len(bits) == 1


def _steps_to(trained: Trained, variant: Variant) -> float:
    for number in range(SMOOTHED_OVER, len(trained.accuracies) + 1):
        window = trained.accuracies[number - SMOOTHED_OVER : number]
        if fmean(accuracy for _, accuracy in window) >= variant.target:
            return float(window[-1][0])
    return float(variant.steps)


def measure(seeds: int, variants: tuple[Variant, ...] = VARIANTS) -> dict[str, float]:
    """All figures; `seeds` is the most that any variant has."""
    started = time.monotonic()
    plays = [
        (variant, method, seed)
        for variant in variants
        for method in variant.methods
        for seed in range(min(seeds, variant.seeds))
    ]
    found: dict[tuple[Variant, str], Found] = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (variant, method, _), answer in zip(
            plays, pool.map(_play, *zip(*plays, strict=True)), strict=True
        ):
            entry = found.setdefault((variant, method), Found())
            entry.accuracy.append(answer[0])
            entry.steps.append(answer[1])
            entry.apart += not answer[2]
    figures: dict[str, float] = {}
    for (variant, method), entry in found.items():
        prefix, base = variant.prefix, found[variant, "bsp"]
        figures[f"{prefix}accuracy_{method}"] = fmean(entry.accuracy)
        figures[f"{prefix}steps_{method}"] = fmean(entry.steps)
        if method != "bsp":
            figures[f"{prefix}accuracy_gap_{method}"] = fmean(base.accuracy) - fmean(entry.accuracy)
            figures[f"{prefix}steps_ratio_{method}"] = fmean(entry.steps) / fmean(base.steps)
    figures["apart"] = float(sum(entry.apart for entry in found.values()))
    return figures | {"seconds": time.monotonic() - started}


@click.command()
@click.option("--quick", is_flag=True, help="Digits with momentum only, two seeds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Train by every synchronization in virtual time."""
    figures = measure(QUICK_SEEDS, VARIANTS[:1]) if quick else measure(SEEDS)
    print_figures(figures, as_json=as_json)


if __name__ == "__main__":
    main()
