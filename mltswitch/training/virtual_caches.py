"""Simulates workers that train under bounded staleness in virtual time, with the caches that production
uses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mltswitch.training.axes import Crossing, Direction, Elements
from mltswitch.training.caches import Caches, Shape
from mltswitch.training.job import Job
from mltswitch.training.virtual_network import Timeline, VirtualNetwork, Wires

Compute = Callable[[int, int, Elements], tuple[float, Elements]]
"""From a worker's rank, its clock and its pulled parameters, how many seconds it computes, and its update."""


@dataclass(slots=True)
class StaleReport:
    """The results of a run of workers under bounded staleness."""

    seconds: float = 0.0
    """Virtual time until the last worker has pushed all its updates."""
    values: dict[int, Elements] = field(default_factory=dict)
    """Parameters at each rank at the end, with all updates of all workers."""
    crossed_bytes: int = 0
    """Bytes of all tensors, counted once for each hop."""


class VirtualCaches:
    """All nodes of a job under bounded staleness, for a single run.

    Args:
        values: the parameters at the start.
        staleness: how many clocks of others' updates a worker may lack; 0 or more.
    """

    def __init__(self, job: Job, shape: Shape, wires: Wires, values: Elements, staleness: int) -> None:
        self.job: Final = job
        self._staleness = staleness
        self._timeline = Timeline()
        self._network = VirtualNetwork(self._timeline, wires, self._cross)
        self._nodes = [Caches(job, number, shape, values) for number in range(job.nodes)]
        self._values = [values.copy() for _ in range(job.world)]
        self._waits: dict[int, int] = {}
        """Ranks that wait, and for which clock."""
        self._clocks = [0] * job.world
        self.report: Final = StaleReport()

    def run(self, clocks: int, compute: Compute) -> StaleReport:
        """Run each worker for this many clocks. Raises AssertionError where workers wait for ever."""
        self._most, self._compute = clocks, compute
        for number in range(self.job.nodes):
            self._post(number)
        for rank in range(self.job.world):
            self._begin(rank)
        while self._network.goes_on():
            pass
        if self._waits:
            raise AssertionError(f"ranks and clocks wait for ever: {self._waits}")
        return self.report

    def _begin(self, rank: int) -> None:
        clock, values = self._clocks[rank], self._values[rank]
        self._nodes[rank].read(values)
        if clock > self._most:
            self.report.values[rank] = values
            return
        if clock == self._most:
            self.report.seconds = max(self.report.seconds, self._timeline.now_seconds)
            self._clocks[rank] += 1
            self._want(rank, clock)  # all updates of all
            return
        seconds, update = self._compute(rank, clock, values)
        self._timeline.after(seconds, partial(self._computed, rank, update))

    def _computed(self, rank: int, update: Elements) -> None:
        node = self._nodes[rank]
        node.push(update)
        self._clocks[rank] = node.clock()
        self._want(rank, self._clocks[rank] - self._staleness)

    def _want(self, rank: int, clock: int) -> None:
        self._nodes[rank].want(clock)
        self._waits[rank] = clock
        self._look(rank)

    def _look(self, number: int) -> None:
        self._post(number)
        if number in self._waits and self._nodes[number].has(self._waits[number]):
            del self._waits[number]
            self._timeline.after(0.0, partial(self._begin, number))

    def _post(self, number: int) -> None:
        for post in self._nodes[number].take_posts():
            self.report.crossed_bytes += post.data.nbytes if post.direction is Direction.SEND else 0
            self._network.post(number, post)

    def _cross(self, number: int, crossing: Crossing) -> None:
        self._nodes[number].crossed(crossing)
        self._look(number)
