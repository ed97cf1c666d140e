"""A node's view of the other nodes: it stops when one is lost or comes back, and goes on when all agree.

What is exchanged, and when, `node.py` says.
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mltswitch.errors import MOST_LISTED, UserInputError
from mltswitch.training.auxiliary import AuxiliaryPaths, detouring
from mltswitch.training.axes import Elements, Needs, Repairable, axes_of
from mltswitch.training.changes import Changes, changing
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError
from mltswitch.training.job import Job
from mltswitch.training.optimizer import Parameters, check_rule
from mltswitch.training.participant import Participant
from mltswitch.training.sums import Sums
from mltswitch.training.views import State, View, Views, mask_of, nodes_of
from mltswitch.units import NANOSECONDS

ASK_AGAIN_SECONDS: Final = 0.5


class Company(Participant):
    """A rank or a server with its sums, which stops and goes on together with the other nodes.

    Args:
        parameters: a vector of all the model's elements at the start, equal at all nodes, where pushes are
            steps of the optimizer of roots.
        absent: nodes that a restarted rank does not find; None: the node takes part from the beginning.

    Raises UserInputError for axes that are not there, or make no sense together.
    """

    def __init__(
        self, job: Job, number: int, parameters: Elements | None, absent: frozenset[int] | None
    ) -> None:
        synchronization, topology = axes_of(job)
        digest = getattr(topology, "digest", None)  # of routes that each node has planned by itself
        super().__init__(job, number, {} if digest is None else {"routes": digest})
        self.member: Final = synchronization.member(job, number) if number < job.world else None
        self.counts_alone: Final = synchronization.needs.lone_pushes
        """Whether results are parameters, and not sums."""
        self._parameters: Parameters | None = None
        if self.counts_alone:
            assert parameters is not None, "roots keep parameters"  # noqa: S101
            assert job.optimizer is not None, "axes_of has looked"  # noqa: S101
            check_rule(job.optimizer)
            self._parameters = Parameters(job, parameters)
        self.votes: Final = synchronization.votes
        """Whether ranks exchange a ballot in every step."""
        self._check_every: Final = 0 if synchronization.needs != Needs() else job.check_every
        routes, paths = changing(topology), detouring(topology)
        self.changes = None if routes is None else Changes(job, number, routes)
        """Where other routes may be bound."""
        is_changing = self.changes is not None
        self.auxiliary = None if paths is None else AuxiliaryPaths(job, number, paths)
        """Where pieces may take others than their own links."""
        self._sums = Sums(
            job,
            number,
            topology,
            partial(synchronization.keeper, job),
            votes=self.votes or self._check_every > 0 or is_changing,
            is_changing=is_changing,
            parameters=self._parameters,
        )
        self._topology = topology
        self._views = Views(job, number, absent) if job.continues and not self.counts_alone else None
        """Where sums of all ranks go on without some."""
        self.view: View | None = None
        """The last one that all have agreed on."""
        self.first_step: int | None = 0 if absent is None else None
        """The first step of this rank; None: the others have not taken it in yet."""
        self.reasons: dict[int, str] = {}
        """Why nodes are gone, as far as this one knows."""
        self._callers: dict[int, frozenset[int] | None] = {}
        """Nodes that are gone, and say that they are there again; and whom each of them does not find."""
        self._called_ns = 0
        """When this node has said so last."""
        if absent is not None:
            if self._views is None or is_changing:
                problem = f"{job.synchronization} over {job.topology} takes in nobody"
                raise UserInputError(
                    problem, where="returns", expected="bsp with `continues`, over star or tree"
                )
            self._say(job=self._fingerprints, absent=mask_of(absent))
            self.gone.update(absent)
            self._sums.freeze()
            if self.auxiliary is not None:
                self.auxiliary.stop()

    # What happens

    def told(self, peer: int, word: bytes, now_ns: int) -> None:
        """Handle another node's message; when all nodes have told how far they are, the node goes on."""
        super().told(peer, word, now_ns)
        self._take_in(now_ns)
        self._agree(now_ns)

    # What is to be done

    @property
    def is_in(self) -> bool:
        """Whether this node takes part in the job now."""
        return self.has_met_all and self.first_step is not None

    @property
    def has_caught_up(self) -> bool:
        """Whether a restarted rank has all results from before its first step, and may begin that step."""
        return self._sums.has_caught_up

    @property
    def is_returning(self) -> bool:
        """Whether this is a restarted rank that the others have not taken in yet."""
        return self.first_step is None

    @property
    def giver(self) -> int | None:
        """The node that gives the last rank that was taken in the ranks' common state; None: there is
        none."""
        if self.entering is None:
            return None
        return min({*range(self.job.world)} - self.gone - {self.entering[0]}, default=None)

    @property
    def entering(self) -> tuple[int, int] | None:
        """The last rank that was taken in again, and its first step; None: there is none."""
        return None if self.view is None else self.view.entering

    @property
    def agreed(self) -> frozenset[int]:
        """The gone nodes without which all that are left have agreed to go on."""
        return frozenset() if self._views is None else self._views.agreed

    @property
    def deaf(self) -> set[int]:
        """Nodes that get no messages."""
        return self.gone - self._callers.keys()

    @property
    def is_stopping(self) -> bool:
        """Whether a fault is known, and the nodes have not all agreed yet on how to go on."""
        return self._views is not None and self._views.state is not State.TOGETHER

    # Inside

    @property
    @abstractmethod
    def _begun(self) -> int:
        """Steps of which this rank has given gradients."""

    @abstractmethod
    def _arrive(self, now_ns: int) -> None:
        """Results may be there."""

    @abstractmethod
    def _heed_entry(self, view: View, rank: int, step: int) -> None:
        """A rank takes part from a step on, perhaps this one."""

    def _hear_gone(self, peer: int, said: Mapping[str, Any], now_ns: int) -> None:
        if self._views is None or peer >= self.job.world:
            return
        if "job" in said and self.first_step is None:
            if said["job"] == self._fingerprints:  # of another one that has come back
                self._met.add(peer)
                self.gone.discard(peer)
                self._views.find(peer)
        elif "absent" in said:
            if peer not in self._callers:
                self._left.discard(peer)
                self._greet()
            fits = said["job"] == self._fingerprints  # else it hears so, and ends
            self._met.add(peer)
            self._callers[peer] = nodes_of(said["absent"], self.job) if fits else None
        elif "lost" in said and self._views.takes_in(peer, said):
            self._stop_if(self._views.heard(peer, said, now_ns), now_ns)

    @property
    def _version(self) -> int:
        return 0 if self.changes is None else self.changes.version

    @property
    def _is_first(self) -> bool:
        return self.gone.issuperset(range(self.number))

    def _lose(self, nodes: frozenset[int], now_ns: int) -> None:
        """Stop, because of nodes that this one has lost, or another."""
        assert self._views is not None  # noqa: S101
        for node in nodes & self._left:
            self._views.depart(node)
        self._stop_if(self._views.lose(nodes, now_ns), now_ns)

    def _stop_if(self, is_news: bool, now_ns: int) -> None:
        """Nodes are lost, or one is to be taken in."""
        views = self._views
        if not is_news or views is None:
            return
        self.gone = {*views.gone}  # at once: others read it
        self._callers = {peer: absent for peer, absent in self._callers.items() if peer in self.gone}
        if self.changes is not None:
            self.changes.links.clear()
        if views.state is not State.OUTSIDE:
            keys = self._sums.freeze()
            if self.auxiliary is not None:
                keys, ended = self.auxiliary.stop(keys)
                for key in ended:
                    self._sums.ended(key)
            self._withdrawals += keys
            self._say(lost=mask_of(views.gone), era=views.era)
        if views.problem:
            here, hint = self.job.node_name(self.number), "start the job again from its last checkpoint"
            self.fail(NodeLostError(views.problem, where=here, hint=hint))
        self._called_ns = min(self._called_ns, now_ns - round(ASK_AGAIN_SECONDS * NANOSECONDS))

    def _call(self, now_ns: int) -> None:
        """Say to all that this rank wants to be taken in, now and then."""
        if now_ns - self._called_ns >= ASK_AGAIN_SECONDS * NANOSECONDS:
            self._called_ns = now_ns
            self._say(job=self._fingerprints, absent=mask_of(self.gone))

    def _take_in(self, now_ns: int) -> None:
        """One that is there again, once the last one has entered."""
        is_ending = self._is_leaving or bool(self._left - self.gone)
        if self._views is None or self.is_stopping or self.error is not None or is_ending:
            return
        if not self._sums.has_entered:
            return
        for peer, absent in sorted(self._callers.items(), key=lambda entry: entry[0]):
            if absent is not None and self._views.take_in(peer, absent, now_ns):
                self._stop_if(True, now_ns)
                return

    def _agree(self, now_ns: int) -> None:
        """Say how far this node is, once nothing of it is open, and go on once all have said it."""
        views = self._views
        if views is None or self.error is not None:
            return
        if views.state is State.STOPPING and self._sums.is_quiet:
            for word in views.stopped(self._sums.results.counts, self._begun, now_ns, self._version):
                self._say(**word)
        view = views.installed(now_ns)
        if view is None:
            return
        wrong = self._sums.results.impossible(view)
        if wrong is not None:
            problem = "says that it has results which it cannot have"
            self.fail(JobMismatchError(problem, where=self.job.node_name(wrong)))
            return
        lacking = self._sums.results.lacking(view)
        if lacking is not None:
            problem = (
                f"has no result of piece {lacking.piece} of sum {lacking.number} any more, nor has anybody"
            )
            self.fail(NodeLostError(problem, where=self.job.node_name(self.number)))
            return
        if self.changes is not None and not self.changes.knows(view.version):
            problem = "says that routes are bound which not all have held"
            self.fail(JobMismatchError(problem, where=self.job.node_name(view.teller)))
            return
        if self.changes is not None:
            self.changes.bind(view.version)
            self._topology = self.changes.topology
        assert isinstance(self._topology, Repairable), "axes_of has looked"  # noqa: S101
        topology = self._topology.without(self.job, view.gone, is_star=view.is_star)
        self.view = view
        self.reasons = {node: reason for node, reason in self.reasons.items() if node in view.gone}
        if view.entering is not None:
            self._heed_entry(view, *view.entering)
        if self.auxiliary is not None:
            bound: Any = self._topology
            self.auxiliary.resume(bound, view.epoch, view.gone)
        self._sums.repair(topology, view, now_ns)
        self._arrive(now_ns)

    def _await_view(self, now_ns: int) -> None:
        """Others that are alive answer, or end the job."""
        assert self._views is not None  # noqa: S101
        if self.first_step is None and self._views.state is State.OUTSIDE:
            return
        self._lose(self._views.overdue(now_ns), now_ns)
        if now_ns - self._views.since_ns > self.job.deadline_seconds * NANOSECONDS:
            missing = [node for node in self._views.missing if node != self.number]
            names = ", ".join(map(self.job.node_name, missing[:MOST_LISTED]))
            problem = f"has not said within {self.job.deadline_seconds:g} s how far it is after a fault"
            self.fail(NodeLateError(problem, where=names))
