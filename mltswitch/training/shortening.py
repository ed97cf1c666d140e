"""float32 as bfloat16 and back: half of the bytes where gradients cross a network; sums stay float32."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.training.axes import Elements

CHUNK: Final = 1 << 15
"""Elements that pass all steps while they are in a processor's cache."""
HALF: Final = np.uint32(16)
_JUST_BELOW: Final = np.uint32(0x7FFF)
_NAN: Final = np.uint16(0x7FC0)


def shortened(values: Elements) -> NDArray[np.uint16]:
    """float32 values to the nearest bfloat16, of two equally near ones the even; NaN stays NaN."""
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
    """bfloat16 into as many float32 values; exact."""
    np.left_shift(short, HALF, out=values.view(np.uint32), dtype=np.uint32, casting="same_kind")


def round_to_short(values: Elements) -> None:
    """In place, to what others get who hear of the values as bfloat16."""
    lengthen(shortened(values), values)
