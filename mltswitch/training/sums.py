"""How one node makes sums: it does each step of its topology when what the step waits for is there.

Posts for a carrier, results and losses collect in lists, which whoever owns the sums takes out.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from mltswitch.training.addition import NOTHING, Addition
from mltswitch.training.axes import (
    Action,
    Crossing,
    Direction,
    Elements,
    Exchange,
    Keeper,
    Key,
    Post,
    Stage,
    Step,
    Sum,
    Topology,
)
from mltswitch.training.job import Job
from mltswitch.training.optimizer import Parameters
from mltswitch.training.partial_sums import PartialSums, Ready
from mltswitch.training.plans import Plan, Plans, Work
from mltswitch.training.results import Results, Turns
from mltswitch.training.rounds import EPOCHS, MOST_STEPS
from mltswitch.training.views import View

ENTERING: Final = -1
"""The step's number that a rank which has just joined gives: it adds nothing to sums that are under way."""


class Sums:
    """All open sums at a node.

    Args:
        topology: the job's; its windows bound the memory for partial sums.
        keeper: makes this node's keeper.
        votes: whether ranks exchange ballots.
        is_changing: whether each ballot may change the topology of the sums that follow.
        parameters: the model's, where roots of sums keep parameters.
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
        self.begun: dict[Sum, int] = {}
        """When this node, or the first other one, has begun sums that are open, in ns and in this order."""
        self._plans: Final = Plans(job, number)
        self._known_end = 1 if is_changing else MOST_STEPS
        """One beyond the highest number of a sum that may be expected."""
        self._later: list[Sum] = []
        """Sums that are expected once they may be."""
        self._make_keeper, self._keeper = keeper, keeper()
        self._works: dict[Sum, Work] = {}
        self._numbers: Counter[tuple[int, Stage, int | None]] = Counter()
        """The number of this rank's next sum, by piece, stage and origin."""
        self._open_of: Counter[int] = Counter()
        """Sums that use this rank's vectors of a step."""
        self._by_key: dict[Key, tuple[Work, int]] = {}
        self._partial: Final = PartialSums(job)
        self.addition: Final = Addition(job, number, self._partial, parameters)
        self._pieces: Final = (*job.pieces, job.whole_ballot)
        self._ignored: set[int] = set()
        """Peers that are gone, without which the job goes on."""
        self._epoch = 0
        self.is_frozen = False
        """Whether nothing gets on until `repair`."""
        self.results: Final = Results(job, number)
        self._turns = Turns(len(self._pieces))
        self._expected = range(len(job.pieces) + votes)
        self._heed_topology(topology, self.results.counts)
        self._expect_from(self.results.counts)

    def begin(
        self,
        exchange: Exchange,
        own: Elements,
        result: Elements,
        now_ns: int,
        ballots: tuple[Elements, Elements] | None = None,
    ) -> None:
        """Begin this rank's part of an exchange that its synchronization asks for.

        Args:
            own: this rank's gradients, a vector of all the model's elements.
            result: a vector of the same size for the results.
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
        """Handle a transfer that has ended without an error."""
        work, number = self._by_key.pop(crossing.key)
        work.open.discard(number)
        self.begun.setdefault(work.of, now_ns)
        if crossing.missing:
            self.addition.lose(work, self._partial.of(work, crossing.key[1]), crossing)
        work.left -= 1
        self._advance(work, work.plan.followers[number], now_ns)

    def turn(self, now_ns: int) -> None:
        """Let the keeper admit further pushes, since time has passed."""
        for total in self._keeper.turned(now_ns):
            self._expect_one(total)

    def ignore(self, rank: int, now_ns: int) -> None:
        """Go on without a gone rank: drop its open transfers, and no longer wait for it."""
        self._ignored.add(rank)
        for work in [*self._works.values()]:
            work.open -= {number for number in work.open if work.plan.steps[number].peer == rank}
            if work.of.origin == rank:
                self.begun.pop(work.of, None)
        self._release(self._keeper.gone(rank), now_ns)

    def is_ignored(self, crossing: Crossing) -> bool:
        """Whether a transfer that has ended was one with a gone node, so that it has no effect."""
        if crossing.key[1] not in self._ignored:
            return False
        self._by_key.pop(crossing.key, None)
        return True

    def freeze(self) -> list[Key]:
        """Stop all progress until `repair`; returns the keys of open transfers, whose end `ended` must be
        told."""
        self.is_frozen = True
        for post in self.posts:  # which no carrier has
            self._by_key.pop(post.key, None)
        self.posts.clear()
        return [*self._by_key]

    def ended(self, key: Key) -> None:
        """Note that a transfer is over without effect, since its sum begins again."""
        work, number = self._by_key.pop(key, (None, 0))
        if work is not None:
            work.open.discard(number)

    @property
    def is_quiet(self) -> bool:
        """Whether no carrier has an open transfer of this node."""
        return not self._by_key

    def repair(self, topology: Topology, view: View, now_ns: int) -> None:
        """Go on with the nodes of a new view from where they have said that they are, while no transfer is
        open."""
        self._keeper = self._make_keeper()
        for node in sorted(view.gone):
            self._keeper.gone(node)
        self._ignored = {*view.gone}
        self._epoch, self.is_frozen = view.epoch % EPOCHS, False
        self.addition.go_on(view, self._epoch)
        works = self._works
        for work in works.values():
            self._partial.give_back(work.total)
        self._partial.begin()
        self._works, self.begun, self._later = {}, {}, []
        complete = [max(counts) for counts in zip(*view.results.values(), strict=True)]
        self._heed_topology(topology, complete)
        for total, giver, lacking in self.results.to_give(view):
            if self.number == giver:
                self._give(total, lacking, now_ns)
            elif self.number in lacking:
                self._take(works.pop(total), giver, now_ns)
        for piece, end in enumerate(complete):
            # a server makes no sums again that are made
            self._turns.begin(piece, self.results.counts[piece] if self.number < self.job.world else end)
        for total, old in works.items():
            if total.number < complete[total.piece]:
                old.total = None
                self._end_work(old)
            elif old.step is not None:
                if old.step != ENTERING:
                    self.begun[total] = now_ns
                work = self._work(total, now_ns)
                work.own, work.result, work.step = old.own, old.result, old.step
                self._advance(work, work.plan.on_own, now_ns)
        self._expect_from(complete)

    def enter(self, view: View, ends: Sequence[int]) -> None:
        """Before `repair` at a rank that comes back: it gives nothing to sums that began before it came.

        Args:
            view: the first view with this rank.
            ends: for each piece, the number of the first sum that gets this rank's gradients.
        """
        self.results.counts = [*view.results[self.number]]
        for piece in self._expected:
            self._numbers[piece, Stage.NOW, None] = ends[piece]
            for number in range(self.results.counts[piece], ends[piece]):
                total = Sum(piece, number)
                own = np.full(self._pieces[piece].count, NOTHING, self.job.element_type)
                plan = Plan((), is_given=True)
                self._works[total] = Work(total, plan, ENTERING, own, np.empty_like(own))

    @property
    def has_caught_up(self) -> bool:
        """Whether this rank has the results of all sums that others have begun before it came."""
        return not any(work.step == ENTERING for work in self._works.values())

    @property
    def has_entered(self) -> bool:
        """Whether the last rank that was taken in has given gradients, as far as this node knows."""
        if self.addition.entering is None:
            return True
        # a server does not make all sums; one that makes none does not know
        pieces = (piece for piece in range(len(self.job.pieces)) if self._plans.of(Sum(piece, 0)).steps)
        return min((self.results.counts[piece] for piece in pieces), default=0) > self.addition.entering[1]

    def _give(self, total: Sum, lacking: list[int], now_ns: int) -> None:
        """A result of the time before a fault, to those who lack it."""
        plan = Plan(tuple(Step(Action.SEND, rank, is_result=True) for rank in lacking), is_given=False)
        self.begun[total] = now_ns
        self._begin_plan(Work(total, plan, result=self.results.of(total)), now_ns)

    def _take(self, old: Work, giver: int, now_ns: int) -> None:
        steps = Step(Action.RECEIVE, giver, is_result=True), Step(Action.RESULT, after=(0,))
        plan = Plan(steps, is_given=True)
        work = Work(old.of, plan, old.step, old.own, old.result)
        self.begun[old.of] = now_ns
        self._begin_plan(work, now_ns)
        self._advance(work, plan.on_own, now_ns)

    def change(self, first: int, topology: Topology) -> None:
        """Make sums from this number on by another topology; none of them may be open."""
        # what had children before is expected when the sum before it is made
        fresh = [piece for piece in self._expected if not self._plans.of(Sum(piece, first)).adds]
        self._plans.change(first, topology)
        for piece in fresh:
            self._expect_one(Sum(piece, first))

    def version_of(self, number: int) -> int:
        """Number of the first sums that use the same topology as the sums with this number."""
        return self._plans.first_of(number)

    def _heed_topology(self, topology: Topology, numbers: Sequence[int]) -> None:
        """What follows from it, where each piece's next sum has such a number."""
        self._plans.begin(topology)
        size = getattr(topology, "window_pieces", None)  # of another package, it may have no such thing
        if size is not None:
            self._open_windows(size, numbers)

    def _expect_from(self, numbers: Sequence[int]) -> None:
        """There is memory for what comes, of each piece from a number on."""
        for piece in self._expected:
            if self._plans.of(Sum(piece, 0)).adds:
                self._expect(piece, Sum(piece, numbers[piece] - 1) if numbers[piece] else None)

    def sum_of(self, crossing: Crossing) -> Sum:
        """The sum that an open transfer belongs to."""
        return self._by_key[crossing.key][0].of

    def step_of(self, total: Sum) -> int | None:
        """The step in which this rank gave its part of a sum; None: it has given none."""
        return self._works[total].step

    def open_keys(self, total: Sum) -> list[Key]:
        """Keys of a sum's transfers that a carrier has."""
        return [key for key, (work, _) in self._by_key.items() if work.of == total]

    def waits_for(self, total: Sum) -> list[int]:
        """Nodes at the other ends of a sum's open transfers."""
        work = self._works[total]
        peers = {work.plan.steps[number].peer for number in work.open}
        return sorted(peer for peer in peers if peer is not None)

    def is_over(self, step: int | None = None) -> bool:
        """Whether no sum uses this rank's vectors of a step any more; None: of any step."""
        return not (self._open_of if step is None else self._open_of[step])

    def _open_windows(self, size: int, numbers: Sequence[int]) -> None:
        pieces: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for piece in range(len(self.job.pieces)):
            for step in self._plans.of(Sum(piece, 0)).steps:
                if step.action is Action.RECEIVE and not step.is_result and step.peer is not None:
                    pieces[step.peer][piece] = numbers[piece]
        self._partial.open_windows(size, pieces)

    def _expect(self, piece: int, after: Sum | None) -> None:
        for total in self._keeper.expected(piece, after):
            self._expect_one(total)

    def expect_before(self, end: int) -> None:
        """Expect sums with numbers below this one, whose topology is now known."""
        self._known_end = max(self._known_end, end)
        later, self._later = self._later, []
        for total in later:
            self._expect_one(total)

    def _expect_one(self, total: Sum) -> None:
        if total.number >= self._known_end:
            self._later.append(total)
        elif self._plans.of(total).adds and total.origin not in self._ignored:
            self._work(total, None)

    def _work(self, total: Sum, now_ns: int | None) -> Work:
        work = self._works.get(total)
        if work is None:
            work = Work(total, self._plans.of(total))
            self._begin_plan(work, now_ns)
        return work

    def _begin_plan(self, work: Work, now_ns: int | None) -> None:
        self._works[work.of] = work
        self._advance(work, range(len(work.plan.steps)), now_ns)

    def _advance(self, work: Work, numbers: Iterable[int], now_ns: int | None) -> None:
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

    def _does(self, work: Work, number: int, now_ns: int) -> bool:
        """Begin a step; whether it is done already."""
        step = work.plan.steps[number]
        match step.action:
            case Action.SEND:
                partial = work.own if work.total is None else work.total
                self._post(work, number, Direction.SEND, work.result if step.is_result else partial)
            case Action.RECEIVE if step.is_result:
                if work.result is None:  # of a server between a root and its ranks
                    work.result = self._partial.take(work.of.piece)
                self._post(work, number, Direction.RECEIVE, work.result)
            case Action.RECEIVE:
                self._receive(self._partial.wanted((work, number)))
            case Action.ADD:
                self._add(work, step, now_ns)
                return True
            case Action.RESULT:
                return self._take_result(work, number, now_ns)
        return False

    def _receive(self, ready: Ready) -> None:
        for (work, number), memory in ready:
            self._post(work, number, Direction.RECEIVE, memory)

    def _post(self, work: Work, number: int, direction: Direction, data: Elements | None) -> None:
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
            loss_bound=0.0 if step.is_result or is_ballot else self._plans.hop_bound(total),
            is_early=total not in self.begun,
            is_short=self.job.wire_type is not None and not is_ballot,
        )
        work.open.add(number)
        self._by_key[post.key] = work, number
        self.posts.append(post)

    def _add(self, work: Work, step: Step, now_ns: int) -> None:
        peer = step.peer
        part = work.own if peer is None else self._partial.of(work, peer)
        assert part is not None  # noqa: S101
        self.addition.add(work, part, is_own=peer is None)
        if peer is not None:
            self._receive(self._partial.added(work, peer, may_change=self._plans.are_several))
        work.adds_left -= 1
        if not work.adds_left:
            self._expect(work.of.piece, work.of)
        if not work.plan.is_root:
            return
        for rank in step.ranks:
            self._release(self._keeper.pushed(rank, work.of, now_ns), now_ns)

    def _release(self, sums: Iterable[Sum], now_ns: int) -> None:
        for total in sums:
            work = self._works[total]
            self._advance(work, work.plan.on_release, now_ns)

    def _take_result(self, work: Work, number: int, now_ns: int) -> bool:
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

    def _result(self, work: Work) -> None:
        if work.plan.is_root:
            self.addition.divide(work)
        if work.of.origin is None and work.of.stage is Stage.NOW:
            self.results.note(work.of, work.result)
        if work.step not in {None, ENTERING}:
            self.arrived.append((work.step, work.of))

    def _end_work(self, work: Work) -> None:
        """Nothing of it is left, and its memory is free."""
        self.begun.pop(work.of, None)
        if work.step not in {None, ENTERING}:
            self._open_of[work.step] -= 1
            if not self._open_of[work.step]:
                del self._open_of[work.step]
        self._partial.give_back(work.total)
