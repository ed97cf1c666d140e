"""A job in virtual time: the nodes of production, and a network of max-min fair links between them.

    job = make_job([("conv", 500_000), ("head", 20_000)], world=4, loss_bound=0.1)
    report = VirtualJob(job, Network(1e9, 50e-6), seed=7).run(3, gradients)

The same seed gives the same run. It tells how long exchanges take where links are the bottleneck, and what
becomes of a job whose nodes die or whose links break.
"""

import heapq
import itertools
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import numpy as np

from mltswitch.training.axes import Crossing, Direction, Elements, Key, Post, Range, Stage, Sum
from mltswitch.training.errors import TrainingError
from mltswitch.training.job import Job
from mltswitch.training.node import Node
from mltswitch.training.sums import EPOCHS, MOST_STEPS, Loss
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

PACKET_BYTES: Final = 1_448
"""Of elements in a packet."""
SILENCE_SECONDS: Final = 10.0
"""Until a node that does not answer counts as lost, as agents have it."""
CHECK_SECONDS: Final = 1.0
HUNG_SECONDS: Final = 60.0
"""Past a job's deadline: if nothing has happened until then, nothing ever will."""
ROUNDING: Final = 1e-9
"""Share of its bits, and that many bits more, that a flow may be short of when it ends."""

LEAST_BPS: Final = 1e-3
"""What rounding leaves of a full link."""


class Wires(Protocol):
    """A network as flows pass it: one switch (`Network`), or a fabric."""

    def way(self, source: int, target: int) -> tuple[Hashable, ...]:
        """The links from one node to another, by whatever names; the same each time."""

    def rate_bps(self, link: Hashable) -> float:
        """Of a link, in its one direction."""

    def delay_seconds(self, source: int, target: int) -> float:
        """From one node to another."""


class HungError(AssertionError):
    """Ranks wait, and nothing is left to happen: a fault of the code."""


@dataclass(slots=True)
class Report:
    """What became of a job in virtual time."""

    results: dict[tuple[int, int], Elements] = field(default_factory=dict)
    """All elements of what a step brought, by (rank, step), and after the last step what draining brought;
    NaN where no result has come."""
    errors: dict[int, TrainingError] = field(default_factory=dict)
    """By node."""
    failed_seconds: dict[int, float] = field(default_factory=dict)
    """When these nodes gave up."""
    losses: list[Loss] = field(default_factory=list)
    steps: dict[Sum, int] = field(default_factory=dict)
    """In which step the ranks gave their part of a sum."""
    step_seconds: list[float] = field(default_factory=list)
    """From when the first rank begins to compute to when the last one may begin the next step."""
    views: dict[int, list[tuple[float, frozenset[int]]]] = field(default_factory=dict)
    """Of each node, when it has gone on after a fault, and without whom."""
    seconds: float = 0.0
    most_open_posts: int = 0
    """Of one node at a time."""


@dataclass(slots=True, eq=False)
class _Flow:
    """A tensor on its way."""

    source: int
    target: int
    send: Post
    receive: Post
    missing: tuple[Range, ...]
    checksum: int
    """Of what is sent: its memory is the carrier's until it has crossed."""
    is_withdrawn: bool = False


@dataclass(slots=True, eq=False)
class Pair:
    """All flows from one node to another that switches serve alike: they go equally fast."""

    source: int
    target: int
    order: int
    """Those of a lower number are served before it."""
    links: tuple[Hashable, ...]
    """Names of the links that each of these flows passes."""
    rate_bps: float = 0.0
    """Of each flow."""
    carried_bits: float = 0.0
    """For each flow that has been there all the time."""
    flows: list[tuple[float, int, _Flow]] = field(default_factory=list)
    """A heap: where `carried_bits` will be when a flow ends, a tie-breaker, and the flow."""


class VirtualJob:
    """All nodes of a job, run once.

    Args:
        job: what the nodes agree on.
        network: between the nodes.
        loss_ratio: of packets; a lossy receive goes without what is lost, up to its bound, and the rest is
            sent again.
        seed: of what is lost.
        parameters: at the start, where roots keep them.
        backward_share: of computing, in which gradients become ready, the last piece first; 0: at its end.
        waits_by_piece: whether a forward pass waits for each piece when it comes to it, and not for all of
            them before it begins; of a synchronization whose steps wait for all sums.
        classes: in which gradients travel, front layers in those that are served first.
    """

    def __init__(
        self,
        job: Job,
        network: Wires,
        *,
        loss_ratio: float = 0.0,
        seed: int = 0,
        parameters: Elements | None = None,
        backward_share: float = 1.0,
        waits_by_piece: bool = False,
        classes: int = 1,
    ) -> None:
        self.job: Final = job
        self.nodes: Final = [Node(job, number, parameters) for number in range(job.nodes)]
        self._backward_share = backward_share
        self._waits_by_piece, self._classes = waits_by_piece, classes
        self._there: list[set[int]] = [set() for _ in range(job.world)]
        """Of each rank, pieces of its last step whose sums have come,"""
        self._passed = [0] * job.world
        """pieces that its forward pass is through with,"""
        self._passing: set[int] = set()
        """and ranks that compute a piece of it."""
        self.now_seconds = 0.0
        self._network = network
        self._loss_ratio = loss_ratio
        self._random = np.random.default_rng(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._waiting: dict[tuple[int, int, int, int], Post] = {}
        """Posts whose other end is not there yet, by source, target, tensor and round."""
        self._open_posts: defaultdict[int, set[Key]] = defaultdict(set)
        self._flows: dict[tuple[int, int, int, int], _Flow] = {}
        """Posts that have met, until they have crossed."""
        self._withdrawn: set[tuple[int, int, int, int]] = set()
        """Those of which one end was withdrawn before the other one came."""
        self._pairs: dict[tuple[int, int, int], Pair] = {}
        """Those that have flows."""
        self._moved_seconds = 0.0
        self._is_filled = True
        """Whether the rates are those of the flows that are there."""
        self._filling = 0
        self._dead: set[int] = set()
        """Nodes that were killed."""
        self._parts: list[frozenset[int]] = []
        """Nodes that others do not reach any more."""
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
            steps: 1 or more.
            gradients: a rank's own, by rank and step: a vector of all elements. It is asked when the rank
                begins to compute: what came before is in `report.results`.
            compute_seconds: until they are there, by rank and step; infinite: never.
            losses: of each rank's batches, by rank and step.

        Raises HungError where ranks wait for what will never happen.
        """
        self._steps, self._gradients, self._compute = steps, gradients, compute_seconds
        self._losses = losses
        for node in range(self.job.nodes):
            self._after(0.0, partial(self._turn, node))
        for rank in range(self.job.world):
            self._after(0.0, partial(self._compute_step, rank, 0))
        while self._running:
            next_seconds = self._events[0][0] if self._events else math.inf
            if not self._is_filled and next_seconds > self.now_seconds:
                self._fill()
            elif next_seconds > self._check_seconds:
                self.now_seconds = self._check_seconds
                self._check(is_anything_to_come=next_seconds < math.inf)
            else:
                self.now_seconds, _, call = heapq.heappop(self._events)
                call()
        self.report.seconds = self.now_seconds
        return self.report

    def kill(self, node: int, at_seconds: float) -> None:
        """End a node without a word; its peers hear of it at once, as a kernel closes connections."""
        self._after(at_seconds, partial(self._dead.add, node))
        self._after(at_seconds, partial(self._leave, node, "connection reset"))

    def cut(self, nodes: Collection[int], at_seconds: float) -> None:
        """Break the links between these and the others: nobody hears of that until the silence is noticed."""
        self._after(at_seconds, partial(self._part, frozenset(nodes)))
        for node in nodes:
            for other in {*range(self.job.nodes)} - {*nodes}:
                for target, lost in ((other, node), (node, other)):
                    call = self._losing(target, lost, "silent for too long")
                    self._after(at_seconds + SILENCE_SECONDS, partial(self._happen, target, call))

    # The network

    def _post(self, node: int, post: Post) -> None:
        """One end of a crossing; it begins when the other one is there, too."""
        self._open_posts[node].add(post.key)
        self.report.most_open_posts = max(self.report.most_open_posts, len(self._open_posts[node]))
        is_send = post.direction is Direction.SEND
        source, target = (node, post.peer) if is_send else (post.peer, node)
        key = (source, target, post.tensor, post.round_number)
        other = self._waiting.pop(key, None)
        if other is None and key in self._withdrawn:
            self._withdrawn.remove(key)
            self._after(0.0, partial(self._end_withdrawn, node, post.key))
            return
        if other is None:
            self._waiting[key] = post
            return
        if other.direction is post.direction:
            raise AssertionError(f"two posts to {post.direction} {key}")
        send, receive = (post, other) if is_send else (other, post)
        if send.loss_bound != receive.loss_bound:
            raise AssertionError(f"the ends of {key} differ in what may be lost")
        if self._are_apart(source, target):
            return
        missing, arriving_share = self._lost(receive)
        element_bytes = self.job.wire_bytes if send.is_short else send.data.itemsize
        bits = len(send.data) * element_bytes * BITS_PER_BYTE * (arriving_share + self._loss_ratio)
        self._move()
        order = send.layer * self._classes // len(self.job.layers)
        if self._waits_by_piece:  # older sums first, as the carrier has it
            order += send.round_number // EPOCHS * self._classes
        if send.stage is Stage.LATER:
            order = MOST_STEPS * self._classes
        way = self._network.way(source, target)
        pair = self._pairs.setdefault((source, target, order), Pair(source, target, order, way))
        receive.data.fill(np.nan)
        flow = _Flow(source, target, send, receive, missing, zlib.crc32(send.data.data))
        self._flows[key] = flow
        heapq.heappush(pair.flows, (pair.carried_bits + bits, next(self._order), flow))
        self._is_filled = False

    def _lost(self, receive: Post) -> tuple[tuple[Range, ...], float]:
        """Elements that a receive goes without, and the share that arrives."""
        if not receive.loss_bound or not self._loss_ratio:
            return (), 1.0
        count, per_packet = len(receive.data), PACKET_BYTES // self.job.wire_bytes
        lost = np.flatnonzero(self._random.random(-(-count // per_packet)) < self._loss_ratio)
        self._random.shuffle(lost)
        ranges = [(first, min(count, first + per_packet)) for first in (lost * per_packet).tolist()]
        missing = itertools.accumulate(end - first for first, end in ranges)
        left_out = sum(elements <= receive.loss_bound * count for elements in missing)
        arriving = count - sum(end - first for first, end in ranges[:left_out])
        return tuple(sorted(ranges[:left_out])), arriving / count

    def _move(self) -> None:
        """Let all flows have gone on until now."""
        elapsed = self.now_seconds - self._moved_seconds
        if elapsed:
            for pair in self._pairs.values():
                pair.carried_bits += pair.rate_bps * elapsed
            self._moved_seconds = self.now_seconds

    def _fill(self) -> None:
        """Rates for the flows that are there, and an event for when the first one ends."""
        self._move()
        self._is_filled = True
        self._filling += 1
        if self._pairs:
            fill(self._pairs.values(), self._network.rate_bps)
            seconds, key = min(
                (max(0.0, pair.flows[0][0] - pair.carried_bits) / pair.rate_bps, key)
                for key, pair in self._pairs.items()
                if pair.rate_bps > LEAST_BPS
            )
            self._after(seconds, partial(self._end_flows, self._filling, key))

    def _end_flows(self, filling: int, first: tuple[int, int, int]) -> None:
        """The first flow of a pair ends, and all that end with it."""
        if filling != self._filling:
            return  # others have begun or ended meanwhile
        self._move()
        self._pairs[first].carried_bits = max(self._pairs[first].carried_bits, self._pairs[first].flows[0][0])
        for key, pair in [*self._pairs.items()]:
            until_bits = pair.carried_bits * (1 + ROUNDING) + ROUNDING
            while pair.flows and pair.flows[0][0] <= until_bits:
                flow = heapq.heappop(pair.flows)[2]
                delay_seconds = self._network.delay_seconds(flow.source, flow.target)
                self._after(delay_seconds, partial(self._deliver, flow))
            if not pair.flows:
                del self._pairs[key]
        self._is_filled = False

    def _deliver(self, flow: _Flow) -> None:
        if self._are_apart(flow.source, flow.target) or flow.is_withdrawn:
            return
        del self._flows[flow.source, flow.target, flow.send.tensor, flow.send.round_number]
        if zlib.crc32(flow.send.data.data) != flow.checksum:
            raise AssertionError(f"{flow.send.key} has changed on its way")
        np.copyto(flow.receive.data, flow.send.data)
        for first, end in flow.missing:
            flow.receive.data[first:end] = 0
        for number, crossing in (
            (flow.target, Crossing(flow.receive.key, flow.missing)),
            (flow.source, Crossing(flow.send.key)),
        ):
            self._open_posts[number].discard(crossing.key)
            self._happen(number, partial(self.nodes[number].crossed, crossing, self.now_ns))

    def _withdraw(self, node: int, key: Key) -> None:
        """One end of a crossing is over at once, and the other one when it hears of that."""
        direction, peer, tensor, round_number = key
        is_send = direction is Direction.SEND
        way = (node, peer, tensor, round_number) if is_send else (peer, node, tensor, round_number)
        flow = self._flows.pop(way, None)
        if flow is not None:
            flow.is_withdrawn = True
            self._move()
            for pair in [*self._pairs.values()]:
                pair.flows = [entry for entry in pair.flows if entry[2] is not flow]
                heapq.heapify(pair.flows)
            self._pairs = {name: pair for name, pair in self._pairs.items() if pair.flows}
            self._is_filled = False
            other = flow.receive if is_send else flow.send
            if not self._are_apart(node, peer):
                delay_seconds = self._network.delay_seconds(node, peer)
                self._after(delay_seconds, partial(self._end_withdrawn, peer, other.key))
        elif self._waiting.pop(way, None) is not None:
            self._withdrawn.add(way)
        self._after(0.0, partial(self._end_withdrawn, node, key))

    def _end_withdrawn(self, node: int, key: Key) -> None:
        if key in self._open_posts[node]:
            self._open_posts[node].remove(key)
            crossing = Crossing(key, error=TrainingError("withdrawn"), is_withdrawn=True)
            self._happen(node, lambda: self.nodes[node].crossed(crossing, self.now_ns))

    def _are_apart(self, node: int, other: int) -> bool:
        """Whether nothing gets from one to the other."""
        return any((node in part) != (other in part) for part in self._parts)

    def _part(self, nodes: frozenset[int]) -> None:
        self._move()
        self._parts.append(nodes)
        self._pairs = {key: pair for key, pair in self._pairs.items() if not self._are_apart(*key[:2])}
        self._is_filled = False

    def _leave(self, node: int, reason: str) -> None:
        """Its connections are closed, and all others are told why."""
        self._running.discard(node)
        others = [other for other in self._others(node) if not self._are_apart(node, other)]
        self._part(frozenset({node}))
        for other in others:
            call = self._losing(other, node, reason)
            self._after(self._network.delay_seconds(node, other), partial(self._happen, other, call))

    # The nodes

    def _happen(self, number: int, call: Callable[[], None]) -> None:
        """Something at a node, and what it then wants done."""
        if number in self._dead or self.nodes[number].error is not None:
            return
        self._changed_seconds = self.now_seconds
        call()
        self._turn(number)

    def _turn(self, number: int) -> None:
        node = self.nodes[number]
        for word in node.take_words():
            for other in self._others(number):
                delay_seconds = self._network.delay_seconds(number, other)
                self._after(delay_seconds, partial(self._tell, other, number, word))
        self.report.losses += node.take_losses()
        if node.error is not None:
            self.report.errors[number] = node.error
            self.report.failed_seconds[number] = self.now_seconds
            self._leave(number, node.goodbye)
            return
        views = self.report.views.setdefault(number, [(0.0, frozenset())])
        if node.agreed != views[-1][1]:
            views.append((self.now_seconds, node.agreed))
        for key in node.take_withdrawals():
            self._withdraw(number, key)
        for post in node.take_posts():
            self._post(number, post)
        for step, total in node.take_arrived():
            self.report.steps[total] = step
            self.arrived(number, step, total)
            self._there[number].add(total.piece)
        if number in self._running - self._computing:
            step = self._step_of[number]
            if self._waits_by_piece and step < self._steps:
                self._pass(number, step + 1)
            may_begin = not self._waits_by_piece or self._passed[number] == len(self.job.pieces)
            if step < self._steps and may_begin and node.may_compute(step + 1):
                self._compute_step(number, step + 1)
            elif step == self._steps and node.is_drained:
                self._running.discard(number)

    def _losing(self, number: int, peer: int, reason: str) -> Callable[[], None]:
        return lambda: self.nodes[number].lost(peer, reason, self.now_ns)

    def _tell(self, number: int, peer: int, word: bytes) -> None:
        if not self._are_apart(number, peer):
            self._happen(number, lambda: self.nodes[number].told(peer, word, self.now_ns))

    def _check(self, *, is_anything_to_come: bool) -> None:
        """All nodes look at the clock."""
        patience_seconds = self.job.deadline_seconds + HUNG_SECONDS
        if not is_anything_to_come and self.now_seconds > self._changed_seconds + patience_seconds:
            raise HungError(f"ranks {sorted(self._running)} wait since {self._changed_seconds:g} s")
        self._check_seconds += CHECK_SECONDS
        for number, node in enumerate(self.nodes):
            if number not in self._dead and node.error is None:
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

        self._after(seconds / len(self.job.pieces), lambda: self._happen(number, go_on))

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
            call = partial(self._computed, number, step, piece, own, result, seconds)
            self._after(seconds * (ahead_share + backward_share * (1 - piece / count)), call)

    def _computed(
        self, number: int, step: int, piece: int, own: Elements, result: Elements, seconds: float
    ) -> None:
        node = self.nodes[number]

        def call() -> None:
            node.ready(step, (piece,), own, result, self.now_ns)
            if piece == 0:
                self._computing.discard(number)
                node.computed(step, self._losses(number, step), seconds, own, result, self.now_ns)

        self._happen(number, call)

    def _others(self, node: int) -> Iterable[int]:
        return (other for other in range(self.job.nodes) if other != node)

    @property
    def now_ns(self) -> int:
        """Virtual time since the beginning, in ns."""
        return round(self.now_seconds * NANOSECONDS)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_seconds + seconds, next(self._order), call))


def fill(pairs: Iterable[Pair], rate_bps: Callable[[Hashable], float]) -> None:
    """Rates of flows, as switches serve classes: each gets what those before it leave.

    Within a class, flows share max-min fairly: the fullest link is shared first. `overlay.engine` does so for
    single flows by the hundred thousand; here pairs of nodes have many, and are few.
    """
    left: dict[Hashable, float] = {}
    ordered = sorted(pairs, key=lambda pair: pair.order)
    for _, members in itertools.groupby(ordered, key=lambda pair: pair.order):
        pairs_of: defaultdict[Hashable, list[Pair]] = defaultdict(list)
        for pair in members:
            pair.rate_bps = -1.0 if pair.links else math.inf  # within a host: at once
            for link in pair.links:
                pairs_of[link].append(pair)
        users = {link: sum(len(pair.flows) for pair in sharing) for link, sharing in pairs_of.items()}
        left |= {link: rate_bps(link) for link in users if link not in left}
        while users:
            fullest = min(users, key=lambda link: left[link] / users[link])
            share = max(0.0, left[fullest] / users[fullest])
            for pair in pairs_of[fullest]:
                if pair.rate_bps < 0:
                    pair.rate_bps = share
                    for link in pair.links:
                        left[link] -= share * len(pair.flows)
                        users[link] -= len(pair.flows)
                        if not users[link]:
                            del users[link]
