"""Layers and their tensors: the units that carry a priority."""

from math import prod
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

MAXIMUM_LAYERS: Final = 100_000
FLOAT32_BYTES: Final = 4

Identifier = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f\x7f]{1,256}$")]
"""Name of a profile or a class: any printable characters without blanks."""
Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,4000}$")]
"""What frameworks call a module or a parameter; blanks are allowed, control characters stand escaped."""
Dimension = Annotated[int, Field(ge=1, le=2**40)]


class Tensor(BaseModel):
    """One parameter tensor; its gradient has the same shape."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    """Full name as in PyTorch's `named_parameters`: `layer1.0.conv1.weight`."""
    shape: tuple[Dimension, ...] = Field(max_length=16)
    element_bytes: int = Field(default=FLOAT32_BYTES, ge=1, le=16)
    """Size of one gradient element: 4 for float32, 2 for bfloat16."""

    @property
    def elements(self) -> int:
        """Number of the tensor's parameters; 1 for a scalar."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size of the tensor's gradient."""
        return self.elements * self.element_bytes


class Layer(BaseModel):
    """A module that owns parameters itself; packets never carry gradients of two layers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    tensors: tuple[Tensor, ...] = Field(min_length=1, max_length=10_000)

    @property
    def parameters(self) -> int:
        """Number of parameters of all tensors of the layer."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def size_bytes(self) -> int:
        """Size of all the layer's gradients of one round."""
        return sum(tensor.size_bytes for tensor in self.tensors)
