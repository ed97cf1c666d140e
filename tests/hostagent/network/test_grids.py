"""Every datagram lies in one grid, whatever the kernel coalesced."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.network.grids import datagram_grids
from tests.hostagent.network.bursts import contents

STRIDE = 400
MESSAGES = st.lists(st.tuples(st.integers(0, STRIDE), st.integers(1, STRIDE)), max_size=40)
FEW_SIZES = st.lists(
    st.tuples(st.sampled_from([0, 56, 120, 168, 240, 250, 400]), st.sampled_from([40, 56, 100])), max_size=60
)


def memory(messages: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(messages).integers(0, 256, messages * STRIDE, np.uint8)


@given(st.one_of(MESSAGES, FEW_SIZES))
def test_every_datagram_is_in_one_grid(messages: list[tuple[int, int]]) -> None:
    staging = memory(len(messages))
    numbers = np.arange(len(messages))
    tos = numbers.astype(np.uint8)
    lengths = np.array([length for length, _ in messages], np.int64)
    segments = np.array([segment for _, segment in messages], np.int64)
    wanted: Counter[tuple[bytes, int]] = Counter()
    for place, (length, segment) in enumerate(messages):
        content = staging[place * STRIDE : place * STRIDE + length].tobytes()
        wanted.update((content[at : at + segment], place) for at in range(0, length, segment))
    grids = datagram_grids(staging, STRIDE, lengths, segments, tos, numbers)
    assert Counter(contents(grids)) == wanted
    assert all(grid.datagram_count > 0 and grid.datagram_bytes > 0 for grid in grids)
    for grid in grids:
        assert grid.arrived_ns is not None
        assert grid.arrived_ns.tolist() == grid.tos.tolist()


def test_a_full_batch_is_one_grid_and_no_copy() -> None:
    staging = memory(32)
    lengths, segments = np.full(32, 400), np.full(32, 100)
    (grid,) = datagram_grids(staging, STRIDE, lengths, segments, np.zeros(32, np.uint8), np.arange(32))
    assert (grid.messages, grid.datagrams_per_message, grid.datagram_bytes) == (32, 4, 100)
    assert grid.memory is staging


def test_shorter_ends_of_equal_messages_are_one_grid() -> None:
    staging = memory(32)
    lengths, segments = np.full(32, 390), np.full(32, 100)
    full, rest = datagram_grids(staging, STRIDE, lengths, segments, np.zeros(32, np.uint8), np.arange(32))
    assert (full.datagram_count, rest.datagram_count, rest.datagram_bytes) == (96, 32, 90)


@pytest.mark.parametrize("segment", [40, 100])
def test_what_was_coalesced_unevenly_is_put_together(segment: int) -> None:
    staging = memory(64)
    lengths = np.resize(np.array([1, 3, 2, 4]), 64) * segment
    (grid,) = datagram_grids(
        staging, STRIDE, lengths, np.full(64, segment), np.zeros(64, np.uint8), np.arange(64)
    )
    assert (grid.datagram_count, grid.datagram_bytes) == (160, segment)
