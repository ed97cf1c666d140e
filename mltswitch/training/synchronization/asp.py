"""Asynchronous (`asp`): each push of a rank is a step of the root's optimizer, and no rank waits for others.

OSP, section 2.1.2. A push weighs 1/N, and its rank gets the parameters as they are then.
"""

from collections import defaultdict
from collections.abc import Sequence

from mltswitch.training.axes import Exchange, Needs, NoSettings, Stage, Sum, Synchronization, settings_of
from mltswitch.training.job import Job
from mltswitch.training.synchronization.bsp import BspMember


class AspMember(BspMember):
    """A rank's part of `asp`, which waits only for the answers to its own pushes."""

    def __init__(self, job: Job, rank: int) -> None:
        super().__init__(job)
        self._rank = rank

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """Push these pieces now, without waiting for other ranks."""
        return [Exchange(step, tuple(pieces), origin=self._rank)] if pieces else []

    def arrived(self, step: int, result: Sum, now_ns: int) -> list[Exchange]:
        """Count an answer to a push; nothing more is exchanged."""
        return super().arrived(step, result, now_ns) if result.stage is Stage.NOW else []

    def drain(self, step: int) -> list[Exchange]:
        """Ask for the parameters with the pushes of all ranks, once all ranks drain."""
        return [Exchange(step, tuple(range(self._pieces)), Stage.LATER, self._rank)]


class AspKeeper:
    """Answers each push at once; ranks that drain are answered when all do, so that all get the same
    parameters."""

    def __init__(self, job: Job) -> None:
        self._ranks = set(range(job.world))
        """Those that are there."""
        self._draining: defaultdict[tuple[int, int], dict[int, Sum]] = defaultdict(dict)
        """By piece and number; those of each rank."""

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """Expect the next push of each rank."""
        if after is not None:
            return [after.next]
        return [Sum(piece, 0, stage, rank) for rank in sorted(self._ranks) for stage in Stage]

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        """Answer a push as `answers` decides, or ranks that drain once all of them do."""
        if total.stage is Stage.NOW:
            return self.answers(rank, total, now_ns)
        place = total.piece, total.number
        self._draining[place][rank] = total
        return self._drained(place)

    def answers(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """The pushes that can be answered when this one has come: only itself."""
        return [total]

    def turned(self, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """No further pushes become possible with time."""
        return []

    def gone(self, rank: int) -> list[Sum]:
        """Forget a gone rank, and answer ranks that waited only for it to drain."""
        self._ranks.discard(rank)
        return [total for place in [*self._draining] for total in self._drained(place)]

    def _drained(self, place: tuple[int, int]) -> list[Sum]:
        if not self._ranks <= self._draining[place].keys():
            return []
        return [total for rank, total in self._draining.pop(place).items() if rank in self._ranks]


class Asp:
    """The registered synchronization `asp`; the base of others in which each push counts by itself."""

    name = "asp"
    needs = Needs(lone_pushes=True)
    votes = False
    settings: type[NoSettings] = NoSettings
    """The class that checks the settings of a job."""

    def of(self, job: Job) -> Synchronization:
        """This synchronization, equal for every job; raises UserInputError for wrong settings."""
        settings_of(job, self.settings)
        return self

    def member(self, job: Job, rank: int) -> AspMember:
        """A new member of `asp` for one rank of the job."""
        return AspMember(job, rank)

    def keeper(self, job: Job) -> AspKeeper:
        """A new keeper of `asp` for a node that keeps parameters."""
        return AspKeeper(job)


SYNCHRONIZATION = Asp()
