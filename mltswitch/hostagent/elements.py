"""Access to a tensor's bytes in place, whatever holds them: buffers, numpy arrays and torch tensors."""

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MachineError, UserInputError
from mltswitch.wire import ElementType

_BY_NAME: Final = {entry.name.lower(): entry for entry in ElementType}
"""As numpy, torch and ml_dtypes call them. What has another name (unsigned, complex) travels as bytes."""
MOST_ELEMENTS: Final = 1 << 32
_WHERE: Final = "tensor"


@dataclass(frozen=True, slots=True, eq=False)
class TensorMemory:
    """The bytes of a tensor, shared with its owner."""

    data: NDArray[np.uint8]
    element_type: ElementType

    @property
    def element_count(self) -> int:
        """Number of elements of the tensor."""
        return len(self.data) // self.element_type.size_bytes

    def elements(self) -> NDArray[Any]:
        """The tensor's elements as a numpy array; bfloat16 as uint16."""
        name = {ElementType.BFLOAT16: "uint16", ElementType.BYTES: "uint8"}.get(self.element_type)
        return self.data.view(name or self.element_type.name.lower())


def memory_of(
    tensor: object, *, writable: bool = False, element_type: ElementType | str | None = None
) -> TensorMemory:
    """The bytes of a tensor in place; nothing is copied.

    Args:
        tensor: numpy array, torch tensor on the CPU, or anything with the buffer protocol; in one piece, in C
            order, in the machine's byte order, not empty.
        writable: whether elements will be received into the memory.
        element_type: what the elements are, where the memory does not say it (bytes, uint16 for bfloat16); or
            its name in small letters.

    Raises UserInputError for memory that cannot be shared as it lies.
    """
    data, dtype = _torch_bytes(tensor) if _is_torch(tensor) else _buffer_bytes(tensor)
    if writable and not data.flags.writeable:
        raise UserInputError(
            "is read-only, and elements are to be received into it", where=_WHERE, expected="writable memory"
        )
    chosen = _kind(dtype) if element_type is None else _named(element_type)
    if not len(data) or len(data) % chosen.size_bytes:
        raise UserInputError(
            f"{len(data)} bytes are no whole number of {chosen.name.lower()} elements, 1 or more",
            where=_WHERE,
        )
    memory = TensorMemory(data, chosen)
    if memory.element_count > MOST_ELEMENTS:
        raise UserInputError(
            f"has {memory.element_count} elements", where=_WHERE, expected=f"{MOST_ELEMENTS} or fewer"
        )
    return memory


def check_byte_order() -> None:
    """Raises MachineError where the machine's byte order is not that of elements on the wire."""
    if sys.byteorder != "little":
        raise MachineError("elements travel as they lie in memory", expected="a little-endian machine")


def _named(element_type: ElementType | str) -> ElementType:
    if isinstance(element_type, ElementType):
        return element_type
    found = _BY_NAME.get(element_type) if isinstance(element_type, str) else None
    if found is None:
        raise UserInputError(
            f"{element_type!r:.60} is no element type", where="element_type", expected=", ".join(_BY_NAME)
        )
    return found


@cache
def _kind(dtype: Any) -> ElementType:
    """Of numpy's, which makes its name anew each time that it is asked, or torch's."""
    return _BY_NAME.get(getattr(dtype, "name", str(dtype).removeprefix("torch.")), ElementType.BYTES)


def _buffer_bytes(tensor: object) -> tuple[NDArray[np.uint8], Any]:
    if type(tensor) is not np.ndarray and hasattr(tensor, "__cuda_array_interface__"):
        raise _elsewhere("a GPU")
    try:
        array = tensor if isinstance(tensor, np.ndarray) else np.asarray(memoryview(tensor))  # type: ignore[arg-type]  # this asks whether it is a buffer
    except (TypeError, ValueError, BufferError) as error:
        raise UserInputError(
            f"memory of type {type(tensor).__name__} cannot be shared: {error}",
            where=_WHERE,
            expected="a numpy array, a torch tensor or a buffer",
        ) from error
    if isinstance(array, np.ma.MaskedArray) or array.dtype.hasobject:
        raise UserInputError(f"is no plain array: {array.dtype} in {type(tensor).__name__}", where=_WHERE)
    if not array.dtype.isnative or not array.flags.c_contiguous:
        raise _not_in_one_piece()
    return np.asarray(array).reshape(-1).view(np.uint8), array.dtype


def _is_torch(tensor: object) -> bool:
    """By name: torch is imported by whoever made the tensor, never here."""
    return type(tensor) is not np.ndarray and any(
        base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(tensor).__mro__
    )


def _torch_bytes(tensor: Any) -> tuple[NDArray[np.uint8], Any]:
    if tensor.device.type != "cpu":
        raise _elsewhere(str(tensor.device))
    is_dense = str(tensor.layout) == "torch.strided" and not tensor.is_quantized
    if not is_dense or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise _not_in_one_piece()
    if not tensor.numel():
        return np.empty(0, np.uint8), tensor.dtype
    return tensor.detach().reshape(-1).view(sys.modules["torch"].uint8).numpy(), tensor.dtype


def _not_in_one_piece() -> UserInputError:
    return UserInputError(
        "does not lie in one piece in memory, in C order and the machine's byte order",
        where=_WHERE,
        hint="copy it with np.ascontiguousarray(tensor), or tensor.contiguous()",
    )


def _elsewhere(device: str) -> UserInputError:
    return UserInputError(
        f"is in the memory of {device}",
        where=_WHERE,
        hint="copy it to the host first, best into pinned memory",
    )
