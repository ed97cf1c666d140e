"""One scenario from its first to its last event, with everything that must hold checked on the way.

- Every post ends once: complete within its bounds, or with an `AgentError`, before its deadline and a little.
- What has arrived equals what was sent, bit for bit; what is missing is 0 or what was there; which is which
  is told exactly. No byte around the tensor changes, and none of it after the end.
- A sender that is done without an error has a receiver that is.
- Nothing but `AgentError` is raised; what waits to be sent stays within a cap; nothing stays open.
- Under faults that can be survived, and with time, everything is complete.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.tagging import AllImportant, ByPosition, End, NoneImportant
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.interfaces import (
    ConnectionLost,
    Direction,
    Event,
    ImportancePolicy,
    Incoming,
    Marking,
    Outgoing,
    TransferDone,
    TransferStatistics,
)
from tests.hostagent.virtual.ends import connections
from tests.hostagent.virtual.footprint import footprint
from tests.hostagent.virtual.network import Side, VirtualNetwork
from tests.hostagent.virtual.scenario import MILLISECOND, SECOND, Kind, Scenario, Transfer

GUARD_BYTES = 32
GUARD, BEFORE, REUSED = 0xA7, 0x3C, 0x5B
"""What is around a buffer, what is in it before, and what its owner writes after the end."""
LITTLE_NS = 2 * MILLISECOND
LINGER_NS = 30 * MILLISECOND
MOST_CONTROL_BYTES = 256 * 1024
FOOTPRINT_EVERY = 20
"""Scenarios; counting takes as long as playing."""
MOST_OBJECTS, MOST_BYTES = 20_000, 2 * 1024 * 1024
"""Held by one connection when all is over."""


@dataclass(frozen=True, slots=True)
class Scattered:
    """About a share of the packets, by a hash of their number."""

    share: float

    def mark(self, tensor: TensorView, layout: PacketLayout) -> "Scattered":
        return self

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        numbers = np.arange(first, last, dtype=np.uint64)
        return (numbers * np.uint64(0x9E3779B1) % np.uint64(1 << 32)) < self.share * (1 << 32)


def policy(importance: tuple[str, float]) -> ImportancePolicy:
    name, share = importance
    by_name: dict[str, ImportancePolicy] = {
        "all": AllImportant(),
        "none": NoneImportant(),
        "front": ByPosition(share, End.FRONT),
        "back": ByPosition(share, End.BACK),
        "scattered": Scattered(share),
    }
    return by_name[name]


@dataclass(slots=True)
class Outcome:
    """What a scenario came to."""

    trace: int = 0
    complete: int = 0
    incomplete_within_bound: int = 0
    """Complete, and something is missing."""
    errors: Counter[str] = field(default_factory=Counter)
    datagrams: int = 0
    refused: int = 0
    lost_connections: int = 0


@dataclass(eq=False, slots=True)
class Track:
    """One transfer, both ends."""

    transfer: Transfer
    sides: dict[Direction, Side]
    connections: dict[Direction, Connection]
    original: NDArray[np.uint8]
    sent: NDArray[np.uint8]
    guarded: NDArray[np.uint8]
    posted: set[Direction] = field(default_factory=set)
    ends: dict[Direction, AgentError | TransferDone] = field(default_factory=dict)
    after: NDArray[np.uint8] | None = None
    """The guarded buffer at its end."""

    @property
    def buffer(self) -> NDArray[np.uint8]:
        return self.guarded[GUARD_BYTES:-GUARD_BYTES]

    def __str__(self) -> str:
        return f"pair {self.transfer.pair} {self.transfer.key}"


class Play:
    """Plays one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.network = VirtualNetwork(scenario.seed)
        self.network.happened = self._happened
        self.outcome = Outcome()
        self._random = Random(scenario.seed ^ 0x5EED)  # noqa: S311  (a simulation, no secret)
        self._connections = [
            connections(pair, place, self._random) for place, pair in enumerate(scenario.pairs)
        ]
        self._pairs = [
            self.network.join(
                (f"left{place}", f"right{place}"),
                self._connections[place],
                (dict(enumerate(pair.links[0])), dict(enumerate(pair.links[1]))),
                pair.control,
                pair.hosts,
                pair.attack,
            )
            for place, pair in enumerate(scenario.pairs)
        ]
        self.tracks = [self._track(transfer) for transfer in scenario.transfers]
        self._found = {
            (id(track.sides[direction]), track.transfer.key, direction): track
            for track in self.tracks
            for direction in Direction
        }
        self._open = 0

    def run(self) -> Outcome:
        """Raises AssertionError naming what does not hold, and whatever a connection raises."""
        self._schedule()
        self.network.run(self._last_ns(), lambda: self._open == 0)
        for track in self.tracks:
            self._check_ended(track)
        self.network.run(self.network.now_ns + LINGER_NS)
        for track in self.tracks:
            self._check_at_rest(track)
        self._check_sides()
        self.outcome.trace = self.network.trace
        return self.outcome

    def _last_ns(self) -> int:
        thaws = [
            last
            for pair in self.scenario.pairs
            for host in pair.hosts
            for _, last in host.frozen
            if last < self.scenario.ends_ns + SECOND
        ]
        return max([self.scenario.ends_ns, *thaws]) + SECOND

    def _track(self, transfer: Transfer) -> Track:
        pair = self._pairs[transfer.pair]
        size = transfer.element_count * transfer.element_type.size_bytes
        original = np.frombuffer(self._random.randbytes(size), np.uint8)
        guarded = np.full(
            transfer.received_count * transfer.received_type.size_bytes + 2 * GUARD_BYTES, GUARD, np.uint8
        )
        guarded[GUARD_BYTES:-GUARD_BYTES] = BEFORE
        sides = {Direction.SEND: pair[transfer.sender], Direction.RECEIVE: pair[1 - transfer.sender]}
        ends = self._connections[transfer.pair]
        users = {Direction.SEND: ends[transfer.sender], Direction.RECEIVE: ends[1 - transfer.sender]}
        return Track(transfer, sides, users, original, original.copy(), guarded)

    def _schedule(self) -> None:
        for track in self.tracks:
            transfer = track.transfer
            for direction, side in track.sides.items():
                post_ns, cancel_ns = transfer.post_ns[direction], transfer.cancel_ns.get(direction)
                if post_ns is not None:
                    self._open += 1
                    self.network.call(side, post_ns, partial(self._post, track, direction))
                if cancel_ns is not None:
                    cancel = track.connections[direction].cancel
                    self.network.call(side, cancel_ns, partial(cancel, transfer.key, direction, "asked to"))
        for place, pair in enumerate(self.scenario.pairs):
            for side, end, close_ns in zip(
                self._pairs[place], self._connections[place], pair.close_ns, strict=True
            ):
                if close_ns is not None:
                    self.network.call(side, close_ns, partial(end.close, "closed by its user"))

    def _post(self, track: Track, direction: Direction, now_ns: int) -> None:
        transfer, end = track.transfer, track.connections[direction]
        track.posted.add(direction)
        try:
            if direction is Direction.SEND:
                end.send(
                    Outgoing(
                        transfer.key,
                        TensorView(track.sent, transfer.element_type),
                        layer=3,
                        dscp=lambda: 10,
                        policy=policy(transfer.importance),
                        deadline_ns=transfer.deadline_ns[direction],
                        burst_packets=transfer.burst_packets,
                    ),
                    now_ns,
                )
            else:
                end.receive(
                    Incoming(
                        transfer.key,
                        TensorView(track.buffer, transfer.received_type),
                        transfer.loss_bound,
                        transfer.important_loss_bound,
                        transfer.keep_missing,
                        transfer.deadline_ns[direction],
                    ),
                    now_ns,
                )
        except AgentError as error:
            self._end(track, direction, error)

    def _happened(self, side: Side, event: Event) -> None:
        if isinstance(event, ConnectionLost):
            self.outcome.lost_connections += 1
        if isinstance(event, TransferDone):
            self._end(self._found[id(side), event.key, event.direction], event.direction, event)

    def _end(self, track: Track, direction: Direction, end: AgentError | TransferDone) -> None:
        assert direction in track.posted, f"{track}: {direction} ends without a post"
        assert direction not in track.ends, f"{track}: {direction} ends twice: {track.ends[direction]}, {end}"
        track.ends[direction] = end
        self._open -= 1
        error = end if isinstance(end, AgentError) else end.error
        if error is not None:
            assert isinstance(error, AgentError), f"{track}: {error!r}"
            assert str(error), f"{track}: an error without words"
            self.outcome.errors[type(error).__name__] += 1
        self._check_in_time(track, direction)
        if direction is Direction.SEND:
            assert (track.sent == track.original).all(), f"{track}: the sender's tensor has changed"
            track.sent[:] = REUSED
        else:
            if isinstance(end, TransferDone) and end.error is None:
                self._check_complete(track, end)
            self._check_no_foreign_byte(track)
            track.after = track.guarded.copy()

    def _check_in_time(self, track: Track, direction: Direction) -> None:
        host, deadline = track.sides[direction].host, track.transfer.deadline_ns[direction]
        posted_ns = track.transfer.post_ns[direction] or 0
        latest = max(deadline, posted_ns) + host.late_ns
        for first, last in host.frozen:
            if first <= latest:
                latest = max(latest, last + host.late_ns)
        late_ns = self.network.now_ns - latest
        assert late_ns <= LITTLE_NS, f"{track}: {direction} ends {late_ns} ns after its deadline"

    def _check_complete(self, track: Track, done: TransferDone) -> None:
        transfer, statistics = track.transfer, done.statistics
        received, layout = done.received, done.layout
        assert statistics is not None, f"{track}: complete, and never begun"
        assert received is not None, f"{track}: no bitmap"
        assert layout is not None, f"{track}: no layout"
        assert (transfer.element_type, transfer.element_count) == (
            transfer.received_type,
            transfer.received_count,
        ), f"{track}: complete, though the ends disagree"
        assert (layout.element_type, layout.element_count) == (transfer.element_type, transfer.element_count)
        assert received.shape == (layout.packet_count,), f"{track}: a bitmap of {received.shape}"
        missing = int((~received).sum())
        assert missing <= transfer.loss_bound * layout.packet_count + 1e-9, f"{track}: {missing} missing"
        important = self._important(track, layout)
        bound = transfer.important_loss_bound
        if bound is not None:
            lost = int((important & ~received).sum())
            assert lost <= bound * important.sum() + 1e-9, f"{track}: {lost} important ones missing"
        assert statistics.packets == layout.packet_count, f"{track}: {statistics}"
        assert statistics.packets_received == layout.packet_count - missing, f"{track}: {statistics}"
        if statistics.important_received is not None:
            assert statistics.important_received == int((important & received).sum()), (
                f"{track}: {statistics}"
            )
        known = statistics.important_packets
        assert known == important.sum() or (known is None and missing), f"{track}: {statistics}"
        elements = np.repeat(received, layout.elements_per_packet * layout.element_type.size_bytes)
        here = elements[: len(track.original)]
        assert statistics.bytes_received == here.sum(), f"{track}: {statistics}"
        expected = np.where(here, track.original, BEFORE if transfer.keep_missing else 0)
        wrong = np.flatnonzero(track.buffer != expected)
        assert not len(wrong), f"{track}: {len(wrong)} bytes are wrong, the first at {wrong[:1]}"
        self.outcome.complete += 1
        self.outcome.incomplete_within_bound += missing > 0

    @staticmethod
    def _important(track: Track, layout: PacketLayout) -> NDArray[np.bool_]:
        marking: Marking = policy(track.transfer.importance).mark(
            TensorView(track.original, track.transfer.element_type), layout
        )
        return marking.important(0, layout.packet_count)

    def _check_no_foreign_byte(self, track: Track) -> None:
        for guard in (track.guarded[:GUARD_BYTES], track.guarded[-GUARD_BYTES:]):
            assert (guard == GUARD).all(), f"{track}: bytes around the tensor have changed"
        buffer = track.buffer
        if len(buffer) == len(track.original):
            is_known = (buffer == track.original) | (buffer == BEFORE) | (buffer == 0)
            assert is_known.all(), f"{track}: foreign bytes at {np.flatnonzero(~is_known)[:8]}"
        else:
            assert ((buffer == BEFORE) | (buffer == 0)).all(), f"{track}: written, though the ends disagree"

    def _check_ended(self, track: Track) -> None:
        transfer = track.transfer
        for direction in track.posted:
            is_dead = any(last > self.network.now_ns for _, last in track.sides[direction].host.frozen)
            assert direction in track.ends or is_dead, f"{track}: {direction} has not ended"
        ends = {direction: self._is_complete(track, direction) for direction in Direction}
        assert not ends[Direction.SEND] or ends[Direction.RECEIVE], (
            f"{track}: complete at the sender, {track.ends.get(Direction.RECEIVE)} at the receiver"
        )
        if self.scenario.kind is Kind.BENIGN:
            assert all(ends.values()), f"{track}: {track.ends} under faults that can be survived"
        if all(ends.values()):
            send, receive = (self._statistics(track, direction) for direction in Direction)
            assert send.packets == receive.packets, f"{track}: {send}, {receive}"
            assert send.packets_received == receive.packets_received, f"{track}: {send}, {receive}"
            assert send.packets_sent >= send.packets_received, f"{track}: {send}"
            assert send.bytes_received <= receive.bytes_received, f"{track}: {send}, {receive}"
            is_whole = receive.packets_received == receive.packets
            assert not is_whole or send.bytes_received == send.size_bytes, f"{track}: {send}"
            known, told = send.important_packets, receive.important_packets
            assert known is not None or send.packets_received < send.packets, f"{track}: {send}"
            assert told in {None, known}, f"{track}: {send}, {receive}"
        assert transfer.key.round_number >= 0

    @staticmethod
    def _statistics(track: Track, direction: Direction) -> TransferStatistics:
        end = track.ends[direction]
        assert isinstance(end, TransferDone)
        assert end.statistics is not None, f"{track}: complete, and never begun"
        return end.statistics

    @staticmethod
    def _is_complete(track: Track, direction: Direction) -> bool:
        end = track.ends.get(direction)
        return isinstance(end, TransferDone) and end.error is None

    def _check_at_rest(self, track: Track) -> None:
        if track.after is not None:
            assert (track.guarded == track.after).all(), f"{track}: written after its end"
        if Direction.SEND in track.ends:
            assert (track.sent == REUSED).all(), f"{track}: the sender's tensor was written"

    def _check_sides(self) -> None:
        for sides in self._pairs:
            for side in sides:
                self.outcome.datagrams += side.datagrams_sent
                self.outcome.refused += side.refused
                assert side.most_control_bytes <= MOST_CONTROL_BYTES, (
                    f"{side.name}: {side.most_control_bytes} B"
                )
        if self.scenario.seed % FOOTPRINT_EVERY == 0:
            for end in (end for ends in self._connections for end in ends):
                objects, size_bytes = footprint(end)
                assert objects <= MOST_OBJECTS, f"{objects} objects are held"
                assert size_bytes <= MOST_BYTES, f"{size_bytes} bytes are held"
