"""What the transport is told, what it tells, and what it asks of its neighbours.

Times are nanoseconds of a monotonic clock that the caller hands in; the transport itself reads no clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.wire import Dscp


class Direction(StrEnum):
    """Of a transfer, seen from here."""

    SEND = "send"
    RECEIVE = "receive"


@dataclass(frozen=True, slots=True)
class TransferKey:
    """Names a transfer between two peers; a round of a tensor is transferred once in each direction."""

    tensor: int
    round_number: int


class Marking(Protocol):
    """Which packets of one tensor are important."""

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        """Of packets `first` to `last` - 1; asked once for each packet, in order."""
        ...


class ImportancePolicy(Protocol):
    """How a tensor's packets are marked important."""

    def mark(self, tensor: TensorView, layout: PacketLayout) -> Marking:
        """Look at the tensor as a whole: sample it, say."""
        ...


class RateController(Protocol):
    """How fast one peer is sent to."""

    @property
    def rate_bps(self) -> float:
        """UDP payload and headers as the wire counts them."""
        ...

    def acknowledged(self, round_trip_ns: int, now_ns: int) -> None:
        """A round trip of data was measured."""
        ...

    def base_measured(self, round_trip_ns: int, now_ns: int) -> None:
        """A round trip of the control channel, which waits behind no gradients, was measured."""
        ...


class Sprayer(Protocol):
    """Chooses the path of each burst, and knows how each path does."""

    def choose(self, bursts: int, now_ns: int) -> NDArray[np.int64]:
        """A path number for each of so many bursts, shape (bursts,)."""
        ...

    def sent(
        self, paths: NDArray[np.int64], packets: NDArray[np.int64], size_bytes: NDArray[np.int64], now_ns: int
    ) -> None:
        """Bursts have left: their paths, packets and bytes on the wire, each of shape (bursts,)."""
        ...

    def acknowledged(
        self,
        path: int,
        echoed_ns: int,
        received_packets: int,
        marked_packets: int,
        delay_ns: int,
        now_ns: int,
    ) -> None:
        """One path's cumulative counts (modulo 2³²), and the round trip without the peer's hold."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Sent, and neither older than what was last acknowledged on their path nor given up."""
        ...

    def probes_due(self, now_ns: int) -> tuple[int, ...]:
        """Paths that should be sent a probe packet now; each is named once until it is due again."""
        ...

    def next_timer_ns(self) -> int | None:
        """When `choose` or `probes_due` should be asked again although nothing happens; None: never."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """A tensor to be sent."""

    key: TransferKey
    tensor: TensorView
    layer: int
    dscp: Callable[[], Dscp]
    """Asked for each chunk of packets: the two-queue emulation answers by what is unfinished."""
    policy: ImportancePolicy
    deadline_ns: int
    burst_packets: int
    """n: packets that share a path and a DSCP/ECN byte; 1 is per packet."""


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """A tensor to be received, into memory of the caller's."""

    key: TransferKey
    tensor: TensorView
    """Written in place."""
    loss_bound: float
    """p: at most this share of the packets may be missing at the end."""
    important_loss_bound: float | None
    """At most this share of the important packets; None: the loss bound alone counts."""
    keep_missing: bool
    """Missing elements keep what the memory held before (parameters); else they become 0 (gradients)."""
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class TransferStatistics:
    """What became of one transfer; packet counts are of data packets."""

    size_bytes: int
    seconds: float
    """Flow completion time: from the post to the completion."""
    packets: int
    """Of the tensor."""
    packets_sent: int
    """Retransmissions included; 0 at the receiver."""
    packets_resent: int
    packets_received: int
    """Different packets; at the sender what the receiver said last."""
    important_packets: int | None
    """Of the tensor; None: the sender has not said."""
    important_received: int | None
    packets_marked: int
    """Arrived with CE, duplicates included; at the receiver alone."""
    packets_duplicate: int
    """Arrived again; at the receiver alone."""
    probes: int
    """Rounds of probe, bitmap and resending."""

    @property
    def goodput_bps(self) -> float:
        """Bits of the tensor that arrived, over the flow completion time."""
        received = self.size_bytes * self.packets_received / self.packets if self.packets else 0.0
        return received * 8 / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class TransferDone:
    """A transfer has ended; the tensor's memory is the caller's again."""

    key: TransferKey
    direction: Direction
    error: AgentError | None
    statistics: TransferStatistics
    received: NDArray[np.bool_] | None
    """Receiver: which packets have arrived, shape (packets,); the missing ones are the rest."""
    layout: PacketLayout | None
    """Receiver: which elements a packet holds."""


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The peer is gone; every transfer has ended before with an error."""

    error: AgentError


@dataclass(frozen=True, slots=True)
class PeerReady:
    """The handshake is done; transfers begin."""

    peer: str


Event = TransferDone | ConnectionLost | PeerReady
