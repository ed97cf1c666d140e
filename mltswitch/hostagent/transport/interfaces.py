"""What the transport is told, what it tells, and what it asks of its neighbours.

Times are nanoseconds of a monotonic clock that the caller hands in; the transport itself reads no clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.spraying.standing import PathCondition
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


@runtime_checkable
class LookingAhead(Marking, Protocol):
    """One that looks at the tensor also while nobody asks."""

    def look_no_more(self) -> None:
        """The tensor is the user's again; called once. What it raises goes into the log."""
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

    @property
    def is_highest(self) -> bool:
        """Whether the rate is all that it may ever be, and not for lack of any measurement."""
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

    @property
    def largest_share(self) -> float:
        """Of the bursts, of the path that gets most of them, on average: 1 where only one is in use. Asked
        often."""
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
    posted_ns: int | None = None
    """When the caller posted it, which its time counts from; None: when the connection is told of it."""


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
    posted_ns: int | None = None
    """As of `Outgoing`."""


@dataclass(frozen=True, slots=True)
class ClassStatistics:
    """Packets of one transfer with one DSCP: at the sender as sent, at the receiver as they arrived.

    Where the network rewrites DSCP, it shows here.
    """

    dscp: int
    packets_sent: int | None
    """Retransmissions included. None at the receiver, who does not see what is lost."""
    important_sent: int | None
    """Of them."""
    packets_resent: int | None
    packets_lost: int | None
    """As `TransferStatistics.packets_lost`."""
    important_lost: int | None
    packets_received: int | None
    """Duplicates included. None at the sender: the receiver says which packets have arrived, not how."""
    packets_marked: int | None
    """Of them, with CE."""


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
    bytes_received: int
    """Elements in them. Where the sender cannot know whether the last packet, which may be shorter than the
    others, is among them, it is taken to be."""
    important_packets: int | None
    """Of the tensor. None: not known when the transfer ended: the sender had not tagged all packets (it tags
    as it sends); the receiver did not have all, and was not told (with the sender's first probe)."""
    important_received: int | None
    """Of them, different ones. None at a sender whose transfer failed: the receiver says it with its stop."""
    packets_marked: int | None
    """Arrived with CE, duplicates included. None at the sender: acknowledgements count marks by path, of all
    transfers together."""
    packets_duplicate: int | None
    """Arrived again. None at the sender."""
    probes: int
    """Rounds of probe, bitmap and resending."""
    packets_lost: int | None = None
    """Sent, and not there when the receiver said what was: over the passes that it answered, so without the
    last one, which its stop ends. A packet that was only late counts. None: no pass was answered; and at the
    receiver, who does not see what is lost."""
    important_lost: int | None = None
    """Of them, important ones."""
    classes: tuple[ClassStatistics, ...] = ()
    """By DSCP."""
    packets_by_path: tuple[int, ...] = ()
    """Place i: path i. Sent, at the sender; arrived, duplicates included, at the receiver. Shorter where the
    last paths carried none."""

    @property
    def goodput_bps(self) -> float:
        """Bits of the tensor that arrived, over the flow completion time."""
        return self.bytes_received * 8 / self.seconds if self.seconds > 0 else 0.0

    @property
    def missing_share(self) -> float | None:
        """Of the packets, at the end; None: the transfer never began."""
        return _missing_share(self.packets, self.packets_received)

    @property
    def important_missing_share(self) -> float | None:
        """Of the important packets, at the end; None: there are none, or see `important_packets`."""
        if self.important_packets is None or self.important_received is None:
            return None
        return _missing_share(self.important_packets, self.important_received)

    @property
    def unimportant_missing_share(self) -> float | None:
        """Of the others."""
        if self.important_packets is None or self.important_received is None:
            return None
        return _missing_share(
            self.packets - self.important_packets, self.packets_received - self.important_received
        )

    @property
    def marked_share(self) -> float | None:
        """CE marks over packets that arrived, duplicates included; None at the sender, or if none arrived."""
        if self.packets_marked is None or self.packets_duplicate is None:
            return None
        arrived = self.packets_received + self.packets_duplicate
        return self.packets_marked / arrived if arrived else None


def _missing_share(packets: int, received: int) -> float | None:
    # Without authentication, a forged packet may make the peer count more than there are.
    return max(0.0, 1 - received / packets) if packets else None


@dataclass(frozen=True, slots=True, eq=False)
class TransferDone:
    """A transfer has ended; the tensor's memory is the caller's again."""

    key: TransferKey
    direction: Direction
    error: AgentError | None
    statistics: TransferStatistics | None
    """None where the transfer never began: the sender did not hear of memory for it, or could not use that;
    the receiver heard nothing of the tensor."""
    received: NDArray[np.bool_] | None
    """Receiver: which packets have arrived, shape (packets,); the missing ones are the rest. None where it
    never began."""
    layout: PacketLayout | None
    """Receiver: which elements a packet holds. None where it never began."""
    paths: tuple[PathCondition, ...] = ()
    """Sender: when the transfer ended; filled in by whoever knows the paths."""


class Stage(StrEnum):
    """Of a transfer on its way."""

    BEGUN = "begun"
    """Sender: the peer has memory for it. Receiver: the peer was told that there is memory."""
    ASKED = "asked"
    """The sender has asked what has arrived."""
    ANSWERED = "answered"
    """The receiver has said it."""


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """A transfer has got so far; told only where somebody observes."""

    key: TransferKey
    direction: Direction
    stage: Stage
    attempt: int
    """Number of the pass; 0: none is over."""
    packets: int
    """Of the tensor."""
    packets_sent: int | None
    """Until now, retransmissions included; None at the receiver."""
    packets_received: int
    """Different ones, as far as this end knows."""
    packets_lost: int | None
    """As `TransferStatistics.packets_lost`."""
    now_ns: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The peer is gone; every transfer has ended before with an error."""

    error: AgentError


@dataclass(frozen=True, slots=True)
class PeerReady:
    """The handshake is done; transfers begin."""

    peer: str


Event = TransferDone | ConnectionLost | PeerReady | TransferProgress
