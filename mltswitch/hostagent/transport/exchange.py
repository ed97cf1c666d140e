"""What both halves of a connection share: what the ends agreed on, what is to be said, what happened."""

from typing import Final

from mltswitch.hostagent.errors import (
    AgentError,
    PeerUnreachableError,
    ProtocolViolationError,
    TooManyTransfersError,
    TransferMismatchError,
)
from mltswitch.hostagent.transport.hello import LocalEnd, PeerHello, Secrets
from mltswitch.hostagent.transport.interfaces import Event, TransferKey
from mltswitch.hostagent.transport.messages import (
    Goodbye,
    Hello,
    Message,
    Ping,
    Pong,
    Reason,
    encode_message,
)
from mltswitch.hostagent.transport.settings import ConnectionSettings, Transport
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES, Ecn, TrafficClassByte

MOST_NUDGES: Final = 5
MOST_UNSAID_BYTES: Final = 256 * 1024
"""For a peer that is not answered yet. The channel has a limit of its own, for one that does not read."""


class Exchange:
    """Of one connection."""

    def __init__(self, settings: ConnectionSettings, local: LocalEnd, secrets: Secrets) -> None:
        self.settings = settings
        self.local = local
        self.secrets = secrets
        self.peer: PeerHello | None = None
        self.is_observed = False
        """Whether somebody wants to be told how transfers get on."""
        self.control_tos = int(TrafficClassByte(local.control_dscp, Ecn.NOT_ECT))
        self.now_ns = 0
        """Of the call that is being answered."""
        self._unsaid = bytearray()
        self._events: list[Event] = []
        self._spoke_ns: int | None = None
        """When something was said last that the peer has not been heard to know."""
        self._nudges = 0

    def say(self, message: Message) -> None:
        """Have it sent on the control channel."""
        self._unsaid += encode_message(message)
        if not isinstance(message, Hello | Ping | Pong | Goodbye):
            self._spoke_ns, self._nudges = self.now_ns, 0

    @property
    def nudge_ns(self) -> int | None:
        """When to say one thing more, unless what was said is known to have arrived; None: never.

        TCP sees that a lone segment was lost after 200 ms at the earliest, and within a round trip when one
        behind it arrives (RFC 8985). So a small message follows each that matters, and at growing distances
        others, until the peer's kernel has them or one is answered.
        """
        if self._spoke_ns is None:
            return None
        return self._spoke_ns + (self.settings.nudge_ns << self._nudges)

    def nudged(self) -> None:
        """A ping was said."""
        self._nudges += 1
        if self._nudges == MOST_NUDGES:
            self._spoke_ns = None

    def heard(self, until_ns: int) -> None:
        """The peer has, or will have without another word, all that was said by then."""
        if self._spoke_ns is not None and until_ns >= self._spoke_ns:
            self._spoke_ns = None

    @property
    def has_more_to_say(self) -> bool:
        """Whether `take_unsaid` would give something."""
        return bool(self._unsaid)

    def happened(self, event: Event) -> None:
        """Have the user told."""
        self._events.append(event)

    def check_unsaid(self) -> None:
        """While nothing may be said yet: raises PeerUnreachableError where the peer makes us keep too many
        answers."""
        if len(self._unsaid) > MOST_UNSAID_BYTES:
            size_bytes = len(self._unsaid)
            raise PeerUnreachableError(f"says too much before it is answered: {size_bytes} bytes wait for it")

    def take_unsaid(self) -> bytes:
        """What waits for the control channel."""
        data = bytes(self._unsaid)
        self._unsaid.clear()
        return data

    def take_events(self) -> list[Event]:
        """What the user has not been told yet."""
        events, self._events = self._events, []
        return events

    @property
    def peer_name(self) -> str:
        """Empty before its HELLO."""
        return self.peer.name if self.peer else ""

    @property
    def authenticates(self) -> bool:
        """Whether datagrams carry tags: if either end asks for it."""
        return self.local.authenticate or (self.peer is not None and self.peer.authenticate)

    @property
    def send_key(self) -> bytes | None:
        """Of the tags of datagrams to the peer; None: they carry none."""
        return self.peer.key_bytes if self.peer and self.authenticates else None

    @property
    def tag_bytes(self) -> int:
        """Of each datagram's tag."""
        return AUTHENTICATION_TAG_BYTES if self.authenticates else 0

    @property
    def element_bytes(self) -> int:
        """Elements of a full packet, or of a full chunk over TCP, in bytes, once the peer has said hello."""
        ends = [end for end in (self.local, self.peer) if end is not None]
        if self.local.transport is Transport.TCP:
            return min(end.chunk_bytes for end in ends)
        least = min(end.payload_bytes for end in ends)
        return least - AGENT_HEADER_BYTES - self.tag_bytes

    @property
    def packet_overhead_bytes(self) -> int:
        """What a packet is longer than its elements, as a queue counts it."""
        return self.local.wire_header_bytes + AGENT_HEADER_BYTES + self.tag_bytes

    def of_transfer(self, error: AgentError, key: TransferKey) -> AgentError:
        """The same error, of one transfer with this peer."""
        return type(error)(
            error.what, peer=error.peer or self.peer_name, tensor=key.tensor, round_number=key.round_number
        )


class Rounds:
    """Which rounds were posted in one direction, and which the peer has given up before they were."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._last: dict[int, int] = {}
        self._given_up: dict[TransferKey, AgentError] = {}

    def post(self, key: TransferKey, open_transfers: int) -> AgentError | None:
        """Take note of a post; returns why it was given up before, if it was.

        Raises TransferMismatchError for a round that is not later than the last, TooManyTransfersError for
        more transfers or tensors than there may be.
        """
        problem = self._problem(key, open_transfers)
        if problem is not None:
            raise self._exchange.of_transfer(problem, key)
        self._last[key.tensor] = key.round_number
        return self._given_up.pop(key, None)

    def is_past(self, key: TransferKey) -> bool:
        """Whether this round, or a later one, was posted."""
        return key.round_number <= self._last.get(key.tensor, -1)

    def give_up(self, key: TransferKey, error: AgentError) -> None:
        """Nothing will come of what is not posted here, and why. What was given up long ago is forgotten: a
        late post of it waits until its deadline."""
        if self.is_past(key):
            return
        self._given_up.pop(key, None)
        if len(self._given_up) >= self._exchange.settings.maximum_transfers:
            del self._given_up[next(iter(self._given_up))]
        self._given_up[key] = error

    def _problem(self, key: TransferKey, open_transfers: int) -> AgentError | None:
        settings = self._exchange.settings
        if not 0 <= key.tensor < 1 << 32 or not 0 <= key.round_number < 1 << 32:
            return TransferMismatchError("tensor and round are numbers of 32 bits")
        if self.is_past(key):
            last = self._last[key.tensor]
            return TransferMismatchError(
                f"round {last} of it was posted before; rounds rise, so that old packets are told apart"
            )
        if key.tensor not in self._last and len(self._last) >= settings.maximum_tensors:
            return TooManyTransfersError(
                f"{len(self._last)} tensors have been posted in this direction, and no more may be:"
                " post later rounds of them"
            )
        if open_transfers >= settings.maximum_transfers:
            return TooManyTransfersError(
                f"{open_transfers} transfers are open in this direction, and no more may be:"
                " wait for completions before you post others"
            )
        return None


def reason_of(error: AgentError) -> Reason:
    """What the peer is told of it."""
    return Reason.MISMATCH if isinstance(error, TransferMismatchError) else Reason.CANCELLED


def violation(what: str, key: TransferKey) -> ProtocolViolationError:
    """Of a message about one transfer."""
    return ProtocolViolationError(f"{what} (tensor {key.tensor}, round {key.round_number})")
