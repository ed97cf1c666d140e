"""Optimizers of roots, against torch's."""

from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.training.job import Job, OptimizerRule, make_job
from mltswitch.training.optimizer import Parameters, check_rule

WORLD = 3


def job_of(kind: str, *groups: dict[str, Any]) -> Job:
    """Two groups of parameters, whose border lies within a piece."""
    ranges = ((700, 0), (1500, len(groups) - 1))
    return make_job(
        [("a", 1000), ("b", 500)],
        world=WORLD,
        piece_bytes=2400,
        optimizer=OptimizerRule(kind, groups, ranges),
        synchronization="asp",
    )


@pytest.mark.torch
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
        ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "maximize": True}),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
        ("Adam", {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-4}),
        ("AdamW", {"lr": 0.01}),
        ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "maximize": True}),
    ],
)
def test_a_root_steps_as_torch_does(kind: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    second = options | {"lr": 3 * options["lr"]}
    job = job_of(kind, options, second)
    random = np.random.default_rng(1)
    start = random.standard_normal(1500).astype(np.float32)
    ours = Parameters(job, start)
    theirs = [torch.nn.Parameter(torch.from_numpy(part.copy())) for part in np.split(start, [700])]
    groups = [{"params": [part], **each} for part, each in zip(theirs, (options, second), strict=True)]
    optimizer = getattr(torch.optim, kind)(groups)
    for _ in range(7):
        gradient = random.standard_normal(1500).astype(np.float32)
        for parameter, part in zip(theirs, np.split(gradient / WORLD, [700]), strict=True):
            parameter.grad = torch.from_numpy(part.copy())
        optimizer.step()
        for number, piece in enumerate(job.pieces):
            ours.step(number, gradient[piece.elements].copy())
    found = np.concatenate([ours.of(number) for number in range(len(job.pieces))])
    expected = torch.cat([parameter.detach() for parameter in theirs]).numpy()
    assert np.allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "options", "where"),
    [
        ("Adagrad", {"lr": 0.1}, "optimizer"),
        ("SGD", {"lr": float("nan")}, "optimizer.groups.0.lr"),
        ("SGD", {"lr": "much"}, "optimizer.groups.0.lr"),
        ("Adam", {"lr": 0.1, "amsgrad": True}, "optimizer.groups.0.amsgrad"),
    ],
)
def test_what_a_root_cannot_do_is_refused(kind: str, options: dict[str, Any], where: str) -> None:
    check_rule(OptimizerRule("Adam", ({"lr": 0.1, "amsgrad": False, "foreach": None},), ()))
    with pytest.raises(UserInputError) as raised:
        check_rule(OptimizerRule(kind, (options,), ()))
    assert raised.value.where == where
