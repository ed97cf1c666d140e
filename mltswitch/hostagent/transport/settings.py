"""How a connection behaves; the defaults suit hosts in one data centre."""

from dataclasses import dataclass
from enum import StrEnum


class Transport(StrEnum):
    """How a tensor crosses; both ends of a connection use the same."""

    MLT = "mlt"
    """In datagrams over all paths, complete within a loss bound."""
    TCP = "tcp"
    """Whole and in order over TCP connections: what one would do without this project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Times in nanoseconds; raises ValueError for what cannot work."""

    acknowledge_every_packets: int = 10
    """On one path (papers: MLT, section 4.2.3); packets that arrive together share an acknowledgement."""
    acknowledge_delay_ns: int = 500_000
    """Fewer packets are acknowledged after so long."""
    answer_margin_ns: int = 300_000
    """After a probe, packets that were sent before it may arrive later than the queues explain."""
    ping_interval_ns: int = 1_000_000_000
    nudge_ns: int = 5_000_000
    """After a message that matters another one follows, so that TCP notices if the first was lost."""
    silence_ns: int = 10_000_000_000
    """A peer that says nothing for so long is gone."""
    handshake_ns: int = 5_000_000_000
    chunk_packets: int = 8192
    """At most so many are prepared at once, which makes numpy's calls cheap."""
    chunk_ns: int = 1_100_000
    """And at most what leaves in so long: a chunk keeps the code point that its layer had when it began."""
    least_chunk_packets: int = 64
    maximum_transfers: int = 4096
    """Open at the same time in each direction; what the peer announces is capped by it, too."""
    maximum_tensors: int = 1 << 20
    """Whose last round is remembered, in each direction."""

    def __post_init__(self) -> None:
        if min(self.acknowledge_every_packets, self.chunk_packets, self.maximum_transfers) < 1:
            raise ValueError("acknowledge_every_packets, chunk_packets and maximum_transfers are 1 or more")
        if not 0 < self.ping_interval_ns < self.silence_ns:
            raise ValueError("a peer that is asked every `ping_interval_ns` is silent for longer than that")
