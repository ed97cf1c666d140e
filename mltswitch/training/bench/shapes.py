"""Models of which only the shape is real: a profile's parameters, and pauses where others compute."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import Any, Final

import torch

from mltswitch.errors import UserInputError
from mltswitch.profile import ModelProfile, resolve_profile
from mltswitch.training.bench.tasks import SHAPE
from mltswitch.training.tolerance import TrainingTask

FORM: Final = "shape:PROFILE/DIVISOR@SECONDS, shape:vgg16/64@0.5 say"
BACKWARD_SHARE: Final = 2 / 3
"""Of computing: a backward pass has two products of matrices where the forward pass has one."""
LEAST_PAUSE_SECONDS: Final = 1e-3
"""Shorter ones take longer than asked for: layers that compute for less pause together, at the last one."""
_NAME: Final = re.compile(SHAPE + r"(.+?)(?:/(\d{1,9}))?(?:@(\d{1,6}(?:\.\d{1,9})?))?")


class _Pause(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(context: Any, values: Any, forward_seconds: float, backward_seconds: float) -> Any:
        time.sleep(forward_seconds)
        context.backward_seconds = backward_seconds
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        time.sleep(context.backward_seconds)
        return gradient, None, None


def paused(values: torch.Tensor, forward_seconds: float, backward_seconds: float) -> torch.Tensor:
    """The same values after a pause; their gradient comes after another one."""
    found: torch.Tensor = _Pause.apply(values, forward_seconds, backward_seconds)
    return found


class _Layer(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    def __init__(self, sizes: Iterable[int], seconds: float) -> None:
        super().__init__()
        self.tensors = torch.nn.ParameterList(torch.randn(size) / size for size in sizes)
        self.factors = [
            torch.randn(len(tensor)) for tensor in self.tensors
        ]  # gradients, large and small ones
        self.seconds = seconds

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for tensor, factors in zip(self.tensors, self.factors, strict=True):
            values = values + tensor.dot(factors)
        return (
            values
            if not self.seconds
            else paused(values, self.seconds * (1 - BACKWARD_SHARE), self.seconds * BACKWARD_SHARE)
        )


def shape_task(name: str) -> TrainingTask:
    """A task that learns nothing, and exchanges what the profile's model would.

    All tensors are smaller by the divisor, each one element at least; each layer computes for the same time
    (some together, where that is short), twice as long in the backward pass as in the forward pass. Without a
    divisor it is 1, and without seconds the layers do not pause.

    Raises:
        UserInputError: the name has another form, or there is no such profile.
    """
    found = _NAME.fullmatch(name)
    divisor = int(found[2] or 1) if found else 0
    if found is None or not divisor:
        raise UserInputError(f"{name!r:.80}", where="the bench's task", expected=FORM)
    profile, seconds = resolve_profile(found[1]), float(found[3] or 0)
    return TrainingTask(
        model=_model(profile, divisor, seconds),
        batches=_batches,
        loss=_loss,
        metric=lambda _model: 0.0,
        target=1.0,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-6),
    )


def _model(profile: ModelProfile, divisor: int, seconds: float) -> Callable[[], torch.nn.Module]:
    each, pauses, owed = seconds / len(profile.layers), [], 0.0
    for number in range(1, len(profile.layers) + 1):
        owed += each
        is_due = owed >= LEAST_PAUSE_SECONDS or number == len(profile.layers)
        pauses.append(owed if is_due else 0.0)
        owed -= pauses[-1]
    sizes = [[ceil(tensor.elements / divisor) for tensor in layer.tensors] for layer in profile.layers]
    return lambda: torch.nn.Sequential(*map(_Layer, sizes, pauses))


def _batches(seed: int, rank: int, _ranks: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed + rank)
    while True:
        yield torch.randn(1, generator=generator)


def _loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(batch).square().sum()
    return found
