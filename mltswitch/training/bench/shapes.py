"""Models with the shape of a real one: a profile's parameters, and pauses in place of computing."""

import time
from collections.abc import Iterable
from math import ceil
from typing import Any, Final

import torch

from mltswitch.profile import ModelProfile

BACKWARD_SHARE: Final = 2 / 3
"""The backward pass's share of computing: it has two products of matrices, the forward pass one."""
LEAST_PAUSE_SECONDS: Final = 1e-3
"""Shortest pause; shorter ones take longer than asked for, so layers that compute for less pause together at
the last one."""


class _Pause(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(context: Any, values: Any, seconds: float) -> Any:
        time.sleep(seconds * (1 - BACKWARD_SHARE))
        context.seconds = seconds * BACKWARD_SHARE
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        time.sleep(context.seconds)
        return gradient, None


def paused(values: torch.Tensor, seconds: float) -> Any:
    """The same values after the forward pass's share of a pause; in the backward pass their gradient comes
    after the rest."""
    return _Pause.apply(values, seconds)


class _Layer(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    def __init__(self, sizes: Iterable[int], seconds: float) -> None:
        super().__init__()
        self.tensors = torch.nn.ParameterList(torch.randn(size) / size for size in sizes)
        self.factors = [torch.randn(len(each)) for each in self.tensors]  # gradients, large and small ones
        self.seconds = seconds

    def forward(self, values: torch.Tensor) -> Any:
        for tensor, factors in zip(self.tensors, self.factors, strict=True):
            values = values + tensor.dot(factors)
        return paused(values, self.seconds) if self.seconds else values


def shape_model(profile: ModelProfile, divisor: int, seconds: float) -> torch.nn.Module:
    """A model with the profile's tensors, each smaller by the divisor and one element at least.

    Each layer computes for the same time (some together, where that is short), twice as long in the backward
    pass as in the forward pass; all of them compute for `seconds`, and at 0 they do not pause.
    """
    each, layers, owed = seconds / len(profile.layers), [], 0.0
    for number, layer in enumerate(profile.layers, 1):
        owed += each
        pause = owed if owed >= LEAST_PAUSE_SECONDS or number == len(profile.layers) else 0.0
        owed -= pause
        layers.append(_Layer([ceil(tensor.elements / divisor) for tensor in layer.tensors], pause))
    return torch.nn.Sequential(*layers)
