"""Ballots: figures of each rank in each step, which are summed over all ranks, and what is read from the
sums.

A ballot has the figures of the synchronization (`Member.vote`), one for gradients that are not finite, and
behind these three of each rank: which routes it holds, a checksum of its parameters, and the norm of its own
gradients of which sums come later. A rank leaves those of others at 0.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from mltswitch.errors import MOST_LISTED
from mltswitch.training.axes import Elements
from mltswitch.training.errors import JobMismatchError
from mltswitch.training.job import Job

NONFINITE: Final = 3
"""Position in a ballot of the number of the rank's pieces with NaN or infinite gradients in the step."""
CHECKSUM_BITS: Final = 20
"""Length of parameter checksums, which stay exact in float32 when divided and multiplied by the number of
ranks."""


class Ballots:
    """The ballots of one rank, step by step.

    Args:
        votes: whether the synchronization has ballots in every step.
        check_every: steps after which ranks compare their parameters; 0: never.
        is_changing: whether ballots put changed routes into force.
    """

    def __init__(self, job: Job, number: int, *, votes: bool, check_every: int, is_changing: bool) -> None:
        self._job, self._number = job, number
        self._votes, self._check_every, self._is_changing = votes, check_every, is_changing
        self._open: dict[int, tuple[Elements, Elements]] = {}
        """This rank's part and the sum, by step."""
        self._squares = [0.0] * len(job.pieces)
        """The sum of the squares of this rank's gradients in the last step, by piece."""
        self.nonfinite_pieces = self._nonfinite_before = 0
        """This rank's pieces with NaN or infinite gradients; they are passed on."""
        self.first_nonfinite_step: int | None = None
        self.norms: Sequence[float] = ()
        """By the last ballot, of each rank's own gradients of which sums come later."""
        self.checksum = 0
        """This rank's parameters, for the next ballot of a step that `checks`; 0 says nothing."""
        self.counted = 0
        """How many ballots all have summed."""
        self.poisoned_step = -1
        """The last step in which a rank's gradients are not finite, perhaps where sums come later."""
        self.differ: tuple[int, JobMismatchError] | None = None
        """What ends the job once all ranks have the ballot of a step, so that each says it by itself."""

    def __len__(self) -> int:
        """How many ballots are under way."""
        return len(self._open)

    def are_held(self, step: int) -> bool:
        """Whether the ranks exchange a ballot in this step."""
        return self._votes or self._is_changing or self.checks(step)

    def checks(self, step: int) -> bool:
        """Whether ranks compare their parameters in the ballot of a step."""
        return self._check_every > 0 and step % self._check_every == 0

    def number_before(self, step: int) -> int:
        """How many ballots were exchanged before a step, in a job without votes and route changes."""
        return -(-step // self._check_every) if self._check_every else 0

    def note(self, step: int, pieces: Iterable[int], own: Elements) -> None:
        """Look for NaN and infinity in this rank's gradients of some pieces."""
        for number in pieces:
            part = own[self._job.pieces[number].elements]
            with np.errstate(all="ignore"):
                square = np.einsum("i,i->", part, part)  # no `dot`: its threads spin on cores that ranks need
                if not np.isfinite(square):  # of short floats that are large
                    square = np.square(part, dtype=np.float64).sum()
            self._squares[number] = float(square)
            if not np.isfinite(square):
                self.nonfinite_pieces += 1
                if self.first_nonfinite_step is None:
                    self.first_nonfinite_step = step

    def cast(self, step: int, said: Sequence[float], held: int, later: Iterable[int]) -> None:
        """Make this rank's part of a step's ballot.

        Args:
            step: the step, whose gradients are all ready.
            said: the figures of the synchronization's vote.
            held: number of the routes that this rank holds.
            later: pieces whose sums come later.
        """
        vote = np.zeros(self._job.whole_ballot.count, self._job.element_type)
        vote[: len(said)] = said
        if self._votes:
            vote[NONFINITE] = self.nonfinite_pieces - self._nonfinite_before
            self._nonfinite_before = self.nonfinite_pieces
        norm = sum(self._squares[piece] for piece in later) ** 0.5
        own = held, self.checksum if self.checks(step) else 0, norm
        vote[-3 * self._job.world :].reshape(3, -1)[:, self._number] = own
        self._open[step] = vote, np.empty_like(vote)

    def under_way(self, step: int) -> tuple[Elements, Elements] | None:
        """This rank's part of a step's ballot, and the memory for the sum; None: there is none under way."""
        return self._open.get(step)

    def count(self, step: int) -> tuple[list[float], list[int]]:
        """Read the sum of a step's ballots: all figures, and the number of the routes that each rank
        holds."""
        world, name = self._job.world, self._job.node_name
        ballot = self._open.pop(step)[1] * world
        routes, checksums, norms = ballot[-3 * world :].reshape(3, -1).tolist()
        self.norms = norms
        self.counted += 1
        if ballot[NONFINITE] != 0:
            self.poisoned_step = step
        sums = [*map(round, checksums)]
        common = max(filter(None, sums), key=sums.count, default=0)  # 0: says nothing
        others = [rank for rank, checksum in enumerate(sums) if checksum not in {0, common}]
        if others:
            problem = f"has other parameters in step {step} than {name(sums.index(common))}"
            hint = "look for what only some ranks do to parameters, gradients or the optimizer"
            names = ", ".join(map(name, others[:MOST_LISTED]))
            self.differ = step, JobMismatchError(problem, where=names, hint=hint)
        return ballot.tolist(), [*map(round, routes)]
