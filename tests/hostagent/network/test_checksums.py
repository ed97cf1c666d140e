"""Checksums of many packets against RFC 1071's own words."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.network.checksums import folded, sum_of, sums_of_ranges, sums_of_rows


def reference(data: bytes) -> int:
    """RFC 1071, section 4.1."""
    total: int = sum(word for (word,) in struct.iter_unpack("!H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def as_written(sums: "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]") -> list[int]:
    return [int.from_bytes(checksum.tobytes(), "big") for checksum in folded(sums)]


@given(st.binary(max_size=200))
def test_of_one_piece(data: bytes) -> None:
    assert as_written(np.array([sum_of(data)], np.uint64)) == [reference(data)]


@given(st.integers(1, 20), st.integers(1, 1500), st.integers(0, 2**32))
def test_of_rows(rows: int, size: int, seed: int) -> None:
    data = np.random.default_rng(seed).integers(0, 256, (rows, size), np.uint8)
    assert as_written(sums_of_rows(data)) == [reference(row.tobytes()) for row in data]


@given(st.binary(min_size=1, max_size=400), st.data())
def test_of_ranges(data: bytes, draw: st.DataObject) -> None:
    ends = st.tuples(st.integers(0, len(data)), st.integers(0, len(data))).map(sorted)
    ranges = draw.draw(st.lists(ends, min_size=1, max_size=10))
    offsets = np.array([first for first, _ in ranges])
    sizes = np.array([end - first for first, end in ranges])
    sums = sums_of_ranges(np.frombuffer(data, np.uint8), offsets, sizes)
    assert as_written(sums) == [reference(data[first:end]) for first, end in ranges]


def test_the_largest_sum_folds() -> None:
    assert folded(np.array([2**64 - 1], np.uint64)).tolist() == [0]
    assert folded(np.array([0], np.uint64)).tolist() == [0xFFFF]
