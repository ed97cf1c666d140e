"""Converts float32 to bfloat16 and back, to halve the bytes of gradients on the network; sums stay
float32."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.training.axes import Elements

CHUNK: Final = 1 << 15
"""Number of elements converted at a time, which fit into a processor's cache."""
HALF: Final = np.uint32(16)
_JUST_BELOW: Final = np.uint32(0x7FFF)
_NAN: Final = np.uint16(0x7FC0)


def shortened(values: Elements) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each float32 value, the even one of two equally near; NaN stays NaN."""
    found = np.empty(len(values), np.uint16)
    bits = values.view(np.uint32)
    for first in range(0, len(values), CHUNK):
        place = slice(first, first + CHUNK)
        part = bits[place]
        rounded = (part >> HALF) & np.uint32(1)
        rounded += _JUST_BELOW
        rounded += part
        rounded >>= HALF
        found[place] = rounded
        is_nan = np.isnan(values[place])
        if is_nan.any():
            found[place][is_nan] = _NAN
    return found


def lengthen(short: NDArray[np.uint16], values: Elements) -> None:
    """Write bfloat16 values into as many float32 values, exactly."""
    np.left_shift(short, HALF, out=values.view(np.uint32), dtype=np.uint32, casting="same_kind")


def round_to_short(values: Elements) -> None:
    """Round float32 values in place to bfloat16, as others receive them."""
    lengthen(shortened(values), values)
