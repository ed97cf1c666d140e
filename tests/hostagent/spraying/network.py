"""Virtual time: a sender with a sprayer, paths that lose and delay, a receiver that acknowledges."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from mltswitch.hostagent.spraying.settings import MILLISECOND
from mltswitch.hostagent.spraying.sprayer import PathSprayer

PACKET_BYTES = 1500
PACKETS_PER_ACKNOWLEDGEMENT = 10


@dataclass
class Road:
    """One path's behaviour, which a test may change at any time."""

    loss: float = 0.0
    is_dead: bool = False
    delay_ns: int = 200_000
    """One way."""
    late_share: float = 0.0
    """Packets of a lower class, which come `late_ns` later."""
    late_ns: int = 2 * MILLISECOND
    doubled_share: float = 0.0
    sent: int = 0
    lost: int = 0


@dataclass
class _Received:
    packets: int = 0
    marked: int = 0
    newest_ns: int = -1
    unsaid: int = 0


@dataclass
class Network:
    """Both ends and what lies between them."""

    sprayer: PathSprayer
    roads: list[Road]
    random: np.random.Generator
    chunk_bursts: int = 64
    burst_packets: int = 1
    chunk_ns: int = 100_000
    """Time between chunks while the window is open."""
    window_bytes: int = 1 << 22
    common_loss: Callable[[int], float] = lambda now_ns: 0.0
    """Of a queue behind all paths, at a time."""
    whole_bursts: bool = False
    """Losses take whole bursts."""
    asleep_until_ns: int = 0
    """The receiver does nothing until then."""
    is_sending: bool = True
    now_ns: int = 0
    blocked: int = 0
    probes: int = 0
    _events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _number: "count[int]" = field(default_factory=count)
    _received: list[_Received] = field(default_factory=list)
    _next_chunk_ns: int = 0

    def __post_init__(self) -> None:
        self._received = [_Received() for _ in self.roads]

    def run(self, for_ns: int, until: Callable[[], bool] = lambda: False) -> int:
        """Virtual time goes on; returns how much has passed when `until` became true, or all of it."""
        begin_ns, end_ns = self.now_ns, self.now_ns + for_ns
        while not until():
            timer_ns = self.sprayer.next_timer_ns()
            times = [end_ns, self._events[0][0] if self._events else end_ns]
            times += [max(timer_ns, self.now_ns)] if timer_ns is not None else []
            times += [max(self._next_chunk_ns, self.now_ns)] if self.is_sending else []
            self.now_ns = min(times)
            if self.now_ns >= end_ns:
                self.now_ns = end_ns
                break
            while self._events and self._events[0][0] <= self.now_ns:
                heapq.heappop(self._events)[2]()
            for path in self.sprayer.probes_due(self.now_ns):
                self.probes += 1
                self._send(path, 1, self.now_ns, is_probe=True)
            if self.is_sending and self.now_ns >= self._next_chunk_ns:
                self._send_chunk()
        return self.now_ns - begin_ns

    def _send_chunk(self) -> None:
        self._next_chunk_ns = self.now_ns + self.chunk_ns
        if self.sprayer.in_flight_bytes >= self.window_bytes:
            self.blocked += 1
            return
        paths = self.sprayer.choose(self.chunk_bursts, self.now_ns)
        packets = np.full(self.chunk_bursts, self.burst_packets)
        self.sprayer.sent(paths, packets, packets * PACKET_BYTES, self.now_ns)
        for path, bursts in enumerate(np.bincount(paths, minlength=len(self.roads)).tolist()):
            if bursts:
                self._send(path, bursts * self.burst_packets, self.now_ns)

    def _send(self, path: int, packets: int, sent_ns: int, *, is_probe: bool = False) -> None:
        road = self.roads[path]
        loss = 1 - (1 - road.loss) * (1 - (0.0 if is_probe else self.common_loss(sent_ns)))
        unit = self.burst_packets if self.whole_bursts and not is_probe else 1
        lost = unit * int(self.random.binomial(packets // unit, loss))
        lost = packets if road.is_dead else lost
        road.sent += packets
        road.lost += lost
        arrived = packets - lost + int(self.random.binomial(packets - lost, road.doubled_share))
        late = int(self.random.binomial(arrived, road.late_share))
        for number, delay_ns in ((arrived - late, 0), (late, road.late_ns)):
            if number:
                self._at(
                    sent_ns + road.delay_ns + delay_ns,
                    lambda number=number: self._receive(path, number, sent_ns, is_probe=is_probe),  # type: ignore[misc]  # mypy: a default in a lambda
                )

    def _receive(self, path: int, packets: int, sent_ns: int, *, is_probe: bool) -> None:
        if self.now_ns < self.asleep_until_ns:
            self._at(
                self.asleep_until_ns + path * 50_000,
                lambda: self._receive(path, packets, sent_ns, is_probe=is_probe),
            )
            return
        state = self._received[path]
        state.packets += packets
        state.unsaid += packets
        state.newest_ns = max(state.newest_ns, sent_ns)
        if is_probe or state.unsaid >= PACKETS_PER_ACKNOWLEDGEMENT:
            state.unsaid = 0
            road = self.roads[path]
            if not road.is_dead and self.random.random() >= road.loss:
                arguments = (state.newest_ns, state.packets % (1 << 32), state.marked)
                self._at(self.now_ns + road.delay_ns, lambda: self._acknowledge(path, *arguments))

    def _acknowledge(self, path: int, echoed_ns: int, packets: int, marked: int) -> None:
        delay_ns = 2 * self.roads[path].delay_ns
        self.sprayer.acknowledged(path, echoed_ns, packets, marked, delay_ns, self.now_ns)

    def _at(self, time_ns: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time_ns, self.now_ns), next(self._number), what))
