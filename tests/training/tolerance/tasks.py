"""A task that trains in a fraction of a second, and ways in which a user's task goes wrong."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mltswitch.training.tolerance import TrainingTask


def tiny() -> TrainingTask:
    """A line of a plane to be told, by two layers."""
    import torch

    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(600, 24)).astype(np.float32))
    labels = (inputs @ torch.from_numpy(rng.normal(size=(24, 2)).astype(np.float32))).argmax(1)

    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))

    def batches(seed: int, rank: int, ranks: int) -> Iterator[Any]:
        draw = np.random.default_rng([seed, rank])
        while True:
            chosen = torch.from_numpy(draw.integers(0, 400, 8))
            yield inputs[chosen], labels[chosen]

    return TrainingTask(
        model=model,
        batches=batches,
        loss=lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
        metric=lambda model: float((model(inputs[400:]).argmax(1) == labels[400:]).float().mean()),
        target=0.9,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        ranks=2,
        most_rounds=300,
    )


def _refuse(*_: object) -> Any:
    raise RuntimeError("the disk is on fire")


def number() -> int:
    return 5


def no_module() -> TrainingTask:
    return replace(tiny(), model=lambda: 5)


def no_ranks() -> TrainingTask:
    return replace(tiny(), ranks=0)


def bad_loader() -> TrainingTask:
    return replace(tiny(), batches=_refuse)


def empty_loader() -> TrainingTask:
    return replace(tiny(), batches=lambda *_: [])


def bad_metric() -> TrainingTask:
    return replace(tiny(), metric=_refuse)


def out_of_reach() -> TrainingTask:
    return replace(tiny(), target=1.1, most_rounds=20)


def not_finite() -> TrainingTask:
    made = tiny()
    return replace(made, loss=lambda model, batch: made.loss(model, batch) * float("inf"))
