"""What goes over a data connection: an opening that says whose it is, then frames, each a tensor's chunk.

    opening | header, elements, end mark | header, elements, end mark | …

The end mark tells a chunk that is the tensor's from one that its sender had to give up in the middle: the
memory was the user's again, and zeros fill the rest. docs/wire-format.md has the tables.
"""

from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from mltswitch.hostagent.transport.authentication import tag
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.wire import AUTHENTICATION_TAG_BYTES, WireFormatError
from mltswitch.wire.codec import Received, encode_fields, struct_of
from mltswitch.wire.fields import Field, Header

TCP_VERSION: Final = 1

OPENING: Final = Header(
    name="tcp_opening",
    title="Opening of a data connection",
    meaning="the first bytes, of the end that connects; the other end says nothing",
    fields=(
        Field("version", 8, f"{TCP_VERSION}; a connection that begins otherwise is closed"),
        Field("reserved", 24, "sent as 0, not looked at"),
        Field("flow_token", 64, "the receiver's, from its HELLO", is_hexadecimal=True),
    ),
)
FRAME: Final = Header(
    name="tcp_frame",
    title="Frame",
    meaning="before the elements of one chunk",
    fields=(
        Field("tensor", 32, "number of the tensor"),
        Field("round", 32, "training step, or another exchange of the same tensor"),
        Field("offset_bytes", 64, "where in the tensor the chunk begins"),
        Field("size_bytes", 32, "length of the chunk"),
    ),
)

WHOLE: Final = b"\x01"
GIVEN_UP: Final = b"\x00"
"""End marks."""
OPENING_BYTES: Final = OPENING.size_bytes + AUTHENTICATION_TAG_BYTES
FRAME_HEADER_BYTES: Final = FRAME.size_bytes
END_MARK_BYTES: Final = len(WHOLE)
_FRAME: Final = struct_of(FRAME)


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """Which chunk of which tensor follows."""

    key: TransferKey
    offset_bytes: int
    size_bytes: int

    def encode(self) -> bytes:
        """As it goes onto the connection."""
        return _FRAME.pack(self.key.tensor, self.key.round_number, self.offset_bytes, self.size_bytes)

    @classmethod
    def decode(cls, data: Received) -> "FrameHeader":
        """From exactly its bytes; what they claim is for the receiver to check."""
        tensor, round_number, offset_bytes, size_bytes = _FRAME.unpack(data)
        return cls(TransferKey(tensor, round_number), offset_bytes, size_bytes)


def encode_opening(token: int, key: bytes | None) -> bytes:
    """To the owner of the token; the key is its, too, None: not authenticated."""
    begin = encode_fields(OPENING, (TCP_VERSION, 0, token))
    return begin + (bytes(AUTHENTICATION_TAG_BYTES) if key is None else tag(key, begin))


def is_for(opening: bytes, token: int) -> bool:
    """Whether an opening of the right length names this token; takes equally long for all tokens."""
    place = OPENING.size_bytes - 8
    is_ours = compare_digest(opening[place : OPENING.size_bytes], token.to_bytes(8, "big"))
    return is_ours and opening[0] == TCP_VERSION


def is_genuine(opening: bytes, key: bytes | None) -> bool:
    """Whether its tag is that of this key; None: its tag must be nought."""
    begin, found = opening[: OPENING.size_bytes], opening[OPENING.size_bytes :]
    wanted = bytes(AUTHENTICATION_TAG_BYTES) if key is None else tag(key, begin)
    return compare_digest(found, wanted)


def is_whole(mark: int) -> bool:
    """What the byte of an end mark says; raises WireFormatError."""
    if mark not in {WHOLE[0], GIVEN_UP[0]}:
        raise WireFormatError(f"end mark {mark}", where="tcp frame", expected="0 or 1")
    return mark == WHOLE[0]
