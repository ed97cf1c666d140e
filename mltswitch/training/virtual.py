"""A job in virtual time: the nodes that production uses, and a network of max-min fair links between them.

    job = make_job([("conv", 500_000), ("head", 20_000)], world=4, loss_bound=0.1)
    report = VirtualJob(job, Network(1e9, 50e-6), seed=7).run(3, gradients)

The same seed gives the same run. It tells how long exchanges take where links are the bottleneck, and what
becomes of a job whose nodes die or whose links break.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from mltswitch.training.addition import Loss
from mltswitch.training.axes import Crossing, Elements, Post, Stage, Sum
from mltswitch.training.errors import TrainingError
from mltswitch.training.job import Job
from mltswitch.training.node import Node
from mltswitch.training.rounds import EPOCHS, MOST_STEPS, priority_of, sums_have_ages
from mltswitch.training.views import View
from mltswitch.training.virtual_network import Timeline, VirtualNetwork, Wires
from mltswitch.units import NANOSECONDS

SILENCE_SECONDS: Final = 10.0
"""Time after which a silent node counts as lost, as for host agents."""
CHECK_SECONDS: Final = 1.0
HUNG_SECONDS: Final = 60.0
"""Time after a job's deadline at which a run without any event is given up as hung."""


class HungError(AssertionError):
    """Ranks wait for events that will never come, which is a fault of the code."""


@dataclass(slots=True)
class Report:
    """The results of a job's run in virtual time."""

    results: dict[tuple[int, int], Elements] = field(default_factory=dict)
    """Results of all elements by (rank, step), and after the last step those of draining; NaN where none has
    come."""
    errors: dict[int, TrainingError] = field(default_factory=dict)
    """The error that ended each failed node, by node number."""
    failed_seconds: dict[int, float] = field(default_factory=dict)
    """Virtual time at which each failed node gave up, by node number."""
    losses: list[Loss] = field(default_factory=list)
    steps: dict[Sum, int] = field(default_factory=dict)
    """For each sum the step in which the ranks gave their part."""
    step_seconds: list[float] = field(default_factory=list)
    """Duration of each step, from the first rank's start of computing to when the last one may begin the next
    step."""
    views: dict[int, list[tuple[float, View]]] = field(default_factory=dict)
    """For each node the virtual times at which it went on after a fault, with the view of who is left."""
    seconds: float = 0.0
    most_open_posts: int = 0
    """The most posts (open transfers) that one node had at a time."""


class VirtualJob:
    """All nodes of a job in virtual time, for a single run.

    Args:
        loss_ratio: share of packets lost; a lossy receive goes without them up to its bound, and the rest is
            sent again.
        parameters: those at the start, where roots of sums keep parameters.
        backward_share: last part of computing, in which gradients become ready, back to front; 0: at its end.
        waits_by_piece: whether a forward pass waits for each piece when it comes to it, and not for all of
            them before it begins; of a synchronization whose steps wait for all sums.
        classes: number of gradient classes; front layers are in those that are served first.
        in_turn: whether what a node sends to another leaves piece after piece, as agents send; else all of it
            shares the way, so that hardly a result leaves before the last gradients have come.
    """

    def __init__(
        self,
        job: Job,
        network: Wires,
        *,
        loss_ratio: float = 0.0,
        seed: int = 0,
        late: Callable[[], float] = lambda: 0.0,
        parameters: Elements | None = None,
        backward_share: float = 1.0,
        waits_by_piece: bool = False,
        classes: int = 1,
        in_turn: bool = False,
    ) -> None:
        self.job: Final = job
        self.nodes: Final = [Node(job, number, parameters) for number in range(job.nodes)]
        self._backward_share = backward_share
        self._waits_by_piece, self._classes = waits_by_piece, classes
        self._there: list[set[int]] = [set() for _ in range(job.world)]
        """Pieces of each rank's last step whose sums have come,"""
        self._passed = [0] * job.world
        """pieces that its forward pass is through with,"""
        self._passing: set[int] = set()
        """and ranks that compute a piece of it."""
        self._wires = network
        self._has_age = sums_have_ages(job)
        self._timeline = Timeline()
        self._network = VirtualNetwork(
            self._timeline,
            network,
            self._cross,
            self._order,
            self._priority if in_turn else None,
            wire_bytes=job.wire_bytes,
            loss_ratio=loss_ratio,
            seed=seed,
            late=late,
        )
        self.dead: set[int] = set()
        """Nodes that were killed."""
        self._outside: set[int] = set()
        """Ranks that were started again, and have not been taken in."""
        self._step_of = [0] * job.world
        self._computing = set(range(job.world))
        self._running = set(range(job.world))
        """Ranks that are alive, have not failed, and are not done."""
        self._at_step: Counter[int] = Counter()
        """Ranks that have come to a step."""
        self._begun_seconds: dict[int, float] = {}
        self._changed_seconds = 0.0
        """When anything but a look at the clock has happened."""
        self._check_seconds = CHECK_SECONDS
        """When all nodes look at the clock next."""
        self.arrived: Callable[[int, int, Sum], None] = lambda _rank, _step, _total: None
        """Is called for each result that is at a rank."""
        self.report: Final = Report()
        """What has become of the job so far."""

    def run(
        self,
        steps: int,
        gradients: Callable[[int, int], Elements],
        compute_seconds: Callable[[int, int], float] = lambda _rank, _step: 0.01,
        losses: Callable[[int, int], float] = lambda _rank, _step: math.nan,
    ) -> Report:
        """Run some steps on every rank, until all are done or have failed.

        Args:
            steps: number of steps, 1 or more.
            gradients: a rank's own, by rank and step: a vector of all elements. It is asked when the rank
                begins to compute: what came before is in `report.results`.
            compute_seconds: computing time by rank and step; infinite: the gradients never come.
            losses: loss of each batch, by rank and step.

        Raises HungError where ranks wait for what will never happen.
        """
        self._steps, self._gradients, self._compute = steps, gradients, compute_seconds
        self._losses = losses
        for node in range(self.job.nodes):
            self._timeline.after(0.0, partial(self._turn, node))
        for rank in range(self.job.world):
            self._timeline.after(0.0, partial(self._compute_step, rank, 0))
        while self._running:
            next_seconds = self._timeline.next_seconds
            if not self._network.is_filled and next_seconds > self.now_seconds:
                self._network.fill()
            elif next_seconds > self._check_seconds:
                self._timeline.now_seconds = self._check_seconds
                self._check(is_anything_to_come=next_seconds < math.inf)
            else:
                self._timeline.go_on()
        self.report.seconds = self.now_seconds
        self.report.most_open_posts = self._network.most_open_posts
        return self.report

    def kill(self, node: int, at_seconds: float) -> None:
        """End a node without a goodbye; its peers hear of it at once, as a kernel closes its connections."""
        self._timeline.after(at_seconds, partial(self.dead.add, node))
        self._timeline.after(at_seconds, partial(self._leave, node, "connection reset"))

    def change(self, network: Wires, at_seconds: float) -> None:
        """From this time on links have the rates of another network."""
        self._timeline.after(at_seconds, partial(self._network.rewire, network))

    def restart(self, rank: int, at_seconds: float, job: Job | None = None) -> None:
        """Restart a rank that was killed, perhaps with another job; it finds all nodes that are there."""
        self._timeline.after(at_seconds, partial(self._restart, rank, job or self.job))

    def _restart(self, rank: int, job: Job) -> None:
        self._network.join(rank)
        self.dead.discard(rank)
        apart = {node for node in self._others(rank) if self._network.are_apart(node, rank)}
        self.nodes[rank] = Node(job, rank, absent=frozenset(self.dead | self.report.errors.keys() | apart))
        self._outside.add(rank)
        self._turn(rank)

    def cut(self, nodes: Collection[int], at_seconds: float) -> None:
        """Break the links between these nodes and the others; the break shows only by silence."""
        self._timeline.after(at_seconds, partial(self._network.part, frozenset(nodes)))
        for node in nodes:
            for other in {*range(self.job.nodes)} - {*nodes}:
                for target, lost in ((other, node), (node, other)):
                    call = self._losing(target, lost, "silent for too long")
                    self._timeline.after(at_seconds + SILENCE_SECONDS, partial(self._happen, target, call))

    def _leave(self, node: int, reason: str) -> None:
        """Its connections are closed, and all others are told why."""
        self._running.discard(node)
        others = [other for other in self._others(node) if not self._network.are_apart(node, other)]
        self._network.part(frozenset({node}))
        for other in others:
            call = self._losing(other, node, reason)
            self._timeline.after(self._wires.delay_seconds(node, other), partial(self._happen, other, call))

    # The nodes

    def _order(self, send: Post) -> int:
        """In which order switches serve what is sent, and the carrier sends it."""
        if send.stage is Stage.LATER:
            return MOST_STEPS * self._classes
        order = send.layer * self._classes // len(self.job.layers)
        # older sums first, as the carrier has it
        return order + (send.round_number // EPOCHS * self._classes if self._waits_by_piece else 0)

    def _priority(self, send: Post) -> int:
        return priority_of(send, has_age=self._has_age)

    def _cross(self, number: int, crossing: Crossing) -> None:
        self._happen(number, lambda: self.nodes[number].crossed(crossing, self.now_ns))

    def _happen(self, number: int, call: Callable[[], None]) -> None:
        """Something at a node, and what it then wants done."""
        if number in self.dead or self.nodes[number].error is not None:
            return
        self._changed_seconds = self.now_seconds
        call()
        self._turn(number)

    def _turn(self, number: int) -> None:
        node = self.nodes[number]
        self._say_words(node)
        self.report.losses += node.take_losses()
        if node.error is not None:
            self.report.errors[number] = node.error
            self.report.failed_seconds[number] = self.now_seconds
            self._leave(number, node.goodbye)
            return
        self._note_view(number, node.view)
        for key in node.take_withdrawals():
            self._network.withdraw(number, key)
        for post in node.take_posts():
            self._network.post(number, post)
        self._say_words(node)
        for step, total in node.take_arrived():
            self.report.steps[total] = step
            self.arrived(number, step, total)
            self._there[number].add(total.piece)
        if number in self._outside and node.first_step is not None and node.has_caught_up:
            self._enter(number, node.first_step)
        if number in self._running - self._computing:
            step = self._step_of[number]
            if self._waits_by_piece and step < self._steps:
                self._pass(number, step + 1)
            may_begin = not self._waits_by_piece or self._passed[number] == len(self.job.pieces)
            if step < self._steps and may_begin and node.may_compute(step + 1):
                self._compute_step(number, step + 1)
            elif step == self._steps and node.is_drained:
                self._running.discard(number)

    def _say_words(self, node: Node) -> None:
        for word in node.take_words():
            for other in self._others(node.number):
                delay_seconds = self._wires.delay_seconds(node.number, other)
                self._timeline.after(delay_seconds, partial(self._tell, self.nodes[other], node, word))

    def _note_view(self, number: int, view: View | None) -> None:
        views = self.report.views.setdefault(number, [(0.0, View(frozenset(), {}, is_star=False))])
        if view is not None and view is not views[-1][1]:
            views.append((self.now_seconds, view))

    def _enter(self, rank: int, step: int) -> None:
        self._outside.discard(rank)
        if step <= self._steps:
            self._running.add(rank)
            self._compute_step(rank, step)

    def _losing(self, number: int, peer: int, reason: str) -> Callable[[], None]:
        return lambda: self.nodes[number].lost(peer, reason, self.now_ns)

    def _tell(self, node: Node, peer: Node, word: bytes) -> None:
        is_now = self.nodes[node.number] is node and self.nodes[peer.number] is peer  # none was started again
        if is_now and not self._network.are_apart(node.number, peer.number):
            self._happen(node.number, lambda: node.told(peer.number, word, self.now_ns))

    def _check(self, *, is_anything_to_come: bool) -> None:
        """All nodes look at the clock."""
        patience_seconds = self.job.deadline_seconds + HUNG_SECONDS
        if not is_anything_to_come and self.now_seconds > self._changed_seconds + patience_seconds:
            raise HungError(f"ranks {sorted(self._running)} wait since {self._changed_seconds:g} s")
        self._check_seconds += CHECK_SECONDS
        for number, node in enumerate(self.nodes):
            if number not in self.dead and node.error is None:
                if node.wants_arrivals(self.now_ns):
                    node.measure(self._network.arriving(number), self.now_ns)
                node.check(self.now_ns)
                self._turn(number)

    def _pass(self, number: int, step: int) -> None:
        """Go on with a forward pass, where the sum of its next piece has come."""
        if number in self._passing or self._passed[number] not in self._there[number]:
            return
        self._passing.add(number)
        seconds = 0.0 if step == self._steps else self._compute(number, step) * (1 - self._backward_share)

        def go_on() -> None:
            self._passing.discard(number)
            self._passed[number] += 1

        self._timeline.after(seconds / len(self.job.pieces), lambda: self._happen(number, go_on))

    def _compute_step(self, number: int, step: int) -> None:
        is_passed, self._passed[number] = self._passed[number] > 0, 0
        self._there[number].clear()
        self._step_of[number] = step
        self._computing.add(number)
        self._at_step[step] += 1
        if step and self._at_step[step] == self.job.world:
            self.report.step_seconds.append(self.now_seconds - self._begun_seconds[step - 1])
        if step == self._steps:
            self._computing.discard(number)
            zeros = np.zeros(self.job.elements, self.job.element_type)
            result = self.report.results[number, step] = np.full_like(zeros, np.nan)
            self._happen(number, lambda: self.nodes[number].drain(step, zeros, result, self.now_ns))
            return
        self._begun_seconds.setdefault(step, self.now_seconds)
        own = np.ascontiguousarray(self._gradients(number, step), self.job.element_type)
        result = self.report.results[number, step] = np.full_like(own, np.nan)
        seconds, count = self._compute(number, step), len(self.job.pieces)
        backward_share = self._backward_share
        ahead_share = 0.0 if is_passed else 1 - backward_share
        for piece in range(count):
            call = partial(self._computed, self.nodes[number], step, piece, own, result, seconds)
            self._timeline.after(seconds * (ahead_share + backward_share * (1 - piece / count)), call)

    def _computed(
        self, node: Node, step: int, piece: int, own: Elements, result: Elements, seconds: float
    ) -> None:
        def call() -> None:
            node.ready(step, (piece,), own, result, self.now_ns)
            if piece == 0:
                self._computing.discard(node.number)
                loss = self._losses(node.number, step)
                node.computed(step, loss, seconds, own, result, self.now_ns)

        if self.nodes[node.number] is node:
            self._happen(node.number, call)

    def _others(self, node: int) -> Iterable[int]:
        return (other for other in range(self.job.nodes) if other != node)

    @property
    def now_ns(self) -> int:
        """Virtual time since the beginning, in ns."""
        return round(self.now_seconds * NANOSECONDS)

    @property
    def now_seconds(self) -> float:
        """Virtual time since the beginning."""
        return self._timeline.now_seconds
