"""What an agent has counted until now, as one consistent picture of its engine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mltswitch.hostagent.links import Link
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sockets import BufferSize, DataSocket
from mltswitch.hostagent.spraying.standing import PathCondition
from mltswitch.hostagent.transport.tally import Counters, ReceivedTotals, SentTotals, Traffic

MAXIMUM_PEERS: Final = 256
"""Counted by name; whoever comes after them is counted together."""
OTHER_PEERS: Final = "(other)"


@dataclass(slots=True)
class PathCounters(Counters):
    """Of one path to a peer and from it; packets, probes included."""

    sent_packets: int = 0
    sent_bytes: int = 0
    """As queues count them."""
    acknowledged_packets: int = 0
    lost_packets: int = 0
    """Fewer again where one comes late."""
    marked_packets: int = 0
    """Arrived at the peer with CE."""
    times_left: int = 0
    times_returned: int = 0
    arrived_packets: int = 0
    """From the peer."""
    arrived_marked_packets: int = 0


@dataclass(slots=True)
class PeerCounters:
    """Of all connections with one peer; they never fall, but where said."""

    sent: SentTotals = field(default_factory=SentTotals)
    received: ReceivedTotals = field(default_factory=ReceivedTotals)
    late_packets: int = 0
    dropped_datagrams: int = 0
    refused_packets: int = 0
    """By the kernel of this machine."""
    paths: dict[int, PathCounters] = field(default_factory=dict)

    def add(self, other: "PeerCounters") -> None:
        """Count what was counted elsewhere."""
        self.sent.add(other.sent)
        self.received.add(other.received)
        self.late_packets += other.late_packets
        self.dropped_datagrams += other.dropped_datagrams
        self.refused_packets += other.refused_packets
        for path, counters in other.paths.items():
            self.paths.setdefault(path, PathCounters()).add(counters)


@dataclass(slots=True)
class PeerState:
    """Of the connections that are open now; one, but for the peers that are counted together."""

    connections: int = 0
    open_sends: int = 0
    open_receives: int = 0
    rate_bps: float = 0.0
    in_flight_bytes: int = 0
    window_bytes: int = 0
    """What may be on its way to the peer."""
    paths: tuple[PathCondition, ...] = ()
    """Empty for those that are counted together."""


@dataclass(frozen=True, slots=True)
class PeerSnapshot:
    """Of one peer, or of all that are counted together (`OTHER_PEERS`)."""

    peer: str
    counters: PeerCounters
    state: PeerState


@dataclass(frozen=True, slots=True)
class SocketSnapshot:
    """Of one data socket."""

    port: int
    receive_buffer: BufferSize
    send_buffer: BufferSize
    kernel_drops: int
    """Datagrams, most of all because the buffer was full."""
    truncated: int
    short: int
    """Datagrams without room for our header."""
    errors: int
    """Calls that the kernel answered with an error of the network."""


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """Of an agent."""

    agent: str
    time_ns: int
    """`time.monotonic_ns()`."""
    peers: tuple[PeerSnapshot, ...]
    sockets: tuple[SocketSnapshot, ...]
    unknown_datagrams: int
    """With a token that is none of ours."""


class Ledger:
    """Counts of connections that are over, so that totals never fall; belongs to the engine's thread."""

    def __init__(self) -> None:
        self._ended: dict[str, PeerCounters] = {}
        """By label; the one of all others apart, no more than MAXIMUM_PEERS."""

    def close(self, link: Link) -> None:
        """A connection is over."""
        if link.connection is not None and link.is_welcome:
            self._of(link.name).add(_counters(link, link.connection.traffic()))

    def peers(self, links: Iterable[Link]) -> tuple[PeerSnapshot, ...]:
        """All that are, or were, connected."""
        counters: dict[str, PeerCounters] = {}
        states: dict[str, PeerState] = {}
        for link in links:
            if link.connection is None or not link.is_welcome:
                continue
            label = self._label(link.name)
            self._of(link.name)
            traffic = link.connection.traffic()
            counters.setdefault(label, PeerCounters()).add(_counters(link, traffic))
            _add_state(states.setdefault(label, PeerState()), link, traffic, is_alone=label != OTHER_PEERS)
        for label, ended in self._ended.items():
            counters.setdefault(label, PeerCounters()).add(ended)
        return tuple(
            PeerSnapshot(label, counters[label], states.get(label, PeerState())) for label in sorted(counters)
        )

    def _label(self, name: str) -> str:
        is_known = name in self._ended or len(self._ended) < MAXIMUM_PEERS
        return name if is_known else OTHER_PEERS

    def _of(self, name: str) -> PeerCounters:
        return self._ended.setdefault(self._label(name), PeerCounters())


def socket_snapshots(
    sockets: Sequence[DataSocket], receivers: Sequence[DatagramReceiver]
) -> tuple[SocketSnapshot, ...]:
    """Sockets and their receivers, in the same order; raises OSError for a closed one."""
    return tuple(
        SocketSnapshot(
            entry.port,
            entry.receive_buffer,
            entry.send_buffer,
            receiver.kernel_drops(),
            receiver.counters.truncated,
            receiver.counters.short,
            receiver.counters.errors,
        )
        for entry, receiver in zip(sockets, receivers, strict=True)
    )


def _counters(link: Link, traffic: Traffic) -> PeerCounters:
    refused = link.sender.counters.refused_packets if link.sender else 0
    counters = PeerCounters(
        traffic.sent, traffic.received, traffic.late_packets, traffic.dropped_datagrams, refused
    )
    if link.sprayer is not None:
        for entry in link.sprayer.statistics():
            counters.paths[entry.path] = PathCounters(
                entry.sent_packets,
                entry.sent_bytes,
                entry.acknowledged_packets,
                entry.lost_packets,
                entry.marked_packets,
                entry.times_left,
                entry.times_returned,
            )
    arrivals = zip(traffic.arrived_by_path, traffic.marked_by_path, strict=True)
    for path, (arrived, marked) in enumerate(arrivals):
        of_path = counters.paths.setdefault(path, PathCounters())
        of_path.arrived_packets, of_path.arrived_marked_packets = arrived, marked
    return counters


def _add_state(state: PeerState, link: Link, traffic: Traffic, *, is_alone: bool) -> None:
    hello = link.connection.peer if link.connection else None
    state.connections += 1
    state.open_sends += traffic.open_sends
    state.open_receives += traffic.open_receives
    state.rate_bps += traffic.rate_bps
    state.in_flight_bytes += traffic.in_flight_bytes
    state.window_bytes += hello.window_bytes if hello else 0
    if is_alone and link.sprayer is not None:
        state.paths = link.sprayer.conditions()
