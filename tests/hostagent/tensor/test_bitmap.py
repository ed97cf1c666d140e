"""Bitmaps of packets, and the elements that they leave missing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.hostagent.tensor import (
    PacketLayout,
    TensorView,
    bitmap_bytes,
    decode_bitmap,
    encode_bitmap,
    missing_elements,
    packet_rows,
    zero_missing,
)
from mltswitch.wire import ElementType, WireFormatError

FLAGS = st.lists(st.booleans(), min_size=1, max_size=100)


@st.composite
def layouts(draw: st.DrawFn) -> PacketLayout:
    return PacketLayout(
        draw(st.sampled_from(ElementType)), draw(st.integers(1, 60)), draw(st.integers(1, 20))
    )


@st.composite
def partly_received(draw: st.DrawFn) -> tuple[PacketLayout, NDArray[np.bool_]]:
    layout = draw(layouts())
    count = layout.packet_count
    return layout, np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)


@given(FLAGS)
def test_every_bitmap_survives(flags: list[bool]) -> None:
    data = encode_bitmap(np.array(flags))
    assert len(data) == bitmap_bytes(len(flags))
    assert decode_bitmap(data, len(flags)).tolist() == flags


def test_the_order_of_bits() -> None:
    flags = np.zeros(11, np.bool_)
    flags[[0, 9]] = True
    assert encode_bitmap(flags) == bytes([0b0000_0001, 0b0000_0010])


@given(data=st.binary(max_size=6), packets=st.integers(1, 40))
def test_any_bytes_are_a_bitmap_or_refused(data: bytes, packets: int) -> None:
    fits = len(data) == -(-packets // 8) and int.from_bytes(data, "little") < 1 << packets
    if fits:
        assert encode_bitmap(decode_bitmap(data, packets)) == data
    else:
        with pytest.raises(WireFormatError, match=r"^bitmap: "):
            decode_bitmap(data, packets)


@given(partly_received())
def test_missing_elements_are_those_of_missing_packets(case: tuple[PacketLayout, NDArray[np.bool_]]) -> None:
    layout, received = case
    ranges = missing_elements(received, layout)
    assert ranges.shape == (len(ranges), 2)
    assert (ranges[:, 0] < ranges[:, 1]).all()
    assert (ranges[1:, 0] > ranges[:-1, 1]).all(), "neighbours are one range"
    found = {element for first, last in ranges.tolist() for element in range(first, last)}
    assert found == {
        element
        for element in range(layout.element_count)
        if not received[element // layout.elements_per_packet]
    }


@given(partly_received())
def test_missing_elements_alone_become_zero(case: tuple[PacketLayout, NDArray[np.bool_]]) -> None:
    layout, received = case
    data = np.full(layout.size_bytes, 255, np.uint8)
    zero_missing(TensorView(data, layout.element_type), received, layout)
    expected = np.full(layout.size_bytes, 255, np.uint8)
    for first, last in missing_elements(received, layout) * layout.element_type.size_bytes:
        expected[first:last] = 0
    assert data.tobytes() == expected.tobytes()


@given(layouts())
def test_rows_are_the_packets(layout: PacketLayout) -> None:
    data = np.arange(layout.size_bytes, dtype=np.uint8)
    rows = packet_rows(TensorView(data, layout.element_type), layout)
    packets = [row.tobytes() for row in rows.full] + ([] if rows.tail is None else [rows.tail.tobytes()])
    assert len(packets) == layout.packet_count
    assert b"".join(packets) == data.tobytes()
    assert {len(packet) for packet in packets[:-1]} <= {layout.full_bytes}
    assert len(packets[-1]) == layout.last_bytes
    assert np.shares_memory(rows.full if len(rows.full) else rows.tail, data)


def test_layouts_of_other_tensors() -> None:
    view = TensorView(np.zeros(40, np.uint8), ElementType.FLOAT32)
    for layout in (PacketLayout(ElementType.FLOAT32, 9, 4), PacketLayout(ElementType.FLOAT16, 10, 4)):
        with pytest.raises(ValueError, match="for a tensor of 10 float32"):
            packet_rows(view, layout)
        with pytest.raises(ValueError, match="for a tensor of 10 float32"):
            zero_missing(view, np.ones(3, np.bool_), layout)
    for received in (np.ones(2, np.bool_), np.ones(3, np.uint8)):
        with pytest.raises(ValueError, match="3 packets"):
            missing_elements(received, PacketLayout(ElementType.FLOAT32, 9, 4))  # type: ignore[arg-type]  # the point of it
