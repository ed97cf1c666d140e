"""A job in virtual time: the nodes of production, and a network of max-min fair links between them.

    job = make_job([("conv", 500_000), ("head", 20_000)], world=4, loss_bound=0.1)
    report = VirtualJob(job, Network(1e9, 50e-6), seed=7).run(3, gradients)

The same seed gives the same run. It tells how long exchanges take where links are the bottleneck, and what
becomes of a job whose nodes die or whose links break.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from mltswitch.training.axes import Crossing, Direction, Elements, Network, Post, Range
from mltswitch.training.errors import NodeLostError, TrainingError
from mltswitch.training.job import ELEMENT_BYTES, Job
from mltswitch.training.node import Loss, Node
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

PACKET_BYTES: Final = 1_448
"""Of elements in a packet."""
SILENCE_SECONDS: Final = 10.0
"""Until a node that does not answer counts as lost, as agents have it."""
CHECK_SECONDS: Final = 1.0
LEAST_BITS: Final = 1e-3
"""What rounding leaves of a flow that has ended."""
LONGEST_SECONDS: Final = 1e7
"""Of virtual time: whatever lasts longer hangs."""


class HungError(AssertionError):
    """Ranks wait, and nothing is left to happen: a fault of the code."""


@dataclass(slots=True)
class Report:
    """What became of a job in virtual time."""

    results: dict[tuple[int, int], Elements] = field(default_factory=dict)
    """All elements after a step, by (rank, step)."""
    errors: dict[int, TrainingError] = field(default_factory=dict)
    """By node."""
    losses: list[Loss] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    """From when the first rank begins to compute to when the last one has all results."""
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class _Flow:
    """A tensor on its way."""

    source: int
    target: int
    send: Post
    receive: Post
    missing: tuple[Range, ...]
    bits_left: float
    rate_bps: float = 0.0


@dataclass(slots=True, eq=False)
class _Rank:
    """How far a rank is."""

    step: int = 0
    own: Elements = field(default_factory=lambda: np.empty(0))
    result: Elements = field(default_factory=lambda: np.empty(0))


class VirtualJob:
    """All nodes of a job, run once.

    Args:
        job: what the nodes agree on.
        network: every node's link.
        loss_ratio: of packets; a lossy receive goes without what is lost, up to its bound, and the rest is
            sent again.
        seed: of what is lost.
    """

    def __init__(self, job: Job, network: Network, *, loss_ratio: float = 0.0, seed: int = 0) -> None:
        self.job: Final = job
        self.nodes: Final = [Node(job, number) for number in range(job.nodes)]
        self.now_seconds = 0.0
        self._network = network
        self._loss_ratio = loss_ratio
        self._random = np.random.default_rng(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._waiting: dict[tuple[int, int, int, int], Post] = {}
        """Posts whose other end is not there yet, by source, target, tensor and round."""
        self._flows: list[_Flow] = []
        self._flows_moved_seconds = 0.0
        self._filling = 0
        self._silent: set[int] = set()
        """Nodes that nothing reaches any more."""
        self._killed: set[int] = set()
        self._ranks = [_Rank() for _ in range(job.world)]
        self._begun_seconds: dict[int, float] = {}
        self._report = Report()

    def run(
        self,
        steps: int,
        gradients: Callable[[int, int], Elements],
        compute_seconds: Callable[[int, int], float] = lambda _rank, _step: 0.01,
    ) -> Report:
        """Run some steps on every rank, until all are done or have failed.

        Args:
            steps: 1 or more.
            gradients: a rank's own, by rank and step: a vector of all elements.
            compute_seconds: until they are there, by rank and step; the last piece comes first.

        Raises HungError where ranks wait for what will never happen.
        """
        self._steps, self._gradients, self._compute = steps, gradients, compute_seconds
        for node in range(self.job.nodes):
            self._after(0.0, partial(self._turn, node))
            self._after(CHECK_SECONDS, partial(self._check, node))
        for rank in range(self.job.world):
            self._after(0.0, partial(self._compute_step, rank, 0))
        while self._running and self._events and self.now_seconds < LONGEST_SECONDS:
            self.now_seconds, _, call = heapq.heappop(self._events)
            call()
        if self._running:
            raise HungError(f"ranks {self._running} wait for ever, since {self.now_seconds:g} s")
        self._report.seconds = self.now_seconds
        return self._report

    def kill(self, node: int, at_seconds: float) -> None:
        """End a node without a word; its peers hear of it at once, as a kernel closes connections."""
        self._after(at_seconds, partial(self._killed.add, node))
        self._after(at_seconds, partial(self._leave, node, "connection reset"))

    def cut(self, node: int, at_seconds: float) -> None:
        """Break a node's link: nobody hears of anybody until the silence is noticed."""
        self._after(at_seconds, partial(self._fall_silent, node))
        others = [other for other in range(self.job.nodes) if other != node]
        for target, lost in [*((other, node) for other in others), *((node, other) for other in others)]:
            self._after(
                at_seconds + SILENCE_SECONDS, partial(self._lose, target, lost, "silent for too long")
            )

    # The network

    def _post(self, node: int, post: Post) -> None:
        """One end of a crossing; it begins when the other one is there, too."""
        is_send = post.direction is Direction.SEND
        source, target = (node, post.peer) if is_send else (post.peer, node)
        key = (source, target, post.tensor, post.round_number)
        other = self._waiting.pop(key, None)
        if other is None:
            self._waiting[key] = post
            return
        if other.direction is post.direction:
            raise AssertionError(f"two posts to {post.direction} {key}")
        send, receive = (post, other) if is_send else (other, post)
        if self._silent & {source, target}:
            return
        missing, arriving_share = self._lost(receive)
        bits = send.data.nbytes * BITS_PER_BYTE * (arriving_share + self._loss_ratio)
        self._move_flows()
        self._flows.append(_Flow(source, target, send, receive, missing, bits))
        self._fill()

    def _lost(self, receive: Post) -> tuple[tuple[Range, ...], float]:
        """Elements that a receive goes without, and the share that arrives."""
        if not receive.loss_bound or not self._loss_ratio:
            return (), 1.0
        per_packet = PACKET_BYTES // ELEMENT_BYTES[self.job.element_type]
        packets = -(-len(receive.data) // per_packet)
        lost = int(self._random.binomial(packets, self._loss_ratio))
        count = min(lost, int(packets * receive.loss_bound))
        chosen = sorted(self._random.choice(packets, count, replace=False).tolist())
        ranges = ((first * per_packet, min(len(receive.data), (first + 1) * per_packet)) for first in chosen)
        return tuple(ranges), 1 - count / packets

    def _move_flows(self) -> None:
        """Let all flows have gone on until now."""
        elapsed = self.now_seconds - self._flows_moved_seconds
        for flow in self._flows:
            flow.bits_left -= flow.rate_bps * elapsed
        self._flows_moved_seconds = self.now_seconds

    def _fill(self) -> None:
        """Rates for the flows that are there, and an event for when the first one ends."""
        fill(self._flows, self._network.link_bps)
        self._filling += 1
        if self._flows:
            first = min(max(0.0, flow.bits_left) / flow.rate_bps for flow in self._flows)
            self._after(first, partial(self._end_flows, self._filling))

    def _end_flows(self, filling: int) -> None:
        if filling != self._filling:
            return  # others have begun or ended meanwhile
        self._move_flows()
        ended = [flow for flow in self._flows if flow.bits_left <= LEAST_BITS]
        self._flows = [flow for flow in self._flows if flow.bits_left > LEAST_BITS]
        self._fill()
        for flow in ended:
            self._after(self._network.latency_seconds, partial(self._deliver, flow))

    def _deliver(self, flow: _Flow) -> None:
        if self._silent & {flow.source, flow.target}:
            return
        np.copyto(flow.receive.data, flow.send.data)
        for first, end in flow.missing:
            flow.receive.data[first:end] = 0
        for number, crossing in (
            (flow.target, Crossing(flow.receive.key, flow.missing)),
            (flow.source, Crossing(flow.send.key)),
        ):
            if self.nodes[number].error is None:
                self.nodes[number].crossed(crossing, self._now_ns)
                self._turn(number)

    def _fall_silent(self, node: int) -> None:
        self._move_flows()
        self._silent.add(node)
        self._flows = [flow for flow in self._flows if node not in {flow.source, flow.target}]
        self._fill()

    def _leave(self, node: int, reason: str) -> None:
        """Its connections are closed, and all others are told why."""
        if node in self._silent:
            return
        self._fall_silent(node)
        for other in range(self.job.nodes):
            if other != node:
                self._after(self._network.latency_seconds, partial(self._lose, other, node, reason))

    # The nodes

    def _lose(self, number: int, peer: int, reason: str) -> None:
        self.nodes[number].lost(peer, NodeLostError(reason, where=self.job.node_name(peer)))
        self._turn(number)

    def _turn(self, number: int) -> None:
        """Do what a node wants done."""
        node = self.nodes[number]
        if number in self._killed or number in self._report.errors:
            return
        for word in node.take_words():
            for other in range(self.job.nodes):
                if other != number:
                    self._after(self._network.latency_seconds, partial(self._tell, other, number, word))
        if node.error is not None:
            self._report.errors[number] = node.error
            self._leave(number, str(node.error))
            return
        for post in node.take_posts():
            self._post(number, post)
        self._report.losses += node.take_losses()
        if number < self.job.world:
            self._take_results(number)

    def _take_results(self, number: int) -> None:
        node, rank = self.nodes[number], self._ranks[number]
        for exchange, piece in node.take_arrived():
            place = self.job.pieces[piece].elements
            self._report.results[number, exchange.step][place] = rank.result[place]
        if rank.step < self._steps and node.may_compute(rank.step + 1) and node.is_over(rank.step):
            self._compute_step(number, rank.step + 1)

    def _tell(self, number: int, peer: int, word: bytes) -> None:
        if not {number, peer} & self._silent:
            self.nodes[number].told(peer, word, self._now_ns)
            self._turn(number)

    def _check(self, number: int) -> None:
        self.nodes[number].check(self._now_ns)
        self._turn(number)
        self._after(CHECK_SECONDS, partial(self._check, number))

    def _compute_step(self, number: int, step: int) -> None:
        rank = self._ranks[number]
        rank.step = step
        if step and all(other.step >= step for other in self._ranks):
            self._report.step_seconds.append(self.now_seconds - self._begun_seconds[step - 1])
        if step == self._steps:
            return
        self._begun_seconds.setdefault(step, self.now_seconds)
        rank.own = np.ascontiguousarray(self._gradients(number, step), self.job.element_type)
        rank.result = np.full_like(rank.own, np.nan)
        self._report.results[number, step] = np.full_like(rank.own, np.nan)
        seconds, count = self._compute(number, step), len(self.job.pieces)
        for piece in range(count):
            self._after(seconds * (count - piece) / count, partial(self._computed, number, step, piece))

    def _computed(self, number: int, step: int, piece: int) -> None:
        rank = self._ranks[number]
        if number not in self._killed:
            self.nodes[number].ready(step, (piece,), rank.own, rank.result, self._now_ns)
            self._turn(number)

    @property
    def _now_ns(self) -> int:
        return round(self.now_seconds * NANOSECONDS)

    @property
    def _running(self) -> list[int]:
        """Ranks that are alive, have not failed, and are not done."""
        return [
            number
            for number, rank in enumerate(self._ranks)
            if number not in self._killed and number not in self._report.errors and rank.step < self._steps
        ]

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_seconds + seconds, next(self._order), call))


def fill(flows: list[_Flow], link_bps: float) -> None:
    """Max-min fair rates of flows between nodes with one link each: the fullest link is shared first."""
    left: dict[tuple[str, int], float] = {}
    users: dict[tuple[str, int], int] = {}
    open_flows = [*flows]
    for flow in flows:
        for link in (("up", flow.source), ("down", flow.target)):
            left[link] = link_bps
            users[link] = users.get(link, 0) + 1
    while open_flows:
        share, link = min((left[link] / count, link) for link, count in users.items() if count)
        rest = []
        for flow in open_flows:
            links = (("up", flow.source), ("down", flow.target))
            if link not in links:
                rest.append(flow)
                continue
            flow.rate_bps = share
            for each in links:
                left[each] -= share
                users[each] -= 1
        open_flows = rest
