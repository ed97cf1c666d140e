"""Cached probability tables for offered packets, and a matrix product that saves memory."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.completion.rational import FloatArray

Array = npt.NDArray[Any]
"""An array of weights, real at s = 0 and complex elsewhere."""
BLOCK = 64
"""Number of rows that are computed and multiplied at a time."""
UNSEEN = 1e-30
"""Probability of a number below which a row of the table is cut off."""
REMEMBERED_CELLS = 1 << 18
"""The largest table, in cells (2 MiB), of which several are cached; of larger ones only the last is kept."""


class Chosen:
    """How many of n = 0, 1, … are chosen, each with the same probability: rows of the binomial distribution.

    A row keeps only values that are not negligible: of 18,000 packets 1,500 numbers. Rows are made as they
    are asked for.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._blocks: list[tuple[int, FloatArray]] = []
        """(first column, rows) of BLOCK rows each."""
        self._last, self._first = np.ones(1), 0
        """The row behind the last block, and its first column."""

    def row(self, count: int) -> FloatArray:
        """Binomial probabilities that 0 … count of count items are chosen."""
        first, rows = self._made(count)[count // BLOCK]
        row = np.zeros(count + 1)
        row[first : first + rows.shape[1]] = rows[count % BLOCK, : count + 1 - first]
        return row

    def distributed(self, weights: Array) -> Array:
        """Element […, r] is the weight of r chosen items, where weights[…, n] is the weight of n items."""
        flat = weights.reshape(-1, weights.shape[-1])
        chosen = np.zeros_like(flat)
        for index, (first, rows) in enumerate(self._made(flat.shape[1] - 1)):
            part = flat[:, index * BLOCK : (index + 1) * BLOCK]
            used = np.flatnonzero(part.any(axis=0))
            if used.size:
                width = min(rows.shape[1], flat.shape[1] - first)
                chosen[:, first : first + width] += times_real(part[:, used], rows[used, :width])
        return chosen.reshape(weights.shape)

    def expected(self, values: Array, most: int) -> Array:
        """Element […, n] is the mean of values[…, r] over the r chosen of n = 0 … most; the last value stands
        for larger r."""
        flat = values.reshape(-1, values.shape[-1])
        means = np.empty((len(flat), most + 1), dtype=flat.dtype)
        for index, (first, rows) in enumerate(self._made(most)):
            part = means[:, index * BLOCK : (index + 1) * BLOCK]
            columns = np.minimum(np.arange(first, first + rows.shape[1]), flat.shape[1] - 1)
            part[:] = times_real(flat[:, columns], rows[: part.shape[1]].T)
        return means.reshape(*values.shape[:-1], most + 1)

    def _made(self, most: int) -> list[tuple[int, FloatArray]]:
        """Blocks with the rows of 0 … most."""
        while len(self._blocks) * BLOCK <= most:
            first, row = self._first, self._last
            rows = np.zeros((BLOCK, len(row) + BLOCK))
            for count in range(BLOCK):
                rows[count, : len(row)] = row
                row = np.append(row * (1 - self._share), 0.0)
                row[1:] += self._share * rows[count, : len(row) - 1]
            self._blocks.append((first, rows[:, : max(1, len(row) - 1)]))
            seen = np.flatnonzero(row > UNSEEN)
            self._last, self._first = row[seen[0] : seen[-1] + 1], first + int(seen[0])
        return self._blocks[: most // BLOCK + 1]


@lru_cache(maxsize=8)
def chosen(share: float) -> Chosen:
    """The binomial table for one probability, shared by all callers."""
    return Chosen(share)


def sums_of_bursts(sizes: bytes, shares: bytes, most_bursts: int, most_packets: int) -> FloatArray:
    """Row k = 0 … most_bursts: probabilities that k bursts of random size have 0 … most_packets packets
    together."""
    rows, columns = 1 << most_bursts.bit_length(), 1 << most_packets.bit_length()
    table = _sums_of_bursts if rows * columns <= REMEMBERED_CELLS else _large_sums_of_bursts
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


_large_sums_of_bursts = lru_cache(maxsize=1)(_sums_of_bursts.__wrapped__)


def times_real(left: Array, right: FloatArray) -> Array:
    """The product of a complex and a real matrix, without a complex copy of the real one."""
    if not np.iscomplexobj(left):
        return np.asarray(left @ right)
    parts = np.concatenate([left.real, left.imag]) @ right
    return np.asarray(parts[: len(left)] + 1j * parts[len(left) :])
