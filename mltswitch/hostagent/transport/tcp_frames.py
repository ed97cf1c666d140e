"""What the two ends of the transport `tcp` say to each other: formats and their limits, no I/O.

A data connection is MAGIC and the receiver's token, then chunks: CHUNK, elements, an end mark. All else is
entries on the control channel, one a frame: a list that begins with its kind.
"""

from struct import Struct
from typing import Annotated, Any, Final, Literal

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, IPvAnyAddress, TypeAdapter, ValidationError

from mltswitch.hostagent.errors import PeerRefusedError, ProtocolViolationError
from mltswitch.hostagent.protocol.frames import first_problem
from mltswitch.wire import ElementType

MAGIC: Final = b"MLT\x01"
TOKEN_BYTES: Final = 8
CHUNK: Final = Struct(">IIIQI")
"""Tensor, round, number of the READY that asked for it, first byte, bytes."""
GIVEN_UP: Final = b"\0"
WHOLE: Final = b"\1"
"""End marks: zeros fill up a chunk whose transfer ended while it was on its way."""
MOST_CHUNKS: Final = 1 << 16
"""Of a tensor: larger ones have larger chunks, so that a bitmap of them fits into a frame."""
MOST_STREAMS: Final = 32

_Number = Annotated[int, Field(ge=0, lt=1 << 32)]
"""Of a tensor, a round or a READY."""
Key = tuple[_Number, _Number]
"""Tensor and round."""
_Elements = Annotated[int, Field(ge=1, le=1 << 32)]
_Bitmap = Annotated[Base64Bytes, Field(max_length=MOST_CHUNKS // 8)]
"""Which chunks have arrived; empty: all."""
_Error = Literal["cancelled", "deadline", "mismatch"]
_ENTRIES: Final[dict[str, TypeAdapter[Any]]] = {
    "ready": TypeAdapter(tuple[Key, _Number, _Elements, ElementType]),
    "done": TypeAdapter(tuple[Key, _Number, _Bitmap]),
    # whether the sender says it, and why
    "cancel": TypeAdapter(tuple[Key, _Number, bool, _Error, Annotated[str, Field(max_length=300)]]),
    "message": TypeAdapter(tuple[Annotated[Base64Bytes, Field(max_length=1024)]]),
    "read": TypeAdapter(tuple[()]),  # one message
}
_ChunkBytes = Annotated[int, Field(ge=4096, le=16 << 20)]


class TcpSettings(BaseModel):
    """Section `tcp` of the agent's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    streams: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = 1
    """Data connections to each peer, over its addresses in turn; each takes the next chunk when it can."""
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$")] | None = None
    """By the kernel's name, `bbr` say; None: the kernel's default."""
    chunk_bytes: _ChunkBytes = 4 << 20
    """Goes in one piece before a tensor of a layer farther in front; both ends use the lesser number."""


class TcpOffer(BaseModel):
    """What a peer needs to connect to us."""

    version: Literal[1] = 1
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", repr=False)]
    addresses: list[tuple[IPvAnyAddress, Annotated[int, Field(ge=1, le=65535)]]] = Field(
        min_length=1, max_length=64
    )
    """One a path."""
    chunk_bytes: _ChunkBytes


def checked_offer(theirs: dict[str, Any], peer: str) -> TcpOffer:
    """Raises PeerRefusedError."""
    try:
        return TcpOffer.model_validate(theirs)
    except ValidationError as error:
        raise PeerRefusedError(
            f"its offer for tcp makes no sense: {first_problem(error)}", peer=peer
        ) from None


def checked_entry(body: dict[str, Any], peer: str) -> tuple[str, tuple[Any, ...]]:
    """Kind and fields; raises ProtocolViolationError."""
    try:
        kind, *fields = body["entry"]
        return kind, _ENTRIES[kind].validate_python(fields)
    except (KeyError, TypeError, ValueError) as error:  # ValidationError is a ValueError
        what = f": {first_problem(error)}" if isinstance(error, ValidationError) else ""
        raise ProtocolViolationError(f"a frame of tcp makes no sense{what}", peer=peer) from None
