"""A tensor's packets as rows of numbers, in place."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.wire import ElementType

DTYPES: Final[dict[ElementType, np.dtype[Any]]] = {
    ElementType.FLOAT32: np.dtype(np.float32),
    ElementType.FLOAT16: np.dtype(np.float16),
    ElementType.BFLOAT16: np.dtype(np.uint16),
    ElementType.FLOAT64: np.dtype(np.float64),
    ElementType.INT8: np.dtype(np.int8),
}
"""numpy has no bfloat16: its bits stand as uint16."""


@dataclass(frozen=True, slots=True, eq=False)
class PacketRows:
    """One row a packet; shares the tensor's memory, which need not be aligned."""

    full: NDArray[Any]
    """Packets of full length, shape (packets, elements per packet)."""
    tail: NDArray[Any] | None
    """The last packet where it is shorter, shape (1, its elements)."""


def packet_rows(tensor: TensorView, layout: PacketLayout) -> PacketRows:
    """Cut as the layout says; raises ValueError where tensor and layout do not belong together."""
    check_layout(tensor, layout)
    elements = tensor.data.view(DTYPES[layout.element_type])
    full_packets = layout.element_count // layout.elements_per_packet
    cut = full_packets * layout.elements_per_packet
    return PacketRows(
        elements[:cut].reshape(full_packets, layout.elements_per_packet),
        elements[cut:].reshape(1, -1) if cut < layout.element_count else None,
    )


def check_layout(tensor: TensorView, layout: PacketLayout) -> None:
    """Raise ValueError where tensor and layout do not belong together."""
    if (tensor.element_type, tensor.element_count) != (layout.element_type, layout.element_count):
        raise ValueError(
            f"a layout of {layout.element_count} {layout.element_type.name.lower()} elements for a tensor of "
            f"{tensor.element_count} {tensor.element_type.name.lower()}"
        )
