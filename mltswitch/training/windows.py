"""Which partial sums of one peer a node has memory for, where it has not for all."""

import heapq
from collections.abc import Mapping
from typing import Generic, TypeVar

from mltswitch.training.axes import Sum

Entry = TypeVar("Entry")


class Window(Generic[Entry]):
    """Memory is there for so many sums that follow the first one that is not over.

    All nodes count pieces of a step in the same order, the last one first as backward passes make them: so
    the first sum of all that are open is in every window that it has to pass, and always gets on.

    Args:
        pieces: of which the peer sends partial sums, once in each step, and of each the first sum's number.
        size: of the window, in sums.
    """

    def __init__(self, pieces: Mapping[int, int], size: int) -> None:
        self._place = {piece: place for place, piece in enumerate(sorted(pieces, reverse=True))}
        self._size = size
        self._first = min(pieces.values()) * len(pieces)
        self._over = {
            self._turn_of(Sum(piece, number))
            for piece, end in pieces.items()
            for number in range(min(pieces.values()), end)
        }
        """Those beyond the first one that are over."""
        self._move()
        self._beyond: list[tuple[int, Entry]] = []
        """A heap: what is to be received, but not yet."""

    def takes(self, total: Sum, entry: Entry) -> bool:
        """Whether its partial sum may be received; else the entry is kept until it may."""
        turn = self._turn_of(total)
        if turn < self._first + self._size:
            return True
        heapq.heappush(self._beyond, (turn, entry))
        return False

    def ended(self, total: Sum) -> list[Entry]:
        """Its memory is free: what may be received now."""
        self._over.add(self._turn_of(total))
        self._move()
        found = []
        while self._beyond and self._beyond[0][0] < self._first + self._size:
            found.append(heapq.heappop(self._beyond)[1])
        return found

    def _move(self) -> None:
        while self._first in self._over:
            self._over.remove(self._first)
            self._first += 1

    def _turn_of(self, total: Sum) -> int:
        return total.number * len(self._place) + self._place[total.piece]
