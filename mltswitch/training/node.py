"""A node of a job: decides when it exchanges what, whether other nodes keep up, and whom to blame if not.

It takes events (`ready`, `crossed`, `told`, `lost`, `check`) and keeps actions for the caller
(`take_posts`, `take_words`, `take_arrived`). The same object runs over an agent and in virtual time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mltswitch.errors import MOST_LISTED
from mltswitch.hostagent.telemetry.events import GradientsLeftOut
from mltswitch.training.addition import Loss
from mltswitch.training.axes import Crossing, Elements, Exchange, Joining, Post, Stage, Sum
from mltswitch.training.ballots import Ballots
from mltswitch.training.company import ASK_AGAIN_SECONDS, Company
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError, TrainingError, cause_of
from mltswitch.training.job import Job
from mltswitch.training.left_out import LeftOut
from mltswitch.training.links import Arrival
from mltswitch.training.optimizer import check_rule
from mltswitch.training.results import KEPT_BALLOTS
from mltswitch.training.rounds import MOST_STEPS
from mltswitch.training.sums import ENTERING
from mltswitch.training.views import View
from mltswitch.units import NANOSECONDS

ASKING_SECONDS: Final = 3.0
"""Time before a deadline (half of a shorter one) at which nodes tell how far they are, so that late ones can
be named."""
KEPT_STEPS: Final = 3


class Node(Company):
    """A rank or a server that exchanges gradients; arguments and errors are those of `Company`."""

    def __init__(
        self, job: Job, number: int, parameters: Elements | None = None, absent: frozenset[int] | None = None
    ) -> None:
        super().__init__(job, number, parameters, absent)
        self.ballots: Final = Ballots(
            job, number, votes=self.votes, check_every=self._check_every, is_changing=self.changes is not None
        )
        self._vectors: dict[int, tuple[Elements, Elements]] = {}
        """Own gradients and results of the last steps."""
        self._arrived: list[tuple[int, Sum]] = []
        self._left_out: Final = LeftOut(job)
        self._reports: list[GradientsLeftOut] = []
        self._given = self._seen = 0
        """Own pieces; and those of all, when a rank that waits in draining last looked."""
        self._said: int | None = None
        self._given_by: dict[int, int] = {}
        """What others have said of theirs."""
        self._asked: tuple[Sum, int] | None = None
        """The late sum for which others were asked how far they are, and when first, in ns."""
        self._asked_ns = 0
        """When they were asked last."""

    # What happens

    def ready(self, step: int, pieces: Sequence[int], own: Elements, result: Elements, now_ns: int) -> None:
        """This rank's own gradients of some pieces are ready to be exchanged.

        Args:
            step: the step's number, from 0 without gaps.
            pieces: the pieces that are ready, each once a step.
            own: a vector of all the model's elements, read until `is_over(step)`.
            result: a vector of the same size, written; final for the pieces that `take_arrived` names.
        """
        assert self.member is not None, "a server has no gradients"  # noqa: S101
        if step >= MOST_STEPS:
            raise ValueError(f"step {step} is beyond {MOST_STEPS}")
        self._given += len(pieces)
        steps, is_within = divmod(self._given, len(self.job.pieces))
        if not is_within and self._left_out.is_due(steps) and self._is_first:
            self._say(report=steps)
            self._tell_left_out(steps)
        self._vectors[step] = own, result
        self._vectors.pop(step - KEPT_STEPS - self.member.lag, None)
        self.ballots.note(step, pieces, own)
        self._begin(self.member.ready(step, pieces, now_ns), own, result, now_ns)

    def computed(
        self, step: int, loss: float, seconds: float, own: Elements, result: Elements, now_ns: int
    ) -> None:
        """All of this rank's gradients of a step are ready.

        Args:
            step: the step's number, from 0 without gaps.
            loss: the loss of this rank's batch.
            seconds: how long computing took.
        """
        assert self.member is not None, "a server has no gradients"  # noqa: S101
        exchanges = self.member.computed(step, loss, seconds, now_ns)
        if self.ballots.are_held(step):
            held = 0 if self.changes is None else self.changes.held
            self.ballots.cast(step, self.member.vote(step), held, self.member.later(step))
            exchanges = [*exchanges, Exchange(step, (len(self.job.pieces),))]
        self._begin(exchanges, own, result, now_ns)

    def drain(self, step: int, zeros: Elements, result: Elements, now_ns: int) -> None:
        """No step follows for now: exchange what ranks still need to hold the same parameters, until
        `is_drained`.

        Args:
            step: the number of steps so far; `take_arrived` returns it with the results of this exchange.
            zeros: a vector of all the model's elements, read until `is_drained`.
            result: a vector of the same size, which is written.
        """
        assert self.member is not None, "a server has no gradients"  # noqa: S101
        self._begin(self.member.drain(step), zeros, result, now_ns)

    def may_compute(self, step: int) -> bool:
        """Whether this rank may begin a step."""
        is_counted = self.changes is None or self.ballots.counted >= step
        is_counted &= not self.job.continues or len(self.ballots) < KEPT_BALLOTS
        return self.member is not None and is_counted and self.member.may_compute(step)

    def crossed(self, crossing: Crossing, now_ns: int) -> None:
        """Handle a transfer that has ended; while nodes agree on how to go on, it has no effect."""
        peer = crossing.key[1]
        if self.changes is not None and crossing.arrival is not None and not self.is_stopping:
            self.changes.links.arrived(Arrival(peer, *crossing.arrival))
        own = crossing if self.auxiliary is None else self.auxiliary.crossed(crossing)
        if own is None:
            return
        if self._views is None:
            self._cross(own, peer, now_ns)
        elif self.error is None:
            is_over = self.is_stopping or own.is_withdrawn
            if not is_over:
                self._cross(own, peer, now_ns)
            if is_over or own.error is not None:
                self._sums.ended(own.key)
            self._agree(now_ns)

    def _cross(self, crossing: Crossing, peer: int, now_ns: int) -> None:
        error = crossing.error
        if (error is not None and peer in self._left and self.is_idle) or self._sums.is_ignored(crossing):
            return  # memory for a push that will not come
        if error is None:
            self._sums.crossed(crossing, now_ns)
            self._arrive(now_ns)
            return
        is_fault = crossing.is_fault or (self._views is not None and isinstance(error, TrainingError))
        if not is_fault and self._goes_on_without(peer, str(error), now_ns):
            return
        if isinstance(error, TrainingError):
            self.fail(error)
            return
        total = self._sums.sum_of(crossing)
        problem = f"piece {total.piece} of step {self._step_of(total)}: {error}"
        self.fail(self._blamed(peer, problem))

    def lost(self, peer: int, reason: str, now_ns: int) -> None:
        """Handle the loss of another node; one that had left before counts as gone at the next loss."""
        self._callers.pop(peer, None)
        if self._views is None:
            super().lost(peer, reason, now_ns)
        elif self.error is None and peer not in self.gone:
            if self.first_step is None:
                self._lose(frozenset({peer}), now_ns)
            elif peer in self._left and self.is_idle and not self.is_stopping:
                self._views.depart(peer)
            elif not self._goes_on_without(peer, reason, now_ns):
                self.fail(self._blamed(peer, reason))
            self._agree(now_ns)

    def tell_options(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Tell the nodes that keep parameters the optimizer's options, which a schedule has changed."""
        self._say(groups=[*groups])
        self._change_options(groups)

    def check(self, now_ns: int) -> None:
        """End the job if a deadline has passed; to be called from time to time.

        Every node then says how far it is, and those that are behind, or silent, are named.
        """
        if self.has_met_all:
            self._sums.turn(now_ns)
        if self.first_step is None:
            self._call(now_ns)
        if self.is_stopping:
            self._await_view(now_ns)
            return
        self._take_in(now_ns)
        self._agree(now_ns)
        differ = self.ballots.differ
        if differ is not None and self._sums.is_over(differ[0]):
            self.fail(differ[1])
        oldest = next(iter(self._sums.begun.items()), None)
        if self.member is None and self.counts_alone:
            return  # its ranks wait for one another, and know best for whom
        if self.error is not None or oldest is None:
            self._asked = None
            return
        deadline_ns = oldest[1] + self.job.deadline_seconds * NANOSECONDS
        asking_ns = min(ASKING_SECONDS, self.job.deadline_seconds / 2) * NANOSECONDS
        is_new = self._asked is None or self._asked[0] != oldest[0]
        if self._asked is None or is_new:
            if now_ns < deadline_ns - asking_ns:
                self._asked = None
                return
            self._asked = oldest[0], now_ns
        if is_new or now_ns - self._asked_ns > ASK_AGAIN_SECONDS * NANOSECONDS:
            self._asked_ns = now_ns
            self._say_how_far(is_question=True)
        # who looks late gives the others time to answer all the same
        if now_ns > deadline_ns and now_ns - self._asked[1] > asking_ns / 2:
            self._end_late(oldest[0], now_ns)

    def wants_arrivals(self, now_ns: int) -> bool:
        """Whether `measure` should be called now; never true where routes stay the same for the whole job."""
        return (
            self.changes is not None and self.is_in and not self.is_stopping and self.changes.is_due(now_ns)
        )

    def measure(self, so_far: Sequence[Arrival], now_ns: int) -> None:
        """Take what has arrived so far of open pieces, from which link rates are measured."""
        assert self.changes is not None, "it wants none"  # noqa: S101
        for word in self.changes.words(so_far, now_ns, is_first=self._is_first, gone=self.gone):
            self._say(**word)
        if self.auxiliary is not None:
            topology: Any = self.changes.topology
            self.auxiliary.refresh(topology, self.changes.rates_bps(now_ns))

    # What is to be done

    def take_posts(self) -> list[Post]:
        """Take the posts (transfers to start) for the carrier; none before all nodes have met."""
        if not self.has_met_all:
            return []
        posts, self._sums.posts = self._sums.posts, []
        if self.auxiliary is None:
            return posts
        self.auxiliary.post(posts)
        posts = self.auxiliary.take_posts()
        for word in self.auxiliary.take_words():
            self._say(**word)
        return posts

    def take_arrived(self) -> list[tuple[int, Sum]]:
        """Take the results that have arrived in this rank's memory, each with the step that they belong
        to."""
        arrived, self._arrived = self._arrived, []
        is_over = self._views is not None and self.error is not None  # what the others have may be another
        return [] if is_over else arrived

    def take_losses(self) -> list[Loss]:
        """Take the elements that loss bounds have left out of sums at this node."""
        losses, self._sums.addition.losses = self._sums.addition.losses, []
        for loss in losses:
            self._left_out.count(loss)
        return losses

    def take_reports(self) -> list[GradientsLeftOut]:
        """Take the reports of what loss bounds have left out at all nodes."""
        reports, self._reports = self._reports, []
        return reports

    def version_of(self, step: int) -> int:
        """Number of the first sums that have the same routes as those of a step."""
        return self._sums.version_of(step)

    def is_over(self, step: int) -> bool:
        """Whether the caller may use the vectors of a step again."""
        return self._sums.is_over(step)

    @property
    def is_drained(self) -> bool:
        """Whether this rank has all results of its exchanges, so that the caller may use all its vectors
        again."""
        return self._sums.is_over() and not (self.member is not None and self.member.holds)

    @property
    def is_idle(self) -> bool:
        """Whether no transfer is open but receives that no sender has begun."""
        return not self._sums.begun

    # Inside

    def _hear(self, peer: int, said: Mapping[str, Any], now_ns: int) -> None:
        if "report" in said:
            if not self._left_out.has_told(int(said["report"])):
                self._tell_left_out(int(said["report"]))
        elif "without" in said:
            self._hear_left_out(peer, said["without"])
        elif "lost" in said and self._views is not None:
            self._stop_if(self._views.heard(peer, said, now_ns), now_ns)
        elif ("rates" in said or "offer" in said) and self.changes is not None:
            is_first = {*range(peer)} <= self.gone
            self.changes.hear(peer, said, now_ns, is_first=is_first)
        elif "path" in said and self.auxiliary is not None:
            self.auxiliary.hear(peer, said)
            self._withdrawals += self.auxiliary.take_withdrawals()
        elif "groups" in said:
            self._change_options(said["groups"])
        elif "given" in said:
            self._given_by[peer] = max(int(said["given"]), self._given_by.get(peer, -1))
            if said["asks"]:
                self._say_how_far()

    def _begin(self, exchanges: list[Exchange], own: Elements, result: Elements, now_ns: int) -> None:
        for exchange in exchanges:
            self._sums.begin(exchange, own, result, now_ns, self.ballots.under_way(exchange.step))
        self._arrive(now_ns)

    def _arrive(self, now_ns: int) -> None:
        while self._sums.arrived:
            step, total = self._sums.arrived.popleft()
            if self.member is None:
                continue
            if total.piece == len(self.job.pieces):
                self._count_votes(step)
                if self.ballots.differ is not None:
                    continue  # so that the step does not end well on any rank
            self._arrived.append((step, total))
            if total.piece == len(self.job.pieces) and not self.votes:
                continue  # of this node's own, which the member does not count
            for exchange in self.member.arrived(step, total, now_ns):
                self._sums.begin(exchange, *self._vectors[exchange.step], now_ns)

    def _tell_left_out(self, steps: int) -> None:
        own = self._left_out.told(steps)
        self._say(without=own)
        self._hear_left_out(self.number, own)

    def _hear_left_out(self, peer: int, said: Sequence[object]) -> None:
        report = self._left_out.heard(peer, said, {*range(self.job.nodes)} - self.gone)
        self._reports += [] if report is None else [report]

    def _count_votes(self, step: int) -> None:
        assert self.member is not None, "a server does not vote"  # noqa: S101
        figures, held = self.ballots.count(step)
        if self.changes is not None:
            if self.changes.counted(held):
                self._sums.change(step + 1, self.changes.without(self.agreed))
            self._sums.expect_before(step + 2)
        differing = self.member.counted(step, figures)
        if differing:
            here = self.job.node_name(self.number)
            names = ", ".join(map(self.job.node_name, differing[:MOST_LISTED]))
            problem = f"ranked other pieces as unimportant in step {step} than {here}"
            self.fail(JobMismatchError(problem, where=names))

    def _change_options(self, groups: Sequence[Mapping[str, Any]]) -> None:
        if self._parameters is not None:
            rule = replace(self._parameters.rule, groups=tuple(dict(group) for group in groups))
            if len(groups) != len(self._parameters.rule.groups):
                raise ValueError("another number of groups")
            check_rule(rule)
            self._parameters.rule = rule

    def _goes_on_without(self, peer: int, reason: str, now_ns: int) -> bool:
        """Whether nobody needs a node that is gone, and it does not say that the job is over."""
        is_needed = peer >= self.job.world and self._views is None
        if not self.job.continues or is_needed or not self.has_met_all:
            return False
        cause = cause_of(reason)
        if cause is not None and (type(cause), cause.where) != (NodeLostError, self.job.node_name(peer)):
            return False
        self.reasons.setdefault(peer, reason)
        if self._views is not None:
            self._lose(frozenset({peer}), now_ns)
            return True
        if self.member is None and self._left | self.gone | {peer} >= {*range(self.job.world)}:
            return False  # a server without ranks
        if peer not in self.gone:
            self.gone.add(peer)
            self._sums.ignore(peer, now_ns)
            self._arrive(now_ns)
        return True

    @property
    def _begun(self) -> int:
        return -(-self._given // len(self.job.pieces))

    def _heed_entry(self, view: View, rank: int, step: int) -> None:
        self._given_by.pop(rank, None)
        if self.first_step is not None:
            return
        self.has_met_all = True  # all that are left have said how far they are
        pieces = len(self.job.pieces)
        self._sums.enter(view, [step] * pieces + [self.ballots.number_before(step)])
        self._given, self.first_step = step * pieces, step
        self._left_out.enter(step)
        assert isinstance(self.member, Joining), "axes_of has looked"  # noqa: S101
        self.member.enter(step)

    @staticmethod
    def _is_question(total: Sum) -> bool:
        """Whether a rank asks for parameters that it gets when all ask: others may train on for long."""
        return total.origin is not None and total.stage is Stage.LATER

    def _say_how_far(self, *, is_question: bool = False) -> None:
        """To all; who hears a question says the same of itself, unless all know it."""
        if is_question or self._said != self._progress:
            self._said = self._progress
            self._say(given=self._said, asks=is_question)

    @property
    def _progress(self) -> int:
        """Own pieces that were given, of all steps; a server has none to give, and is never behind."""
        return self._given if self.member is not None else MOST_STEPS * len(self.job.pieces)

    def _step_of(self, total: Sum) -> int:
        """In which the ranks give their part of a sum, as far as this node knows."""
        step = self._sums.step_of(total)
        if step == ENTERING:
            return total.number
        if step is None:  # a rank has not come to it; a server knows its number, which is less or the same
            step = total.number if self.member is None else self._given // len(self.job.pieces)
        return step

    def _end_late(self, late: Sum, now_ns: int) -> None:
        """The deadline of a sum is over: so is the job, but for what others train on for, or a newcomer."""
        seen, self._seen = self._seen, sum(self._given_by.values())
        if self._is_question(late) and self._seen > seen:
            self._sums.begun[late] = now_ns
            self._asked = None
        elif self.entering is not None and not self._sums.has_entered:
            rank = self.entering[0]
            self.reasons[rank] = f"it has given nothing within {self.job.deadline_seconds:g} s"
            self._lose(frozenset({rank}), now_ns)
        else:
            self.fail(self._late(late))

    def _late(self, total: Sum) -> TrainingError:
        step = self._step_of(total)
        given = {**self._given_by, self.number: self._progress}
        behind = {
            node: pieces
            for node in range(self.job.nodes)
            if node not in self.gone and (pieces := given.get(node, -1)) < (step + 1) * len(self.job.pieces)
        }
        # who is less far behind may wait for the others, or for what one that is silent was to pass on
        behind = {node: pieces for node, pieces in behind.items() if pieces == min(behind.values())}
        problem = f"has not done its part of step {step} within {self.job.deadline_seconds:g} s"
        if not behind:
            problem = f"piece {total.piece} of step {step} has not crossed in {self.job.deadline_seconds:g} s"
        names = [self.job.node_name(node) for node in behind or self._sums.waits_for(total)]
        hint = ""
        if self.auxiliary is not None and (nodes := self.auxiliary.between(self._sums.open_keys(total))):
            between = ", ".join(map(self.job.node_name, sorted(nodes)[:MOST_LISTED]))
            hint = f"look at {between}, too, by whose way pieces go"
        return NodeLateError(problem, where=", ".join(names[:MOST_LISTED]), hint=hint)
