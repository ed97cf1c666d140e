"""Tables over what is offered, and a product that spares memory."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.completion.rational import FloatArray

Array = npt.NDArray[Any]
"""Real at s = 0, complex elsewhere."""
REMEMBERED_CELLS = 1 << 18
"""Larger tables (2 MiB) are made anew each time, so that what is remembered stays small."""


def binomials(most: int, share: float, room: int) -> FloatArray:
    """Row n = 0 … most: probabilities that 0, 1, … of n join; the last column is `room` or more."""
    rounded = 1 << most.bit_length()
    table = _binomials if rounded * (room + 1) <= REMEMBERED_CELLS else _binomials.__wrapped__
    return table(rounded, share, room)[: most + 1]


@lru_cache(maxsize=64)
def _binomials(most: int, share: float, room: int) -> FloatArray:
    table = np.zeros((most + 1, room + 1))
    table[0, 0] = 1.0
    for count in range(1, most + 1):
        before, row = table[count - 1], table[count]
        row[:] = before * (1 - share)
        row[1:] += share * before[:-1]
        row[-1] += share * before[-1]
    table.flags.writeable = False
    return table


def sums_of_bursts(sizes: bytes, shares: bytes, most_bursts: int, most_packets: int) -> FloatArray:
    """Row k = 0 … most_bursts: probabilities of 0 … most_packets packets in k bursts of random size."""
    rows, columns = 1 << most_bursts.bit_length(), 1 << most_packets.bit_length()
    table = _sums_of_bursts if rows * columns <= REMEMBERED_CELLS else _sums_of_bursts.__wrapped__
    return table(sizes, shares, rows, columns)[: most_bursts + 1, : most_packets + 1]


@lru_cache(maxsize=8)
def _sums_of_bursts(sizes: bytes, shares: bytes, most_bursts: int, most_packets: int) -> FloatArray:
    width = most_packets + 1
    values, weights = np.frombuffer(sizes, dtype=np.int64), np.frombuffer(shares)
    small = values < width
    one = np.bincount(values[small], weights[small], minlength=width)
    length = 1 << (2 * width).bit_length()
    spectrum = np.fft.rfft(one, length)
    table = np.zeros((most_bursts + 1, width))
    table[0, 0] = 1.0
    for count in range(most_bursts):
        sums = np.fft.irfft(np.fft.rfft(table[count], length) * spectrum, length)
        table[count + 1] = np.maximum(sums[:width], 0.0)
    table.flags.writeable = False
    return table


def times_real(left: Array, right: FloatArray) -> Array:
    """A complex times a real matrix, without making the real one complex."""
    if not np.iscomplexobj(left):
        return np.asarray(left @ right)
    parts = np.concatenate([left.real, left.imag]) @ right
    return np.asarray(parts[: len(left)] + 1j * parts[len(left) :])
