"""An agent's counters at one moment: made by `Agent.snapshot()`, read by metrics and the doctor."""

import threading
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from mltswitch.hostagent.transport.records import ConnectionSnapshot, Direction, TransferStatistics

COMPLETED: Final = "completed"
"""Value of `TransferEnded.result` for a transfer without an error."""


@dataclass(slots=True)
class TransferCounts:
    """Counters of the ended transfers of one direction."""

    results: Counter[str] = field(default_factory=lambda: Counter({COMPLETED: 0}))
    """Number of transfers by result: COMPLETED, or the type of the error."""
    size_bytes: int = 0
    """Total size of the tensors that completed."""
    packets_resent: int = 0
    packets_needless: int = 0
    packets_duplicate: int = 0
    packets_marked: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    """Number of completed transfers by `TransferStatistics.ending`, if the transport knows it."""


class EndedTransfers:
    """Counts transfers as they end; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {direction: TransferCounts() for direction in Direction}

    def count(self, direction: Direction, result: str, statistics: TransferStatistics) -> None:
        """Count one ended transfer."""
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
        """A copy of the counters by direction."""
        with self._lock:
            return deepcopy(self._counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSnapshot:
    """An agent's counters since its start, and its connections'; not all are read at the same moment."""

    name: str
    started_ns: int
    """Start of the agent, by the monotonic clock."""
    peers: Mapping[str, Mapping[str, ConnectionSnapshot]]
    """Connection snapshots by peer and channel, of peers that are connected."""
    ended: Mapping[Direction, TransferCounts]
    """Counters of ended transfers by direction, from `EndedTransfers.read()`."""
    data_plane: Mapping[str, int] = field(default_factory=dict)
    """The data plane's `struct mlt_counters` by field name; empty if no channel has used it yet."""
