"""Sum of |element| of each packet, as fast as numpy goes: what magnitudes are told by.

Chunks that stay in the second-level cache are made positive into scratch memory and summed there, by
`einsum`: a product with ones is no faster, and its library takes a second core for it. Narrow types become
float32 by their bits: a bfloat16 is the upper half of one, and a float16 shifted by 13 bits is one with its
exponent 112 too small. numpy's own conversion of float16 takes five times as long.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.tensor.rows import DTYPES
from mltswitch.wire import ElementType

SCRATCH_BYTES: Final = 256 * 1024
"""Of what is summed at once: below 64 KiB the calls cost most, above 512 KiB the sums leave the cache."""

_MAGNITUDE_BITS: Final = np.uint16(0x7FFF)
_FLOAT16_INFINITY: Final = np.uint16(0x7C00)
_FLOAT16_SHIFT: Final = np.uint32(13)
_FLOAT16_SCALE: Final = np.float32(2.0**112)
"""Between the exponent biases of float32 (127) and float16 (15)."""
_BFLOAT16_SHIFT: Final = np.uint32(16)

Kernel = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], None]
"""(rows, scratch of their own width, scratch of the sum's width, sums)."""


def _sum_floats(rows: NDArray[Any], _narrow: NDArray[Any], wide: NDArray[Any], sums: NDArray[Any]) -> None:
    np.abs(rows, out=wide)
    np.einsum("ij->i", wide, out=sums)


def _sum_bfloat16(rows: NDArray[Any], narrow: NDArray[Any], wide: NDArray[Any], sums: NDArray[Any]) -> None:
    np.bitwise_and(rows, _MAGNITUDE_BITS, out=narrow)
    bits = wide.view(np.uint32)
    np.copyto(bits, narrow)
    np.left_shift(bits, _BFLOAT16_SHIFT, out=bits)
    np.einsum("ij->i", wide, out=sums)


def _sum_float16(rows: NDArray[Any], narrow: NDArray[Any], wide: NDArray[Any], sums: NDArray[Any]) -> None:
    np.bitwise_and(rows.view(np.uint16), _MAGNITUDE_BITS, out=narrow)
    bits = wide.view(np.uint32)
    np.copyto(bits, narrow)
    np.left_shift(bits, _FLOAT16_SHIFT, out=bits)
    np.einsum("ij->i", wide, out=sums)
    np.multiply(sums, _FLOAT16_SCALE, out=sums)
    if narrow.max() >= _FLOAT16_INFINITY:
        sums[(narrow >= _FLOAT16_INFINITY).any(axis=1)] = np.inf


def _sum_int8(rows: NDArray[Any], narrow: NDArray[Any], wide: NDArray[Any], sums: NDArray[Any]) -> None:
    np.abs(rows, out=narrow)
    np.copyto(wide, narrow.view(np.uint8))  # |-128| is -128 as int8, and 128 as uint8
    np.einsum("ij->i", wide, out=sums)


_KERNELS: Final[Mapping[ElementType, Kernel]] = {
    ElementType.FLOAT32: _sum_floats,
    ElementType.FLOAT64: _sum_floats,
    ElementType.FLOAT16: _sum_float16,
    ElementType.BFLOAT16: _sum_bfloat16,
    ElementType.INT8: _sum_int8,
}


_COMPILED: Final[Mapping[ElementType, str]] = {
    ElementType.FLOAT32: "mlt_sum_float32",
    ElementType.BFLOAT16: "mlt_sum_bfloat16",
}
"""Those that a compiled pass sums, where there is one."""


class _Scratch(threading.local):
    """One piece of memory a thread, whatever it tags: it stays in the cache."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)

    def of(self, size_bytes: int) -> NDArray[np.uint8]:
        if len(self.memory) < size_bytes:
            self.memory = np.empty(size_bytes, np.uint8)
        return self.memory


_scratch: Final = _Scratch()


class PacketSums:
    """Sums of packets of one length and element type; keeps nothing of a tensor.

    Args:
        element_type: of the tensor.
        elements_per_packet: of each row that is given later.
    """

    def __init__(self, element_type: ElementType, elements_per_packet: int) -> None:
        self.dtype: Final[np.dtype[Any]] = np.dtype(
            np.float64 if element_type is ElementType.FLOAT64 else np.float32
        )
        self._narrow_dtype: Final = (
            np.dtype(np.uint16) if element_type is ElementType.FLOAT16 else DTYPES[element_type]
        )
        self._kernel: Final = _KERNELS[element_type]
        is_compiled = native.LIBRARY is not None and element_type in _COMPILED
        self._compiled: Final = getattr(native.LIBRARY, _COMPILED[element_type]) if is_compiled else None
        self._elements: Final = elements_per_packet
        self._block: Final = max(1, SCRATCH_BYTES // (elements_per_packet * self.dtype.itemsize))

    def of(self, rows: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Sum of |element| of each row, shape (rows,).

        NaN or infinite where an element is, or where the sum leaves the range of its own type.
        """
        sums = np.empty(len(rows), self.dtype)
        if not len(rows):
            return sums
        if self._compiled is not None and rows.flags.c_contiguous:
            self._check(rows)
            self._compiled(rows.ctypes.data, None, len(rows), self._elements, sums.ctypes.data)
            return sums
        blocks = -(-len(rows) // self._block)
        step = -(-len(rows) // blocks)
        narrow, wide = self._workspace(step)
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(rows), step):
                block = rows[first : first + step]
                count = len(block)
                self._kernel(block, narrow[:count], wide[:count], sums[first : first + count])
        return sums

    def of_chosen(self, rows: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The same of some rows, by their numbers."""
        if self._compiled is not None and rows.flags.c_contiguous:
            chosen = np.ascontiguousarray(chosen, np.int64)
            self._check(rows)
            if len(chosen) and (chosen.min() < 0 or chosen.max() >= len(rows)):
                raise IndexError(f"rows {chosen.min()} to {chosen.max()} of {len(rows)}")
            sums = np.empty(len(chosen), self.dtype)
            self._compiled(
                rows.ctypes.data, chosen.ctypes.data, len(chosen), self._elements, sums.ctypes.data
            )
            return sums
        parts = [
            self.of(rows[chosen[first : first + self._block]])
            for first in range(0, max(1, len(chosen)), self._block)
        ]
        return np.concatenate(parts)

    def _check(self, rows: NDArray[Any]) -> None:
        if rows.shape[1] != self._elements or rows.dtype != self._narrow_dtype:
            raise ValueError(f"rows of {rows.shape[1]} {rows.dtype} instead of {self._elements}")

    def _workspace(self, packets: int) -> tuple[NDArray[Any], NDArray[Any]]:
        wide_bytes = packets * self._elements * self.dtype.itemsize
        narrow_bytes = packets * self._elements * self._narrow_dtype.itemsize
        memory = _scratch.of(wide_bytes + narrow_bytes)
        shape = (packets, self._elements)
        wide = memory[:wide_bytes].view(self.dtype).reshape(shape)
        narrow = memory[wide_bytes : wide_bytes + narrow_bytes].view(self._narrow_dtype).reshape(shape)
        return narrow, wide
