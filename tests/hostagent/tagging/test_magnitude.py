"""Importance by magnitude."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging import ByMagnitude
from mltswitch.hostagent.tagging.magnitude import LARGEST_SAMPLE, LEAST_SAMPLE, MARGIN, sampled_packets
from mltswitch.hostagent.tensor import PacketLayout, TensorView
from mltswitch.hostagent.transport.interfaces import ImportancePolicy
from mltswitch.wire import ElementType
from tests.hostagent.tagging.tensors import any_tensors, packet_means, tensor_of, whole_number_tensors

POLICY: ImportancePolicy = ByMagnitude()


def marked(tensor: TensorView, layout: PacketLayout, policy: ImportancePolicy = POLICY) -> list[bool]:
    found: list[bool] = policy.mark(tensor, layout).important(0, layout.packet_count).tolist()
    return found


@given(any_tensors(2000))
def test_important_is_above_the_median_of_the_sample(case: tuple[TensorView, PacketLayout]) -> None:
    tensor, layout = case
    marking = ByMagnitude().mark(tensor, layout)
    found = marking.important(0, layout.packet_count)
    assert found.shape == (layout.packet_count,)
    assert found.dtype == np.bool_
    means = packet_means(tensor, layout)
    if layout.packet_count == 1:
        assert marking.threshold == 0
    else:
        sample = means[sampled_packets(layout.element_count // layout.elements_per_packet, 0.05)]
        largest = np.finfo(np.float32).max / layout.elements_per_packet
        sample = sample[np.isfinite(sample) & (sample <= largest)]
        if layout.element_type is not ElementType.FLOAT64 and len(sample) and not np.isinf(marking.threshold):
            assert marking.threshold == pytest.approx(np.median(sample), rel=2e-5, abs=1e-44)
    limit = marking.threshold * (1 + MARGIN)
    clear = (np.abs(means - limit) > 3e-5 * limit) & ((means < 1e33) | ~np.isfinite(means))
    assert (found == ~(means <= limit))[clear].all()


@given(case=whole_number_tensors(), data=st.data())
def test_chunks_do_not_matter(case: tuple[TensorView, PacketLayout], data: st.DataObject) -> None:
    tensor, layout = case
    whole = marked(tensor, layout)
    marking = POLICY.mark(tensor, layout)
    first = 0
    pieces: list[bool] = []
    while first < layout.packet_count:
        last = data.draw(st.integers(first + 1, layout.packet_count))
        pieces += marking.important(first, last).tolist()
        first = last
    assert pieces == whole


@given(case=whole_number_tensors(), bits=st.integers(0, 255))
def test_not_a_number_and_infinity_are_important(case: tuple[TensorView, PacketLayout], bits: int) -> None:
    tensor, layout = case
    if layout.element_type is ElementType.INT8:
        return
    packet = bits % layout.packet_count
    size_bytes = layout.element_type.size_bytes
    element = tensor.data[packet * layout.full_bytes :][:size_bytes]
    element[:] = 0
    element[-2:] = {2: [bits, 0x7C], 4: [0x80 | bits, 0x7F], 8: [0xF0 | bits, 0x7F]}[size_bytes]
    if layout.element_type is ElementType.BFLOAT16:
        element[:] = [0x80 | bits, 0xFF]
    assert marked(tensor, layout)[packet]


@pytest.mark.parametrize("element_type", list(ElementType))
@pytest.mark.parametrize("value", [0.0, 0.1, -1.0, 100.0])
def test_constant_tensors_have_no_important_packets(element_type: ElementType, value: float) -> None:
    for elements_per_packet in (7, 358, 2233):
        layout = PacketLayout(element_type, 500 * elements_per_packet + 3, elements_per_packet)
        tensor = tensor_of(np.full(layout.element_count, value), element_type)
        assert not any(marked(tensor, layout))


@pytest.mark.parametrize("element_type", list(ElementType))
def test_one_packet_is_important_unless_it_is_all_zeros(element_type: ElementType) -> None:
    values = np.zeros(50)
    for elements_per_packet in (50, 60):
        layout = PacketLayout(element_type, 50, elements_per_packet)
        assert marked(tensor_of(values, element_type), layout) == [False]
        changed = values.copy()
        changed[17] = -1
        assert marked(tensor_of(changed, element_type), layout) == [True]


def test_of_a_sparse_tensor_what_is_not_zero_is_important() -> None:
    values = np.zeros((1000, 50))
    values[::7, 3] = 1e-30
    found = marked(tensor_of(values, ElementType.FLOAT32), PacketLayout(ElementType.FLOAT32, 50_000, 50))
    assert np.flatnonzero(found).tolist() == list(range(0, 1000, 7))


@pytest.mark.parametrize("element_type", list(ElementType))
def test_half_of_a_large_tensor_is_important(element_type: ElementType) -> None:
    random = np.random.default_rng(5)
    values = random.normal(size=(17_000, 20)) * random.uniform(1, 30, (17_000, 1))
    layout = PacketLayout(element_type, values.size, 20)
    tensor = tensor_of(values, element_type)
    found = np.array(marked(tensor, layout))
    assert 0.45 < found.mean() < 0.55
    means = packet_means(tensor, layout)
    assert means[found].min() > means[~found].max()


def test_a_period_does_not_hide_from_the_sample() -> None:
    values = np.repeat(1.0 + np.arange(10_000) % 20, 10)
    found = marked(tensor_of(values, ElementType.FLOAT32), PacketLayout(ElementType.FLOAT32, 100_000, 10))
    assert 0.4 <= np.mean(found) <= 0.6


@given(packets=st.integers(1, 200_000), share=st.floats(0.001, 1))
def test_the_sample_takes_one_packet_of_each_stretch(packets: int, share: float) -> None:
    chosen = sampled_packets(packets, share)
    count = len(chosen)
    assert count == min(packets, max(LEAST_SAMPLE, min(LARGEST_SAMPLE, round(packets * share))))
    begins = np.array([number * packets // count for number in range(count + 1)])
    assert (chosen >= begins[:-1]).all()
    assert (chosen < begins[1:]).all()
    assert begins[-1] == packets


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), float("inf"), "x", "0.5", None, True])
def test_shares_that_are_none(share: Any) -> None:
    with pytest.raises(UserInputError, match=r"^sample_share: .*no share"):
        ByMagnitude(share)
