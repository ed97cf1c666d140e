"""The doctor's own datagrams: nobody else's, and worth nothing without the receiver's token.

Numbers in network order: `mltd`, version, kind, DSCP/ECN byte as sent, path, the receiver's 64-bit token,
run, sequence within run and path, and the time at which it was sent; an answer then tells when the question
came. Zeros fill it up to the size that is being tried.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from mltswitch.hostagent.doctor.messages import LEAST_PAYLOAD_BYTES

MAGIC: Final = b"mltd"
VERSION: Final = 1
_HEADER: Final = struct.Struct("!4sBBBBQIIQQQ")
"""48 bytes: less than every datagram that is sent."""
assert _HEADER.size <= LEAST_PAYLOAD_BYTES  # noqa: S101  (by construction)


class Kind(IntEnum):
    """What a datagram is."""

    ONE_WAY = 1
    QUESTION = 2
    ANSWER = 3


@dataclass(frozen=True, slots=True)
class Datagram:
    """One; times are of the monotonic clock of the host that wrote them."""

    kind: Kind
    traffic_byte: int
    path: int
    token: int
    run: int
    sequence: int
    sent_ns: int
    question_sent_ns: int = 0
    """Answers: the question's `sent_ns`."""
    question_received_ns: int = 0

    def encode(self, size_bytes: int) -> bytes:
        """Filled with zeros to this size."""
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.traffic_byte,
            self.path,
            self.token,
            self.run,
            self.sequence,
            self.sent_ns,
            self.question_sent_ns,
            self.question_received_ns,
        )
        return header.ljust(size_bytes, b"\0")


def decode(data: bytes, token: int) -> Datagram | None:
    """None for everything that is not ours: too short, of another kind or version, with another token."""
    if len(data) < LEAST_PAYLOAD_BYTES:
        return None
    magic, version, kind, byte, path, claimed, run, sequence, *times = _HEADER.unpack_from(data)
    if (magic, version, claimed) != (MAGIC, VERSION, token) or kind not in set(Kind):
        return None
    return Datagram(Kind(kind), byte, path, token, run, sequence, *times)
