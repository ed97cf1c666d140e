"""The probe's datagram, and what a receiver notes of one."""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.wire.internet import IPV4_HEADER_BYTES, UDP_HEADER_BYTES

PROBE_PORT: Final = 47001
"""UDP destination port."""
HEADER: Final = struct.Struct("!4sIBBBxIQ")
"""Magic, run, sender, class, important, (padding), sequence, send time in ns since the epoch."""
MAGIC: Final = b"MLTp"
IPV4_UDP_HEADER_BYTES: Final = IPV4_HEADER_BYTES + UDP_HEADER_BYTES

RECORD: Final = np.dtype(
    [
        ("sender", np.uint8),
        ("class_index", np.uint8),
        ("is_important", np.bool_),
        ("sequence", np.uint32),
        ("tos", np.uint8),
        ("delay_ns", np.int64),
    ]
)
"""One received datagram; `tos` is the DSCP/ECN byte as it arrived."""


@dataclass(frozen=True, slots=True)
class ProbePacket:
    """Content of one datagram."""

    run: int
    sender: int
    class_index: int
    is_important: bool
    sequence: int
    sent_ns: int

    def pack(self) -> bytes:
        """Header bytes, to be padded to the datagram's size."""
        return HEADER.pack(
            MAGIC, self.run, self.sender, self.class_index, self.is_important, self.sequence, self.sent_ns
        )

    @classmethod
    def unpack(cls, datagram: bytes) -> "ProbePacket | None":
        """The packet in a datagram; None when it is none of ours."""
        if len(datagram) < HEADER.size:
            return None
        magic, run, sender, class_index, important, sequence, sent_ns = HEADER.unpack_from(datagram)
        if magic != MAGIC:
            return None
        return cls(run, sender, class_index, bool(important), sequence, sent_ns)
