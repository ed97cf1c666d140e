"""What an observer is told: one type for each kind of event; docs/agent-telemetry.md lists the fields.

Times are `time.monotonic_ns()` of the host. The names of types and fields are the schema of traces: they may
be added to, and do not change.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Protocol, get_args

from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.spraying.standing import PathCondition, Reason, State
from mltswitch.hostagent.transport.interfaces import Direction, Stage, TransferStatistics

COMPLETED: Final = "completed"
"""Result of a transfer without an error."""


def kind_of(error: AgentError | None) -> str:
    """The error as traces and metrics name it, as in `deadline_exceeded`; COMPLETED where there is none."""
    if error is None:
        return COMPLETED
    words = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")


class DropReason(StrEnum):
    """Why datagrams did not become part of a tensor."""

    KERNEL = "kernel"
    """The receive buffer was full."""
    UNKNOWN = "unknown"
    """Their token is none of ours."""
    FALSE = "false"
    """Our token, but no packet of the peer's: wrong tag, wrong fields."""
    LATE = "late"
    """Of a transfer that is not open here."""


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The observer is told from here on."""

    name: ClassVar = "agent_started"
    time_ns: int
    agent: str
    addresses: tuple[str, ...]
    """Local ones of the data, one a path."""


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """The agent was closed."""

    name: ClassVar = "agent_ended"
    time_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Warned:
    """What the user should know about this machine."""

    name: ClassVar = "warned"
    time_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """The handshake is done."""

    name: ClassVar = "peer_connected"
    time_ns: int
    peer: str
    paths: int
    payload_bytes: int
    """Longest UDP payload that the peer takes."""
    window_bytes: int
    """That may be on its way to the peer."""


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The connection is over, or there never was one."""

    name: ClassVar = "peer_lost"
    time_ns: int
    peer: str
    """Its address where it has not told its name: somebody was refused, or gave up."""
    kind: str
    """Type of the error: `peer_unreachable`, say."""
    reason: str


@dataclass(frozen=True, slots=True)
class TransferPosted:
    """The user has given a tensor, or memory for one."""

    name: ClassVar = "transfer_posted"
    time_ns: int
    peer: str
    tensor: int
    round_number: int
    direction: Direction
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TransferAdvanced:
    """A transfer has begun, a pass of its packets is over, or the receiver has said what has arrived."""

    name: ClassVar = "transfer_advanced"
    time_ns: int
    peer: str
    tensor: int
    round_number: int
    direction: Direction
    stage: Stage
    attempt: int
    """Number of the pass; 0 before the first is over."""
    packets: int
    """Of the tensor."""
    packets_sent: int | None
    """Until now, retransmissions included; null at the receiver."""
    packets_received: int
    """Different ones, as far as this end knows."""
    packets_lost: int | None
    """In the passes that were answered; null before the first answer, and at the receiver."""


@dataclass(frozen=True, slots=True)
class TransferEnded:
    """A post has completed."""

    name: ClassVar = "transfer_ended"
    time_ns: int
    peer: str
    tensor: int
    round_number: int
    direction: Direction
    result: str
    """`completed`, or the type of the error: `deadline_exceeded`, say."""
    reason: str
    """Of the error; empty where there is none."""
    goodput_bps: float | None
    """Bits of the tensor that arrived, over the flow completion time; null: it never began."""
    statistics: TransferStatistics | None
    """Null: it never began."""
    paths: tuple[PathCondition, ...]
    """Of a sender, when the transfer ended."""


@dataclass(frozen=True, slots=True)
class PathChanged:
    """A path's state changed."""

    name: ClassVar = "path_changed"
    time_ns: int
    peer: str
    path: int
    state: State
    """The new one."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class RateChanged:
    """The rate control's decision has moved since the last sample; ten samples a second at most."""

    name: ClassVar = "rate_changed"
    time_ns: int
    peer: str
    rate_bps: float
    in_flight_bytes: int


@dataclass(frozen=True, slots=True)
class DatagramsDropped:
    """More datagrams came to nothing since the last sample; ten samples a second at most."""

    name: ClassVar = "datagrams_dropped"
    time_ns: int
    peer: str | None
    """Null: it cannot be known who sent them."""
    reason: DropReason
    datagrams: int


@dataclass(frozen=True, slots=True)
class PacketsRefused:
    """The kernel would not send packets, since the last sample; ten samples a second at most."""

    name: ClassVar = "packets_refused"
    time_ns: int
    peer: str
    path: int
    error: str
    """Name of the errno: `EMSGSIZE`, say."""
    packets: int


AgentEvent = (
    AgentStarted
    | AgentEnded
    | Warned
    | PeerConnected
    | PeerLost
    | TransferPosted
    | TransferAdvanced
    | TransferEnded
    | PathChanged
    | RateChanged
    | DatagramsDropped
    | PacketsRefused
)

EVENTS: Final[tuple[type[AgentEvent], ...]] = get_args(AgentEvent)


class Observer(Protocol):
    """Wants to be told what an agent does."""

    def observe(self, event: AgentEvent) -> None:
        """Called in the engine's thread (at the very end in the closing one), which sends nothing meanwhile.

        An observer that raises is told nothing more; the agent goes on.
        """
        ...
