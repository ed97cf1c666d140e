"""Where the parameters of a module are in the vector of its job: layer after layer, in forward order."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mltswitch.errors import UserInputError
from mltswitch.profile import call_with, profile_of_module
from mltswitch.training.job import Job, Piece


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parameter's elements are in the model's vector."""

    first: int
    end: int
    pieces: tuple[int, ...]
    """Numbers of the pieces that hold some of them."""

    def within(self, piece: Piece) -> tuple[int, int]:
        """Elements of the vector that are the parameter's and the piece's: first, and one beyond the last."""
        return max(piece.first, self.first), min(piece.first + piece.count, self.end)


def layers_of(
    module: torch.nn.Module, example: Any = None
) -> tuple[list[tuple[str, int]], list[torch.nn.Parameter]]:
    """Layers with their elements in forward order, and the parameters in the order of the model's vector."""
    forward = None if example is None else partial(call_with, module, example)
    profile = profile_of_module(type(module).__name__, module, forward)
    by_name = dict(module.named_parameters())
    for name, parameter in by_name.items():
        if not parameter.dtype.is_floating_point:
            raise UserInputError(f"is {parameter.dtype}", where=name, expected="real floating-point numbers")
    names = [tensor.name for layer in profile.layers for tensor in layer.tensors]
    layers = [
        (layer.name, sum(by_name[tensor.name].numel() for tensor in layer.tensors))
        for layer in profile.layers
    ]
    return layers, [by_name[name] for name in names]


def places_of(order: Iterable[torch.nn.Parameter], job: Job) -> Mapping[torch.nn.Parameter, Place]:
    """Of parameters in the order of the model's vector."""
    holders: defaultdict[int, list[int]] = defaultdict(list)
    parameters, bounds, position = [*order], [], 0
    for parameter in parameters:
        bounds.append((position, position + parameter.numel()))
        position += parameter.numel()
    number = 0
    for piece, cut in enumerate(job.pieces):
        while bounds[number][1] <= cut.first:
            number += 1
        for at in range(number, len(bounds)):
            if bounds[at][0] >= cut.first + cut.count:
                break
            holders[at].append(piece)
    return {parameter: Place(*bounds[at], tuple(holders[at])) for at, parameter in enumerate(parameters)}
