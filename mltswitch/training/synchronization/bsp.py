"""Bulk-synchronous: a step ends when every rank has the sum of all ranks' gradients of that step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

from mltswitch.training.axes import Exchange, Needs, NoSettings, Sum, settings_of
from mltswitch.training.job import Job


class BspMember:
    """A rank: gradients leave as soon as they are there, and the next step waits for all results.

    Others begin from it, for it does what most have in common.
    """

    lag = 0
    prediction = "optimizer"

    def __init__(self, job: Job) -> None:
        self._pieces = len(job.pieces)
        self._arrived = 0
        """Results, of all steps."""

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """All of them go now."""
        return [Exchange(step, tuple(pieces))] if pieces else []

    def computed(self, step: int, loss: float, seconds: float, now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """Nothing is left for the end of a step."""
        return []

    def arrived(self, step: int, result: Sum, now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """Counts the results."""
        self._arrived += 1
        return []

    @property
    def holds(self) -> bool:
        """All begin at once."""
        return False

    def later(self, step: int) -> frozenset[int]:  # noqa: ARG002
        """All sums are there when the step is over."""
        return frozenset()

    def weighed(self, importance: Mapping[int, float]) -> None:
        """All pieces are alike."""

    def vote(self, step: int) -> Sequence[float]:  # noqa: ARG002
        """There is nothing to agree on."""
        return ()

    def counted(self, step: int, ballot: Sequence[float]) -> list[int]:  # noqa: ARG002
        """Nobody can disagree."""
        return []

    def state(self) -> dict[str, Any]:
        """Steps are all alike."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Does nothing: a bulk-synchronous rank goes on from any step in the same way."""

    def enter(self, step: int) -> None:
        """The steps before are others'."""
        self._arrived = step * self._pieces

    def may_compute(self, step: int) -> bool:
        """Once all results of the steps before are there."""
        return self._arrived >= step * self._pieces

    def drain(self, step: int) -> list[Exchange]:  # noqa: ARG002
        """Nothing waits between steps."""
        return []


class BspKeeper:
    """Gives a sum out when the gradients of every rank are in it."""

    def __init__(self, job: Job) -> None:
        self._world = self._left = job.world
        """Ranks that push."""
        self._inside: defaultdict[Sum, set[int]] = defaultdict(set)

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """One sum after the other."""
        return [Sum(piece, 0) if after is None else after.next]

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """With the last rank's push."""
        inside = self._inside[total]
        inside.add(rank)
        if len(inside) < self._left:
            return []
        del self._inside[total]
        return [total]

    def turned(self, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """Nobody can push because time has passed."""
        return []

    def gone(self, rank: int) -> list[Sum]:
        """Sums that are not out begin anew without it."""
        self._left -= rank < self._world
        self._inside.clear()
        return []


class Bsp:
    """The description that is registered."""

    name = "bsp"
    needs = Needs()
    votes = False
    repairs = True

    def of(self, job: Job) -> Self:
        """The same for every job, which may have no settings of it."""
        settings_of(job, NoSettings)
        return self

    def member(self, job: Job, rank: int) -> BspMember:  # noqa: ARG002
        """All ranks are alike."""
        return BspMember(job)

    def keeper(self, job: Job) -> BspKeeper:
        """One for each node that completes sums."""
        return BspKeeper(job)


SYNCHRONIZATION = Bsp()
