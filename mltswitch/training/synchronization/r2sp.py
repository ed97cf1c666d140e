"""Round-robin (R²SP, Chen et al., INFOCOM 2019): `asp` in fixed turns.

A rank's push comes alone, so that a server's link carries one push one way while it carries the answer to
the one before the other way. Turns begin when the push before is in, which spaces them evenly. OSP compares
with it (section 5).
"""

from typing import Final

from pydantic import Field

from mltswitch.training.axes import Needs, NoSettings, Stage, Sum, settings_of
from mltswitch.training.job import Job
from mltswitch.training.synchronization.asp import AspKeeper, AspMember
from mltswitch.units import NANOSECONDS

LONG_AGO_NS: Final = -(1 << 62)


class R2spSettings(NoSettings):
    """What a job may say of it."""

    turn_seconds: float = Field(default=30.0, gt=0)
    """After which the next rank has its turn, too."""


class _Turns:
    """Of one piece."""

    def __init__(self, world: int) -> None:
        self.rank = 0
        """Whose turn it is."""
        self.since_ns: int | None = None
        """When it began; None: nobody has looked at the clock since."""
        self.next = [0] * world
        """Number of each rank's next push for which there is no memory yet."""
        self.open = [0] * world
        """Pushes of each rank that may come and have not."""
        self.draining: set[int] = set()
        """Ranks that push nothing for now."""

    def end(self) -> None:
        """With the next look at the clock."""
        self.since_ns = LONG_AGO_NS


class R2spKeeper(AspKeeper):
    """Has memory for the push of one rank at a time, unless a rank has missed its turn."""

    def __init__(self, job: Job, turn_seconds: float) -> None:
        super().__init__(job)
        self._world = job.world
        self._turn_ns = turn_seconds * NANOSECONDS
        self._turns: dict[int, _Turns] = {}

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """The one whose turn it is; with a push that comes past its turn there is no new one."""
        if after is None:
            turns = self._turns[piece] = _Turns(self._world)
            return [*self._open(piece, 0), *(Sum(piece, 0, Stage.LATER, rank) for rank in range(self._world))]
        assert after.origin is not None  # noqa: S101
        turns = self._turns[piece]
        is_over = turns.rank == after.origin or turns.rank not in self._ranks
        if after.stage is Stage.LATER:
            turns.draining.add(after.origin)
            return [after.next, *(self._next(piece) if is_over else [])]
        turns.open[after.origin] -= 1
        return self._next(piece) if is_over else []

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        """As `asp` has it; turns go on when all have drained."""
        found = super().pushed(rank, total, now_ns)
        if found and total.stage is Stage.LATER:
            self._turns[total.piece].draining.clear()
            self._turns[total.piece].end()
        return found

    def turned(self, now_ns: int) -> list[Sum]:
        """Past the turns of ranks that are absent."""
        found = []
        for piece, turns in self._turns.items():
            if turns.since_ns is None:
                turns.since_ns = now_ns
            elif now_ns - turns.since_ns > self._turn_ns:
                found += self._next(piece)
        return found

    def gone(self, rank: int) -> list[Sum]:
        """Its turns are over: that of now, too, when the clock is looked at next."""
        for turns in self._turns.values():
            if turns.rank == rank:
                turns.end()
        return super().gone(rank)

    def _next(self, piece: int) -> list[Sum]:
        """The turn goes to the next rank that is there, and whose last push is not still to come."""
        turns = self._turns[piece]
        ranks = [(turns.rank + step) % self._world for step in range(1, self._world + 1)]
        for rank in ranks:
            if rank in self._ranks - turns.draining and not turns.open[rank]:
                return self._open(piece, rank)
        turns.since_ns = None
        return []

    def _open(self, piece: int, rank: int) -> list[Sum]:
        turns = self._turns[piece]
        turns.rank, turns.since_ns = rank, None
        turns.open[rank] += 1
        turns.next[rank] += 1
        return [Sum(piece, turns.next[rank] - 1, Stage.NOW, rank)]


class R2sp:
    """The description that is registered."""

    name = "r2sp"
    needs = Needs(lone_pushes=True)
    votes = False

    def __init__(self, turn_seconds: float) -> None:
        self._turn_seconds = turn_seconds

    def of(self, job: Job) -> "R2sp":
        """With the turns of a job."""
        return R2sp(settings_of(job, R2spSettings).turn_seconds)

    def member(self, job: Job, rank: int) -> AspMember:
        """One for each rank."""
        return AspMember(job, rank)

    def keeper(self, job: Job) -> R2spKeeper:
        """One for each node that keeps parameters."""
        return R2spKeeper(job, self._turn_seconds)


SYNCHRONIZATION = R2sp(R2spSettings().turn_seconds)
