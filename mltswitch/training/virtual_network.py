"""Carries tensors between nodes in virtual time: sends meet receives, and flows share links max-min fairly.

What one node sends to another leaves all at once, or in turn, as agents send it.
"""

import heapq
import itertools
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import numpy as np

from mltswitch.training.axes import Crossing, Direction, Key, Post, Range
from mltswitch.training.errors import TrainingError
from mltswitch.training.links import Arrival
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

PACKET_BYTES: Final = 1_448
"""Number of bytes of elements that a packet carries."""
ROUNDING: Final = 1e-9
"""Share of a flow's bits, and number of bits beyond that, that may be missing at its end by rounding."""

LEAST_BPS: Final = 1e-3
"""Rate below which a link counts as full: what rounding leaves of it."""


class Wires(Protocol):
    """A network as flows pass it: one switch (`Network`), or a fabric."""

    def way(self, source: int, target: int) -> tuple[Hashable, ...]:
        """The links from one node to another, under any names that are the same each time."""

    def rate_bps(self, link: Hashable) -> float:
        """The rate of a link in its one direction, in bit/s."""

    def delay_seconds(self, source: int, target: int) -> float:
        """Delay from one node to another."""


@dataclass(slots=True, eq=False)
class _Flow:
    """A tensor on its way."""

    source: int
    target: int
    send: Post
    receive: Post
    missing: tuple[Range, ...]
    checksum: int
    """The checksum of what is sent: its memory is the carrier's until it has crossed."""
    left_bits: float = 0.0
    """Where flows go in turn, when it last began to."""
    is_withdrawn: bool = False
    size_bytes: int = 0
    began_ns: int = 0
    ended_ns: int = 0
    """Its last bit has left; it arrives when the way's delay is over."""


@dataclass(slots=True, eq=False)
class Pair:
    """All flows from one node to another of one traffic class, which are equally fast or go one after
    another."""

    source: int
    target: int
    order: int
    """Order of service; pairs with a lower number are served first."""
    links: tuple[Hashable, ...]
    """Names of the links that all these flows pass."""
    in_turn: bool = False
    rate_bps: float = 0.0
    """Rate of each flow that is being sent."""
    carried_bits: float = 0.0
    """Bits carried of each flow that was there all the time; where flows go in turn, of the first since it
    began."""
    flows: list[tuple[float, int, _Flow]] = field(default_factory=list)
    """A heap of flows, each with the `carried_bits` at its end (or, in turn, its priority) and a
    tie-breaker."""

    @property
    def going(self) -> int:
        """Number of flows that are being sent now: all of them, or where they go in turn the first."""
        return min(1, len(self.flows)) if self.in_turn else len(self.flows)

    @property
    def end_bits(self) -> float:
        """The value of `carried_bits` at which the next flow ends."""
        return self.flows[0][2].left_bits if self.in_turn else self.flows[0][0]

    def add(self, flow: _Flow, bits: float, priority: int, tie: int) -> None:
        """Add a flow of this many bits, which waits for its turn or goes with the others."""
        if not self.in_turn:
            heapq.heappush(self.flows, (self.carried_bits + bits, tie, flow))
            return
        before, flow.left_bits = self.flows[:1], bits
        heapq.heappush(self.flows, (priority, tie, flow))
        if before and before != self.flows[:1]:
            before[0][2].left_bits -= self.carried_bits
            self.carried_bits = 0.0

    def pop(self) -> _Flow:
        """Remove the flow that has ended and return it."""
        self.carried_bits = 0.0 if self.in_turn else max(self.carried_bits, self.flows[0][0])
        return heapq.heappop(self.flows)[2]

    def remove(self, flow: _Flow) -> None:
        """Take out a withdrawn flow, so that the others go on."""
        if self.in_turn and self.flows and self.flows[0][2] is flow:
            self.carried_bits = 0.0
        self.flows = [entry for entry in self.flows if entry[2] is not flow]
        heapq.heapify(self.flows)

    def left_bits(self) -> Iterator[tuple[_Flow, float]]:
        """Each flow with the bits of it that have not been carried."""
        for number, (until_bits, _, flow) in enumerate(self.flows):
            carried_bits = self.carried_bits if not (self.in_turn and number) else 0.0
            yield flow, (flow.left_bits if self.in_turn else until_bits) - carried_bits


class Timeline:
    """Scheduled events, in the order of their time, and of scheduling at the same time."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ties = itertools.count()

    @property
    def next_seconds(self) -> float:
        """Time of the next event; infinite: there is none."""
        return self._events[0][0] if self._events else math.inf

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Schedule a call after this many seconds."""
        heapq.heappush(self._events, (self.now_seconds + seconds, next(self._ties), call))

    def go_on(self) -> None:
        """Advance to the next event and run it."""
        self.now_seconds, _, call = heapq.heappop(self._events)
        call()


class VirtualNetwork:
    """The carrier of all nodes in virtual time: takes their posts (transfers) and ends them when the
    tensors have crossed.

    Args:
        timeline: the timeline of events.
        cross: called with a node and the crossing that has ended there.
        order: gives the order of service of a send; lower numbers are served first.
        priority: of what one node sends to another, which leaves in turn, the least first; None: all at once.
        wire_bytes: size of an element that crosses as a shorter type.
        loss_ratio: share of packets lost; a lossy receive goes without them up to its bound, and the rest is
            sent again.
        late: gives the seconds by which the next tensor arrives later than its way's delay says.
    """

    def __init__(
        self,
        timeline: Timeline,
        wires: Wires,
        cross: Callable[[int, Crossing], None],
        order: Callable[[Post], int] = lambda _: 0,
        priority: Callable[[Post], int] | None = None,
        *,
        wire_bytes: int = 4,
        loss_ratio: float = 0.0,
        seed: int = 0,
        late: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._timeline, self._wires, self._cross = timeline, wires, cross
        self._order, self._priority = order, priority
        self._late = late
        self._wire_bytes = wire_bytes
        self._loss_ratio = loss_ratio
        self._random = np.random.default_rng(seed)
        self._ties = itertools.count()
        self._waiting: dict[tuple[int, int, int, int], Post] = {}
        """Posts whose other end is not there yet, by source, target, tensor and round."""
        self._open_posts: defaultdict[int, set[Key]] = defaultdict(set)
        self.most_open_posts = 0
        """The most posts (transfers) that one node had open at a time."""
        self._flows: dict[tuple[int, int, int, int], _Flow] = {}
        """Posts that have met, until they have crossed."""
        self._used: set[tuple[int, Key]] = set()
        """Nodes and keys of all their posts (transfers)."""
        self._withdrawn: set[tuple[int, int, int, int]] = set()
        """Those of which one end was withdrawn before the other one came."""
        self._pairs: dict[tuple[int, int, int], Pair] = {}
        """Those that have flows."""
        self._moved_seconds = 0.0
        self.is_filled = True
        """Whether the rates are those of the flows that are there; else `fill`, before time passes."""
        self._filling = 0
        self._parts: list[frozenset[int]] = []
        """Nodes that others do not reach any more."""

    def post(self, node: int, post: Post) -> None:
        """Accept one end of a transfer, which begins when the other end has been posted, too.

        Raises AssertionError where the two do not fit together, which no nodes should make, and for a key
        that was there before: what is late, or repeated, of that one would count for this.
        """
        if (node, post.key) in self._used:
            raise AssertionError(f"node {node} posts {post.key} again")
        self._used.add((node, post.key))
        self._open_posts[node].add(post.key)
        self.most_open_posts = max(self.most_open_posts, len(self._open_posts[node]))
        is_send = post.direction is Direction.SEND
        source, target = (node, post.peer) if is_send else (post.peer, node)
        key = (source, target, post.tensor, post.round_number)
        other = self._waiting.pop(key, None)
        if other is None and key in self._withdrawn:
            self._withdrawn.remove(key)
            self._timeline.after(0.0, partial(self._end_withdrawn, node, post.key))
            return
        if other is None:
            self._waiting[key] = post
            return
        if other.direction is post.direction:
            raise AssertionError(f"two posts to {post.direction} {key}")
        send, receive = (post, other) if is_send else (other, post)
        if send.loss_bound != receive.loss_bound:
            raise AssertionError(f"the ends of {key} differ in what may be lost")
        if self.are_apart(source, target):
            return
        missing, arriving_share = self._lost(receive)
        element_bytes = self._wire_bytes if send.is_short else send.data.itemsize
        bits = len(send.data) * element_bytes * BITS_PER_BYTE * (arriving_share + self._loss_ratio)
        self._move()
        order = self._order(send)
        way = self._wires.way(source, target)
        priority = 0 if self._priority is None else self._priority(send)
        made = Pair(source, target, order, way, in_turn=self._priority is not None)
        pair = self._pairs.setdefault((source, target, order), made)
        receive.data.fill(np.nan)
        flow = _Flow(source, target, send, receive, missing, zlib.crc32(send.data.data))
        self._flows[key] = flow
        flow.size_bytes = round(bits / BITS_PER_BYTE)
        pair.add(flow, bits, priority, next(self._ties))
        self.is_filled = False

    def _lost(self, receive: Post) -> tuple[tuple[Range, ...], float]:
        """Elements that a receive goes without, and the share that arrives."""
        if not receive.loss_bound or not self._loss_ratio:
            return (), 1.0
        count, per_packet = len(receive.data), PACKET_BYTES // self._wire_bytes
        lost = np.flatnonzero(self._random.random(-(-count // per_packet)) < self._loss_ratio)
        self._random.shuffle(lost)
        ranges = [(first, min(count, first + per_packet)) for first in (lost * per_packet).tolist()]
        missing = itertools.accumulate(end - first for first, end in ranges)
        left_out = sum(elements <= receive.loss_bound * count for elements in missing)
        arriving = count - sum(end - first for first, end in ranges[:left_out])
        return tuple(sorted(ranges[:left_out])), arriving / count

    def _move(self) -> None:
        """Let all flows have gone on until now."""
        elapsed = self._timeline.now_seconds - self._moved_seconds
        if elapsed:
            for pair in self._pairs.values():
                pair.carried_bits += pair.rate_bps * elapsed
            self._moved_seconds = self._timeline.now_seconds

    def fill(self) -> None:
        """Compute the rates of all present flows, and schedule the end of the first one."""
        self._move()
        self.is_filled = True
        self._filling += 1
        if self._pairs:
            fill(self._pairs.values(), self._wires.rate_bps)
            for pair in self._pairs.values():
                for _, _, flow in pair.flows[: pair.going]:
                    flow.began_ns = flow.began_ns or round(self._timeline.now_seconds * NANOSECONDS)
            seconds, key = min(
                (max(0.0, pair.end_bits - pair.carried_bits) / pair.rate_bps, key)
                for key, pair in self._pairs.items()
                if pair.rate_bps > LEAST_BPS
            )
            self._timeline.after(seconds, partial(self._end_flows, self._filling, key))

    def goes_on(self) -> bool:
        """Let the next event happen; returns whether there was one."""
        if not self.is_filled and self._timeline.next_seconds > self._timeline.now_seconds:
            self.fill()
        elif self._timeline.next_seconds == math.inf:
            return False
        else:
            self._timeline.go_on()
        return True

    def _end_flows(self, filling: int, first: tuple[int, int, int]) -> None:
        """The first flow of a pair ends, and all that end with it."""
        if filling != self._filling:
            return  # others have begun or ended meanwhile
        self._move()
        self._pairs[first].carried_bits = max(self._pairs[first].carried_bits, self._pairs[first].end_bits)
        for key, pair in [*self._pairs.items()]:
            until_bits = pair.carried_bits * (1 + ROUNDING) + ROUNDING
            while pair.flows and pair.end_bits <= until_bits:
                flow = pair.pop()
                until_bits = -1.0 if pair.in_turn else until_bits
                flow.ended_ns = round(self._timeline.now_seconds * NANOSECONDS)
                delay_seconds = self._wires.delay_seconds(flow.source, flow.target) + self._late()
                self._timeline.after(delay_seconds, partial(self._deliver, flow))
            if not pair.flows:
                del self._pairs[key]
        self.is_filled = False

    def _deliver(self, flow: _Flow) -> None:
        if self.are_apart(flow.source, flow.target) or flow.is_withdrawn:
            return
        del self._flows[flow.source, flow.target, flow.send.tensor, flow.send.round_number]
        if zlib.crc32(flow.send.data.data) != flow.checksum:
            raise AssertionError(f"{flow.send.key} has changed on its way")
        np.copyto(flow.receive.data, flow.send.data)
        for first, end in flow.missing:
            flow.receive.data[first:end] = 0
        arrival = flow.size_bytes, flow.began_ns, flow.ended_ns
        for number, crossing in (
            (flow.target, Crossing(flow.receive.key, flow.missing, arrival=arrival)),
            (flow.source, Crossing(flow.send.key)),
        ):
            self._open_posts[number].discard(crossing.key)
            self._cross(number, crossing)

    def withdraw(self, node: int, key: Key) -> None:
        """Withdraw one end of a transfer, which ends at once; the other end hears of it after the link's
        delay."""
        direction, peer, tensor, round_number = key
        is_send = direction is Direction.SEND
        way = (node, peer, tensor, round_number) if is_send else (peer, node, tensor, round_number)
        flow = self._flows.pop(way, None)
        if flow is not None:
            flow.is_withdrawn = True
            self._move()
            for pair in [*self._pairs.values()]:
                pair.remove(flow)
            self._pairs = {name: pair for name, pair in self._pairs.items() if pair.flows}
            self.is_filled = False
            other = flow.receive if is_send else flow.send
            if not self.are_apart(node, peer):
                delay_seconds = self._wires.delay_seconds(node, peer)
                self._timeline.after(delay_seconds, partial(self._end_withdrawn, peer, other.key))
        elif self._waiting.pop(way, None) is not None:
            self._withdrawn.add(way)
        self._timeline.after(0.0, partial(self._end_withdrawn, node, key))

    def _end_withdrawn(self, node: int, key: Key) -> None:
        if key in self._open_posts[node]:
            self._open_posts[node].remove(key)
            crossing = Crossing(key, error=TrainingError("withdrawn"), is_withdrawn=True)
            self._cross(node, crossing)

    def are_apart(self, node: int, other: int) -> bool:
        """Whether no packets get from one of two nodes to the other."""
        return any((node in part) != (other in part) for part in self._parts)

    def arriving(self, node: int) -> list[Arrival]:
        """What has arrived so far of pieces on their way to a node, without counting delays."""
        self._move()
        now_ns = round(self._timeline.now_seconds * NANOSECONDS)
        left_bytes = {
            flow: bits / BITS_PER_BYTE
            for (_, target, _), pair in self._pairs.items()
            for flow, bits in (pair.left_bits() if target == node else ())
        }
        return [
            Arrival(
                flow.source,
                max(0, round(flow.size_bytes - left_bytes.get(flow, 0.0))),
                flow.began_ns,
                flow.ended_ns or now_ns,
            )
            for flow in self._flows.values()
            if flow.target == node
        ]

    def rewire(self, wires: Wires) -> None:
        """Use another network's rates from now on, for the same ways."""
        self._move()
        self._wires = wires
        self.is_filled = False

    def join(self, node: int) -> None:
        """Reconnect a node that was parted from all others; its earlier transfers are forgotten."""
        for key, flow in [*self._flows.items()]:
            if node in key[:2]:
                flow.is_withdrawn = True
                del self._flows[key]
        self._waiting = {key: post for key, post in self._waiting.items() if node not in key[:2]}
        self._withdrawn = {key for key in self._withdrawn if node not in key[:2]}
        self._open_posts[node].clear()
        self._parts.remove(frozenset({node}))

    def part(self, nodes: frozenset[int]) -> None:
        """Cut these nodes off from the others, in both directions."""
        self._move()
        self._parts.append(nodes)
        self._pairs = {key: pair for key, pair in self._pairs.items() if not self.are_apart(*key[:2])}
        self.is_filled = False


def fill(pairs: Iterable[Pair], rate_bps: Callable[[Hashable], float]) -> None:
    """Compute the rates of flows as switches serve classes: each class gets what the ones before it leave.

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
        users = {link: sum(pair.going for pair in sharing) for link, sharing in pairs_of.items()}
        left |= {link: rate_bps(link) for link in users if link not in left}
        while users:
            fullest = min(users, key=lambda link: left[link] / users[link])
            share = max(0.0, left[fullest] / users[fullest])
            for pair in pairs_of[fullest]:
                if pair.rate_bps < 0:
                    pair.rate_bps = share
                    for link in pair.links:
                        left[link] -= share * pair.going
                        users[link] -= pair.going
                        if not users[link]:
                            del users[link]
