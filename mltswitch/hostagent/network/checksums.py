"""The Internet checksum (RFC 1071) of many packets at once.

Sums are of 16-bit words as a little-endian machine reads them: one's complement addition does not mind, as
long as the result is written the same way. Sums may be added, and folded once at the end.
"""

import numpy as np
from numpy.typing import NDArray

_WORD = np.uint64(0xFFFF)
_WORD_BITS = np.uint64(16)


def folded(sums: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """The checksum field, as the machine's own 16-bit number."""
    for _ in range(4):  # 64 bits to 16, carries included
        sums = (sums & _WORD) + (sums >> _WORD_BITS)
    return (~sums & _WORD).astype(np.uint16)


def sum_of(data: bytes) -> int:
    """Of one piece; an odd byte at the end is filled up with 0."""
    return int(np.frombuffer(data + bytes(len(data) % 2), np.uint16).sum(dtype=np.uint64))


def sums_of_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Of each row of a C-contiguous array; an odd byte at the end is filled up with 0."""
    count, size_bytes = rows.shape
    if size_bytes % 4 == 0:
        # 65,536 leaves 1 modulo 65,535: words of 32 bits have the same checksum.
        return np.asarray(rows.view(np.uint32).sum(axis=1, dtype=np.uint64))
    even_bytes = size_bytes - size_bytes % 2
    even = np.ascontiguousarray(rows[:, :even_bytes])
    sums = even.view(np.uint16).sum(axis=1, dtype=np.uint64) if even_bytes else np.zeros(count, np.uint64)
    if size_bytes % 2:
        sums += rows[:, -1].astype(np.uint64)
    return np.asarray(sums)


def sums_of_ranges(
    memory: NDArray[np.uint8], offsets_bytes: NDArray[np.int64], sizes_bytes: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Of pieces of a memory; the last byte of an odd one is filled up with 0."""
    sums = np.zeros(len(offsets_bytes), np.uint64)
    for size_bytes in np.unique(sizes_bytes[sizes_bytes > 0]).tolist():
        chosen = sizes_bytes == size_bytes
        # Every range of this size, overlapping; nothing is copied but those that are chosen.
        every: NDArray[np.void] = np.ndarray(
            (len(memory) - size_bytes + 1,),
            np.dtype((np.void, size_bytes)),
            buffer=memory.data,
            strides=(1,),
        )
        rows = every[offsets_bytes[chosen]]
        sums[chosen] = sums_of_rows(rows.view(np.uint8).reshape(-1, size_bytes))
    return sums
