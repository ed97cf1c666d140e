"""What two doctors say to each other over a control channel: JSON documents with their length before them.

Each side begins with `PREAMBLE`, which names the version of this conversation. Then come messages: four bytes
of length, network order, and that much JSON. Nothing here is understood by agents, nor the other way round.

    examiner                                       examined
    hello ────────────────────────────────────────▶
          ◀──────────────────────────────── hello, findings
    expect(run) ──────────────────────────────────▶
          ◀──────────────────────────────────────── ready
    datagrams of the run ═════════════════════════▶
    sent ─────────────────────────────────────────▶
          ◀───────────────────────────────────────── seen
    transmit(run) ────────────────────────────────▶
          ◀═════════════════════════ datagrams of the run
          ◀───────────────────────────────────────── sent
    finish ───────────────────────────────────────▶
          ◀───────────────────────────────────── finished
"""

import struct
from ipaddress import ip_address
from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from mltswitch.errors import printable
from mltswitch.hostagent.doctor.findings import Status
from mltswitch.hostagent.doctor.settings import MAXIMUM_PATHS
from mltswitch.hostagent.errors import PeerRefusedError, ProtocolViolationError
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES

VERSION: Final = 1
PREAMBLE: Final = b"mltdoc" + struct.pack("!H", VERSION)
MAXIMUM_MESSAGE_BYTES: Final = 1 << 20
"""The longest says what became of 256 DSCP/ECN bytes on 64 paths."""
LEAST_PAYLOAD_BYTES: Final = 64
"""Holds the longest header of a datagram of ours."""
MAXIMUM_RUN_DATAGRAMS: Final = 8_192
"""Of one run, over all paths; the examined side sends no more, whoever asks."""
MAXIMUM_RUN_BYTES: Final = 32 << 20
MAXIMUM_RUNS: Final = 256
"""Of one examination."""
MAXIMUM_FINDINGS: Final = 256
_MAXIMUM_TEXT: Final = 400
_AGENT: Final = b"\0"
"""An agent's HELLO begins with its length, less than 64 KiB in four bytes."""
_SHOWN_BYTES: Final = 20
_LENGTH: Final = struct.Struct("!I")


def _address(text: str) -> str:
    ip_address(text)
    return text


def cut(text: str) -> str:
    """As a message takes it; what is escaped is longer than it was."""
    return printable(text)[:_MAXIMUM_TEXT]


# What a peer says must not steer a terminal.
_Text = Annotated[str, Field(max_length=_MAXIMUM_TEXT), AfterValidator(printable)]
_Name = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(printable)]
_PathNumber = Annotated[int, Field(ge=0, lt=MAXIMUM_PATHS)]
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Byte = Annotated[int, Field(ge=0, le=255)]
_Payload = Annotated[int, Field(ge=LEAST_PAYLOAD_BYTES, le=UDP_MAXIMUM_PAYLOAD_BYTES)]
_RunNumber = Annotated[int, Field(ge=1, le=MAXIMUM_RUNS)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PathEnd(_Message):
    """Where one end receives, and how long a packet its interface takes."""

    address: Annotated[str, Field(max_length=64), AfterValidator(_address)]
    port: Annotated[int, Field(ge=1, lt=1 << 16)]
    mtu_bytes: Annotated[int, Field(ge=68, le=1 << 16)]


class Hello(_Message):
    """Who speaks, and what the other puts into every datagram."""

    kind: Literal["hello"] = "hello"
    name: _Name
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """Random, 64 bits in hexadecimal; chosen by the receiver of the datagrams."""
    paths: Annotated[tuple[PathEnd, ...], Field(min_length=1, max_length=MAXIMUM_PATHS)]


class ToldFinding(_Message):
    """See `findings.Finding`."""

    subject: _Text
    status: Annotated[Status, Field(strict=False)]
    seen: _Text
    meaning: _Text = ""
    remedy: _Text = ""


class Findings(_Message):
    """The examined host, as it sees itself."""

    kind: Literal["findings"] = "findings"
    findings: Annotated[tuple[ToldFinding, ...], Field(max_length=MAXIMUM_FINDINGS)]


class Run(_Message):
    """Datagrams that one side sends: every size with every byte on every path, so many times."""

    number: _RunNumber
    paths: Annotated[tuple[_PathNumber, ...], Field(min_length=1, max_length=MAXIMUM_PATHS)]
    traffic_bytes: Annotated[tuple[_Byte, ...], Field(min_length=1, max_length=256)]
    payload_bytes: Annotated[tuple[_Payload, ...], Field(min_length=1, max_length=64)]
    copies: Annotated[int, Field(ge=1, le=MAXIMUM_RUN_DATAGRAMS)]
    is_echoed: bool = False
    """Each datagram is answered by one of the same size, once."""

    @model_validator(mode="after")
    def _is_bounded(self) -> "Run":
        if len(set(self.paths)) < len(self.paths):
            raise ValueError("a path twice")
        if self.datagrams > MAXIMUM_RUN_DATAGRAMS:
            raise ValueError(f"{self.datagrams} datagrams, {MAXIMUM_RUN_DATAGRAMS} at most")
        rounds = self.copies * len(self.traffic_bytes) * len(self.paths)
        if rounds * sum(self.payload_bytes) > MAXIMUM_RUN_BYTES:
            raise ValueError(f"more than {MAXIMUM_RUN_BYTES} bytes")
        return self

    @property
    def datagrams_per_path(self) -> int:
        """How many each path gets."""
        return self.copies * len(self.traffic_bytes) * len(self.payload_bytes)

    @property
    def datagrams(self) -> int:
        """On all paths."""
        return self.datagrams_per_path * len(self.paths)


class Expect(_Message):
    """The examiner is about to send."""

    kind: Literal["expect"] = "expect"
    run: Run


class Ready(_Message):
    """Then let it begin."""

    kind: Literal["ready"] = "ready"
    number: _RunNumber


class Transmit(_Message):
    """The examined side is asked to send."""

    kind: Literal["transmit"] = "transmit"
    run: Run


class RefusedSize(_Message):
    """Datagrams that the sender's own kernel did not take."""

    payload_bytes: _Payload
    error: Annotated[int, Field(ge=1, le=4095)]
    """errno(3)."""
    count: _Count


class PathSent(_Message):
    """What left on one path."""

    path: _PathNumber
    sent: _Count
    refused: Annotated[tuple[RefusedSize, ...], Field(max_length=64)] = ()
    is_withheld: bool = False
    """Nothing was sent: nobody has proved that the path's address wants it."""


class Sent(_Message):
    """The run has left."""

    kind: Literal["sent"] = "sent"
    number: _RunNumber
    paths: Annotated[tuple[PathSent, ...], Field(max_length=MAXIMUM_PATHS)]


class PathSeen(_Message):
    """What arrived on one path."""

    path: _PathNumber
    arrived: _Count
    """Each datagram once."""
    doubled: _Count
    misdirected: _Count
    """Sent on this path, and come in at the address of another."""
    traffic_bytes: Annotated[tuple[tuple[_Byte, _Byte, _Count], ...], Field(max_length=4096)]
    """(byte as sent, as received, how many)."""
    sizes: Annotated[tuple[tuple[_Count, _Count], ...], Field(max_length=64)]
    """(payload bytes, how many)."""
    dropped_by_host: _Count
    """By the receiver's own full socket buffer."""


class Seen(_Message):
    """What has come of a run."""

    kind: Literal["seen"] = "seen"
    number: _RunNumber
    paths: Annotated[tuple[PathSeen, ...], Field(max_length=MAXIMUM_PATHS)]


class Finish(_Message):
    """The examiner has what it wants."""

    kind: Literal["finish"] = "finish"


class Finished(_Message):
    """How the examined side's clock did meanwhile."""

    kind: Literal["finished"] = "finished"
    elapsed_ns: _Count
    clock_change_ns: Annotated[int, Field(gt=-(1 << 63), lt=1 << 63)]
    ignored_datagrams: _Count
    """Without our token: not answered, not counted elsewhere."""


class Refuse(_Message):
    """The last word of a side that ends the conversation."""

    kind: Literal["refuse"] = "refuse"
    reason: _Text


Message = Hello | Findings | Expect | Ready | Transmit | Sent | Seen | Finish | Finished | Refuse
AnyMessage = TypeVar("AnyMessage", bound=_Message)
_ADAPTER: Final[TypeAdapter[Message]] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


def encode(message: Message) -> bytes:
    """One message, with its length."""
    body = message.model_dump_json().encode()
    if len(body) > MAXIMUM_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Bytes of the channel, cut anywhere, to messages; holds one message at most."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._waiting = bytearray()
        self._is_greeted = False

    def feed(self, data: bytes) -> list[Message]:
        """What is complete now.

        Raises:
            PeerRefusedError: the peer is no doctor, or one of another version.
            ProtocolViolationError: it says what no doctor says.
        """
        self._waiting += data
        if not self._is_greeted and not self._greet():
            return []
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _greet(self) -> bool:
        known = PREAMBLE[:-2]
        if self._waiting[: len(known)] != known[: len(self._waiting)]:
            raise PeerRefusedError(_no_doctor(self._waiting), peer=self._peer)
        if len(self._waiting) < len(PREAMBLE):
            return False
        version = int.from_bytes(self._waiting[len(known) : len(PREAMBLE)], "big")
        if version != VERSION:
            raise PeerRefusedError(
                f"its doctor speaks version {version}, ours {VERSION}: use one release on both hosts",
                peer=self._peer,
            )
        del self._waiting[: len(PREAMBLE)]
        self._is_greeted = True
        return True

    def _next(self) -> Message | None:
        if len(self._waiting) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._waiting)
        if length > MAXIMUM_MESSAGE_BYTES:
            raise ProtocolViolationError(f"a message of {length} bytes", peer=self._peer)
        if len(self._waiting) < _LENGTH.size + length:
            return None
        body = bytes(self._waiting[_LENGTH.size : _LENGTH.size + length])
        del self._waiting[: _LENGTH.size + length]
        try:
            return _ADAPTER.validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))[:80]
            raise ProtocolViolationError(
                f"says what no doctor says: {place}: {first['msg'][:120]}", peer=self._peer
            ) from None


def _no_doctor(beginning: bytes | bytearray) -> str:
    if beginning[:1] == _AGENT:
        return "is an agent, and no doctor: start mltswitch agent doctor --listen there"
    shown = printable(bytes(beginning[:_SHOWN_BYTES]).decode(errors="replace"))
    return f"is neither a doctor nor an agent: something else, which says {shown!r} first, is at that port"
