"""Bulk-synchronous: a step ends when every rank has the sum of all ranks' gradients of that step."""

from collections import defaultdict
from collections.abc import Sequence

from mltswitch.training.axes import Exchange, Needs, Release
from mltswitch.training.job import Job


class BspMember:
    """A rank: gradients leave as soon as they are there, and the next step waits for all results."""

    def __init__(self, job: Job) -> None:
        self._pieces = len(job.pieces)
        self._arrived: defaultdict[int, int] = defaultdict(int)

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """All of them go now."""
        return [Exchange(step, tuple(pieces))] if pieces else []

    def computed(self, step: int, loss: float, seconds: float, now_ns: int) -> list[Exchange]:  # noqa: ARG002
        """Nothing is left for the end of a step."""
        return []

    def arrived(self, exchange: Exchange, piece: int, now_ns: int) -> None:  # noqa: ARG002
        """Counts the results of a step."""
        self._arrived[exchange.step] += 1
        self._arrived.pop(exchange.step - 2, None)

    def may_compute(self, step: int) -> bool:
        """Once all results of the step before are there."""
        return step == 0 or self._arrived[step - 1] == self._pieces

    def drain(self) -> list[Exchange]:
        """Nothing waits between steps."""
        return []


class BspKeeper:
    """Releases a sum when the gradients of every rank are in it."""

    def __init__(self, job: Job) -> None:
        self._all = frozenset(range(job.world))
        self._inside: defaultdict[tuple[Exchange, int], set[int]] = defaultdict(set)

    def pushed(self, rank: int, exchange: Exchange, piece: int, now_ns: int) -> list[Release]:  # noqa: ARG002
        """Released to all with the last rank's push."""
        inside = self._inside[exchange, piece]
        inside.add(rank)
        if inside != self._all:
            return []
        del self._inside[exchange, piece]
        return [Release(exchange, piece)]

    def missing(self, exchange: Exchange, piece: int) -> tuple[int, ...]:
        """Ranks whose gradients are not in the sum yet."""
        return tuple(sorted(self._all - self._inside.get((exchange, piece), set())))

    def expected(self, step: int, piece: int) -> list[Exchange]:
        """The sum of all ranks."""
        return [Exchange(step, (piece,))]


class Bsp:
    """The description that is registered."""

    name = "bsp"
    needs = Needs()

    def member(self, job: Job, rank: int) -> BspMember:  # noqa: ARG002
        """All ranks are alike."""
        return BspMember(job)

    def keeper(self, job: Job) -> BspKeeper:
        """One for each node that adds."""
        return BspKeeper(job)


SYNCHRONIZATION = Bsp()
