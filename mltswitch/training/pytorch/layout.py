"""Where the parameters of a module are in the vector of its job: layer after layer, in forward order."""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mltswitch.profile import call_with, owners_of
from mltswitch.training.ballots import CHECKSUM_BITS
from mltswitch.training.job import Job, Piece


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parameter's elements are in the model's vector."""

    first: int
    end: int
    pieces: tuple[int, ...]
    """Numbers of the pieces that hold some of them."""
    stride: tuple[int, ...]
    """The parameter's, whose order in memory the vector has."""

    def within(self, piece: Piece) -> tuple[int, int]:
        """Elements of the vector that are the parameter's and the piece's: first, and one beyond the last."""
        return max(piece.first, self.first), min(piece.first + piece.count, self.end)


def layers_of(
    module: torch.nn.Module, example: Any = None
) -> tuple[list[tuple[str, int]], dict[str, torch.nn.Parameter]]:
    """Layers with their elements in forward order, and the parameters in the order of the model's vector."""
    forward = None if example is None else partial(call_with, module, example)
    owners = owners_of(type(module).__name__, module, forward)
    layers = [(owner.name, sum(each.numel() for each in owner.parameters.values())) for owner in owners]
    return layers, {name: each for owner in owners for name, each in owner.parameters.items()}


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie side by side in memory, in whatever order: channels_last, transposed."""
    return bool(torch.empty_like(tensor, device="meta").stride() == tensor.stride())


def flat(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Elements in the order in which a dense parameter has them in memory.

    A view where the tensor has them in this order, too; else a copy.
    """
    tensor = tensor.detach()
    if tensor.stride() != like.stride():
        tensor = torch.empty_like(like, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))


def versions_of(parameters: Iterable[torch.nn.Parameter]) -> list[tuple[int, int]]:
    """Where each parameter's gradient lies, and its version, which grows whoever changes the gradient."""
    every = (each.grad for each in parameters)
    return [(0, 0) if grad is None else (grad.data_ptr(), grad._version) for grad in every]


def checksum(parameters: Iterable[torch.nn.Parameter]) -> int:
    """A checksum of all bits of parameters, above 0."""
    digest = 0
    for each in parameters:
        bits = each.detach().contiguous().reshape(-1).view(torch.uint8)
        digest = zlib.crc32(bits.cpu().numpy(), digest)
    return 1 + digest % ((1 << CHECKSUM_BITS) - 1)


def places_of(order: Iterable[torch.nn.Parameter], job: Job) -> Mapping[torch.nn.Parameter, Place]:
    """The places of parameters, given in the order of the model's vector."""
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
    return {
        parameter: Place(*bounds[at], tuple(holders[at]), parameter.stride())
        for at, parameter in enumerate(parameters)
    }
