"""Packets of one tensor, prepared in chunks and handed out in bursts."""

from ctypes import addressof

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.native import ChunkArrays
from mltswitch.hostagent.tagging import tos
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.authentication import tags
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE, Bursts, maximum_burst_packets
from mltswitch.hostagent.transport.interfaces import Sprayer, TransferKey
from mltswitch.wire import (
    AGENT_HEADER_BYTES,
    AUTHENTICATION_TAG_BYTES,
    AgentFlag,
    AgentHeader,
    AgentKind,
    Dscp,
)


def burst_length(burst_packets: int, layout: PacketLayout, key: bytes | None) -> int:
    """Packets of a full burst: as many as are asked for, and no more than the kernel takes at once."""
    tag_bytes = 0 if key is None else AUTHENTICATION_TAG_BYTES
    datagram_bytes = AGENT_HEADER_BYTES + layout.full_bytes + tag_bytes
    return max(1, min(burst_packets, maximum_burst_packets(datagram_bytes)))


class Chunk:
    """Packets of one tensor, important ones first, cut into bursts."""

    def __init__(
        self,
        tensor: TensorView,
        layout: PacketLayout,
        sequences: NDArray[np.int64],
        important: NDArray[np.bool_],
        *,
        transfer: TransferKey,
        layer: int,
        token: int,
        key: bytes | None,
        dscp: Dscp,
        burst_packets: int,
        overhead_bytes: int,
        is_repeated: bool,
    ) -> None:
        """`sequences` rise; `important` belongs to them, shape (packets,).

        `overhead_bytes`: what a packet is longer than its elements, as a queue counts it.
        """
        count = len(sequences)
        important_count = int(np.count_nonzero(important))
        packets = burst_length(burst_packets, layout, key)
        starts = np.concatenate(
            (
                np.arange(0, important_count, packets),
                np.arange(important_count, count, packets),
                np.array([count]),
            )
        )
        important_bursts = -(-important_count // packets)
        self._tensor = tensor
        self._key = key
        self._starts = starts
        self._next = 0
        self._overhead_bytes = overhead_bytes
        self._tos = np.full(len(starts) - 1, tos(dscp, important=False), np.uint8)
        self._tos[:important_bursts] = tos(dscp, important=True)
        common = AgentFlag(0) if key is None else AgentFlag.AUTHENTICATED
        if is_repeated:
            common |= AgentFlag.RETRANSMISSION
        template = AgentHeader(
            AgentKind.DATA,
            common,
            layout.element_type,
            token,
            transfer.tensor,
            transfer.round_number,
            layer,
            0,
            0,
            0,
            0,
        ).encode()
        write = _write_packets if native.LIBRARY is None else _write_packets_compiled
        self._headers, self._offsets, self._sizes = write(
            layout, sequences, important, important_count, template
        )
        self._counts = starts[1:] - starts[:-1]
        self._burst_bytes = np.add.reduceat(self._sizes, starts[:-1])
        self._burst_bytes += self._counts * self._overhead_bytes

    @property
    def is_over(self) -> bool:
        """Whether every packet has been taken."""
        return self._next == len(self._starts) - 1

    def take(self, allowed_bytes: int, maximum_packets: int, sprayer: Sprayer, now_ns: int) -> Bursts:
        """The next bursts: one at least, and no more than both numbers allow; tells the sprayer."""
        first, starts = self._next, self._starts
        full_bytes = int(self._sizes[starts[first]]) + self._overhead_bytes
        packets = max(1, min(maximum_packets, allowed_bytes // full_bytes))
        end = int(np.searchsorted(starts, starts[first] + packets, side="right")) - 1
        end = max(end, first + 1)
        self._next = end
        cut = slice(int(starts[first]), int(starts[end]))
        counts = self._counts[first:end]
        headers = self._headers[cut]
        paths = sprayer.choose(end - first, now_ns)
        burst_starts = starts[first : end + 1] - starts[first]
        _stamp(headers, burst_starts, paths, now_ns)
        sprayer.sent(paths, counts, self._burst_bytes[first:end], now_ns)
        offsets, sizes = self._offsets[cut], self._sizes[cut]
        made = None if self._key is None else tags(self._key, headers, self._tensor.data, offsets, sizes)
        return Bursts(
            headers, self._tensor.data, offsets, sizes, burst_starts, paths, self._tos[first:end], made
        )


Packets = tuple[NDArray[np.void], NDArray[np.int64], NDArray[np.int64]]
"""Headers, and where each one's elements begin and how many bytes they are; shape (packets,) each."""


def _write_packets(
    layout: PacketLayout,
    sequences: NDArray[np.int64],
    important: NDArray[np.bool_],
    important_count: int,
    template: bytes,
) -> Packets:
    """Important ones first, without path and time."""
    count = len(sequences)
    order = np.concatenate((sequences[important], sequences[~important]))
    rows = np.empty((count, AGENT_HEADER_BYTES), np.uint8)
    rows[:] = np.frombuffer(template, np.uint8)
    headers = rows.view(HEADER_DTYPE).reshape(count)
    headers["flags"][:important_count] |= np.uint8(AgentFlag.IMPORTANT)
    headers["sequence"] = order
    headers["element_offset"] = order * layout.elements_per_packet
    is_last = order == layout.packet_count - 1
    headers["flags"][is_last] |= np.uint8(AgentFlag.LAST)
    return headers, order * layout.full_bytes, np.where(is_last, layout.last_bytes, layout.full_bytes)


def _write_packets_compiled(
    layout: PacketLayout,
    sequences: NDArray[np.int64],
    important: NDArray[np.bool_],
    important_count: int,
    template: bytes,
) -> Packets:
    """The same in one pass."""
    assert native.LIBRARY is not None  # noqa: S101  (its caller looked)
    count = len(sequences)
    sequences = np.ascontiguousarray(sequences, np.int64)
    important = np.ascontiguousarray(important, np.bool_)
    headers = np.empty(count, HEADER_DTYPE)
    offsets, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    arrays = ChunkArrays(
        template,
        sequences.ctypes.data,
        important.ctypes.data,
        headers.ctypes.data,
        offsets.ctypes.data,
        sizes.ctypes.data,
        count,
        important_count,
        layout.elements_per_packet,
        layout.full_bytes,
        layout.last_bytes,
        layout.packet_count - 1,
    )
    native.LIBRARY.mlt_chunk(addressof(arrays))
    return headers, offsets, sizes


def _stamp(
    headers: NDArray[np.void], starts: NDArray[np.int64], paths: NDArray[np.int64], now_ns: int
) -> None:
    """Path and time of departure of all packets of these bursts."""
    if native.LIBRARY is not None:
        paths = np.ascontiguousarray(paths, np.int64)
        native.LIBRARY.mlt_stamp(
            headers.ctypes.data, starts.ctypes.data, paths.ctypes.data, len(paths), now_ns
        )
        return
    headers["sent_nanoseconds"] = now_ns
    headers["path"] = np.repeat(paths, starts[1:] - starts[:-1])
