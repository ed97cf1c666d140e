"""Which packets of a tensor have arrived: as bits on the control channel, and what that leaves to be zeroed.

On the wire bit k of byte j (k = 0 is the least significant) stands for packet 8j + k: 1 has arrived. Bits
behind the last packet are 0.
"""

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.rows import check_layout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.wire import WireFormatError

Received = bytes | bytearray | memoryview


def bitmap_bytes(packet_count: int) -> int:
    """Length of a bitmap."""
    return -(-packet_count // 8)


def encode_bitmap(received: NDArray[np.bool_]) -> bytes:
    """Bits of which packets have arrived, shape (packets,)."""
    return np.packbits(received, bitorder="little").tobytes()


def decode_bitmap(data: Received, packet_count: int) -> NDArray[np.bool_]:
    """Which packets have arrived, shape (packets,).

    Raises WireFormatError where the bitmap is not one of so many packets.
    """
    if len(data) != bitmap_bytes(packet_count):
        raise WireFormatError(
            f"{len(data)} bytes",
            where="bitmap",
            expected=f"{bitmap_bytes(packet_count)} bytes for {packet_count} packets",
        )
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    if bits[packet_count:].any():
        raise WireFormatError(f"names packets behind the last of {packet_count}", where="bitmap")
    return bits[:packet_count].view(np.bool_)


def missing_elements(received: NDArray[np.bool_], layout: PacketLayout) -> NDArray[np.int64]:
    """Ranges [first, last) of missing elements, in order and as few as possible, shape (ranges, 2)."""
    _check_length(received, layout)
    edges = np.flatnonzero(np.diff(received, prepend=True, append=True)).astype(np.int64)
    ranges = edges.reshape(-1, 2) * layout.elements_per_packet
    return np.minimum(ranges, layout.element_count, out=ranges)


def zero_missing(view: TensorView, received: NDArray[np.bool_], layout: PacketLayout) -> None:
    """Set missing elements to 0, in place; the others are not touched."""
    _check_length(received, layout)
    check_layout(view, layout)
    full_packets = layout.element_count // layout.elements_per_packet
    cut = full_packets * layout.full_bytes
    view.data[:cut].reshape(full_packets, layout.full_bytes)[np.flatnonzero(~received[:full_packets])] = 0
    if not received[-1]:
        view.data[(layout.packet_count - 1) * layout.full_bytes :] = 0


def _check_length(received: NDArray[np.bool_], layout: PacketLayout) -> None:
    if received.shape != (layout.packet_count,) or received.dtype != np.bool_:
        raise ValueError(
            f"{received.dtype} of shape {received.shape} for a tensor of {layout.packet_count} packets"
        )
