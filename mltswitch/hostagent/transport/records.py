"""The records that pass between the agent and a transport: requests, completions, and what was counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.elements import TensorMemory
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.tagging.policies import ImportancePolicy


class Direction(StrEnum):
    """Which end of a transfer a record is of: the sender's or the receiver's."""

    SEND = "send"
    RECEIVE = "receive"


class Moment(StrEnum):
    """The moment from which a deadline counts."""

    POST = "post"
    PEER_READY = "peer-ready"
    FIRST_BYTE = "first-byte"


class StopRule(StrEnum):
    """When a receive that meets its loss bound ends."""

    PATIENT = "patient"
    """The receive ends when waiting for more would cost time."""
    PAPER = "paper"
    """The receive ends as soon as its loss bound is met (MLT, section 4.2)."""


class AtDeadline(StrEnum):
    """What a receive does at its deadline."""

    FAIL = "fail"
    TAKE = "take"
    """The receive completes with what has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A checked request to send a tensor, with all defaults filled in."""

    memory: TensorMemory
    tensor: int
    round_number: int
    layer: int
    priority: int
    """Order among tensors that wait to be sent: the lowest number leaves first."""
    dscp: int
    importance: ImportancePolicy
    important_if_whole: bool = False
    """Whether all packets are important if the receiver may miss none: `importance` is but a default."""
    burst_packets: int
    """How many packets form a burst; 0: as many as the kernel takes at once."""
    deadline_ns: int
    deadline_from: Moment


@dataclass(frozen=True, slots=True)
class ClosingRule:
    """When a receive may end before all has arrived: the fields of the data plane's `struct mlt_gather`."""

    number: int
    """Number of the gather whose receives end together; 0: this receive ends by itself."""
    percentage: float
    lt_ns: int
    slack_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """A checked request to receive a tensor into memory, with all defaults filled in."""

    memory: TensorMemory
    tensor: int
    round_number: int
    loss_bound: float
    important_loss_bound: float
    """Largest share of important packets that may be missing; 1: no bound."""
    soft_ns: int
    """Time in ns after which meeting the bounds is enough under any stop rule; 0: none."""
    deadline_ns: int
    deadline_from: Moment
    at_deadline: AtDeadline
    stop: StopRule
    keep_missing: bool
    closing: ClosingRule | None = None
    """Rule that replaces `stop`; None: `stop` applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferStatistics:
    """What became of one transfer. Packets are the transport's pieces: chunks over TCP.

    None is what this end, or this transport, cannot know. Times are of the monotonic clock, 0: not yet.
    """

    size_bytes: int
    packets: int
    packets_sent: int
    packets_resent: int
    bytes_sent: int
    packets_received: int
    """Different ones; at the sender as the receiver said."""
    bytes_received: int
    packets_duplicate: int | None = None
    packets_marked: int | None = None
    """Arrived with CE."""
    important_packets: int | None = None
    important_received: int | None = None
    passes: int = 1
    packets_needless: int | None = None
    """Sent again though the first one had only been late."""
    ending: str | None = None
    """Of one that did not fail: `complete`, `bounds`, `taken`, `percentage` or `deadline`."""
    lt_seconds: float | None = None
    """Of its link in a gather: until then all was waited for."""
    deadline_seconds: float | None = None
    """Of its gather, from the link's first packet."""
    packets_by_path: tuple[int, ...] = ()
    posted_ns: int = 0
    ready_ns: int = 0
    """When the peer was ready."""
    first_ns: int = 0
    last_ns: int = 0
    """First and last arrival."""
    ended_ns: int = 0

    @property
    def seconds(self) -> float:
        """Flow completion time: from the post to the end."""
        return max(0, self.ended_ns - self.posted_ns) / 1e9

    @property
    def missing_share(self) -> float:
        """Of the packets."""
        return 1 - self.packets_received / self.packets if self.packets else 0.0

    @property
    def goodput_bps(self) -> float:
        """Bits of the tensor that arrived, over the flow completion time."""
        arrived = self.size_bytes * (1 - self.missing_share)
        return 8 * arrived / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """Result of a post, after which the memory is the caller's again."""

    peer: str
    channel: str
    tensor: int
    round_number: int
    direction: Direction
    error: AgentError | None
    statistics: TransferStatistics
    bitmap: bytes
    """Which packets have arrived, one bit each, least significant first; at the sender as reported."""
    elements_per_packet: int
    element_count: int

    @property
    def arrived(self) -> NDArray[np.bool_]:
        """The bitmap as flags, shape (packets,)."""
        bits = np.frombuffer(self.bitmap, np.uint8)
        return np.unpackbits(bits, count=self.statistics.packets, bitorder="little").view(np.bool_)

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Elements that have not arrived, as ranges [first, end), in order."""
        if int.from_bytes(self.bitmap, "little").bit_count() == self.statistics.packets:
            return []
        edges = np.flatnonzero(np.diff(np.concatenate(([True], self.arrived, [True])).astype(np.int8)))
        bounds = np.minimum(edges * self.elements_per_packet, self.element_count).tolist()
        return list(zip(bounds[::2], bounds[1::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSnapshot:
    """Counters of one path to a peer, over all traffic of the channel."""

    path: int
    state: str
    """`used`, `dead` or `gray`."""
    weight: int
    sent_packets: int
    sent_bytes: int
    acknowledged_packets: int
    lost_packets: int
    marked_packets: int
    received_packets: int
    received_marked: int
    round_trip_seconds: float | None
    least_round_trip_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSnapshot:
    """Counters of one channel with one peer; None is what the transport does not know."""

    transport: str
    rate_bps: float | None = None
    window_bytes: int | None = None
    in_flight_bytes: int | None = None
    round_trip_seconds: float | None = None
    base_round_trip_seconds: float | None = None
    bottleneck_bps: float | None = None
    """Bandwidth of the bottleneck as BBR estimates it (BtlBw); None if the transport does not know it."""
    needless_packets: int = 0
    open_transfers: int = 0
    forged_datagrams: int = 0
    stale_datagrams: int = 0
    refused_datagrams: int = 0
    paths: tuple[PathSnapshot, ...] = ()
    received_by_tos: Mapping[int, int] = field(default_factory=dict)
    """Number of received packets by DSCP/ECN byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSample:
    """Feedback that a flow got from the network since the last sample."""

    delivered_bytes: int
    delivered_packets: int
    lost_packets: int
    marked_packets: int
    in_flight_bytes: int
    """Bytes in flight at the end of the sample."""
    window_bytes: int
    """Bytes that may be in flight: grows with what is delivered, and restarts when no feedback comes."""
    least_round_trip_seconds: float | None
    interval_seconds: float


class RateController(Protocol):
    """A user's congestion control, in place of the built-in one; called in the engine's thread."""

    def rate_bps(self, sample: RateSample) -> float:
        """The rate that the flow may have from now on, in bit/s."""
