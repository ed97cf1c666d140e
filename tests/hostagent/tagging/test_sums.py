"""Sums of magnitudes against numpy's own in float64."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.tagging.sums import SCRATCH_BYTES, PacketSums
from mltswitch.hostagent.tensor import PacketLayout, TensorView, packet_rows
from mltswitch.wire import ElementType
from tests.hostagent.tagging.tensors import any_tensors, float64_of, packet_means, tensor_of


def check(tensor: TensorView, layout: PacketLayout) -> None:
    full = packet_rows(tensor, layout).full
    sums = PacketSums(layout.element_type, layout.elements_per_packet).of(full)
    with np.errstate(over="ignore"):
        expected = packet_means(tensor, layout)[: len(full)] * layout.elements_per_packet
        expected[expected > np.finfo(sums.dtype).max] = np.inf
    ordinary = np.isfinite(expected)
    assert (np.isfinite(sums) == ordinary)[expected < 3e38].all()
    assert not np.isfinite(sums[~ordinary]).any()
    both = ordinary & np.isfinite(sums)
    assert sums[both] == pytest.approx(expected[both], rel=2e-5, abs=1e-44)


@given(any_tensors())
def test_any_bits(case: tuple[TensorView, PacketLayout]) -> None:
    check(*case)


@pytest.mark.parametrize("element_type", list(ElementType))
@pytest.mark.parametrize("elements_per_packet", [20, 358, 2233, 65507])
def test_blocks_of_real_packets(element_type: ElementType, elements_per_packet: int) -> None:
    packets = 2 * SCRATCH_BYTES // (4 * elements_per_packet) + 3
    values = np.random.default_rng(1).normal(size=packets * elements_per_packet) * 30
    tensor = tensor_of(values, element_type)
    check(tensor, PacketLayout(element_type, len(values), elements_per_packet))


@pytest.mark.parametrize("element_type", [ElementType.FLOAT16, ElementType.INT8])
def test_every_bit_pattern_alone(element_type: ElementType) -> None:
    count = 1 << 8 * element_type.size_bytes
    bits = np.arange(count, dtype=f"u{element_type.size_bytes}").view(np.uint8)
    tensor = TensorView(bits, element_type)
    sums = PacketSums(element_type, 1).of(packet_rows(tensor, PacketLayout(element_type, count, 1)).full)
    exact = np.abs(float64_of(tensor))
    ordinary = np.isfinite(exact)
    assert (sums[ordinary] == exact[ordinary]).all()
    assert not np.isfinite(sums[~ordinary]).any()


@given(case=any_tensors(), shift=st.integers(1, 7))
def test_memory_at_any_address(case: tuple[TensorView, PacketLayout], shift: int) -> None:
    tensor, layout = case
    memory = np.zeros(len(tensor.data) + shift, np.uint8)
    memory[shift:] = tensor.data
    check(TensorView(memory[shift:], tensor.element_type), layout)


@given(case=any_tensors(), seed=st.integers(0, 2**32))
def test_chosen_rows(case: tuple[TensorView, PacketLayout], seed: int) -> None:
    tensor, layout = case
    rows = packet_rows(tensor, layout).full
    if not len(rows):
        return
    sums = PacketSums(layout.element_type, layout.elements_per_packet)
    chosen = np.random.default_rng(seed).integers(0, len(rows), 30)
    expected = sums.of(rows)[chosen]
    assert sums.of_chosen(rows, chosen) == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_threads_do_not_share_scratch_memory() -> None:
    layout = PacketLayout(ElementType.FLOAT32, 200 * 358, 358)
    tensors = [tensor_of(np.full(layout.element_count, float(n)), ElementType.FLOAT32) for n in range(4)]
    sums = PacketSums(ElementType.FLOAT32, 358)

    def sum_often(number: int) -> bool:
        rows = packet_rows(tensors[number], layout).full
        return all((sums.of(rows) == 358 * number).all() for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(sum_often, range(4)))
