"""The executor: one node's part of every sum, as its topology says it and its synchronization wants it.

It takes what happens (`ready`, `crossed`, `told`, `lost`, `check`) and keeps what is to be done (`take_posts`,
`take_words`, `take_arrived`). The same object runs over an agent and in virtual time.
"""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mltswitch.training.axes import (
    Action,
    Crossing,
    Direction,
    Elements,
    Exchange,
    Post,
    Range,
    Stage,
    Step,
    Sum,
    axes_of,
)
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError, TrainingError
from mltswitch.training.job import Divisor, Job
from mltswitch.units import NANOSECONDS

EPOCHS: Final = 256
"""Round numbers of transfers are those of sums times this: room to begin a sum anew after a fault."""
MOST_STEPS: Final = (1 << 32) // EPOCHS
GRACE_SECONDS: Final = 3.0
"""Past a deadline, for nodes to say how far they are, before the ones that are late are named."""
GOODBYES: Final = {kind.__name__: kind for kind in (NodeLostError, NodeLateError, JobMismatchError)}


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

    @property
    def elements(self) -> int:
        """How many."""
        return sum(end - first for first, end in self.missing)


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


class Node:
    """A rank or a server.

    Args:
        job: what all nodes agree on.
        number: of this node.

    Raises UserInputError for axes that are not there, or make no sense together.
    """

    def __init__(self, job: Job, number: int) -> None:
        self.job: Final = job
        self.number: Final = number
        self.error: TrainingError | None = None
        """Why the job is over at this node."""
        self.has_met_all = job.nodes == 1
        """Whether every other node has said that its job is this one; nothing is posted before."""
        self.nonfinite_pieces = 0
        """Own pieces with NaN or infinite gradients; they are passed on."""
        synchronization, self._topology = axes_of(job)
        self.member: Final = synchronization.member(job, number) if number < job.world else None
        self._keeper = synchronization.keeper(job)
        self._hop_bound = 1 - (1 - job.loss_bound) ** (1 / self._topology.lossy_hops(job))
        self._plans: dict[tuple[int, int | None], _Plan] = {}
        self._works: dict[Sum, _Work] = {}
        self._begun: dict[Sum, int] = {}
        """When this node, or the first other one, has begun open sums, in ns and in this order."""
        self._numbers: Counter[tuple[int, Stage, int | None]] = Counter()
        """Of this rank's next sums, by piece, stage and origin."""
        self._open_of: Counter[int] = Counter()
        """Sums that use this rank's vectors of a step."""
        self._by_key: dict[tuple[Direction, int, int, int], tuple[_Work, int]] = {}
        self._received: dict[tuple[int, int, Stage], Elements] = {}
        """Memory for partial sums, by piece, peer and stage."""
        self._lent: dict[tuple[int, int, Stage], deque[tuple[_Work, int]]] = {}
        """Of that, what is in use, and the receives that wait for it."""
        self._free: defaultdict[int, list[Elements]] = defaultdict(list)
        """Memory for sums, by piece."""
        self._unseen: dict[tuple[int, int], Elements] = {}
        """By piece and rank: the sum of lone pushes since the last result that the rank got."""
        self._posts: list[Post] = []
        self._words: list[bytes] = [json.dumps({"job": job.fingerprints()}).encode()]
        self._arrived: list[tuple[int, Sum]] = []
        self._losses: list[Loss] = []
        self._met: set[int] = set()
        self._given = 0
        """Own pieces of all steps; a server gives none, and is never behind."""
        self._said: int | None = None
        self._given_by: dict[int, int] = {}
        """What others have said of theirs."""
        self._asked_ns: int | None = None
        for piece in range(len(job.pieces)):
            self._expect(piece, None)

    # What happens

    def ready(self, step: int, pieces: Sequence[int], own: Elements, result: Elements, now_ns: int) -> None:
        """Own gradients of pieces are there.

        Args:
            step: 0 and up, without gaps.
            pieces: each once a step.
            own: a vector of all the model's elements, read until `is_over(step)`.
            result: one like it, written; where it ends up for the pieces that `take_arrived` names.
            now_ns: the time.
        """
        assert self.member is not None, "a server has no gradients"  # noqa: S101
        if step >= MOST_STEPS:
            raise ValueError(f"step {step} is beyond {MOST_STEPS}")
        self._given += len(pieces)
        for number in pieces:
            is_finite = np.isfinite(own[self.job.pieces[number].elements]).all()
            self.nonfinite_pieces += not is_finite
        self._begin(self.member.ready(step, pieces, now_ns), own, result, now_ns)

    def computed(
        self, step: int, loss: float, seconds: float, own: Elements, result: Elements, now_ns: int
    ) -> None:
        """All own pieces of a step are there.

        Args:
            step: 0 and up, without gaps.
            loss: of this rank's batch.
            seconds: that computing took.
            own: as in `ready`.
            result: as in `ready`.
            now_ns: the time.
        """
        assert self.member is not None, "a server has no gradients"  # noqa: S101
        self._begin(self.member.computed(step, loss, seconds, now_ns), own, result, now_ns)

    def drain(self, own: Elements, result: Elements, now_ns: int) -> None:
        """No step follows for now: begin what the synchronization has kept back, of these vectors."""
        assert self.member is not None, "a server has no gradients"  # noqa: S101
        self._begin(self.member.drain(), own, result, now_ns)

    def may_compute(self, step: int) -> bool:
        """Whether this rank may begin a step."""
        return self.member is not None and self.member.may_compute(step)

    def crossed(self, crossing: Crossing, now_ns: int) -> None:
        """A post has ended."""
        work, number = self._by_key.pop(crossing.key)
        peer = crossing.key[1]
        work.open.discard(number)
        if crossing.error is not None:
            what = f"piece {work.of.piece} of sum {work.of.number}: {crossing.error}"
            is_ours = isinstance(crossing.error, TrainingError)
            self.fail(crossing.error if is_ours else self._blamed(peer, what))  # type: ignore[arg-type]
            return
        if work.of not in self._begun:
            self._begun[work.of] = now_ns
        if crossing.missing:
            ranks = work.plan.ranks.get(peer, ())
            self._losses.append(Loss(work.of, peer, self.number, ranks, crossing.missing))
            if self.job.divisor is Divisor.ARRIVED:
                if work.counts is None:
                    work.counts = np.full(
                        self.job.pieces[work.of.piece].count, self.job.world, self.job.element_type
                    )
                for first, end in crossing.missing:
                    work.counts[first:end] -= len(ranks)
        work.left -= 1
        self._advance(work, work.plan.followers[number], now_ns)

    def told(self, peer: int, word: bytes) -> None:
        """Another node says something that `take_words` gave there."""
        try:
            said = json.loads(word)
            if "job" in said:
                self._compare(peer, said["job"])
            elif "given" in said:
                self._given_by[peer] = max(int(said["given"]), self._given_by.get(peer, -1))
                self._say_how_far()
        except (ValueError, TypeError, AttributeError):
            problem = "says what no node of this version says"
            self.fail(JobMismatchError(problem, where=self.job.node_name(peer)))

    def lost(self, peer: int, reason: str) -> None:
        """Another node is gone, which is the end of the job; a reason that it gave tells whom to blame."""
        self.fail(self._blamed(peer, reason))

    def check(self, now_ns: int) -> None:
        """Ends the job where a deadline has passed; to be called now and then.

        Every node then says how far it is, and those that are behind, or silent, are named.
        """
        oldest = next(iter(self._begun.items()), None)
        if self.error is not None or oldest is None:
            return
        if now_ns - oldest[1] <= self.job.deadline_seconds * NANOSECONDS:
            self._asked_ns = None
        elif self._asked_ns is None:
            self._asked_ns = now_ns
            self._say_how_far()
        elif now_ns - self._asked_ns > GRACE_SECONDS * NANOSECONDS:
            self.fail(self._late(self._works[oldest[0]]))

    def fail(self, error: TrainingError) -> None:
        """The job is over at this node; the first reason stays."""
        if self.error is None:
            self.error = error

    # What is to be done

    def take_posts(self) -> list[Post]:
        """For the carrier; none before all nodes have met."""
        if not self.has_met_all:
            return []
        posts, self._posts = self._posts, []
        return posts

    @property
    def has_words(self) -> bool:
        """Whether `take_words` has any."""
        return bool(self._words)

    def take_words(self) -> list[bytes]:
        """To be told to every other node."""
        words, self._words = self._words, []
        return words

    def take_arrived(self) -> list[tuple[int, Sum]]:
        """Results that are in this rank's memory, and the steps in which it gave its part."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def take_losses(self) -> list[Loss]:
        """What bounds have left out of sums at this node."""
        losses, self._losses = self._losses, []
        return losses

    def is_over(self, step: int) -> bool:
        """Whether the vectors of a step are the caller's again."""
        return not self._open_of[step]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open but memory for what others have not begun."""
        return not self._begun

    @property
    def goodbye(self) -> str:
        """Why the job is over here, as `lost` of the other nodes understands it."""
        return f"{type(self.error).__name__}: {self.error}"

    # Inside

    def _expect(self, piece: int, after: Sum | None) -> None:
        for total in self._keeper.expected(piece, after):
            if self._plan(total).adds:
                self._work(total, None)

    def _begin(
        self, exchanges: Iterable[Exchange], own: Elements, result: Elements, now_ns: int
    ) -> None:
        for exchange in exchanges:
            for piece in exchange.pieces:
                key = (piece, exchange.stage, exchange.origin)
                total = Sum(piece, self._numbers[key], exchange.stage, exchange.origin)
                self._numbers[key] += 1
                work = self._work(total, now_ns)
                place = self.job.pieces[piece].elements
                work.own, work.result, work.step = own[place], result[place], exchange.step
                self._open_of[exchange.step] += 1
                self._begun.setdefault(total, now_ns)
                self._advance(work, work.plan.on_own, now_ns)

    def _plan(self, total: Sum) -> _Plan:
        key = (total.piece, total.origin)
        plan = self._plans.get(key)
        if plan is None:
            steps = self._topology.schedule(self.job, total.piece, self.number, total.origin)
            is_given = self.number < self.job.world and total.origin in {None, self.number}
            plan = self._plans[key] = _Plan(steps, is_given)
        return plan

    def _work(self, total: Sum, now_ns: int | None) -> _Work:
        work = self._works.get(total)
        if work is None:
            plan = self._plan(total)
            work = _Work(total, plan, [*plan.waits], len(plan.steps), plan.adds)
            self._works[total] = work
            self._advance(work, range(len(plan.steps)), now_ns)
        return work

    def _advance(self, work: _Work, numbers: Iterable[int], now_ns: int | None) -> None:
        """These steps wait for one thing less: do those that wait for nothing, and what follows them."""
        queue = [*numbers]
        for number in queue:
            work.waits[number] -= 1
            if not work.waits[number] and self._does(work, number, now_ns or 0):
                work.left -= 1
                queue += work.plan.followers[number]
        if not work.left and self._works.pop(work.of, None) is not None:
            self._end(work)

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
                place = (work.of.piece, step.peer, work.of.stage)
                if place in self._lent:
                    self._lent[place].append((work, number))
                else:
                    self._lent[place] = deque()
                    self._receive(place, work, number)
            case Action.ADD:
                self._add(work, step, now_ns)
                return True
            case Action.RESULT:
                self._result(work, now_ns)
                return True
        return False

    def _receive(self, place: tuple[int, int, Stage], work: _Work, number: int) -> None:
        if place not in self._received:
            self._received[place] = self._memory(work.of.piece)
        self._post(work, number, Direction.RECEIVE, self._received[place])

    def _post(self, work: _Work, number: int, direction: Direction, data: Elements | None) -> None:
        step, total = work.plan.steps[number], work.of
        assert step.peer is not None, "a crossing has two ends"  # noqa: S101
        assert data is not None, "a step began before its memory was there"  # noqa: S101
        # a number for each piece, origin, stage, and partial sum or result: they may all be open at a time
        kind = total.piece if total.origin is None else (1 + total.origin) * len(self.job.pieces) + total.piece
        is_lossy = direction is Direction.RECEIVE and not step.is_result
        post = Post(
            direction,
            step.peer,
            data,
            tensor=4 * kind + 2 * (total.stage is Stage.LATER) + step.is_result,
            round_number=total.number * EPOCHS,
            layer=self.job.pieces[total.piece].layer,
            stage=total.stage,
            loss_bound=self._hop_bound if is_lossy else 0.0,
            is_early=total not in self._begun,
        )
        work.open.add(number)
        self._by_key[post.key] = work, number
        self._posts.append(post)

    def _add(self, work: _Work, step: Step, now_ns: int) -> None:
        piece = work.of.piece
        place = None if step.peer is None else (piece, step.peer, work.of.stage)
        part = work.own if place is None else self._received[place]
        assert part is not None  # noqa: S101
        if work.of.origin is None:
            work.total = self._plus(work.total, part, piece)
        else:
            for rank in range(self.job.world):
                self._unseen[piece, rank] = self._plus(self._unseen.get((piece, rank)), part, piece)
        if place is not None:
            if self._lent[place]:
                self._receive(place, *self._lent[place].popleft())
            else:
                del self._lent[place]
        work.adds_left -= 1
        if not work.adds_left:
            self._expect(piece, work.of)
        if not work.plan.is_root:
            return
        for rank in step.ranks:
            for released in self._keeper.pushed(rank, work.of, now_ns):
                other = self._works[released]
                self._advance(other, other.plan.on_release, now_ns)

    def _plus(self, total: Elements | None, part: Elements, piece: int) -> Elements:
        """In place; the first part is copied."""
        if total is None:
            free = self._free[piece]
            total = free.pop() if free else self._memory(piece)
            np.copyto(total, part)
        else:
            with np.errstate(all="ignore"):  # what is not finite is counted, and passed on
                np.add(total, part, out=total)
        return total

    def _result(self, work: _Work, now_ns: int) -> None:
        if work.plan.is_root:
            if work.of.origin is not None:
                work.total = self._unseen.pop((work.of.piece, work.of.origin))
            assert work.total is not None  # noqa: S101
            if work.result is None:  # of a server, or of another rank
                work.result = work.total
            by = self.job.world if work.counts is None else np.maximum(work.counts, 1)
            with np.errstate(all="ignore"):
                np.divide(work.total, by, out=work.result)
        if self.member is not None and work.step is not None:
            self.member.arrived(work.step, work.of, now_ns)
            self._arrived.append((work.step, work.of))

    def _end(self, work: _Work) -> None:
        """Nothing of it is left, and its memory is free."""
        self._begun.pop(work.of, None)
        if work.step is not None:
            self._open_of[work.step] -= 1
            if not self._open_of[work.step]:
                del self._open_of[work.step]
        if work.total is not None:
            self._free[work.of.piece].append(work.total)

    def _memory(self, piece: int) -> Elements:
        return np.empty(self.job.pieces[piece].count, self.job.element_type)

    def _compare(self, peer: int, theirs: dict[str, str]) -> None:
        ours = self.job.fingerprints()
        differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if differing:
            names = "layers" if "layers" in differing else ", ".join(differing)
            here = self.job.node_name(self.number)
            problem = f"its job differs from that of {here} in: {names}"
            self.fail(JobMismatchError(problem, where=self.job.node_name(peer)))
            return
        self._met.add(peer)
        self.has_met_all = len(self._met) == self.job.nodes - 1

    def _blamed(self, peer: int, reason: str) -> TrainingError:
        """The error of a node that is gone, where it said goodbye with one; else that it is lost."""
        said = re.search(rf"\b({'|'.join(GOODBYES)}): ((?:rank|server) \d+): (.*)", reason, re.DOTALL)
        if said is None:
            return NodeLostError(reason, where=self.job.node_name(peer))
        return GOODBYES[said[1]](said[3], where=said[2])

    def _say_how_far(self) -> None:
        """Once for each state: every node that hears of it says the same of itself."""
        given = self._given if self.member is not None else MOST_STEPS * len(self.job.pieces)
        if self._said != given:
            self._said = given
            self._words.append(json.dumps({"given": given}).encode())

    def _late(self, work: _Work) -> TrainingError:
        step = work.of.number if work.step is None else work.step
        given = {**self._given_by, self.number: self._given} if self.member is not None else self._given_by
        due = (step + 1) * len(self.job.pieces)
        nodes = [node for node in range(self.job.nodes) if node != self.number or self.member is not None]
        late = [node for node in nodes if given.get(node, -1) < due]
        if work.of.origin is not None:  # which waits for the slowest, and not for all
            least = min((given.get(node, -1) for node in late), default=0)
            late = [node for node in late if given.get(node, -1) == least]
        problem = f"has not done its part of step {step} within {self.job.deadline_seconds:g} s"
        if not late:
            problem = f"piece {work.of.piece} of step {step} has not crossed within"
            problem += f" {self.job.deadline_seconds:g} s"
            steps = [work.plan.steps[number] for number in sorted(work.open)]
            late = sorted({step.peer for step in steps if step.peer is not None})
        return NodeLateError(problem, where=", ".join(map(self.job.node_name, late[:8])))
