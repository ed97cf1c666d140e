"""Bursts to send, and what of them arrived."""

import select
import socket
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE, Bursts, DatagramGrid
from mltswitch.wire import AUTHENTICATION_TAG_BYTES

WAITING_SECONDS = 5.0


def bursts_of(
    tensor: NDArray[np.uint8],
    body_bytes: int,
    lengths: Sequence[int],
    paths: Sequence[int],
    *,
    tags: bool = False,
) -> Bursts:
    """The tensor in packets of so many bytes (the last may be shorter), in bursts of these lengths.

    Packets are numbered, and each burst has another path and DSCP/ECN byte.
    """
    packets = -(-len(tensor) // body_bytes)
    ends = np.resize(np.asarray(lengths), packets).cumsum()
    starts = np.concatenate(([0], ends[ends < packets], [packets]))
    bursts = len(starts) - 1
    headers = np.zeros(packets, HEADER_DTYPE)
    headers["version"] = 1
    headers["sequence"] = np.arange(packets)
    offsets = np.arange(packets) * body_bytes
    numbers = np.random.default_rng(packets)
    return Bursts(
        headers=headers,
        tensor=tensor,
        payload_offsets_bytes=offsets,
        payload_bytes=np.minimum(body_bytes, len(tensor) - offsets),
        starts=starts,
        paths=np.resize(np.asarray(paths, np.int64), bursts),
        tos=(np.arange(bursts) * 7 % 256).astype(np.uint8),
        tags=numbers.integers(0, 256, (packets, AUTHENTICATION_TAG_BYTES), np.uint8) if tags else None,
    )


@st.composite
def some_bursts(draw: st.DrawFn, paths: int = 4, longest_bytes: int = 1400) -> Bursts:
    """Up to 300 packets in bursts of up to 100."""
    body_bytes = draw(st.integers(1, longest_bytes))
    size_bytes = draw(st.integers(1, 300 * body_bytes))
    tensor = np.random.default_rng(size_bytes).integers(0, 256, size_bytes, np.uint8)
    lengths = draw(st.lists(st.integers(1, 100), min_size=1, max_size=8))
    order = draw(st.lists(st.integers(0, paths - 1), min_size=1, max_size=8))
    return bursts_of(tensor, body_bytes, lengths, order, tags=draw(st.booleans()))


def datagrams_of(bursts: Bursts) -> list[bytes]:
    """UDP payloads in order."""
    return [bursts.datagram(packet) for packet in range(bursts.packet_count)]


def tos_of(bursts: Bursts) -> list[int]:
    """DSCP/ECN byte of each packet."""
    return np.repeat(bursts.tos, np.diff(bursts.starts)).tolist()


def contents(grids: Sequence[DatagramGrid]) -> list[tuple[bytes, int]]:
    """(UDP payload, DSCP/ECN byte) of every datagram."""
    return [
        (bytes(grid.datagram(message, place)), int(grid.tos[message]))
        for grid in grids
        for message in range(grid.messages)
        for place in range(grid.datagrams_per_message)
    ]


def receive_all(receiver: DatagramReceiver, count: int) -> list[tuple[bytes, int]]:
    """So many datagrams; fails when nothing comes any more."""
    found: list[tuple[bytes, int]] = []
    while len(found) < count:
        ready = select.select([receiver], [], [], WAITING_SECONDS)[0]
        assert ready, f"{len(found)} of {count} datagrams have come"
        found += contents(receiver.receive())
    return found


def nothing_waits(opened: socket.socket) -> bool:
    """Whether a socket has nothing to read after a moment."""
    return not select.select([opened], [], [], 0.1)[0]
