"""Axes that somebody else might register: what the interfaces must carry beyond what is built in."""

from collections import defaultdict
from collections.abc import Sequence

from mltswitch.training.axes import Action, Exchange, Needs, Network, Stage, Step, Sum
from mltswitch.training.job import Job
from mltswitch.training.synchronization.bsp import BspKeeper, BspMember


class Tree:
    """Ranks in a heap of some in-degree; servers, if any, add up before the one that completes a sum."""

    name = "tree"
    offers = Needs()
    counts_arrivals = False
    has_servers = True

    def __init__(self, in_degree: int) -> None:
        self.in_degree = in_degree
        self.name = f"tree-{in_degree}"

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


class Window:
    """Stale-synchronous: joint sums in the order of steps, ranks up to three steps apart."""

    name = "window"
    needs = Needs()

    def member(self, job: Job, rank: int) -> WindowMember:
        return WindowMember(job)

    def keeper(self, job: Job) -> BspKeeper:
        return BspKeeper(job)


class StagesMember(BspMember):
    """Two-stage: pieces of one kind of step go at once, the others overlap the next computation."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._now: defaultdict[int, int] = defaultdict(int)
        self._later: dict[int, tuple[int, ...]] = defaultdict(tuple)

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:
        now = tuple(piece for piece in pieces if (piece + step) % 3)
        self._later[step] += tuple(piece for piece in pieces if not (piece + step) % 3)
        self._now[step] += len(now)
        return [Exchange(step, now)] if now else []

    def computed(self, step: int, loss: float, seconds: float, now_ns: int) -> list[Exchange]:
        return [Exchange(step, self._later[step], Stage.LATER)]

    def arrived(self, step: int, result: Sum, now_ns: int) -> None:
        super().arrived(step, result, now_ns)
        self._now[step] -= result.stage is Stage.NOW

    def may_compute(self, step: int) -> bool:
        is_over = len(self._later) == step and not self._now[step - 1]
        return is_over and super().may_compute(max(0, step - 1))


class StagesKeeper(BspKeeper):
    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        return [after.next] if after else [Sum(piece, 0, stage) for stage in Stage]


class Stages:
    """As OSP has it: which pieces wait changes with the steps, and servers do not know."""

    name = "stages"
    needs = Needs()

    def member(self, job: Job, rank: int) -> StagesMember:
        return StagesMember(job)

    def keeper(self, job: Job) -> StagesKeeper:
        return StagesKeeper(job)


class LoneMember(BspMember):
    """Asynchronous: a rank waits for the answers to its own pushes only."""

    def __init__(self, job: Job, rank: int) -> None:
        super().__init__(job)
        self._rank, self._all = rank, tuple(range(len(job.pieces)))

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:
        return [Exchange(step, tuple(pieces), origin=self._rank)]

    def drain(self, step: int) -> list[Exchange]:
        return [Exchange(step, self._all, Stage.LATER, self._rank)]


class LoneKeeper:
    """Answers at once; the last pushes, of zeros, when all ranks have drained."""

    def __init__(self, job: Job) -> None:
        self._world = job.world
        self._drained: defaultdict[tuple[int, int], list[Sum]] = defaultdict(list)

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        if after is not None:
            return [after.next]
        return [Sum(piece, 0, stage, rank) for rank in range(self._world) for stage in Stage]

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        if total.stage is Stage.NOW:
            return [total]
        drained = self._drained[total.piece, total.number]
        drained.append(total)
        return drained if len(drained) == self._world else []


class TurnsKeeper(LoneKeeper):
    """Round-robin: a piece has memory for one rank's push at a time, so that they come in turns."""

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        if after is None:
            return [Sum(piece, 0, Stage.NOW, 0), *(Sum(piece, 0, Stage.LATER, r) for r in range(self._world))]
        if after.stage is Stage.LATER:
            return [after.next]
        following = ((after.origin or 0) + 1) % self._world
        return [Sum(piece, after.number + (following == 0), Stage.NOW, following)]


class Lone:
    """Each rank by itself, at once or in turns."""

    needs = Needs(lone_pushes=True)

    def __init__(self, name: str, keeper: type[LoneKeeper]) -> None:
        self.name, self._keeper = name, keeper

    def member(self, job: Job, rank: int) -> LoneMember:
        return LoneMember(job, rank)

    def keeper(self, job: Job) -> LoneKeeper:
        return self._keeper(job)


TOPOLOGIES = (Tree(2), Tree(3))
JOINT = (Window(), Stages())
ALONE = (Lone("asp-like", LoneKeeper), Lone("r2sp-like", TurnsKeeper))
