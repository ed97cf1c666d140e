"""The building blocks of architectures: each function gives the layers of one module, named as in PyTorch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mltswitch.profile.layers import Layer, Tensor

Kernel = int | tuple[int, int]
"""Kernel size of a convolution: the edge of a square one, or height and width."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A published model, where it comes from, and how its layers are derived."""

    name: str
    description: str
    source: str
    parameter_convention: str
    derive: Callable[[], Iterator[Layer]]
    """Gives the model's layers in the order in which a forward pass runs them."""
    model_tolerance: float | None = None
    """Loss ratio that training the model tolerates (table 1 of the MLT paper); None where the paper has no
    figure."""


def _layer(name: str, **shapes: tuple[int, ...]) -> Layer:
    tensors = tuple(Tensor(name=f"{name}.{tensor}", shape=shape) for tensor, shape in shapes.items())
    return Layer(name=name, tensors=tensors)


def convolution(name: str, inputs: int, outputs: int, kernel: Kernel, *, bias: bool = False) -> Layer:
    """The layer of a two-dimensional convolution."""
    weight = (outputs, inputs, *(kernel if isinstance(kernel, tuple) else (kernel, kernel)))
    return _layer(name, weight=weight, bias=(outputs,)) if bias else _layer(name, weight=weight)


def normalisation(name: str, channels: int, *, bias: bool = True) -> Layer:
    """The layer of a batch or layer normalisation: scale and shift, for running averages are no
    parameters."""
    return _layer(name, weight=(channels,), bias=(channels,)) if bias else _layer(name, weight=(channels,))


def normalised_convolution(name: str, inputs: int, outputs: int, kernel: Kernel) -> Iterator[Layer]:
    """The layers of a convolution without bias and of the batch normalisation that follows it."""
    yield convolution(f"{name}.conv", inputs, outputs, kernel)
    yield normalisation(f"{name}.bn", outputs)


def linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Layer:
    """A fully connected layer, whose weight PyTorch stores as (outputs, inputs)."""
    weight = (outputs, inputs)
    return _layer(name, weight=weight, bias=(outputs,)) if bias else _layer(name, weight=weight)


def projection(name: str, inputs: int, outputs: int) -> Layer:
    """A fully connected layer of GPT-2, whose weight is stored as (inputs, outputs)."""
    return _layer(name, weight=(inputs, outputs), bias=(outputs,))


def embedding(name: str, entries: int, width: int) -> Layer:
    """An embedding layer: a table of vectors."""
    return _layer(name, weight=(entries, width))
