"""When the time of open transfers is up."""

import heapq
from collections.abc import Callable, Iterator
from typing import Final

from mltswitch.hostagent.transport.interfaces import Direction, TransferKey

LEAST_KEPT: Final = 128
"""So many may be of transfers that have ended: looking at them costs more than their memory."""


class Deadlines:
    """Of one connection. Transfers that end before their time leave theirs behind, for a while."""

    def __init__(self, is_open: Callable[[Direction, TransferKey], bool]) -> None:
        self._is_open = is_open
        self._waiting: list[tuple[int, int, int, Direction]] = []
        """Heap of (time, tensor, round, direction)."""
        self._look_at = LEAST_KEPT
        """How many there are when those are left out whose transfers have ended."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, deadline_ns: int, key: TransferKey, direction: Direction) -> None:
        """Of a transfer that is open."""
        if len(self._waiting) >= self._look_at:
            self._waiting = [
                entry for entry in self._waiting if self._is_open(entry[3], TransferKey(entry[1], entry[2]))
            ]
            heapq.heapify(self._waiting)
            self._look_at = max(LEAST_KEPT, 2 * len(self._waiting))
        heapq.heappush(self._waiting, (deadline_ns, key.tensor, key.round_number, direction))

    def next_ns(self) -> int | None:
        """The first; None: there is none."""
        return self._waiting[0][0] if self._waiting else None

    def take_passed(self, now_ns: int) -> Iterator[tuple[TransferKey, Direction]]:
        """Those whose time is up; some may have ended."""
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, tensor, round_number, direction = heapq.heappop(self._waiting)
            yield TransferKey(tensor, round_number), direction

    def clear(self) -> None:
        """Nothing is open any more."""
        self._waiting.clear()
