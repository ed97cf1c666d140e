"""The control channel's frames: JSON objects behind a length of four bytes.

Each frame has a `type`. Types and fields that an end does not know are skipped, so that later versions
may say more.
"""

import json
import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mltswitch.documents import plain_words
from mltswitch.hostagent.errors import PeerRefusedError, ProtocolViolationError

LENGTH_BYTES: Final = 4
MOST_FRAME_BYTES: Final = 1 << 20
MOST_HELLO_BYTES: Final = 1 << 18
"""Longest first frame, which comes before the peer is known."""
MOST_OFFER_BYTES: Final = 1 << 14
"""Longest offer of a channel declared after HELLO; an agent keeps up to MOST_CHANNELS for each peer."""
MOST_CHANNELS: Final = 64
MOST_PEERS: Final = 1024
"""The most peers that are connected at once."""
MOST_TEXT: Final = 300
"""The most characters of a reason in a frame."""

_CHANNEL_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}"
ChannelName = Annotated[str, Field(pattern=f"^{_CHANNEL_NAME}$")]


class _Frame(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ChannelOffer(_Frame):
    """What one end offers for a channel: the transport and its parameters."""

    transport: Annotated[str, Field(min_length=1, max_length=60)]
    parameters: dict[str, Any] = Field(repr=False)
    """Parameters of the transport, such as addresses, token and keys."""


class Hello(_Frame):
    """HELLO, the first frame that each end sends."""

    type: Literal["hello"] = "hello"
    versions: Annotated[tuple[int, ...], Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(min_length=1, max_length=63)]
    software: Annotated[str, Field(max_length=60)] = ""
    capabilities: Annotated[tuple[str, ...], Field(max_length=256)] = ()
    """What this end supports beyond the protocol version; the peer ignores those it does not know."""
    channels: Annotated[dict[ChannelName, ChannelOffer], Field(max_length=MOST_CHANNELS)]


class OpenChannel(_Frame):
    """Frame that offers a channel declared after HELLO."""

    type: Literal["channel"] = "channel"
    name: ChannelName
    offer: ChannelOffer


class TransportFrame(_Frame):
    """Frame that carries a message from a transport to its other end."""

    type: Literal["transport"] = "transport"
    channel: ChannelName
    body: dict[str, Any]


class Goodbye(_Frame):
    """GOODBYE, the last frame; sent in place of HELLO, it refuses the peer."""

    type: Literal["goodbye"] = "goodbye"
    code: Annotated[str, Field(max_length=20)] = "left"
    """`left`, or one of the codes of `handshake`; an unknown code means `refused`."""
    reason: Annotated[str, Field(max_length=MOST_TEXT)] = ""


Frame = Hello | OpenChannel | TransportFrame | Goodbye
_FRAMES: Final = TypeAdapter[Frame](Annotated[Frame, Field(discriminator="type")])
_MOST_BYTES: Final = {
    "hello": MOST_HELLO_BYTES,
    "channel": MOST_OFFER_BYTES,
    "goodbye": MOST_OFFER_BYTES,
    "transport": MOST_FRAME_BYTES,
}
"""Of a frame, by its type."""


def encoded(frame: Frame) -> bytes:
    """The frame as it is sent: its length and its JSON."""
    body = frame.model_dump_json().encode()
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def body_bytes(length: bytes, most: int = MOST_FRAME_BYTES) -> int:
    """Number of bytes that follow a frame's length field; raises ProtocolViolationError."""
    if length.startswith(b"\x16\x03"):
        raise PeerRefusedError(
            "it speaks TLS, and we are in plain text: give both ends keys of one job, or neither"
        )
    size = int.from_bytes(length, "big")
    if not 0 < size <= most:
        raise ProtocolViolationError(f"a control frame of {size} bytes; there may be {most}")
    return size


def decoded(body: bytes) -> Frame | None:
    """The frame in a JSON body, None for a type of a later version; raises ProtocolViolationError."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolViolationError("a control frame that is no JSON") from None
    kind = content.get("type") if isinstance(content, dict) else None
    if not isinstance(kind, str):
        raise ProtocolViolationError("a control frame without a type")
    if kind not in _MOST_BYTES:
        return None
    if len(body) > _MOST_BYTES[kind]:
        raise ProtocolViolationError(f"a control frame of type {kind} and {len(body)} bytes")
    try:
        return _FRAMES.validate_python(content)
    except ValidationError as error:
        raise ProtocolViolationError(text(f"a control frame of type {first_problem(error)}")) from None


def first_problem(error: ValidationError) -> str:
    """The first validation error's place and kind, without the wrong value, which may be a key."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {plain_words(first)}"


def is_channel_name(name: str) -> bool:
    """Whether a channel may have this name, so that frames can carry it."""
    return re.fullmatch(_CHANNEL_NAME, name) is not None


def text(reason: str) -> str:
    """A reason cut to what a frame may carry, without characters that could control a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in reason)[:MOST_TEXT]
