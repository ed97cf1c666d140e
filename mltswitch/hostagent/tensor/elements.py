"""Whatever holds a tensor's elements, seen as bytes in place: buffers, numpy arrays, torch CPU tensors."""

import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.ma import MaskedArray  # at once: numpy would import it in the middle of a post
from numpy.typing import NDArray

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.tensor.layout import MAXIMUM_ELEMENTS
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.wire import ElementType

_BY_NAME: Final = {entry.name.lower(): entry for entry in ElementType}
"""What numpy, torch and ml_dtypes call them."""
_BY_LETTER: Final = {
    "f": "float32",
    "e": "float16",
    "d": "float64",
    "b": "int8",
    "B": "uint8",
    "c": "uint8",
    "H": "uint16",
}
"""Formats of the buffer protocol (the letters of `struct`)."""
_RAW: Final = {"uint8": frozenset(ElementType), "uint16": frozenset({ElementType.BFLOAT16})}
"""Elements that say nothing themselves, and what they may be on the caller's word."""
_EXPECTED: Final = "elements of " + ", ".join(_BY_NAME)
_WHERE: Final = "tensor"


@dataclass(frozen=True, slots=True)
class _Memory:
    data: NDArray[np.uint8]
    type_name: str


def view_of(tensor: object, *, writable: bool, element_type: ElementType | str | None = None) -> TensorView:
    """The tensor's bytes, sharing its memory; nothing is copied.

    Args:
        tensor: has the buffer protocol (numpy, memoryview, array, bytearray, mmap), or is a torch tensor on
            the CPU. Dense, in C order, elements in the machine's byte order. numpy arrays may be of the
            bfloat16 of ml_dtypes.
        writable: elements are to be received into it.
        element_type: needed where the memory does not say it: bytes; uint16 may be taken as bfloat16. Or its
            name in small letters.

    Raises UserInputError for memory that cannot be sent or received as it lies, and for another element type.
    """
    asked = _asked_for(element_type)
    if _is_torch(tensor):
        memory = _torch_memory(tensor)
    elif isinstance(tensor, np.ndarray):
        memory = _numpy_memory(tensor)
    else:
        memory = _buffer_memory(tensor)
    if writable and not memory.data.flags.writeable:
        raise UserInputError(
            "is read-only, and elements are to be received into it",
            where=_WHERE,
            expected="writable memory",
            hint="give a copy, or a bytearray in the place of bytes",
        )
    chosen = _element_type(memory.type_name, asked)
    size_bytes = len(memory.data)
    if not size_bytes:
        raise UserInputError("has no elements", where=_WHERE, expected="1 element or more")
    if size_bytes % chosen.size_bytes:
        raise UserInputError(
            f"{size_bytes} bytes are no whole number of {chosen.name.lower()} elements", where=_WHERE
        )
    if size_bytes // chosen.size_bytes > MAXIMUM_ELEMENTS:
        raise UserInputError(
            f"has {size_bytes // chosen.size_bytes} elements",
            where=_WHERE,
            expected=f"at most {MAXIMUM_ELEMENTS}",
            hint="send it in parts",
        )
    return TensorView(memory.data, chosen)


def refuse_big_endian(byte_order: str = sys.byteorder) -> None:
    """Raise MachineError where elements lie in memory in another order than they travel in."""
    if byte_order != "little":
        raise MachineError(
            "elements travel in little-endian order, straight from memory", expected="a little-endian machine"
        )


def _asked_for(element_type: object) -> ElementType | None:
    """A bare number is none: those on the wire mean nothing to a caller."""
    if element_type is None or isinstance(element_type, ElementType):
        return element_type
    named = _BY_NAME.get(element_type) if isinstance(element_type, str) else None
    if named is None:
        is_text = isinstance(element_type, str)
        given = repr(element_type)[:60] if is_text else f"an object of type {type(element_type).__name__}"
        raise UserInputError(
            f"{given} is no element type",
            where="element_type",
            expected="one of " + ", ".join(_BY_NAME),
        )
    return named


def _element_type(type_name: str, asked: ElementType | None) -> ElementType:
    own = _BY_NAME.get(type_name)
    if own is not None:
        if asked is None or asked is own:
            return own
        raise UserInputError(
            f"has {type_name} elements, not {asked.name.lower()}",
            where=_WHERE,
            hint="convert it first, or leave element_type out",
        )
    if type_name not in _RAW:
        raise UserInputError(f"has {type_name} elements", where=_WHERE, expected=_EXPECTED)
    if asked is None:
        raise UserInputError(
            f"{type_name} elements do not say what they stand for",
            where=_WHERE,
            expected=_EXPECTED,
            hint="name them with element_type",
        )
    if asked not in _RAW[type_name]:
        raise UserInputError(
            f"{type_name} elements cannot be taken as {asked.name.lower()}",
            where=_WHERE,
            expected=", ".join(sorted(entry.name.lower() for entry in _RAW[type_name])),
        )
    return asked


def _numpy_memory(array: NDArray[Any]) -> _Memory:
    if isinstance(array, MaskedArray):
        raise UserInputError("is a masked array", where=_WHERE, hint="send its data, or its filled() copy")
    array = np.asarray(array)  # without what a subclass does otherwise: a matrix stays one whatever its shape
    if not array.dtype.isnative:
        raise _foreign_byte_order()
    if not array.flags.c_contiguous:
        raise _not_contiguous("np.ascontiguousarray(tensor)")
    if array.dtype.hasobject:
        raise UserInputError("has object elements", where=_WHERE, expected=_EXPECTED)
    if not array.size:
        return _Memory(np.empty(0, np.uint8), array.dtype.name)
    return _Memory(array.reshape(-1).view(np.uint8), array.dtype.name)


def _buffer_memory(tensor: object) -> _Memory:
    if hasattr(tensor, "__cuda_array_interface__"):
        raise _on_another_device("a GPU")
    try:
        view = memoryview(tensor)  # type: ignore[arg-type]  # this asks whether it is a buffer
    except (TypeError, ValueError, BufferError) as error:
        raise UserInputError(
            f"memory of type {type(tensor).__name__} cannot be shared: {error}",
            where=_WHERE,
            expected="a numpy array, a torch tensor or a buffer",
        ) from error
    letter = view.format.lstrip("@=<>!")
    if view.format[0] in ">!" and view.itemsize > 1:
        raise _foreign_byte_order()
    if not view.c_contiguous:
        raise _not_contiguous("bytes(tensor)")
    data = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    return _Memory(data, _BY_LETTER.get(letter, f"{view.format!r}"))


def _is_torch(tensor: object) -> bool:
    """By name: torch is imported by whoever made the tensor, never here."""
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(tensor).__mro__)


def _torch_memory(tensor: Any) -> _Memory:
    if tensor.device.type != "cpu":
        raise _on_another_device(str(tensor.device))
    if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        raise UserInputError(
            "is sparse or quantized", where=_WHERE, expected="a dense tensor", hint="call to_dense()"
        )
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise _not_contiguous("tensor.contiguous()")
    type_name = str(tensor.dtype).removeprefix("torch.")
    if not tensor.numel():
        return _Memory(np.empty(0, np.uint8), type_name)
    try:
        data = tensor.detach().reshape(-1).view(sys.modules["torch"].uint8).numpy()
    except (RuntimeError, TypeError) as error:
        raise UserInputError(
            f"memory of type {type(tensor).__name__} cannot be shared: {error}", where=_WHERE
        ) from error
    return _Memory(data, type_name)


def _foreign_byte_order() -> UserInputError:
    return UserInputError(
        "has elements in another byte order",
        where=_WHERE,
        expected="the machine's own",
        hint='convert it with tensor.astype(tensor.dtype.newbyteorder("="))',
    )


def _not_contiguous(how: str) -> UserInputError:
    return UserInputError(
        "does not lie in one piece in memory, in C order",
        where=_WHERE,
        expected="contiguous memory",
        hint=f"copy it with {how}",
    )


def _on_another_device(device: str) -> UserInputError:
    return UserInputError(
        f"is in the memory of {device}",
        where=_WHERE,
        expected="the host's memory",
        hint="copy it first, best into pinned memory",
    )
