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
    """Numbers of the pieces that hold some of the parameter's elements."""
    stride: tuple[int, ...]
    """The parameter's stride, whose memory order the vector follows."""

    def within(self, piece: Piece) -> tuple[int, int]:
        """Range of the vector that belongs to both the parameter and the piece: first, and one beyond the
        last."""
        return max(piece.first, self.first), min(piece.first + piece.count, self.end)


def layers_of(
    module: torch.nn.Module, example: Any = None
) -> tuple[list[tuple[str, int]], dict[str, torch.nn.Parameter]]:
    """A module's layers with their numbers of elements in forward order, and its parameters by name in vector
    order."""
    forward = None if example is None else partial(call_with, module, example)
    owners = owners_of(type(module).__name__, module, forward)
    layers = [(owner.name, sum(each.numel() for each in owner.parameters.values())) for owner in owners]
    return layers, {name: each for owner in owners for name, each in owner.parameters.items()}


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements lie side by side in memory in any order, such as channels_last or
    transposed."""
    return bool(torch.empty_like(tensor, device="meta").stride() == tensor.stride())


def flat(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor's elements in the order in which a dense parameter has them in memory.

    The result is a view where the tensor has this order, too, else a copy.
    """
    tensor = tensor.detach()
    if tensor.stride() != like.stride():
        tensor = torch.empty_like(like, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))


def versions_of(parameters: Iterable[torch.nn.Parameter]) -> list[tuple[int, int]]:
    """Address and version of each parameter's gradient; any change of the gradient raises the version."""
    every = (each.grad for each in parameters)
    return [(0, 0) if grad is None else (grad.data_ptr(), grad._version) for grad in every]


def checksum(parameters: Iterable[torch.nn.Parameter]) -> int:
    """A positive checksum of all bits of parameters."""
    digest = 0
    for each in parameters:
        bits = each.detach().contiguous().reshape(-1).view(torch.uint8)
        digest = zlib.crc32(bits.cpu().numpy(), digest)
    return 1 + digest % ((1 << CHECKSUM_BITS) - 1)


def places_of(order: Iterable[torch.nn.Parameter], job: Job) -> Mapping[torch.nn.Parameter, Place]:
    """The place of each parameter; the parameters are given in the order of the model's vector."""
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
