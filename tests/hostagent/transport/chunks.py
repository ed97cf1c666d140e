"""Chunks as a connection makes them."""

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tensor import PacketLayout, TensorView
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.hostagent.transport.packets import Chunk

OVERHEAD_BYTES = 82


def chunk_of(
    tensor: TensorView,
    layout: PacketLayout,
    sequences: NDArray[np.int64],
    important: NDArray[np.bool_],
    burst_packets: int,
    *,
    key: bytes | None = None,
    is_repeated: bool = False,
    mixed_packets: int | None = None,
) -> Chunk:
    """Of tensor 2³² - 2, round 3; both kinds are mixed unless told otherwise."""
    return Chunk(
        tensor,
        layout,
        sequences,
        important,
        transfer=TransferKey(2**32 - 2, 3),
        layer=17,
        token=2**63 + 1,
        key=key,
        dscp=34,
        burst_packets=burst_packets,
        overhead_bytes=OVERHEAD_BYTES,
        is_repeated=is_repeated,
        mixed_packets=len(sequences) if mixed_packets is None else mixed_packets,
    )
