"""Bulk-synchronous (`bsp`): a step ends when every rank has the sum of all ranks' gradients of that step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

from mltswitch.training.axes import Exchange, Needs, NoSettings, Sum, settings_of
from mltswitch.training.job import Job


class BspMember:
    """A rank's part of `bsp`: it sends gradients as soon as they are ready, and waits for all results before
    a step.

    It is the base of other members, for it does what most have in common.
    """

    lag = 0
    prediction = "optimizer"

    def __init__(self, job: Job) -> None:
        self._pieces = len(job.pieces)
        self._arrived = 0
        """Results, of all steps."""

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """Exchange these pieces now."""
        return [Exchange(step, tuple(pieces))] if pieces else []

    def computed(self, step: int, loss: float, seconds: float, now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """Exchange nothing more at the end of a step."""
        return []

    def arrived(self, step: int, result: Sum, now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """Count a result that has arrived; nothing more is exchanged."""
        self._arrived += 1
        return []

    @property
    def holds(self) -> bool:
        """Always False: no exchange is held back."""
        return False

    def later(self, step: int) -> frozenset[int]:  # noqa: ARG002
        """No pieces: all sums have arrived when the step is over."""
        return frozenset()

    def weighed(self, importance: Mapping[int, float]) -> None:
        """Ignore the importance of pieces, since all are treated alike."""

    def vote(self, step: int) -> Sequence[float]:  # noqa: ARG002
        """No figures: the ranks have nothing to agree on."""
        return ()

    def counted(self, step: int, ballot: Sequence[float]) -> list[int]:  # noqa: ARG002
        """No ranks: none can disagree."""
        return []

    def state(self) -> dict[str, Any]:
        """An empty state, since all steps are alike."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Does nothing: a bulk-synchronous rank goes on from any step in the same way."""

    def enter(self, step: int) -> None:
        """Begin with this step, so that all earlier steps count as done."""
        self._arrived = step * self._pieces

    def may_compute(self, step: int) -> bool:
        """Whether all results of the steps before have arrived."""
        return self._arrived >= step * self._pieces

    def drain(self, step: int) -> list[Exchange]:  # noqa: ARG002
        """Exchange nothing, for no exchange is outstanding between steps."""
        return []


class BspKeeper:
    """Gives a sum out when the gradients of every rank are in it."""

    def __init__(self, job: Job) -> None:
        self._world = self._left = job.world
        """Ranks that push."""
        self._inside: defaultdict[Sum, set[int]] = defaultdict(set)

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """Expect a piece's next sum after the one before."""
        return [Sum(piece, 0) if after is None else after.next]

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """Give a sum out with the last rank's push."""
        inside = self._inside[total]
        inside.add(rank)
        if len(inside) < self._left:
            return []
        del self._inside[total]
        return [total]

    def turned(self, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """No further pushes become possible with time."""
        return []

    def gone(self, rank: int) -> list[Sum]:
        """Forget a gone rank; sums that are not given out begin again without it."""
        self._left -= rank < self._world
        self._inside.clear()
        return []


class Bsp:
    """The registered synchronization `bsp`."""

    name = "bsp"
    needs = Needs()
    votes = False
    repairs = True

    def of(self, job: Job) -> Self:
        """This synchronization, equal for every job, which may have no settings of it."""
        settings_of(job, NoSettings)
        return self

    def member(self, job: Job, rank: int) -> BspMember:  # noqa: ARG002
        """A new member of `bsp`, equal for all ranks."""
        return BspMember(job)

    def keeper(self, job: Job) -> BspKeeper:
        """A new keeper of `bsp` for a node that completes sums."""
        return BspKeeper(job)


SYNCHRONIZATION = Bsp()
