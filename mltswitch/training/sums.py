"""How one node makes sums: the steps of its topology, each done when what it waits for is there.

Posts for a carrier, results and losses collect in lists, which whoever owns the sums takes out.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mltswitch.training.axes import (
    Action,
    Crossing,
    Direction,
    Elements,
    Exchange,
    Keeper,
    Key,
    Needs,
    Post,
    Range,
    Stage,
    Step,
    Sum,
    Topology,
    axes_of,
)
from mltswitch.training.job import Divisor, Job
from mltswitch.training.optimizer import Parameters
from mltswitch.training.shortening import round_to_short
from mltswitch.training.turns import Turns
from mltswitch.training.views import View
from mltswitch.training.windows import Window

EPOCHS: Final = 256
"""Round numbers of transfers are those of sums times this: room to begin a sum anew after a fault."""
KEPT_VERSIONS: Final = 4
"""Of the topology, where it changes: sums of the oldest one are over."""
KEPT_BALLOTS: Final = 4
"""Results of ballots, for which no rank waits."""
MOST_STEPS: Final = (1 << 32) // EPOCHS
LAYERS: Final = 1 << 16
AGES: Final = 1 << 14
"""Numbers of sums begin anew, which at most one step in so many notices."""
LAST_PRIORITY: Final = (1 << 31) - 1
ENTERING: Final = -1
"""Step of sums to which a rank has nothing to give, for it has come after they were begun."""
NOTHING: Final = -0.0
"""What is missing in a partial sum: added to whatever it leaves that as it is, also another -0."""
_ROUNDED: Final = 1e-4
"""Of ranks' weights, which are 1 on average: less than this is a rest of rounding, and nobody is left."""


def sums_have_ages(job: Job) -> bool:
    """Whether a lower number is an older sum: ranks do not go on by themselves, and end rounds together."""
    kind = axes_of(job)[0]
    return kind.needs == Needs() and not kind.votes


def priority_of(post: Post, *, has_age: bool) -> int:
    """In whose order a node sends to another one: older sums, then front layers, and last what comes later.

    Else the next gradients of a rank that is ahead would hold back results that others wait for, and it would
    stay ahead.
    """
    if post.stage is Stage.LATER:
        return LAST_PRIORITY
    age = post.round_number // EPOCHS % AGES if has_age else 0
    return age * LAYERS + min(post.layer, LAYERS - 1)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a loss bound left out of a sum on one hop."""

    total: Sum
    sender: int
    receiver: int
    ranks: tuple[int, ...]
    """Whose gradients the sender's partial sum has: all of them are without these elements."""
    missing: tuple[Range, ...]
    """Elements of the piece, in order."""
    is_cut: bool = False
    """Whether they were no longer waited for; else the network has lost them."""
    epoch: int = 0
    """That of the view; sums begin anew in each."""

    @property
    def elements(self) -> int:
        """How many."""
        return sum(end - first for first, end in self.missing)


@dataclass(slots=True)
class _Version:
    """A topology, and the sums that it is for."""

    first: int
    """Number of the first sum."""
    topology: Topology
    hop_bound: float
    plans: dict[tuple[int, int | None], "_Plan"] = field(default_factory=dict)


class _Plan:
    """What a node does for every sum of a piece from the same origin, and what each step waits for."""

    def __init__(self, steps: tuple[Step, ...], is_given: bool) -> None:
        self.steps = steps
        self.adds = sum(step.action is Action.ADD for step in steps)
        self.is_root = self.adds > 0 and not any(
            step.action is Action.RECEIVE and step.is_result for step in steps
        )
        self.ranks = {step.peer: step.ranks for step in steps if step.action is Action.ADD}
        """Whose gradients come from a peer."""
        self.on_own = [number for number, step in enumerate(steps) if is_given and self._uses_own(step)]
        """Steps that wait for this rank's vectors."""
        self.on_release = [
            number for number, step in enumerate(steps) if step.action is Action.RESULT and self.is_root
        ]
        """Steps that wait for the keeper."""
        self.followers: list[list[int]] = [[] for _ in steps]
        for number, step in enumerate(steps):
            for before in step.after:
                self.followers[before].append(number)
        waits = Counter((*self.on_own, *self.on_release, *range(len(steps))))  # the last until it is begun
        self.waits = [waits[number] + len(step.after) for number, step in enumerate(steps)]

    def _uses_own(self, step: Step) -> bool:
        match step.action:
            case Action.SEND:
                return not step.is_result and not self.adds
            case Action.RECEIVE:
                return step.is_result
            case Action.ADD:
                return step.peer is None
            case Action.RESULT:
                return True


@dataclass(slots=True, eq=False)
class _Work:
    """One sum at this node."""

    of: Sum
    plan: _Plan
    waits: list[int]
    """What each step still waits for: how many steps and conditions."""
    left: int
    """Steps that are not done."""
    adds_left: int
    step: int | None = None
    """In which this rank has given its gradients."""
    own: Elements | None = None
    result: Elements | None = None
    total: Elements | None = None
    """The sum as far as it is made."""
    counts: Elements | None = None
    """For each element the ranks in the sum, where not all are."""
    open: set[int] = field(default_factory=set)
    """Steps that a carrier has."""


class Sums:
    """All open sums at a node.

    Args:
        job: what all nodes agree on.
        number: of this node.
        topology: of the job; its windows bound the memory for partial sums.
        keeper: makes this node's.
        votes: whether ranks exchange ballots.
        is_changing: whether each ballot may change the topology of the sums that follow.
        parameters: of the model, where roots keep them.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        topology: Topology,
        keeper: Callable[[], Keeper],
        *,
        votes: bool = False,
        is_changing: bool = False,
        parameters: Parameters | None = None,
    ) -> None:
        self.job: Final = job
        self.number: Final = number
        self.posts: list[Post] = []
        """For the carrier."""
        self.arrived: deque[tuple[int, Sum]] = deque()
        """Results that are in this rank's memory, and the steps in which it gave its part."""
        self.losses: list[Loss] = []
        """What bounds have left out of sums at this node."""
        self.begun: dict[Sum, int] = {}
        """When this node, or the first other one, has begun sums that are open, in ns and in this order."""
        self._versions: list[_Version] = []
        """Topologies that open sums have, the newest one first."""
        self._known_end = 1 if is_changing else MOST_STEPS
        """Of numbers of sums that may be expected, one beyond the last."""
        self._later: list[Sum] = []
        """Sums that are expected once they may be."""
        self._make_keeper, self._keeper = keeper, keeper()
        self._works: dict[Sum, _Work] = {}
        self._numbers: Counter[tuple[int, Stage, int | None]] = Counter()
        """Of this rank's next sums, by piece, stage and origin."""
        self._open_of: Counter[int] = Counter()
        """Sums that use this rank's vectors of a step."""
        self._by_key: dict[Key, tuple[_Work, int]] = {}
        self._received: dict[tuple[int, int, Stage], Elements] = {}
        """Memory for partial sums, by piece, peer and stage."""
        self._lent: dict[tuple[int, int, Stage], deque[tuple[_Work, int]]] = {}
        """Of that, what is in use, and the receives that wait for it."""
        self._free: defaultdict[int, list[Elements]] = defaultdict(list)
        """Memory for sums, by its elements."""
        self._windows: dict[int, Window[tuple[_Work, int]]] = {}
        """By peer, where its partial sums have less memory than all pieces."""
        self._pieces: Final = (*job.pieces, job.whole_ballot)
        self._parameters = parameters
        self._ignored: set[int] = set()
        """Peers that are gone, without which the job goes on."""
        self._epoch = 0
        self._weight: float = job.world
        """Of all ranks that are left."""
        self._entering: tuple[int, int] | None = None
        """A rank, and the number of the first sums in which it is."""
        self.is_frozen = False
        """Whether nothing gets on until `repair`."""
        self.results = [0] * len(self._pieces)
        """Of each piece, how many sums of all ranks this node has the results of."""
        self._kept: list[deque[tuple[int, Elements]]] = [
            deque(maxlen=1 if piece < len(job.pieces) else KEPT_BALLOTS) for piece in range(len(self._pieces))
        ]
        """The last ones of these, for nodes that lack them after a fault."""
        self._turns = Turns(len(self._pieces))
        self._expected = range(len(job.pieces) + votes)
        self._heed_topology(topology, self.results)
        self._expect_from(self.results)

    def begin(
        self,
        exchange: Exchange,
        own: Elements,
        result: Elements,
        now_ns: int,
        ballots: tuple[Elements, Elements] | None = None,
    ) -> None:
        """This rank's part of what its synchronization wants.

        Args:
            exchange: of this rank.
            own: a vector of all elements.
            result: one like it.
            now_ns: the time.
            ballots: own and result of a step's ballot.
        """
        for piece in exchange.pieces:
            key = (piece, exchange.stage, exchange.origin)
            total = Sum(piece, self._numbers[key], exchange.stage, exchange.origin)
            self._numbers[key] += 1
            self.begun.setdefault(total, now_ns)
            work = self._work(total, now_ns)
            if ballots is not None and piece == len(self.job.pieces):
                work.own, work.result = ballots
            else:
                place = self.job.pieces[piece].elements
                work.own, work.result = own[place], result[place]
            work.step = exchange.step
            self._open_of[exchange.step] += 1
            self._advance(work, work.plan.on_own, now_ns)

    def crossed(self, crossing: Crossing, now_ns: int) -> None:
        """A post has ended well."""
        work, number = self._by_key.pop(crossing.key)
        work.open.discard(number)
        self.begun.setdefault(work.of, now_ns)
        if crossing.missing:
            self._count(work, crossing)
        work.left -= 1
        self._advance(work, work.plan.followers[number], now_ns)

    def turn(self, now_ns: int) -> None:
        """Time has passed: perhaps others may push."""
        for total in self._keeper.turned(now_ns):
            self._expect_one(total)

    def ignore(self, rank: int, now_ns: int) -> None:
        """A rank is gone, and the job goes on: nothing of its waits, and nobody waits for it."""
        self._ignored.add(rank)
        for work in [*self._works.values()]:
            work.open -= {number for number in work.open if work.plan.steps[number].peer == rank}
            if work.of.origin == rank:
                self.begun.pop(work.of, None)
        self._release(self._keeper.gone(rank), now_ns)

    def is_ignored(self, crossing: Crossing) -> bool:
        """Whether a post is over with a node that is gone, and without effect."""
        if crossing.key[1] not in self._ignored:
            return False
        self._by_key.pop(crossing.key, None)
        return True

    def freeze(self) -> list[Key]:
        """Let nothing get on until `repair`; the posts that are open, of which `ended` is to be told."""
        self.is_frozen = True
        for post in self.posts:  # which no carrier has
            self._by_key.pop(post.key, None)
        self.posts.clear()
        return [*self._by_key]

    def ended(self, key: Key) -> None:
        """A post is over, and without effect: its sum begins anew."""
        work, number = self._by_key.pop(key, (None, 0))
        if work is not None:
            work.open.discard(number)

    @property
    def is_quiet(self) -> bool:
        """Whether no carrier has anything of this node."""
        return not self._by_key

    def impossible(self, view: View) -> int | None:
        """A node that says it has results which no node can have; none: all say what they may."""
        for piece, kept in enumerate(self._kept):
            counts = {node: figures[piece] for node, figures in view.results.items()}
            least = min(count for node, count in counts.items() if node < self.job.world)
            if max(counts.values()) - least > (kept.maxlen or 0):
                return max(counts, key=lambda node: counts[node])
        return None

    def _to_give(self, view: View) -> Iterator[tuple[Sum, int, list[int]]]:
        """Sums that are made, of which ranks lack the result: the node that gives it, and to whom."""
        left = [rank for rank in range(self.job.world) if rank not in view.gone]
        for piece, end in enumerate(map(max, zip(*view.results.values(), strict=True))):
            for number in range(min(view.results[rank][piece] for rank in left), end):
                lacking = [rank for rank in left if view.results[rank][piece] <= number]
                giver = min(node for node, counts in view.results.items() if counts[piece] > number)
                yield Sum(piece, number), giver, lacking

    def lacking_result(self, view: View) -> Sum | None:
        """A result that this node is to give, and has not; None: it has all of them."""
        for total, giver, _ in self._to_give(view):
            if giver == self.number and total.number not in dict(self._kept[total.piece]):
                return total
        return None

    def repair(self, topology: Topology, view: View, now_ns: int) -> None:
        """Go on with those that are left, from where all have said that they are; nothing is open."""
        self._keeper = self._make_keeper()
        for node in sorted(view.gone):
            self._keeper.gone(node)
        self._ignored, self._entering = {*view.gone}, view.entering
        self._epoch, self.is_frozen = view.epoch % EPOCHS, False
        left = [rank for rank in range(self.job.world) if rank not in view.gone]
        self._weight = sum(map(self.job.weight, left)) or 1.0
        works = self._works
        for memory in (*self._received.values(), *(work.total for work in works.values())):
            if memory is not None:
                self._free[len(memory)].append(memory)
        self._works, self._received, self._lent, self.begun, self._later = {}, {}, {}, {}, []
        complete = [max(counts) for counts in zip(*view.results.values(), strict=True)]
        self._heed_topology(topology, complete)
        for total, giver, lacking in self._to_give(view):
            if self.number == giver:
                self._give(total, lacking, now_ns)
            elif self.number in lacking:
                self._take(works.pop(total), giver, now_ns)
        for piece, end in enumerate(complete):
            # a server makes no sums again that are made
            self._turns.begin(piece, self.results[piece] if self.number < self.job.world else end)
        for total, old in works.items():
            if total.number < complete[total.piece]:
                self._end_work(replace(old, total=None))
            elif old.step is not None:
                if old.step != ENTERING:
                    self.begun[total] = now_ns
                work = self._work(total, now_ns)
                work.own, work.result, work.step = old.own, old.result, old.step
                self._advance(work, work.plan.on_own, now_ns)
        self._expect_from(complete)

    def enter(self, view: View, ends: Sequence[int]) -> None:
        """Before `repair`: this rank has nothing to give to sums that others have begun before it came.

        Args:
            view: the first one that has this rank.
            ends: of each piece, the number of the first sum that gets its gradients.
        """
        self.results = [*view.results[self.number]]
        for piece in self._expected:
            self._numbers[piece, Stage.NOW, None] = ends[piece]
            for number in range(self.results[piece], ends[piece]):
                total, count = Sum(piece, number), self._pieces[piece].count
                own = np.full(count, NOTHING, self.job.element_type)
                work = _Work(total, _Plan((), is_given=True), [], 0, 0, ENTERING, own, np.empty_like(own))
                self._works[total] = work

    @property
    def has_caught_up(self) -> bool:
        """Whether this rank has the results of all sums that others have begun before it came."""
        return not any(work.step == ENTERING for work in self._works.values())

    @property
    def has_entered(self) -> bool:
        """Whether the last rank that was taken in has given gradients, as far as this node knows."""
        if self._entering is None:
            return True
        # a server does not make all sums; one that makes none does not know
        pieces = (piece for piece in range(len(self.job.pieces)) if self._plan(Sum(piece, 0)).steps)
        return min((self.results[piece] for piece in pieces), default=0) > self._entering[1]

    def _give(self, total: Sum, lacking: list[int], now_ns: int) -> None:
        """A result of the time before a fault, to those who lack it."""
        plan = _Plan(tuple(Step(Action.SEND, rank, is_result=True) for rank in lacking), is_given=False)
        result = dict(self._kept[total.piece])[total.number]
        self.begun[total] = now_ns
        self._begin_plan(_Work(total, plan, [*plan.waits], len(plan.steps), 0, result=result), now_ns)

    def _take(self, old: _Work, giver: int, now_ns: int) -> None:
        steps = Step(Action.RECEIVE, giver, is_result=True), Step(Action.RESULT, after=(0,))
        plan = _Plan(steps, is_given=True)
        work = _Work(old.of, plan, [*plan.waits], len(steps), 0, old.step, old.own, old.result)
        self.begun[old.of] = now_ns
        self._begin_plan(work, now_ns)
        self._advance(work, plan.on_own, now_ns)

    def change(self, first: int, topology: Topology) -> None:
        """Sums from a number on are made by another topology; none of them is open."""
        # what had children before is expected when the sum before it is made
        fresh = [piece for piece in self._expected if not self._plan(Sum(piece, first)).adds]
        self._versions = [self._version(first, topology), *self._versions][:KEPT_VERSIONS]
        for piece in fresh:
            self._expect_one(Sum(piece, first))

    def _version(self, first: int, topology: Topology) -> _Version:
        # not 1 - (1 - p) ** (1 / hops), which is right on average: hops may lose different elements
        return _Version(first, topology, self.job.loss_bound / topology.lossy_hops(self.job))

    def version_of(self, number: int) -> int:
        """Number of the first sums that have the topology of these."""
        return self._version_of(Sum(0, number)).first

    def _version_of(self, total: Sum) -> _Version:
        newest = self._versions[0]
        if newest.first <= total.number:
            return newest
        return next((each for each in self._versions if each.first <= total.number), self._versions[-1])

    def _heed_topology(self, topology: Topology, numbers: Sequence[int]) -> None:
        """What follows from it, where each piece's next sum has such a number."""
        self._versions = [self._version(0, topology)]
        size = getattr(topology, "window_pieces", None)  # of another package, it may have no such thing
        if size is not None:
            self._open_windows(size, numbers)

    def _expect_from(self, numbers: Sequence[int]) -> None:
        """There is memory for what comes, of each piece from a number on."""
        for piece in self._expected:
            if self._plan(Sum(piece, 0)).adds:
                self._expect(piece, Sum(piece, numbers[piece] - 1) if numbers[piece] else None)

    def sum_of(self, crossing: Crossing) -> Sum:
        """What an open post is for."""
        return self._by_key[crossing.key][0].of

    def step_of(self, total: Sum) -> int | None:
        """In which this rank has given its part; None: it has given none."""
        return self._works[total].step

    def open_keys(self, total: Sum) -> list[Key]:
        """Of posts that a carrier has of a sum."""
        return [key for key, (work, _) in self._by_key.items() if work.of == total]

    def waits_for(self, total: Sum) -> list[int]:
        """Peers of what is open of a sum."""
        work = self._works[total]
        peers = {work.plan.steps[number].peer for number in work.open}
        return sorted(peer for peer in peers if peer is not None)

    def is_over(self, step: int | None = None) -> bool:
        """Whether no sum uses this rank's vectors of a step, or, where that is None, of any."""
        return not (self._open_of if step is None else self._open_of[step])

    def _open_windows(self, size: int, numbers: Sequence[int]) -> None:
        pieces: defaultdict[int | None, list[int]] = defaultdict(list)
        for piece in range(len(self.job.pieces)):
            for step in self._plan(Sum(piece, 0)).steps:
                if step.action is Action.RECEIVE and not step.is_result:
                    pieces[step.peer].append(piece)
        self._windows = {
            peer: Window({piece: numbers[piece] for piece in found}, size)
            for peer, found in pieces.items()
            if peer is not None
        }

    def _window(self, piece: int, peer: int) -> Window[tuple[_Work, int]] | None:
        """Of a peer's pieces; a ballot goes beside them."""
        return self._windows.get(peer) if piece < len(self.job.pieces) else None

    def _expect(self, piece: int, after: Sum | None) -> None:
        for total in self._keeper.expected(piece, after):
            self._expect_one(total)

    def expect_before(self, end: int) -> None:
        """The topology is known of all sums with numbers before this one."""
        self._known_end = max(self._known_end, end)
        later, self._later = self._later, []
        for total in later:
            self._expect_one(total)

    def _expect_one(self, total: Sum) -> None:
        if total.number >= self._known_end:
            self._later.append(total)
        elif self._plan(total).adds and total.origin not in self._ignored:
            self._work(total, None)

    def _plan(self, total: Sum) -> _Plan:
        key, version = (total.piece, total.origin), self._version_of(total)
        plan = version.plans.get(key)
        if plan is None:
            steps = version.topology.schedule(self.job, total.piece, self.number, total.origin)
            is_given = self.number < self.job.world and total.origin in {None, self.number}
            plan = version.plans[key] = _Plan(steps, is_given)
        return plan

    def _work(self, total: Sum, now_ns: int | None) -> _Work:
        work = self._works.get(total)
        if work is None:
            plan = self._plan(total)
            work = _Work(total, plan, [*plan.waits], len(plan.steps), plan.adds)
            self._begin_plan(work, now_ns)
        return work

    def _begin_plan(self, work: _Work, now_ns: int | None) -> None:
        self._works[work.of] = work
        self._advance(work, range(len(work.plan.steps)), now_ns)

    def _advance(self, work: _Work, numbers: Iterable[int], now_ns: int | None) -> None:
        """These steps wait for one thing less: do those that wait for nothing, and what follows them."""
        if self.is_frozen:
            return
        queue = [*numbers]
        for number in queue:
            work.waits[number] -= 1
            if not work.waits[number] and self._does(work, number, now_ns or 0):
                work.left -= 1
                queue += work.plan.followers[number]
        if not work.left and self._works.pop(work.of, None) is not None:
            self._end_work(work)

    def _does(self, work: _Work, number: int, now_ns: int) -> bool:
        """Begin a step; whether it is done already."""
        step = work.plan.steps[number]
        match step.action:
            case Action.SEND:
                partial = work.own if work.total is None else work.total
                self._post(work, number, Direction.SEND, work.result if step.is_result else partial)
            case Action.RECEIVE if step.is_result:
                if work.result is None:  # of a server between a root and its ranks
                    work.result = self._memory(work.of.piece)
                self._post(work, number, Direction.RECEIVE, work.result)
            case Action.RECEIVE:
                assert step.peer is not None  # noqa: S101
                window = self._window(work.of.piece, step.peer)
                if window is None or window.takes(work.of, (work, number)):
                    self._borrow(work, number, step.peer)
            case Action.ADD:
                self._add(work, step, now_ns)
                return True
            case Action.RESULT:
                return self._take_result(work, number, now_ns)
        return False

    def _borrow(self, work: _Work, number: int, peer: int) -> None:
        """Receive a partial sum, when the one before it of the same piece has been added."""
        place = (work.of.piece, peer, work.of.stage)
        if place in self._lent:
            self._lent[place].append((work, number))
        else:
            self._lent[place] = deque()
            self._receive(place, work, number)

    def _receive(self, place: tuple[int, int, Stage], work: _Work, number: int) -> None:
        if place not in self._received:
            self._received[place] = self._memory(work.of.piece)
        self._post(work, number, Direction.RECEIVE, self._received[place])

    def _post(self, work: _Work, number: int, direction: Direction, data: Elements | None) -> None:
        step, total = work.plan.steps[number], work.of
        assert step.peer is not None, "a crossing has two ends"  # noqa: S101
        assert data is not None, "a step began before its memory was there"  # noqa: S101
        # a number for each piece, origin, stage, and partial sum or result: they may all be open at a time
        source = 0 if total.origin is None else 1 + total.origin
        kind = source * len(self._pieces) + total.piece
        is_ballot = total.piece == len(self.job.pieces)
        post = Post(
            direction,
            step.peer,
            data,
            tensor=4 * kind + 2 * (total.stage is Stage.LATER) + step.is_result,
            round_number=total.number * EPOCHS + self._epoch,
            layer=self._pieces[total.piece].layer,
            stage=total.stage,
            loss_bound=0.0 if step.is_result or is_ballot else self._version_of(total).hop_bound,
            is_early=total not in self.begun,
            is_short=self.job.wire_type is not None and not is_ballot,
        )
        work.open.add(number)
        self._by_key[post.key] = work, number
        self.posts.append(post)

    def _add(self, work: _Work, step: Step, now_ns: int) -> None:
        piece = work.of.piece
        place = None if step.peer is None else (piece, step.peer, work.of.stage)
        part = work.own if place is None else self._received[place]
        assert part is not None  # noqa: S101
        if work.of.origin is None:
            work.total = self._plus(work.total, part, piece)
        elif work.of.stage is Stage.NOW:
            assert self._parameters is not None, "lone pushes need parameters"  # noqa: S101
            self._parameters.step(piece, part if place is not None else part.copy())
        if place is not None:
            if self._lent[place]:
                self._receive(place, *self._lent[place].popleft())
            else:
                del self._lent[place]
                if len(self._versions) > 1:  # another child may be the next one
                    memory = self._received.pop(place)
                    self._free[len(memory)].append(memory)
            self._move_window(place, work.of)
        work.adds_left -= 1
        if not work.adds_left:
            self._expect(piece, work.of)
        if not work.plan.is_root:
            return
        for rank in step.ranks:
            self._release(self._keeper.pushed(rank, work.of, now_ns), now_ns)

    def _move_window(self, place: tuple[int, int, Stage], total: Sum) -> None:
        """A partial sum has been added: others of its peer may come, in its memory."""
        window = self._window(place[0], place[1])
        if window is None:
            return
        if place not in self._lent:
            memory = self._received.pop(place)
            self._free[len(memory)].append(memory)
        for work, number in window.ended(total):
            self._borrow(work, number, place[1])

    def _release(self, sums: Iterable[Sum], now_ns: int) -> None:
        for total in sums:
            work = self._works[total]
            self._advance(work, work.plan.on_release, now_ns)

    def _plus(self, total: Elements | None, part: Elements, piece: int) -> Elements:
        """In place; the first part is copied."""
        if total is None:
            total = self._memory(piece)
            np.copyto(total, part)
        else:
            with np.errstate(all="ignore"):  # what is not finite is counted, and passed on
                np.add(total, part, out=total)
        return total

    def _take_result(self, work: _Work, number: int, now_ns: int) -> bool:
        """In its turn, where others may need to know which results are here; whether it is taken now."""
        total = work.of
        if not self.job.continues or total.origin is not None or total.stage is not Stage.NOW:
            self._result(work)
            return True
        if not self._turns.has_come(total, number):
            return False
        self._result(work)
        following = self._turns.taken(total)
        if following is not None:
            later, step = self._works[following[0]], following[1]
            later.waits[step] += 1
            self._advance(later, (step,), now_ns)
        return True

    def _result(self, work: _Work) -> None:
        if work.plan.is_root and work.of.origin is not None:
            assert self._parameters is not None, "lone pushes need parameters"  # noqa: S101
            if work.result is None:  # of another rank; they may change before it has crossed
                work.result = work.total = self._memory(work.of.piece)
            np.copyto(work.result, self._parameters.of(work.of.piece))
        elif work.plan.is_root:
            assert work.total is not None  # noqa: S101
            if work.result is None:  # of a server, or of another rank
                work.result = work.total
            counts = work.counts
            # a ballot's figures are told apart by being whole numbers, also after a division
            whole = self.job.world if work.of.piece == len(self.job.pieces) else self._weight_of(work.of)
            by = whole if counts is None else np.where(counts > _ROUNDED, counts, 1)
            with np.errstate(all="ignore"):
                np.divide(work.total, by, out=work.result)
                if self.job.wire_type is not None and work.of.piece < len(self.job.pieces):
                    round_to_short(work.result)
        if work.of.origin is None and work.of.stage is Stage.NOW:
            self.results[work.of.piece] = work.of.number + 1
            if self.job.continues and work.result is not None:
                self._keep(work.of, work.result)
        if work.step not in {None, ENTERING}:
            self.arrived.append((work.step, work.of))

    def _keep(self, total: Sum, result: Elements) -> None:
        """For others who may lack it after a fault: the rank changes its own."""
        kept = self._kept[total.piece]
        memory = kept.popleft()[1] if len(kept) == kept.maxlen else np.empty_like(result)
        np.copyto(memory, result)
        kept.append((total.number, memory))

    def _end_work(self, work: _Work) -> None:
        """Nothing of it is left, and its memory is free."""
        self.begun.pop(work.of, None)
        if work.step not in {None, ENTERING}:
            self._open_of[work.step] -= 1
            if not self._open_of[work.step]:
                del self._open_of[work.step]
        if work.total is not None:
            self._free[len(work.total)].append(work.total)

    def _count(self, work: _Work, crossing: Crossing) -> None:
        """Elements that have not arrived are missing from the sender's partial sum: of all its ranks."""
        peer, piece = crossing.key[1], work.of.piece
        absent = self._absent(work.of)
        ranks = tuple(rank for rank in work.plan.ranks.get(peer, ()) if rank != absent)
        missing, is_cut = crossing.missing, crossing.is_cut
        self.losses.append(Loss(work.of, peer, self.number, ranks, missing, is_cut, self._epoch))
        part = self._received[piece, peer, work.of.stage]
        for first, end in crossing.missing:
            part[first:end] = NOTHING
        if self.job.divisor is Divisor.ARRIVED:
            if work.counts is None:
                weight = self._weight_of(work.of)
                work.counts = np.full(self._pieces[piece].count, weight, self.job.element_type)
            for first, end in crossing.missing:
                work.counts[first:end] -= sum(map(self.job.weight, ranks))

    def _absent(self, total: Sum) -> int | None:
        """The rank that gives nothing to a sum, for it has entered later."""
        rank, first = self._entering or (None, 0)
        return rank if total.number < first else None

    def _weight_of(self, total: Sum) -> float:
        absent = self._absent(total)
        return self._weight - (0 if absent is None else self.job.weight(absent))

    def _memory(self, piece: int) -> Elements:
        count = self._pieces[piece].count
        free = self._free[count]
        return free.pop() if free else np.empty(count, self.job.element_type)
