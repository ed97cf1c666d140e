"""What agents say on the control channel: a length, a kind and a body of fixed layout each.

Network order. The length counts kind and body. docs/control-protocol.md lists the fields, and who says what
when.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Self

from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    ProtocolViolationError,
    TransferMismatchError,
)
from mltswitch.hostagent.tensor.layout import MAXIMUM_ELEMENTS, MAXIMUM_PACKETS
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey
from mltswitch.hostagent.words import encodable
from mltswitch.wire import WireFormatError

MAXIMUM_TEXT_BYTES: Final = 400
MAXIMUM_HELLO_BYTES: Final = 64 * 1024
MAXIMUM_MARKED_PATHS: Final = 64
"""Who sprays over more marks none."""
_PREFIX: Final = struct.Struct("!IB")
_NO_BOUND: Final = -1.0
_DOCTOR: Final = b"mltdo"
"""How a doctor begins, which has the same port."""

_SHOWN_BYTES: Final = 20
"""Of what somebody else says first."""


class MessageKind(IntEnum):
    """The byte behind the length."""

    HELLO = 1
    READY = 2
    PROBE = 3
    BITMAP = 4
    STOP = 5
    STOPPED = 6
    CANCEL = 7
    PING = 8
    PONG = 9
    GOODBYE = 10


class Reason(IntEnum):
    """Why a transfer was cancelled."""

    CANCELLED = 1
    DEADLINE = 2
    MISMATCH = 3


_ERRORS: Final[Mapping[Reason, type[AgentError]]] = {
    Reason.CANCELLED: CancelledError,
    Reason.DEADLINE: DeadlineExceededError,
    Reason.MISMATCH: TransferMismatchError,
}


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of both ends."""

    kind: ClassVar = MessageKind.HELLO
    maximum_bytes: ClassVar = MAXIMUM_HELLO_BYTES
    body: bytes

    def encode(self) -> bytes:
        """The body."""
        return self.body

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body."""
        return cls(body)


@dataclass(frozen=True, slots=True)
class Ready:
    """The receiver has memory for a tensor."""

    kind: ClassVar = MessageKind.READY
    layout: ClassVar = struct.Struct("!IIBQdd")
    maximum_bytes: ClassVar = layout.size
    key: TransferKey
    element_type: int
    element_count: int
    loss_bound: float
    important_loss_bound: float | None

    def encode(self) -> bytes:
        """The body."""
        important = _NO_BOUND if self.important_loss_bound is None else self.important_loss_bound
        return self.layout.pack(
            *_numbers(self.key), self.element_type, self.element_count, self.loss_bound, important
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body; raises WireFormatError."""
        tensor, number, element_type, count, bound, important = _unpack(cls.layout, body)
        if not 1 <= count <= MAXIMUM_ELEMENTS:
            raise WireFormatError(f"{count} elements", where="ready", expected=f"1 to {MAXIMUM_ELEMENTS}")
        if not 0 <= bound < 1:
            raise WireFormatError(f"loss bound {bound}", where="ready", expected="0 or more, below 1")
        if important != _NO_BOUND and not 0 <= important <= 1:
            raise WireFormatError(f"important loss bound {important}", where="ready", expected="0 to 1")
        return cls(
            TransferKey(tensor, number),
            element_type,
            count,
            bound,
            None if important == _NO_BOUND else important,
        )


@dataclass(frozen=True, slots=True)
class Probe:
    """The sender has sent all that it was to send, and asks what has arrived.

    Data may still be on its way: what is sent on a path ends with a marker (`feedback.marker`), behind which
    nothing is.
    """

    kind: ClassVar = MessageKind.PROBE
    layout: ClassVar = struct.Struct("!IIII")
    path: ClassVar = struct.Struct("!H")
    maximum_bytes: ClassVar = layout.size + MAXIMUM_MARKED_PATHS * path.size
    key: TransferKey
    attempt: int
    """Counts from 1."""
    important_packets: int
    """Of the tensor."""
    marked_paths: tuple[int, ...] = ()
    """All that data left on since the probe before, each with a marker of this attempt; empty: no markers."""

    def encode(self) -> bytes:
        """The body."""
        paths = b"".join(map(self.path.pack, self.marked_paths))
        return self.layout.pack(*_numbers(self.key), self.attempt, self.important_packets) + paths

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body; raises WireFormatError."""
        tensor, number, attempt, important = _unpack(cls.layout, body[: cls.layout.size])
        rest = body[cls.layout.size :]
        if len(rest) % cls.path.size:
            raise WireFormatError(f"{len(body)} B", where="probe", expected="whole path numbers")
        paths = tuple(path for (path,) in cls.path.iter_unpack(rest))
        return cls(TransferKey(tensor, number), attempt, important, paths)


@dataclass(frozen=True, slots=True)
class Bitmap:
    """What has arrived: an answer to a probe."""

    kind: ClassVar = MessageKind.BITMAP
    layout: ClassVar = struct.Struct("!III")
    maximum_bytes: ClassVar = layout.size + MAXIMUM_PACKETS // 8
    key: TransferKey
    attempt: int
    """Of the probe."""
    bits: bytes
    """As tensor.bitmap makes them."""

    def encode(self) -> bytes:
        """The body."""
        return self.layout.pack(*_numbers(self.key), self.attempt) + self.bits

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body; raises WireFormatError."""
        tensor, number, attempt = _unpack(cls.layout, body[: cls.layout.size])
        return cls(TransferKey(tensor, number), attempt, body[cls.layout.size :])


@dataclass(frozen=True, slots=True)
class Stop:
    """The receiver has enough."""

    kind: ClassVar = MessageKind.STOP
    layout: ClassVar = struct.Struct("!IIII")
    maximum_bytes: ClassVar = layout.size
    key: TransferKey
    packets_received: int
    important_received: int

    def encode(self) -> bytes:
        """The body."""
        return self.layout.pack(*_numbers(self.key), self.packets_received, self.important_received)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body; raises WireFormatError."""
        tensor, number, packets, important = _unpack(cls.layout, body)
        return cls(TransferKey(tensor, number), packets, important)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The sender sends no more of the tensor."""

    kind: ClassVar = MessageKind.STOPPED
    layout: ClassVar = struct.Struct("!IIII")
    maximum_bytes: ClassVar = layout.size
    key: TransferKey
    packets_sent: int
    """Retransmissions included, modulo 2³²."""
    important_packets: int
    """Of those tagged until then."""

    def encode(self) -> bytes:
        """The body."""
        return self.layout.pack(*_numbers(self.key), self.packets_sent & 0xFFFFFFFF, self.important_packets)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body; raises WireFormatError."""
        tensor, number, sent, important = _unpack(cls.layout, body)
        return cls(TransferKey(tensor, number), sent, important)


@dataclass(frozen=True, slots=True)
class Cancel:
    """One end gives a transfer up."""

    kind: ClassVar = MessageKind.CANCEL
    layout: ClassVar = struct.Struct("!IIBB")
    maximum_bytes: ClassVar = layout.size + MAXIMUM_TEXT_BYTES
    key: TransferKey
    direction: Direction
    """What the end that gives up was to do with the tensor."""
    reason: Reason
    text: str

    def error(self) -> AgentError:
        """What it means at the other end."""
        return _ERRORS[self.reason](f"given up by the peer: {self.text}")

    def encode(self) -> bytes:
        """The body."""
        sending = self.direction is Direction.SEND
        return self.layout.pack(*_numbers(self.key), sending, self.reason) + _short(self.text)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body; raises WireFormatError."""
        tensor, number, sending, reason = _unpack(cls.layout, body[: cls.layout.size])
        if sending > 1 or reason not in set(Reason):
            raise WireFormatError(f"direction {sending}, reason {reason}", where="cancel")
        direction = Direction.SEND if sending else Direction.RECEIVE
        return cls(TransferKey(tensor, number), direction, Reason(reason), _text(body[cls.layout.size :]))


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a Pong."""

    kind: ClassVar = MessageKind.PING
    layout: ClassVar = struct.Struct("!Q")
    maximum_bytes: ClassVar = layout.size
    sent_ns: int

    def encode(self) -> bytes:
        """The body."""
        return self.layout.pack(self.sent_ns)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body; raises WireFormatError."""
        return cls(*_unpack(cls.layout, body))


@dataclass(frozen=True, slots=True)
class Pong(Ping):
    """Says the same number back."""

    kind: ClassVar = MessageKind.PONG


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The last message of an end."""

    kind: ClassVar = MessageKind.GOODBYE
    maximum_bytes: ClassVar = MAXIMUM_TEXT_BYTES
    text: str

    def encode(self) -> bytes:
        """The body."""
        return _short(self.text)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """From the body."""
        return cls(_text(body))


Message = Hello | Ready | Probe | Bitmap | Stop | Stopped | Cancel | Ping | Pong | Goodbye
_TYPES: Final[dict[int, type[Message]]] = {
    entry.kind: entry for entry in (Hello, Ready, Probe, Bitmap, Stop, Stopped, Cancel, Ping, Pong, Goodbye)
}
_BEGINNINGS: Final = frozenset({MessageKind.HELLO, MessageKind.GOODBYE})


def encode_message(message: Message) -> bytes:
    """As it goes onto the control channel."""
    body = message.encode()
    return _PREFIX.pack(1 + len(body), message.kind) + body


class MessageReader:
    """Finds the messages in a stream of bytes; keeps at most one that has not ended yet."""

    def __init__(self, *, is_greeted: bool = True) -> None:
        """`is_greeted`: the peer's HELLO has been read elsewhere. Else only that is waited for, or a GOODBYE
        that says why none comes: a stranger makes us keep no more than the longest HELLO."""
        self._waiting = bytearray()
        self._is_greeted = is_greeted
        self._has_read = False
        """A message, at least one."""
        self.has_heard_doctor = False
        """Who is no agent, and one of us."""

    @property
    def waiting_bytes(self) -> int:
        """Of a message that has not ended yet."""
        return len(self._waiting)

    def messages(self, data: bytes) -> Iterator[Message]:
        """Those that end in the data; kind and length are checked before a body is waited for.

        Raises WireFormatError, or ProtocolViolationError for what comes before a HELLO; nothing can be read
        after either.
        """
        self._waiting += data
        while len(self._waiting) >= _PREFIX.size:
            length, kind = _PREFIX.unpack_from(self._waiting)
            found = _TYPES.get(kind)
            if found is None:
                raise self._unknown(kind)
            if not self._is_greeted and found.kind not in _BEGINNINGS:
                raise ProtocolViolationError(f"hello comes first, not {found.kind.name.lower()}")
            if not 1 <= length <= 1 + found.maximum_bytes:
                raise WireFormatError(
                    f"{length} bytes",
                    where=f"control message {found.kind.name.lower()}",
                    expected=f"at most {1 + found.maximum_bytes}",
                )
            end = _PREFIX.size - 1 + length
            if len(self._waiting) < end:
                return
            body = bytes(self._waiting[_PREFIX.size : end])
            del self._waiting[:end]
            self._has_read = self._is_greeted = True
            yield found.decode(body)

    def _unknown(self, kind: int) -> WireFormatError:
        if self._has_read:
            return WireFormatError(f"kind {kind}", where="control message", expected="a known kind")
        if self._waiting.startswith(_DOCTOR):
            self.has_heard_doctor = True
            return WireFormatError("mltswitch agent doctor speaks there, and this is an agent")
        shown = bytes(self._waiting[:_SHOWN_BYTES]).decode(errors="replace")
        return WireFormatError(f"no agent speaks there: it says {shown!r} first")


def _numbers(key: TransferKey) -> tuple[int, int]:
    return key.tensor, key.round_number


def _unpack(layout: struct.Struct, body: bytes) -> tuple[int, ...]:
    if len(body) != layout.size:
        raise WireFormatError(
            f"{len(body)} bytes", where="body of a control message", expected=f"{layout.size}"
        )
    return layout.unpack(body)


def _short(text: str) -> bytes:
    """It may be a user's."""
    return encodable(text).encode()[:MAXIMUM_TEXT_BYTES]


def _text(body: bytes) -> str:
    return body.decode(errors="replace")
