"""What the kernel left in the staging memory, as few grids of datagrams.

Each grid costs its reader tens of microseconds whatever its size. Mostly a batch is one run of equal
messages. Where it is not (the kernel coalesced now three datagrams, now seven), copying equal datagrams side
by side at 0.1-0.2 µs each is cheaper than many small grids. Their order changes then; nobody relies on it.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.transport.datagrams import DatagramGrid

BYTES_WORTH_A_GRID: Final = 1 << 18
"""So many are copied in the time that one more grid takes."""


def datagram_grids(
    memory: NDArray[np.uint8],
    stride_bytes: int,
    lengths: NDArray[np.int64],
    segments: NDArray[np.int64],
    tos: NDArray[np.uint8],
    arrived_ns: NDArray[np.int64],
) -> list[DatagramGrid]:
    """Every datagram of the messages in exactly one grid.

    Message i lies at i · `stride_bytes`, `lengths[i]` bytes of it, cut into datagrams of `segments[i]` bytes
    (1 or more), the last of which may be shorter. A length of 0 is no datagram.
    """
    if not len(lengths):
        return []
    changes = (lengths[1:] != lengths[:-1]) | (segments[1:] != segments[:-1])
    starts = [0, *(changes.nonzero()[0] + 1).tolist()]
    if len(starts) > 2 and len(starts) > 1 + int(lengths.sum()) // BYTES_WORTH_A_GRID:
        return _gathered(memory, stride_bytes, lengths, segments, tos, arrived_ns)
    grids = []
    for first, end in zip(starts, [*starts[1:], len(lengths)], strict=True):
        size_bytes, length_bytes = int(segments[first]), int(lengths[first])
        full, rest_bytes = divmod(length_bytes, size_bytes)
        offset, count, of_messages = (
            first * stride_bytes,
            end - first,
            (tos[first:end], arrived_ns[first:end]),
        )
        if full:
            grids.append(DatagramGrid(memory, offset, count, stride_bytes, full, size_bytes, *of_messages))
        if rest_bytes:
            offset += full * size_bytes
            grids.append(DatagramGrid(memory, offset, count, stride_bytes, 1, rest_bytes, *of_messages))
    return grids


def _gathered(
    memory: NDArray[np.uint8],
    stride_bytes: int,
    lengths: NDArray[np.int64],
    segments: NDArray[np.int64],
    tos: NDArray[np.uint8],
    arrived_ns: NDArray[np.int64],
) -> list[DatagramGrid]:
    """One grid for each length of datagrams, in memory of its own."""
    counts = -(-lengths // segments)
    ends = counts.cumsum()
    message = np.repeat(np.arange(len(lengths)), counts)
    place = np.arange(int(ends[-1])) - (ends - counts)[message]
    inside = place * segments[message]
    sizes = np.minimum(segments[message], lengths[message] - inside)
    offsets = inside + message * stride_bytes
    grids = []
    for size_bytes in np.unique(sizes).tolist():
        chosen = sizes == size_bytes
        overlapping = np.ndarray(
            (len(memory) - size_bytes + 1,),
            np.dtype((np.void, size_bytes)),
            buffer=memory.data,
            strides=(1,),
        )
        rows = overlapping[offsets[chosen]]
        grids.append(
            DatagramGrid(
                rows.view(np.uint8),
                0,
                len(rows),
                size_bytes,
                1,
                size_bytes,
                tos[message[chosen]],
                arrived_ns[message[chosen]],
            )
        )
    return grids
