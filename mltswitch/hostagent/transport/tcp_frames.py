"""What the two ends of the transport `tcp` say to each other: formats and their limits, no I/O.

A data connection is an opening (magic, the receiver's token), then chunks: CHUNK, elements, end mark. All
else is entries of frames on the control channel, each a list that begins with its kind.
"""

from struct import Struct
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, TypeAdapter, ValidationError

from mltswitch.hostagent.errors import PeerRefusedError, ProtocolViolationError

VERSION: Final = 1
MAGIC: Final = b"MLT\x01"
TOKEN_BYTES: Final = 8
OPENING_BYTES: Final = len(MAGIC) + TOKEN_BYTES
CHUNK: Final = Struct(">IIIQI")
"""Tensor, round, number of the READY that asked for it, first byte, bytes."""
GIVEN_UP: Final = b"\0"
WHOLE: Final = b"\1"
"""End marks: zeros fill up a chunk whose transfer ended while it was on its way."""

LEAST_CHUNK_BYTES: Final = 4096
MOST_CHUNK_BYTES: Final = 16 << 20
MOST_CHUNKS: Final = 1 << 16
"""Of a tensor: larger ones have larger chunks, so that a bitmap of them fits into a frame."""
MOST_STREAMS: Final = 32
MOST_MESSAGE_BYTES: Final = 1024
MOST_ENTRIES: Final = 32
"""Of a frame, which is below 1 MB even if all are bitmaps."""

_U32 = Annotated[int, Field(ge=0, lt=1 << 32)]
_Text = Annotated[str, Field(max_length=300)]
_Bitmap = Annotated[str, Field(max_length=MOST_CHUNKS // 6 + 4)]

Ready = tuple[Literal["ready"], _U32, _U32, _U32, Annotated[int, Field(ge=1, le=1 << 32)], _U32]
"""Tensor, round, number, elements, their type."""
Done = tuple[Literal["done"], _U32, _U32, _U32, _Bitmap]
"""Tensor, round, number, which chunks have arrived (base64; empty: all)."""
Cancel = tuple[Literal["cancel"], _U32, _U32, _U32, bool, Literal["cancelled", "deadline", "mismatch"], _Text]
"""Tensor, round, number, whether the sender says it, why."""
Message = tuple[Literal["message"], Annotated[str, Field(max_length=MOST_MESSAGE_BYTES * 4 // 3 + 4)]]
"""The user's bytes (base64)."""
Read = tuple[Literal["read"], Annotated[int, Field(ge=1)]]
"""So many bytes of messages have been read."""
_ENTRIES: Final = TypeAdapter[list[Ready | Done | Cancel | Message | Read]](
    Annotated[list[Ready | Done | Cancel | Message | Read], Field(max_length=MOST_ENTRIES)]
)


class TcpSettings(BaseModel):
    """Section `tcp` of the agent's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    streams: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = 1
    """Data connections to each peer, over its addresses in turn; each takes the next chunk when it can."""
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,15}$")] | None = None
    """By the kernel's name, `bbr` say; None: the kernel's default."""
    chunk_bytes: Annotated[int, Field(ge=LEAST_CHUNK_BYTES, le=MOST_CHUNK_BYTES)] = 4 << 20
    """Goes in one piece before a tensor of a layer farther in front; both ends use the lesser number."""


class TcpOffer(BaseModel):
    """What a peer needs to connect to us."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", repr=False)]
    addresses: Annotated[
        tuple[tuple[IPvAnyAddress, Annotated[int, Field(ge=1, le=65535)]], ...],
        Field(min_length=1, max_length=64),
    ]
    """One a path."""
    chunk_bytes: Annotated[int, Field(ge=LEAST_CHUNK_BYTES, le=MOST_CHUNK_BYTES)]


def checked_offer(theirs: dict[str, Any], peer: str) -> TcpOffer:
    """Raises PeerRefusedError."""
    try:
        offer = TcpOffer.model_validate(theirs)
    except ValidationError as error:
        raise PeerRefusedError(f"its offer for tcp makes no sense: {_first(error)}", peer=peer) from None
    if offer.version != VERSION:
        raise PeerRefusedError(f"speaks version {offer.version} of tcp, we speak {VERSION}", peer=peer)
    return offer


def checked_entries(body: dict[str, Any], peer: str) -> list[Any]:
    """Of a frame; raises ProtocolViolationError."""
    try:
        return _ENTRIES.validate_python(body.get("entries"))
    except ValidationError as error:
        raise ProtocolViolationError(f"a frame of tcp makes no sense: {_first(error)}", peer=peer) from None


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
