"""The results of sums that a node has: how many, copies of the last ones for other nodes, and their order."""

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from mltswitch.training.axes import Elements, Sum
from mltswitch.training.job import Job
from mltswitch.training.views import View

KEPT_BALLOTS: Final = 4
"""How many results of ballots a node keeps, since ranks do not wait for each other's ballots."""


class Turns:
    """Takes the results of each piece in the order of their sums, so that a count says which ones a node has.

    Where a topology has changed, a sum may be made before the one in front of it.
    """

    def __init__(self, pieces: int) -> None:
        self._next = [0] * pieces
        self._early: dict[Sum, int] = {}
        """Results that are here before their turn, and the step that takes each."""

    def begin(self, piece: int, number: int) -> None:
        """Set the number of a piece's next result, and forget results of it that came early."""
        self._next[piece] = number
        self._early = {total: step for total, step in self._early.items() if total.piece != piece}

    def has_come(self, total: Sum, step: int) -> bool:
        """Whether a result is next in order; else it is kept, and `taken` returns it when its turn comes."""
        if total.number <= self._next[total.piece]:
            return True
        self._early[total] = step
        return False

    def taken(self, total: Sum) -> tuple[Sum, int] | None:
        """Note that a result was taken; returns the one that waited for this, with its step, or None."""
        self._next[total.piece] = total.number + 1
        step = self._early.pop(total.next, None)
        return None if step is None else (total.next, step)


class Results:
    """The results of sums of all ranks that one node has."""

    def __init__(self, job: Job, number: int) -> None:
        self._job, self._number = job, number
        self.counts = [0] * (len(job.pieces) + 1)
        """How many results this node has of each piece, and of the ballot."""
        self._kept: list[deque[tuple[int, Elements]]] = [
            *(deque[tuple[int, Elements]](maxlen=1) for _ in job.pieces),
            deque(maxlen=KEPT_BALLOTS),
        ]
        """The last ones of these, for nodes that lack them after a fault."""

    def note(self, total: Sum, result: Elements | None) -> None:
        """Note one more result; it is copied where other nodes may need it, since the rank may overwrite its
        own."""
        self.counts[total.piece] = total.number + 1
        if not self._job.continues or result is None:
            return
        kept = self._kept[total.piece]
        memory = kept.popleft()[1] if len(kept) == kept.maxlen else np.empty_like(result)
        np.copyto(memory, result)
        kept.append((total.number, memory))

    def of(self, total: Sum) -> Elements:
        """A kept result of a sum."""
        return dict(self._kept[total.piece])[total.number]

    def impossible(self, view: View) -> int | None:
        """A node that claims more results than it can have; None: there is no such node."""
        for piece, kept in enumerate(self._kept):
            counts = {node: figures[piece] for node, figures in view.results.items()}
            least = min(count for node, count in counts.items() if node < self._job.world)
            if max(counts.values()) - least > (kept.maxlen or 0):
                return max(counts, key=lambda node: counts[node])
        return None

    def to_give(self, view: View) -> Iterator[tuple[Sum, int, list[int]]]:
        """Finished sums whose result some ranks lack: each with the node that gives it, and the ranks that
        get it."""
        left = [rank for rank in range(self._job.world) if rank not in view.gone]
        for piece, end in enumerate(map(max, zip(*view.results.values(), strict=True))):
            for number in range(min(view.results[rank][piece] for rank in left), end):
                lacking = [rank for rank in left if view.results[rank][piece] <= number]
                giver = min(node for node, counts in view.results.items() if counts[piece] > number)
                yield Sum(piece, number), giver, lacking

    def lacking(self, view: View) -> Sum | None:
        """A result that this node should give but no longer has; None: it has all of them."""
        for total, giver, _ in self.to_give(view):
            if giver == self._number and total.number not in dict(self._kept[total.piece]):
                return total
        return None
