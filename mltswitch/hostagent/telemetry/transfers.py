"""What became of transfers, counted as they end."""

import threading
from bisect import bisect_left
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from mltswitch.hostagent.telemetry.events import COMPLETED, AgentEvent, TransferEnded
from mltswitch.hostagent.transport.interfaces import Direction
from mltswitch.units import BITS_PER_BYTE

SECONDS_BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the histogram of flow completion times."""
BYTES_PER_SECOND_BOUNDS: Final = tuple(factor * 10.0**power for power in range(5, 10) for factor in (1, 2, 5))
"""The same of goodput: 0.8 Mbit/s to 40 Gbit/s."""


@dataclass(slots=True)
class Histogram:
    """Counts of values up to each bound; the last count is of those above all of them."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """A value that equals a bound counts below it, as Prometheus has it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, int]]:
        """As Prometheus wants them: (bound, values up to it)."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


@dataclass(slots=True)
class DirectionCounts:
    """Transfers in one direction."""

    results: Counter[str] = field(default_factory=lambda: Counter({COMPLETED: 0}))
    """COMPLETED, or the type of the error."""
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS_BOUNDS))
    """Of those that completed, as the two others."""
    goodput: Histogram = field(default_factory=lambda: Histogram(BYTES_PER_SECOND_BOUNDS))
    """Bytes per second."""
    size_bytes: int = 0


class TransferCounts:
    """An `Observer` that counts transfers; any thread may read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._directions = {direction: DirectionCounts() for direction in Direction}

    def observe(self, event: AgentEvent) -> None:
        """For the engine."""
        if not isinstance(event, TransferEnded):
            return
        with self._lock:
            counts = self._directions[event.direction]
            counts.results[event.result] += 1
            if event.result == COMPLETED and event.statistics is not None:
                counts.seconds.add(event.statistics.seconds)
                counts.goodput.add(event.statistics.goodput_bps / BITS_PER_BYTE)
                counts.size_bytes += event.statistics.size_bytes

    def read(self) -> dict[Direction, DirectionCounts]:
        """A copy."""
        with self._lock:
            return deepcopy(self._directions)
