"""The bytes of a tensor that the caller keeps: no copy, whatever library made it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mltswitch.wire import ElementType


@dataclass(frozen=True, slots=True, eq=False)
class TensorView:
    """Elements in the order of memory."""

    data: NDArray[np.uint8]
    """All bytes, one dimension, C-contiguous; shares the caller's memory."""
    element_type: ElementType

    @property
    def element_count(self) -> int:
        """Elements of the tensor."""
        return len(self.data) // self.element_type.size_bytes
