"""The port as a textbook event simulation in plain Python: a heap of events, nothing compiled.

The yardstick of the simulator's speed, and a second opinion on its results. Knows what the accuracy cells
need: strict priority, bursts that arrive at once at exponential gaps, plain thresholds.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil
from random import Random
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.queueing import Batch, Poisson, Port, QueueThresholds, QueueTraffic, decide

DEPARTURE: Final = -1


@dataclass(slots=True)
class Tally:
    """What one queue saw."""

    offered_unimportant: int = 0
    offered_important: int = 0
    lost_unimportant: int = 0
    lost_important: int = 0
    started: int = 0
    delay_packet_times: float = 0.0
    """Sum over the packets whose transmission started."""

    @property
    def offered(self) -> int:
        """Packets of both kinds."""
        return self.offered_unimportant + self.offered_important

    @property
    def loss_unimportant(self) -> float:
        """Share of the unimportant packets that were dropped."""
        return self.lost_unimportant / max(1, self.offered_unimportant)

    @property
    def loss_important(self) -> float:
        """Share of the important packets that were dropped."""
        return self.lost_important / max(1, self.offered_important)

    @property
    def mean_delay_packet_times(self) -> float:
        """From arrival to the start of the transmission."""
        return self.delay_packet_times / max(1, self.started)

    def count(self, *, is_important: bool, is_admitted: bool) -> None:
        """One more packet came."""
        if is_important:
            self.offered_important += 1
            self.lost_important += not is_admitted
        else:
            self.offered_unimportant += 1
            self.lost_unimportant += not is_admitted


class BurstSource:
    """Bursts of one queue: gaps, sizes and the importance of each packet."""

    def __init__(self, offered: QueueTraffic, random: Random) -> None:
        arrivals = offered.arrivals
        if not isinstance(arrivals, Poisson | Batch):
            raise UserInputError(
                "the plain simulators know Poisson and batch arrivals only", where="arrivals"
            )
        self._random = random
        self._size = arrivals.burst_packets if isinstance(arrivals, Batch) else 1
        self._is_geometric = isinstance(arrivals, Batch) and arrivals.distribution == "geometric"
        self._unimportant = offered.unimportant_share
        self._is_per_burst = offered.importance == "burst"
        self.rate = offered.load / self._size
        """Bursts per packet time."""

    def gap(self) -> float:
        """Packet times to the next burst."""
        return self._random.expovariate(self.rate)

    def importances(self) -> list[bool]:
        """The packets of one burst, True for important."""
        random, unimportant = self._random.random, self._unimportant
        size = self._geometric() if self._is_geometric else int(self._size)
        if self._is_per_burst:
            return [random() >= unimportant] * size
        return [random() >= unimportant for _ in range(size)]

    def _geometric(self) -> int:
        size = 1
        while self._random.random() >= 1 / self._size:
            size += 1
        return size


def admissions(port: Port, limits: QueueThresholds) -> list[list[bool]]:
    """[is important][packets seen] → is let in, for one queue.

    A table instead of a call a packet, so that the yardstick is not slower than such a program has to be.
    """
    if not limits.is_step or port.weights is not None or port.buffer_packets is not None:
        raise UserInputError("plain simulators know strict priority and plain thresholds only")
    return [
        [
            decide(
                seen,
                is_capable=is_capable,
                ecn_threshold=limits.ecn_threshold_packets,
                limit=limits.limit_packets,
            ).is_admitted
            for seen in range(ceil(limits.limit_packets) + 2)
        ]
        for is_capable in (False, True)
    ]


def simulate_heap(
    port: Port,
    traffic: Sequence[QueueTraffic],
    thresholds: Sequence[QueueThresholds],
    packets: int,
    seed: int,
) -> list[Tally]:
    """Offer about this many packets to an idle port and count what happens to them, per queue."""
    random = Random(seed)  # noqa: S311 - a simulation, no secret
    service = random.expovariate if port.service == "exponential" else (lambda _rate: 1.0)
    sources = [BurstSource(offered, random) for offered in traffic]
    tables = [admissions(port, limits) for limits in thresholds]
    tallies = [Tally() for _ in traffic]
    waiting: list[deque[float]] = [deque() for _ in traffic]
    counted = [0] * len(traffic)
    is_idle = True
    events = [(source.gap(), queue) for queue, source in enumerate(sources) if source.rate > 0]
    heapify(events)
    offered = 0
    while offered < packets and events:
        now, event = heappop(events)
        if event == DEPARTURE:
            is_idle = True
            counted = [0] * len(traffic)
        else:
            queue, table, tally = waiting[event], tables[event], tallies[event]
            source = sources[event]
            heappush(events, (now + source.gap(), event))
            for is_important in source.importances():
                offered += 1
                is_admitted = table[is_important][len(queue) + counted[event]]
                tally.count(is_important=is_important, is_admitted=is_admitted)
                if is_admitted and is_idle:
                    is_idle = False
                    counted[event] = int(port.count_in_service)
                    tally.started += 1
                    heappush(events, (now + service(1.0), DEPARTURE))
                elif is_admitted:
                    queue.append(now)
        if is_idle:
            for served, queue in enumerate(waiting):
                if queue:
                    tallies[served].started += 1
                    tallies[served].delay_packet_times += now - queue.popleft()
                    counted[served] = int(port.count_in_service)
                    is_idle = False
                    heappush(events, (now + service(1.0), DEPARTURE))
                    break
    return tallies
