"""Axes that somebody else might register: what the interfaces must carry beyond what is built in."""

import sys

from mltswitch.training.axes import Action, Needs, Network, NoSettings, Step, Sum, settings_of
from mltswitch.training.job import Job
from mltswitch.training.synchronization.asp import Asp
from mltswitch.training.synchronization.bsp import Bsp, BspMember
from mltswitch.training.synchronization.ssp import SspKeeper


class Tree:
    """Ranks in a heap of some in-degree; servers, if any, add up before the one that completes a sum."""

    name = "tree"
    offers = Needs()
    counts_arrivals = False
    has_servers = True

    def __init__(self, in_degree: int) -> None:
        self.in_degree = in_degree
        self.name = f"tree-{in_degree}"

    def of(self, _job: Job) -> "Tree":
        """It has no settings."""
        return self

    def parent(self, job: Job, piece: int, node: int) -> int | None:
        """Where a node sends what it has added up; None: it completes the sum."""
        if job.servers:
            root = job.world + piece % job.servers
            server = job.world + node % job.servers if node < job.world else root
            return None if node == root else server
        place = (node - piece) % job.world
        return None if place == 0 else ((place - 1) // self.in_degree + piece) % job.world

    def schedule(self, job: Job, piece: int, node: int, origin: int | None = None) -> tuple[Step, ...]:
        """Own gradients first, then the children in their order."""
        parent = self.parent(job, piece, node)
        children = [other for other in range(job.nodes) if self.parent(job, piece, other) == node]
        children = [child for child in children if self.below(job, piece, child)]
        if not self.below(job, piece, node):
            return ()
        steps = [Step(Action.RECEIVE, child) for child in children]
        before: tuple[int, ...] = ()
        if node < job.world and (children or parent is None):
            before = (len(steps),)
            steps.append(Step(Action.ADD, ranks=(node,)))
        for number, child in enumerate(children):
            steps.append(Step(Action.ADD, child, (*before, number), ranks=self.below(job, piece, child)))
            before = (len(steps) - 1,)
        if parent is not None:
            steps.append(Step(Action.SEND, parent, before))
            before = (len(steps),)
            steps.append(Step(Action.RECEIVE, parent, is_result=True))
        result = (len(steps),)
        steps.append(Step(Action.RESULT, after=before))
        return (*steps, *(Step(Action.SEND, child, result, is_result=True) for child in children))

    def below(self, job: Job, piece: int, node: int) -> tuple[int, ...]:
        """Ranks whose gradients a node's partial sum has."""
        own = (node,) if node < job.world else ()
        children = [other for other in range(job.nodes) if self.parent(job, piece, other) == node]
        return own + tuple(rank for child in children for rank in self.below(job, piece, child))

    def lossy_hops(self, job: Job) -> int:
        """The longest way to the root of the first piece."""
        lengths = []
        for rank in range(job.world):
            node, length = self.parent(job, 0, rank), 0
            while node is not None:
                node, length = self.parent(job, 0, node), length + 1
            lengths.append(length)
        return max(1, *lengths)

    def seconds(self, job: Job, network: Network) -> float:
        """Roughly."""
        return 2 * self.lossy_hops(job) * (job.elements * 64 / network.link_bps + network.latency_seconds)


class WindowMember(BspMember):
    """Steps may begin while results of some steps before are still on their way."""

    window = 2

    def may_compute(self, step: int) -> bool:
        """Bounded staleness."""
        return super().may_compute(max(0, step - self.window))


class Window(Bsp):
    """Joint sums in the order of steps, ranks up to three steps apart."""

    name = "window"

    def member(self, job: Job, rank: int) -> WindowMember:
        return WindowMember(job)


class SwitchSettings(NoSettings):
    after: int = 2


class SwitchKeeper(SspKeeper):
    """Waits for all ranks until their steps have a number, and for none afterwards."""

    def __init__(self, job: Job, after: int) -> None:
        super().__init__(job, 0)
        self._after = after

    def answers(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        self.staleness = 0 if total.number < self._after else sys.maxsize // 2
        return super().answers(rank, total, now_ns)


class Switch(Asp):
    """Sync-Switch (Li et al., ICDCS 2021): synchronous steps first, asynchronous ones later."""

    name = "switch"

    def of(self, job: Job) -> "Switch":
        settings_of(job, SwitchSettings)
        return self

    def keeper(self, job: Job) -> SwitchKeeper:
        return SwitchKeeper(job, settings_of(job, SwitchSettings).after)


TOPOLOGIES = (Tree(2), Tree(3))
SYNCHRONIZATIONS = (Window(), Switch())
