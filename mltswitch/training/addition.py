"""How a node adds gradients up: partial sums, elements missing from them, and the division of the whole
sum."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.training.axes import Crossing, Elements, Range, Stage, Sum
from mltswitch.training.job import Divisor, Job
from mltswitch.training.optimizer import Parameters
from mltswitch.training.partial_sums import PartialSums
from mltswitch.training.plans import Work
from mltswitch.training.shortening import round_to_short
from mltswitch.training.views import View

NOTHING: Final = -0.0
"""The value of elements missing from a partial sum: adding it changes no number, not even another -0."""
_ROUNDED: Final = 1e-4
"""Weights of ranks are 1 on average: less than this is a rest of rounding, and nobody is left."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Elements that a loss bound left out of a sum on one hop."""

    total: Sum
    sender: int
    receiver: int
    ranks: tuple[int, ...]
    """The ranks whose gradients the sender's partial sum has, which all lack these elements in the sum."""
    missing: tuple[Range, ...]
    """Missing elements of the piece, as ranges in ascending order."""
    is_cut: bool = False
    """Whether the receiver stopped waiting for the elements; else the network has lost them."""
    epoch: int = 0
    """Epoch of the set of nodes (`View`) that made the sum; sums begin again in each epoch."""

    @property
    def elements(self) -> int:
        """Number of missing elements."""
        return sum(end - first for first, end in self.missing)


class Addition:
    """All additions of gradients at one node.

    Args:
        parameters: the model's, where roots of sums keep parameters.
    """

    def __init__(self, job: Job, number: int, memory: PartialSums, parameters: Parameters | None) -> None:
        self._job, self._number, self._memory, self._parameters = job, number, memory, parameters
        self.losses: list[Loss] = []
        """What bounds have left out of sums at this node."""
        self.entering: tuple[int, int] | None = None
        """A rank, and the number of the first sums in which it is."""
        self._epoch = 0
        self._weight: float = job.world
        """The weight of all ranks that are left."""

    def go_on(self, view: View, epoch: int) -> None:
        """From now on sums have the gradients of those ranks that take part in this view."""
        left = (rank for rank in range(self._job.world) if rank not in view.gone)
        self._weight = sum(map(self._job.weight, left)) or 1.0
        self.entering, self._epoch = view.entering, epoch

    def add(self, work: Work, part: Elements, *, is_own: bool) -> None:
        """Add a partial sum, or this rank's own gradients; where pushes count alone, make a step of the
        root's optimizer."""
        if work.of.origin is not None:
            if work.of.stage is Stage.NOW:
                assert self._parameters is not None, "lone pushes need parameters"  # noqa: S101
                self._parameters.step(work.of.piece, part.copy() if is_own else part)
        elif work.total is None:
            work.total = self._memory.take(work.of.piece)
            np.copyto(work.total, part)
        else:
            with np.errstate(all="ignore"):  # what is not finite is counted, and passed on
                np.add(work.total, part, out=work.total)

    def lose(self, work: Work, part: Elements, crossing: Crossing) -> None:
        """Note elements that have not arrived as missing from the sender's partial sum, hence from all of its
        ranks."""
        peer, piece, job = crossing.key[1], work.of.piece, self._job
        absent = self._absent(work.of)
        ranks = tuple(rank for rank in work.plan.ranks.get(peer, ()) if rank != absent)
        missing, is_cut = crossing.missing, crossing.is_cut
        self.losses.append(Loss(work.of, peer, self._number, ranks, missing, is_cut, self._epoch))
        if job.divisor is Divisor.ARRIVED and work.counts is None:
            work.counts = np.full(job.pieces[piece].count, self._weight_of(work.of), job.element_type)
        for first, end in missing:
            part[first:end] = NOTHING
            if work.counts is not None:
                work.counts[first:end] -= sum(map(job.weight, ranks))

    def divide(self, work: Work) -> None:
        """Make the result of a sum that is complete at its root: divide it, or for a push alone take the
        parameters."""
        piece, is_ballot = work.of.piece, work.of.piece == len(self._job.pieces)
        if work.of.origin is not None:
            assert self._parameters is not None, "lone pushes need parameters"  # noqa: S101
            if work.result is None:  # of another rank; they may change before it has crossed
                work.result = work.total = self._memory.take(piece)
            np.copyto(work.result, self._parameters.of(piece))
            return
        assert work.total is not None  # noqa: S101
        if work.result is None:  # of a server, or of another rank
            work.result = work.total
        counts = work.counts
        # a ballot's figures are told apart by being whole numbers, also after a division
        whole = self._job.world if is_ballot else self._weight_of(work.of)
        by = whole if counts is None else np.where(counts > _ROUNDED, counts, 1)
        with np.errstate(all="ignore"):
            np.divide(work.total, by, out=work.result)
            if self._job.wire_type is not None and not is_ballot:
                round_to_short(work.result)

    def _absent(self, total: Sum) -> int | None:
        """The rank that gives nothing to a sum, for it has entered later."""
        rank, first = self.entering or (None, 0)
        return rank if total.number < first else None

    def _weight_of(self, total: Sum) -> float:
        absent = self._absent(total)
        return self._weight - (0 if absent is None else self._job.weight(absent))
