"""Packets of one tensor, prepared in chunks and handed out in bursts."""

from ctypes import addressof
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class _Packets:
    """Of a chunk, in the order in which they leave; headers without path and time."""

    headers: NDArray[np.void]
    """`HEADER_DTYPE` records, shape (packets,)."""
    offsets_bytes: NDArray[np.int64]
    """Where in the tensor each packet's elements begin, shape (packets,)."""
    sizes_bytes: NDArray[np.int64]
    """Of the elements, shape (packets,)."""
    starts: NDArray[np.int64]
    """First packet of each burst, and at the end the number of packets; shape (bursts + 1,)."""
    tos: NDArray[np.uint8]
    """Shape (bursts,)."""
    burst_bytes: NDArray[np.int64]
    """Of each burst, as a queue counts it; shape (bursts,)."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What the packets of a chunk have in common."""

    layout: PacketLayout
    header: bytes
    """As all packets begin."""
    tos: tuple[int, int]
    """The byte of packets that are not important, and of those that are."""
    burst_packets: int
    overhead_bytes: int
    """What a packet is longer than its elements, as a queue counts it."""
    mixed_packets: int
    """Bursts that begin behind them leave by their kind, important ones first."""


class Chunk:
    """Packets of one tensor, cut into bursts, which leave in the order of their first packets.

    A burst begins at the first packet that has none yet, and takes the next ones of its kind, important or
    not: what it copies lies together as well as it can. What leaves at the end of a pass is another matter:
    a receiver may have enough before it comes, so there the important packets go first.
    """

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
        mixed_packets: int,
    ) -> None:
        """`sequences` rise; `important` belongs to them, shape (packets,). Of bursts that begin behind
        `mixed_packets`, the important ones go first.

        `overhead_bytes`: what a packet is longer than its elements, as a queue counts it.
        """
        self._tensor = tensor
        self._key = key
        self._next = 0
        self._overhead_bytes = overhead_bytes
        common = AgentFlag(0) if key is None else AgentFlag.AUTHENTICATED
        if is_repeated:
            common |= AgentFlag.RETRANSMISSION
        header = AgentHeader(
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
        recipe = _Recipe(
            layout,
            header,
            (tos(dscp, important=False), tos(dscp, important=True)),
            burst_length(burst_packets, layout, key),
            overhead_bytes,
            mixed_packets,
        )
        cut = _cut if native.LIBRARY is None else _cut_compiled
        packets = cut(recipe, sequences, important)
        self._packets = packets
        self._counts = packets.starts[1:] - packets.starts[:-1]

    @property
    def is_over(self) -> bool:
        """Whether every packet has been taken."""
        return self._next == len(self._counts)

    def take(self, allowed_bytes: int, maximum_packets: int, sprayer: Sprayer, now_ns: int) -> Bursts:
        """The next bursts: one at least, and no more than both numbers allow; tells the sprayer."""
        all_packets, first = self._packets, self._next
        starts = all_packets.starts
        full_bytes = int(all_packets.sizes_bytes[starts[first]]) + self._overhead_bytes
        packets = max(1, min(maximum_packets, allowed_bytes // full_bytes))
        end = int(np.searchsorted(starts, starts[first] + packets, side="right")) - 1
        end = max(end, first + 1)
        self._next = end
        cut = slice(int(starts[first]), int(starts[end]))
        headers = all_packets.headers[cut]
        paths = sprayer.choose(end - first, now_ns)
        burst_starts = starts[first : end + 1] - starts[first]
        _stamp(headers, burst_starts, paths, now_ns)
        sprayer.sent(paths, self._counts[first:end], all_packets.burst_bytes[first:end], now_ns)
        data, offsets, sizes = self._tensor.data, all_packets.offsets_bytes[cut], all_packets.sizes_bytes[cut]
        made = None if self._key is None else tags(self._key, headers, data, offsets, sizes)
        return Bursts(headers, data, offsets, sizes, burst_starts, paths, all_packets.tos[first:end], made)


def _cut(recipe: _Recipe, sequences: NDArray[np.int64], important: NDArray[np.bool_]) -> _Packets:
    """By numpy."""
    count, layout, length = len(sequences), recipe.layout, recipe.burst_packets
    unimportant, others = np.flatnonzero(~important), np.flatnonzero(important)
    # Bursts by number: first those of unimportant packets.
    begins = np.concatenate((unimportant[::length], others[::length]))
    unimportant_bursts = -(-len(unimportant) // length)
    is_late = np.arange(len(begins)) < unimportant_bursts
    is_late &= begins >= recipe.mixed_packets
    order = np.argsort(begins + count * is_late)
    is_important = order >= unimportant_bursts
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    burst_of = np.empty(count, np.int64)
    burst_of[unimportant] = places[np.arange(len(unimportant)) // length]
    burst_of[others] = places[np.arange(len(others)) // length + unimportant_bursts]
    packets = np.argsort(burst_of, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(burst_of, minlength=len(order)))))

    chosen = sequences[packets]
    rows = np.empty((count, AGENT_HEADER_BYTES), np.uint8)
    rows[:] = np.frombuffer(recipe.header, np.uint8)
    headers = rows.view(HEADER_DTYPE).reshape(count)
    headers["flags"][important[packets]] |= np.uint8(AgentFlag.IMPORTANT)
    headers["sequence"] = chosen
    headers["element_offset"] = chosen * layout.elements_per_packet
    is_last = chosen == layout.packet_count - 1
    headers["flags"][is_last] |= np.uint8(AgentFlag.LAST)
    sizes = np.where(is_last, layout.last_bytes, layout.full_bytes)
    burst_bytes = np.add.reduceat(sizes, starts[:-1]) + np.diff(starts) * recipe.overhead_bytes
    tos_bytes = np.array(recipe.tos, np.uint8)[is_important.astype(np.intp)]
    return _Packets(headers, chosen * layout.full_bytes, sizes, starts, tos_bytes, burst_bytes)


def _cut_compiled(recipe: _Recipe, sequences: NDArray[np.int64], important: NDArray[np.bool_]) -> _Packets:
    """The same in one pass."""
    assert native.LIBRARY is not None  # noqa: S101  (its caller looked)
    count, layout, length = len(sequences), recipe.layout, recipe.burst_packets
    sequences = np.ascontiguousarray(sequences, np.int64)
    important = np.ascontiguousarray(important, np.bool_)
    important_count = int(np.count_nonzero(important))
    bursts = sum(-(-kind // length) for kind in (important_count, count - important_count))
    headers = np.empty(count, HEADER_DTYPE)
    offsets, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    starts, burst_bytes = np.empty(bursts + 1, np.int64), np.empty(bursts, np.int64)
    tos_bytes = np.empty(bursts, np.uint8)
    arrays = ChunkArrays(
        recipe.header,
        sequences.ctypes.data,
        important.ctypes.data,
        headers.ctypes.data,
        offsets.ctypes.data,
        sizes.ctypes.data,
        starts.ctypes.data,
        burst_bytes.ctypes.data,
        tos_bytes.ctypes.data,
        count,
        recipe.mixed_packets,
        important_count,
        length,
        recipe.overhead_bytes,
        bursts,
        *recipe.tos,
        layout.elements_per_packet,
        layout.full_bytes,
        layout.last_bytes,
        layout.packet_count - 1,
    )
    native.LIBRARY.mlt_chunk(addressof(arrays))
    return _Packets(headers, offsets, sizes, starts, tos_bytes, burst_bytes)


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
