"""Messages between the two ends of the transport `tcp`: formats and their limits, without I/O.

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
"""Header of a chunk: tensor, round, number of the READY that asked for it, first byte, number of bytes."""
GIVEN_UP: Final = b"\0"
WHOLE: Final = b"\1"
"""End mark of a complete chunk; GIVEN_UP is that of one filled up with zeros because its transfer ended."""
MOST_CHUNKS: Final = 1 << 16
"""The most chunks of a tensor; larger tensors have larger chunks, so that their bitmap fits into a frame."""
MOST_STREAMS: Final = 32

_Number = Annotated[int, Field(ge=0, lt=1 << 32)]
"""Of a tensor, a round or a READY."""
Key = tuple[_Number, _Number]
"""Numbers of the tensor and of the round, which identify a transfer."""
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
    """The section `tcp` of the agent's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    streams: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = 1
    """Data connections to each peer, over its addresses in turn; each takes the next chunk when it can."""
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$")] | None = None
    """Name of the kernel's congestion control, such as `bbr`; None: the kernel's default."""
    chunk_bytes: _ChunkBytes = 4 << 20
    """Bytes sent in one piece, for which layers farther in front wait; the lesser of both ends' numbers."""


class TcpOffer(BaseModel):
    """What a peer needs to know to open data connections to this agent."""

    version: Literal[1] = 1
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", repr=False)]
    addresses: list[tuple[IPvAnyAddress, Annotated[int, Field(ge=1, le=65535)]]] = Field(
        min_length=1, max_length=64
    )
    """Addresses and ports at which data connections are accepted, one for each path."""
    chunk_bytes: _ChunkBytes


def checked_offer(theirs: dict[str, Any], peer: str) -> TcpOffer:
    """The peer's offer, validated; raises PeerRefusedError."""
    try:
        return TcpOffer.model_validate(theirs)
    except ValidationError as error:
        raise PeerRefusedError(
            f"its offer for tcp makes no sense: {first_problem(error)}", peer=peer
        ) from None


def checked_entry(body: dict[str, Any], peer: str) -> tuple[str, tuple[Any, ...]]:
    """Kind and fields of a control message; raises ProtocolViolationError."""
    try:
        kind, *fields = body["entry"]
        return kind, _ENTRIES[kind].validate_python(fields)
    except (KeyError, TypeError, ValueError) as error:  # ValidationError is a ValueError
        what = f": {first_problem(error)}" if isinstance(error, ValidationError) else ""
        raise ProtocolViolationError(f"a frame of tcp makes no sense{what}", peer=peer) from None
