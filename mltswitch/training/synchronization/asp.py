"""Asynchronous: each push of a rank is a step of the root's optimizer, and nobody waits for others.

OSP, section 2.1.2. A push weighs 1/N, and its rank gets the parameters as they are then.
"""

from collections import defaultdict
from collections.abc import Sequence

from mltswitch.training.axes import Exchange, Needs, NoSettings, Stage, Sum, Synchronization, settings_of
from mltswitch.training.job import Job
from mltswitch.training.synchronization.bsp import BspMember


class AspMember(BspMember):
    """A rank: waits for the answers to its own pushes."""

    def __init__(self, job: Job, rank: int) -> None:
        super().__init__(job)
        self._rank = rank

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """All of them go now, each by itself."""
        return [Exchange(step, tuple(pieces), origin=self._rank)] if pieces else []

    def arrived(self, step: int, result: Sum, now_ns: int) -> list[Exchange]:
        """Counts the answers to pushes."""
        return super().arrived(step, result, now_ns) if result.stage is Stage.NOW else []

    def drain(self, step: int) -> list[Exchange]:
        """Asks for the parameters that all ranks have together in the end."""
        return [Exchange(step, tuple(range(self._pieces)), Stage.LATER, self._rank)]


class AspKeeper:
    """Answers at once; who drains is answered when all drain, so that all end with the same parameters."""

    def __init__(self, job: Job) -> None:
        self._ranks = set(range(job.world))
        """Those that are there."""
        self._draining: defaultdict[tuple[int, int], dict[int, Sum]] = defaultdict(dict)
        """By piece and number; those of each rank."""

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """The next push of each rank is expected."""
        if after is not None:
            return [after.next]
        return [Sum(piece, 0, stage, rank) for rank in sorted(self._ranks) for stage in Stage]

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        """A push is answered as `answers` says; who drains, when all do."""
        if total.stage is Stage.NOW:
            return self.answers(rank, total, now_ns)
        place = total.piece, total.number
        self._draining[place][rank] = total
        return self._drained(place)

    def answers(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """Pushes that are answered now that this one is in."""
        return [total]

    def turned(self, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """Nobody can push because time has passed."""
        return []

    def gone(self, rank: int) -> list[Sum]:
        """Nobody waits for it any more."""
        self._ranks.discard(rank)
        return [total for place in [*self._draining] for total in self._drained(place)]

    def _drained(self, place: tuple[int, int]) -> list[Sum]:
        if not self._ranks <= self._draining[place].keys():
            return []
        return [total for rank, total in self._draining.pop(place).items() if rank in self._ranks]


class Asp:
    """The description that is registered; others of which each push counts alone begin from it."""

    name = "asp"
    needs = Needs(lone_pushes=True)
    votes = False
    settings: type[NoSettings] = NoSettings
    """What the settings of a job are checked against."""

    def of(self, job: Job) -> Synchronization:
        """The same for every job; raises UserInputError for settings that are none."""
        settings_of(job, self.settings)
        return self

    def member(self, job: Job, rank: int) -> AspMember:
        """What a rank of the job has of its own."""
        return AspMember(job, rank)

    def keeper(self, job: Job) -> AspKeeper:
        """What a node that keeps parameters has of its own."""
        return AspKeeper(job)


SYNCHRONIZATION = Asp()
