"""A node's memory for partial sums of its peers, and the order in which they are received where memory is
short."""

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final

import numpy as np

from mltswitch.training.axes import Elements, Sum
from mltswitch.training.job import Job
from mltswitch.training.plans import Work

Receive = tuple[Work, int]
"""A receive of a partial sum: the sum, and the number of the step that receives."""
Ready = list[tuple[Receive, Elements]]
"""Partial sums that may be received now, each with the memory for it."""


class _Window:
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
        self._beyond: list[tuple[int, Receive]] = []
        """A heap: what is to be received, but not yet."""

    def takes(self, receive: Receive) -> bool:
        """Whether a partial sum may be received; else it is kept until it may."""
        turn = self._turn_of(receive[0].of)
        if turn < self._first + self._size:
            return True
        heapq.heappush(self._beyond, (turn, receive))
        return False

    def ended(self, total: Sum) -> list[Receive]:
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


class PartialSums:
    """The memory of one node: for one partial sum of each piece and peer at a time, and for whole sums."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._counts: Final = [*(piece.count for piece in job.pieces), job.whole_ballot.count]
        self._received: dict[tuple[int, int, str], Elements] = {}
        """Memory for partial sums, by piece, peer and stage."""
        self._lent: dict[tuple[int, int, str], deque[Receive]] = {}
        """Places whose memory is in use, and the receives that wait for it."""
        self._free: defaultdict[int, list[Elements]] = defaultdict(list)
        """Memory that nobody uses, by its elements."""
        self._windows: dict[int, _Window] = {}
        """By peer, where its partial sums have less memory than all pieces."""

    def take(self, piece: int) -> Elements:
        """Memory for all elements of a piece, with undefined content."""
        free = self._free[self._counts[piece]]
        return free.pop() if free else np.empty(self._counts[piece], self._job.element_type)

    def give_back(self, memory: Elements | None) -> None:
        """Return memory from `take` that is no longer used."""
        if memory is not None:
            self._free[len(memory)].append(memory)

    def begin(self) -> None:
        """Drop the partial sums received so far and free their memory, since all sums begin again."""
        for memory in self._received.values():
            self.give_back(memory)
        self._received, self._lent = {}, {}

    def open_windows(self, size: int, pieces: Mapping[int, Mapping[int, int]]) -> None:
        """Limit how many partial sums of each peer are received at a time.

        Args:
            pieces: for each peer the pieces that it sends, with the number of each piece's next sum.
        """
        self._windows = {peer: _Window(found, size) for peer, found in pieces.items()}

    def wanted(self, receive: Receive) -> Ready:
        """Ask to receive a partial sum: returned if that may begin now, else it waits for memory."""
        window = self._window(*self._place(receive)[:2])
        return self._borrow(receive) if window is None or window.takes(receive) else []

    def of(self, work: Work, peer: int) -> Elements:
        """The partial sum of a peer that has been received for a sum."""
        return self._received[work.of.piece, peer, work.of.stage]

    def added(self, work: Work, peer: int, *, may_change: bool) -> Ready:
        """Free a partial sum's memory after it was added, and return the receives that may now use it.

        Args:
            may_change: whether the next partial sum of the piece may be another peer's.
        """
        place, window = (work.of.piece, peer, work.of.stage), self._window(work.of.piece, peer)
        ready: Ready = []
        if self._lent[place]:
            ready.append((self._lent[place].popleft(), self._received[place]))
        else:
            del self._lent[place]
            if may_change or window is not None:
                self.give_back(self._received.pop(place))
        for receive in () if window is None else window.ended(work.of):
            ready += self._borrow(receive)
        return ready

    def _borrow(self, receive: Receive) -> Ready:
        """Memory for it, when the partial sum before it of the same piece and peer has been added."""
        place = self._place(receive)
        if place in self._lent:
            self._lent[place].append(receive)
            return []
        self._lent[place] = deque()
        if place not in self._received:
            self._received[place] = self.take(place[0])
        return [(receive, self._received[place])]

    @staticmethod
    def _place(receive: Receive) -> tuple[int, int, str]:
        work, number = receive
        peer = work.plan.steps[number].peer
        assert peer is not None, "a partial sum comes from a peer"  # noqa: S101
        return work.of.piece, peer, work.of.stage

    def _window(self, piece: int, peer: int) -> _Window | None:
        """The window of a peer's pieces; ballots have none."""
        return self._windows.get(peer) if piece < len(self._job.pieces) else None
