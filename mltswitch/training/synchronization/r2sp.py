"""Round-robin (R²SP, Chen et al., INFOCOM 2019): `asp` in fixed turns.

A rank's push comes alone, so that a server's link carries one push one way while it carries the answer to
the one before the other way. A turn begins when all pieces of the push before are in: two pushes that share
the link would both take longer. OSP compares with it (section 5).
"""

from typing import Final

from pydantic import Field

from mltswitch.training.axes import NoSettings, Stage, Sum, settings_of
from mltswitch.training.job import Job
from mltswitch.training.synchronization.asp import Asp, AspKeeper
from mltswitch.units import NANOSECONDS

LONG_AGO_NS: Final = -(1 << 62)


class R2spSettings(NoSettings):
    """Settings of the synchronization `r2sp`."""

    turn_seconds: float = Field(default=30.0, gt=0)
    """Time after which the next rank has its turn even if the one before is not done."""


class R2spKeeper(AspKeeper):
    """Lets one rank push at a time, in turn, unless a rank has missed its turn."""

    def __init__(self, job: Job, turn_seconds: float) -> None:
        super().__init__(job)
        self._world = job.world
        self._turn_ns = turn_seconds * NANOSECONDS
        self._pieces: list[int] = []
        """That this node keeps."""
        self._rank = 0
        """Whose turn it is."""
        self._since_ns: int | None = None
        """When it began; None: nobody has looked at the clock since, or all ranks drain."""
        self._turns = [1, *[0] * (job.world - 1)]
        """That each rank has had."""
        self._open = [0] * job.world
        """Pieces of each rank that may come and have not."""
        self._resting: set[int] = set()
        """Ranks that drain."""

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """Expect all pieces of the rank whose turn it is; a push that comes after its turn changes
        nothing."""
        if after is None:
            self._pieces.append(piece)
            self._open[0] += 1
            drains = [Sum(piece, 0, Stage.LATER, rank) for rank in range(self._world)]
            return [Sum(piece, 0, Stage.NOW, 0), *drains]
        assert after.origin is not None  # noqa: S101
        if after.stage is Stage.LATER:
            self._resting.add(after.origin)
        else:
            self._open[after.origin] -= 1
        is_resting = self._rank in self._resting or self._rank not in self._ranks
        is_over = self._rank == after.origin and not self._open[after.origin]
        following = self._next() if is_over or is_resting else []
        return [after.next, *following] if after.stage is Stage.LATER else following

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        """Answer a push as `asp` does; turns go on when all ranks have drained."""
        found = super().pushed(rank, total, now_ns)
        if found and total.stage is Stage.LATER and not any(self._draining.values()):
            self._resting.clear()
            self._since_ns = LONG_AGO_NS
        return found

    def turned(self, now_ns: int) -> list[Sum]:
        """Give the turn to the next rank if the present one has not pushed in its time."""
        if self._since_ns is None:
            self._since_ns = now_ns
        elif now_ns - self._since_ns > self._turn_ns:
            return self._next()
        return []

    def gone(self, rank: int) -> list[Sum]:
        """Forget a gone rank, whose turn ends at the next look at the clock."""
        if self._rank == rank:
            self._since_ns = LONG_AGO_NS
        return super().gone(rank)

    def _next(self) -> list[Sum]:
        """The turn goes to the next rank that is there, and whose last push is not still to come."""
        self._since_ns = None
        for step in range(1, self._world + 1):
            rank = (self._rank + step) % self._world
            if rank in self._ranks - self._resting and not self._open[rank]:
                self._rank = rank
                self._open[rank] += len(self._pieces)
                self._turns[rank] += 1
                return [Sum(piece, self._turns[rank] - 1, Stage.NOW, rank) for piece in self._pieces]
        return []


class R2sp(Asp):
    """The registered synchronization `r2sp`."""

    name = "r2sp"
    settings = R2spSettings

    def keeper(self, job: Job) -> R2spKeeper:
        """A new keeper of `r2sp`, with the turns of the job, for a node that keeps parameters."""
        return R2spKeeper(job, settings_of(job, R2spSettings).turn_seconds)


SYNCHRONIZATION = R2sp()
