"""Tensors of every element type, and what their magnitudes are, counted slowly."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.hostagent.tensor import PacketLayout, TensorView
from mltswitch.hostagent.tensor.rows import DTYPES
from mltswitch.wire import ElementType


def float64_of(tensor: TensorView) -> NDArray[np.float64]:
    """The elements as they are meant."""
    elements = tensor.data.copy().view(DTYPES[tensor.element_type])
    if tensor.element_type is ElementType.BFLOAT16:
        elements = (elements.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):
        return elements.astype(np.float64)


def packet_means(tensor: TensorView, layout: PacketLayout) -> NDArray[np.float64]:
    """Mean |element| of each packet."""
    magnitudes = np.abs(float64_of(tensor))
    step = layout.elements_per_packet
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(
            [magnitudes[first : first + step].mean() for first in range(0, len(magnitudes), step)]
        )


def tensor_of(values: NDArray[Any], element_type: ElementType) -> TensorView:
    """Values rounded to the element type."""
    if element_type is ElementType.BFLOAT16:
        elements: NDArray[Any] = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        elements = values.astype(DTYPES[element_type])
    return TensorView(elements.reshape(-1).view(np.uint8), element_type)


@st.composite
def any_tensors(draw: st.DrawFn, largest: int = 400) -> tuple[TensorView, PacketLayout]:
    """Any bits at all: NaN, infinities and denormal numbers are among them."""
    element_type = draw(st.sampled_from(ElementType))
    layout = PacketLayout(element_type, draw(st.integers(1, largest)), draw(st.integers(1, 40)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["bits", "normal", "tiny", "sparse"]))
    if kind == "bits":
        return TensorView(random.integers(0, 256, layout.size_bytes, np.uint8), element_type), layout
    values = random.normal(size=layout.element_count) * (1e-6 if kind == "tiny" else 20)
    if kind == "sparse":
        values[random.random(layout.element_count) < 0.95] = 0
    return tensor_of(values, element_type), layout


@st.composite
def whole_number_tensors(draw: st.DrawFn) -> tuple[TensorView, PacketLayout]:
    """Small whole numbers, which every type holds and sums exactly."""
    element_type = draw(st.sampled_from(ElementType))
    layout = PacketLayout(element_type, draw(st.integers(1, 600)), draw(st.integers(1, 20)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([0, 1, 3, 100]))
    values = random.integers(-most, most, layout.element_count, endpoint=True)
    return tensor_of(values.astype(np.float64), element_type), layout
