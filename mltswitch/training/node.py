"""The executor: one node's part of every exchange, as its topology says it and its synchronization wants it.

It takes what happens (`ready`, `crossed`, `told`, `check`) and keeps what is to be done (`take_posts`,
`take_words`, `take_arrived`). The same object runs over an agent and in virtual time.
"""

import json
from collections import defaultdict, deque
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
    Release,
    Stage,
    Step,
    axes_of,
)
from mltswitch.training.errors import JobMismatchError, NodeLateError, TrainingError
from mltswitch.training.job import Divisor, Job
from mltswitch.units import NANOSECONDS

EPOCHS: Final = 256
"""Times that an exchange can be begun anew: its round numbers are step · 256 + epoch."""
MOST_STEPS: Final = (1 << 32) // EPOCHS
GRACE_SECONDS: Final = 3.0
"""Past a deadline, for nodes to say how far they are, before the ones that are late are named."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a loss bound left out of a sum."""

    step: int
    piece: int
    sender: int
    receiver: int
    missing: tuple[Range, ...]
    """Elements of the piece, in order."""

    @property
    def elements(self) -> int:
        """How many."""
        return sum(end - first for first, end in self.missing)


@dataclass(slots=True, eq=False)
class _Work:
    """One piece of one exchange at this node."""

    exchange: Exchange
    piece: int
    steps: tuple[Step, ...]
    begun_ns: int | None = None
    """When this node, or another one, has begun."""
    own: Elements | None = None
    result: Elements | None = None
    total: Elements | None = None
    """The sum as far as it is made."""
    counts: Elements | None = None
    is_released: bool = False
    waiting: set[int] = field(default_factory=set)
    """Steps not begun, by position."""
    open: set[int] = field(default_factory=set)
    """Steps that a carrier has."""

    def __post_init__(self) -> None:
        self.waiting = set(range(len(self.steps)))

    @property
    def is_root(self) -> bool:
        """Whether the sum is completed here."""
        return any(step.action is Action.ADD for step in self.steps) and not any(
            step.action is Action.RECEIVE and step.is_result for step in self.steps
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left, and its memory is free."""
        return not self.waiting and not self.open

    def may_begin(self, number: int) -> bool:
        """Whether everything before a step is done, and what it reads or writes is there."""
        step = self.steps[number]
        if any(before in self.waiting or before in self.open for before in step.after):
            return False
        match step.action:
            case Action.RECEIVE:
                return not step.is_result or self.result is not None
            case Action.SEND:
                return step.is_result or self.total is not None or self.own is not None
            case Action.ADD:
                return step.peer is not None or self.own is not None
            case Action.RESULT:
                return not self.is_root or self.is_released


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
        self._works: dict[tuple[Exchange, int], _Work] = {}
        self._by_key: dict[tuple[Direction, int, int, int], tuple[_Work, int]] = {}
        self._received: dict[tuple[int, int], Elements] = {}
        """Memory for partial sums, by piece and peer."""
        self._lent: set[tuple[int, int]] = set()
        """Of that, what is in use."""
        self._totals: defaultdict[int, list[Elements]] = defaultdict(list)
        """Memory for sums that is free, by piece."""
        self._posts: list[Post] = []
        self._words: list[bytes] = [json.dumps({"job": job.fingerprints()}).encode()]
        self._arrived: deque[tuple[Exchange, int]] = deque()
        self._losses: list[Loss] = []
        self._met: set[int] = set()
        self._steps_of: dict[int, int] = {}
        """How far others have said they are."""
        self._asked_ns: int | None = None
        self._newest = -1
        for piece in range(len(job.pieces)):
            self._expect(0, piece)

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
        self._newest = max(self._newest, step)
        for number in pieces:
            with np.errstate(all="ignore"):
                is_finite = np.isfinite(own[self.job.pieces[number].elements].sum())
            self.nonfinite_pieces += not is_finite
        for exchange in self.member.ready(step, pieces, now_ns):
            self._begin(exchange, own, result, now_ns)

    def may_compute(self, step: int) -> bool:
        """Whether this rank may begin a step."""
        return self.member is not None and self.member.may_compute(step)

    def crossed(self, crossing: Crossing, now_ns: int) -> None:
        """A post has ended."""
        work, number = self._by_key.pop(crossing.key)
        step = work.steps[number]
        if crossing.error is not None:
            self.fail(self._blamed(crossing.error, step, work))
            return
        work.open.discard(number)
        if work.begun_ns is None:
            work.begun_ns = now_ns
        if crossing.missing:
            peer = crossing.key[1]
            self._losses.append(Loss(work.exchange.step, work.piece, peer, self.number, crossing.missing))
            if (
                work.counts is not None
            ):  # its ranks are counted with the sum, and these elements are not there
                for first, end in crossing.missing:
                    work.counts[first:end] -= 1
        self._go_on(work, now_ns)

    def told(self, peer: int, word: bytes, now_ns: int) -> None:  # noqa: ARG002
        """Another node says something that `take_words` gave there."""
        try:
            said = json.loads(word)
            if "job" in said:
                self._compare(peer, said["job"])
            elif "step" in said:
                self._steps_of[peer] = max(int(said["step"]), self._steps_of.get(peer, -1))
        except (ValueError, TypeError, AttributeError):
            problem = "says what no node of this version says"
            self.fail(JobMismatchError(problem, where=self.job.node_name(peer)))

    def lost(self, peer: int, error: TrainingError) -> None:
        """Another node is gone; with anything still open that is the end."""
        self.fail(error)
        self._met.discard(peer)

    def check(self, now_ns: int) -> None:
        """Ends the job where a deadline has passed; to be called now and then.

        Every node then says how far it is, and those that are behind, or silent, are named.
        """
        if self.error is not None:
            return
        deadline_ns = self.job.deadline_seconds * NANOSECONDS
        late = [
            work
            for work in self._works.values()
            if work.begun_ns is not None and now_ns - work.begun_ns > deadline_ns
        ]
        if not late:
            self._asked_ns = None
        elif self._asked_ns is None:
            self._asked_ns = now_ns
            self._words.append(json.dumps({"step": self._newest}).encode())
        elif now_ns - self._asked_ns > GRACE_SECONDS * NANOSECONDS:
            self.fail(self._late(late[0]))

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

    def take_words(self) -> list[bytes]:
        """To be told to every other node."""
        words, self._words = self._words, []
        return words

    def take_arrived(self) -> list[tuple[Exchange, int]]:
        """Pieces whose results are there."""
        arrived = [*self._arrived]
        self._arrived.clear()
        return arrived

    def take_losses(self) -> list[Loss]:
        """What bounds have left out of sums at this node."""
        losses, self._losses = self._losses, []
        return losses

    def is_over(self, step: int) -> bool:
        """Whether the vectors of a step are the caller's again."""
        return not any(work.exchange.step == step and work.own is not None for work in self._works.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open but memory for what others have not begun."""
        return all(work.begun_ns is None for work in self._works.values())

    # Inside

    def _expect(self, step: int, piece: int) -> None:
        for exchange in self._keeper.expected(step, piece):
            work = self._work(exchange, piece)
            if work is not None:
                self._go_on(work, None)

    def _begin(self, exchange: Exchange, own: Elements, result: Elements, now_ns: int) -> None:
        for piece in exchange.pieces:
            single = Exchange(exchange.step, (piece,), exchange.stage, exchange.origin)
            work = self._work(single, piece)
            if work is None:
                continue
            place = self.job.pieces[piece].elements
            work.own, work.result = own[place], result[place]
            work.begun_ns = now_ns
            self._go_on(work, now_ns)

    def _work(self, exchange: Exchange, piece: int) -> _Work | None:
        work = self._works.get((exchange, piece))
        if work is None:
            steps = self._topology.schedule(self.job, exchange, piece, self.number)
            if not steps:
                return None
            work = self._works[exchange, piece] = _Work(exchange, piece, steps)
            if work.is_root and self.job.divisor is Divisor.ARRIVED:
                count = self.job.pieces[piece].count
                work.counts = np.full(count, self.job.world, self.job.element_type)
        return work

    def _go_on(self, work: _Work, now_ns: int | None) -> None:
        """Begin all steps that may begin, until none can."""
        is_moving = True
        while is_moving:
            is_moving = False
            for number in sorted(work.waiting):
                if work.may_begin(number) and self._begun(work, number, now_ns):
                    work.waiting.discard(number)
                    is_moving = True
        if work.is_over and self._works.pop((work.exchange, work.piece), None) is not None:
            self._free(work)

    def _begun(self, work: _Work, number: int, now_ns: int | None) -> bool:
        """False: its memory is still in use by an earlier exchange."""
        step = work.steps[number]
        match step.action:
            case Action.SEND:
                partial = work.own if work.total is None else work.total
                self._post(work, number, Direction.SEND, work.result if step.is_result else partial)
            case Action.RECEIVE if step.is_result:
                self._post(work, number, Direction.RECEIVE, work.result)
            case Action.RECEIVE:
                assert step.peer is not None  # noqa: S101
                place = (work.piece, step.peer)
                if place in self._lent:
                    return False
                self._lent.add(place)
                if place not in self._received:
                    self._received[place] = self._memory(work.piece)
                self._post(work, number, Direction.RECEIVE, self._received[place])
            case Action.ADD:
                self._add(work, step, now_ns or 0)
            case Action.RESULT:
                self._result(work, now_ns or 0)
        return True

    def _post(self, work: _Work, number: int, direction: Direction, data: Elements | None) -> None:
        step = work.steps[number]
        assert step.peer is not None, "a crossing has two ends"  # noqa: S101
        assert data is not None, "a step began before its memory was there"  # noqa: S101
        exchange, pieces = work.exchange, len(self.job.pieces)
        later = pieces if exchange.stage is Stage.LATER else 0
        is_lossy = direction is Direction.RECEIVE and not step.is_result
        post = Post(
            direction,
            step.peer,
            data,
            tensor=2 * (work.piece + later) + step.is_result,
            round_number=exchange.step * EPOCHS,
            layer=self.job.pieces[work.piece].layer,
            stage=exchange.stage,
            loss_bound=self._hop_bound if is_lossy else 0.0,
            is_early=work.begun_ns is None,
        )
        work.open.add(number)
        self._by_key[post.key] = work, number
        self._posts.append(post)

    def _add(self, work: _Work, step: Step, now_ns: int) -> None:
        part = work.own if step.peer is None else self._received[work.piece, step.peer]
        assert part is not None  # noqa: S101
        if work.total is None:
            free = self._totals[work.piece]
            work.total = free.pop() if free else self._memory(work.piece)
            np.copyto(work.total, part)
        else:
            np.add(work.total, part, out=work.total)
        if step.peer is not None:
            self._lent.discard((work.piece, step.peer))
        if not work.is_root:
            return
        releases: list[Release] = []
        for rank in step.ranks:
            releases += self._keeper.pushed(rank, work.exchange, work.piece, now_ns)
        for release in releases:
            released = self._works.get((release.exchange, release.piece))
            if released is not None:
                released.is_released = True
                if released is not work:
                    self._go_on(released, now_ns)

    def _result(self, work: _Work, now_ns: int) -> None:
        if work.is_root:
            assert work.total is not None  # noqa: S101
            if work.result is None:  # of a server
                work.result = work.total
            by = self.job.world if work.counts is None else np.maximum(work.counts, 1)
            np.divide(work.total, by, out=work.result)
        if self.member is not None:
            self.member.arrived(work.exchange, work.piece, now_ns)
            self._arrived.append((work.exchange, work.piece))

    def _free(self, work: _Work) -> None:
        """Memory goes to the next exchange of the piece, which may have waited for it."""
        if work.total is not None:
            self._totals[work.piece].append(work.total)
        self._expect(work.exchange.step + 1, work.piece)
        for other in [each for each in self._works.values() if each.piece == work.piece]:
            self._go_on(other, other.begun_ns)

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
        self.has_met_all = self.has_met_all or len(self._met) == self.job.nodes - 1

    def _blamed(self, error: Exception, step: Step, work: _Work) -> TrainingError:
        if isinstance(error, TrainingError):
            return error
        peer = self.job.node_name(step.peer if step.peer is not None else self.number)
        what = "the result" if step.is_result else "gradients"
        problem = f"piece {work.piece} of step {work.exchange.step}, {what}: {error}"
        return NodeLateError(problem, where=peer)

    def _late(self, work: _Work) -> TrainingError:
        step, seconds = work.exchange.step, self.job.deadline_seconds
        behind = [node for node in self._others() if self._steps_of.get(node, -1) < step]
        if work.is_root and not work.is_released:
            pushed_not = self._keeper.missing(work.exchange, work.piece)
            behind = [node for node in behind if node in pushed_not] or [*pushed_not]
        names = ", ".join(map(self.job.node_name, [node for node in behind if node < self.job.world][:8]))
        problem = f"has not done its part of step {step} within {seconds:g} s"
        if not names:
            peers = {entry.peer for number in work.open if (entry := work.steps[number]).peer is not None}
            names = ", ".join(self.job.node_name(peer) for peer in sorted(peers) if peer is not None)
        return NodeLateError(problem, where=names)

    def _others(self) -> Iterable[int]:
        return (node for node in range(self.job.nodes) if node != self.number)
