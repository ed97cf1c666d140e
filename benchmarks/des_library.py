"""The same port in simpy, a public discrete-event library: sources and the port are processes.

Written as its users write: a process sleeps, works, and is woken by an event.
"""

from collections import deque
from collections.abc import Generator, Sequence
from random import Random
from typing import Any

import simpy

from benchmarks.heap_simulator import BurstSource, Tally, admissions
from mltswitch.queueing import Port, QueueThresholds, QueueTraffic

Process = Generator[Any, Any, None]


def simulate_simpy(
    port: Port,
    traffic: Sequence[QueueTraffic],
    thresholds: Sequence[QueueThresholds],
    packets: int,
    seed: int,
) -> list[Tally]:
    """Offer about this many packets to an idle port and count what happens to them, per queue."""
    simulation = _Simulation(port, traffic, thresholds, packets, seed)
    simulation.run()
    return simulation.tallies


class _Simulation:
    def __init__(
        self,
        port: Port,
        traffic: Sequence[QueueTraffic],
        thresholds: Sequence[QueueThresholds],
        packets: int,
        seed: int,
    ) -> None:
        self.tallies = [Tally() for _ in traffic]
        self._random = Random(seed)  # noqa: S311 - a simulation, no secret
        self._port = port
        self._packets = packets
        self._environment = simpy.Environment()
        self._work = self._environment.event()
        self._done = self._environment.event()
        self._waiting: list[deque[float]] = [deque() for _ in traffic]
        self._served: int | None = None
        self._tables = [admissions(port, limits) for limits in thresholds]
        for queue, offered in enumerate(traffic):
            if offered.load > 0:
                source = BurstSource(offered, self._random)
                self._environment.process(self._send(queue, source))
        self._environment.process(self._transmit())

    def run(self) -> None:
        self._environment.run(until=self._done)

    def _send(self, queue: int, source: BurstSource) -> Process:
        while self._packets > 0:
            yield self._environment.timeout(source.gap())
            for is_important in source.importances():
                self._packets -= 1
                self._offer(queue, is_important)
        if not self._done.triggered:
            self._done.succeed()

    def _offer(self, queue: int, is_important: bool) -> None:
        waiting, now = self._waiting[queue], self._environment.now
        seen = len(waiting) + (self._port.count_in_service and self._served == queue)
        is_admitted = self._tables[queue][is_important][seen]
        self.tallies[queue].count(is_important=is_important, is_admitted=is_admitted)
        if not is_admitted:
            return
        if self._served is None:
            self._start(queue, now)
            self._work.succeed()
        else:
            waiting.append(now)

    def _start(self, queue: int, arrived: float) -> None:
        self._served = queue
        self.tallies[queue].started += 1
        self.tallies[queue].delay_packet_times += self._environment.now - arrived

    def _transmit(self) -> Process:
        while True:
            yield self._work
            self._work = self._environment.event()
            while self._served is not None:
                exponential = self._port.service == "exponential"
                yield self._environment.timeout(self._random.expovariate(1.0) if exponential else 1.0)
                self._served = None
                for queue, waiting in enumerate(self._waiting):
                    if waiting:
                        self._start(queue, waiting.popleft())
                        break
