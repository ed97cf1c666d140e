"""What an agent has counted until now: made by `Agent.snapshot()`, read by metrics and the doctor."""

import threading
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from mltswitch.hostagent.transport.records import ConnectionSnapshot, Direction, TransferStatistics

COMPLETED: Final = "completed"
"""`TransferEnded.result` of a transfer without an error."""


@dataclass(slots=True)
class TransferCounts:
    """Transfers of one direction that have ended."""

    results: Counter[str] = field(default_factory=lambda: Counter({COMPLETED: 0}))
    """By COMPLETED, or the type of the error."""
    size_bytes: int = 0
    """Of the tensors that completed."""
    packets_resent: int = 0
    packets_needless: int = 0
    packets_duplicate: int = 0
    packets_marked: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    """Those that completed, by `TransferStatistics.ending`, where the transport knows it."""


class EndedTransfers:
    """Counts transfers as they end; any thread may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {direction: TransferCounts() for direction in Direction}

    def count(self, direction: Direction, result: str, statistics: TransferStatistics) -> None:
        """One more."""
        with self._lock:
            counts = self._counts[direction]
            counts.results[result] += 1
            counts.size_bytes += statistics.size_bytes if result == COMPLETED else 0
            counts.packets_resent += statistics.packets_resent
            counts.packets_needless += statistics.packets_needless or 0
            counts.packets_duplicate += statistics.packets_duplicate or 0
            counts.packets_marked += statistics.packets_marked or 0
            if statistics.ending is not None:
                counts.endings[statistics.ending] += 1

    def read(self) -> dict[Direction, TransferCounts]:
        """A copy."""
        with self._lock:
            return deepcopy(self._counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSnapshot:
    """Counts since the agent began, or the peer connected; not all of one moment."""

    name: str
    started_ns: int
    """By the monotonic clock."""
    peers: Mapping[str, Mapping[str, ConnectionSnapshot]]
    """Peer, channel: of those that are connected."""
    ended: Mapping[Direction, TransferCounts]
    """`EndedTransfers.read()`."""
    data_plane: Mapping[str, int] = field(default_factory=dict)
    """`struct mlt_counters` by its names; empty where no channel has used the data plane yet."""
