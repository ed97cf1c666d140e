"""A switch port in virtual time, in place of `Hosts`, with queues as somebody configured them."""

from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mltswitch.measure.hosts import RECORD, Exchanged
from mltswitch.measure.schedule import Run, Schedule
from mltswitch.wire import Ecn

PACKET = 1514
RATE = 10_000_000
PACKET_SECONDS = PACKET * 8 / RATE
CLOCKS = ((7.5, 40e-6), (-3600.0, -25e-6))
"""Senders' clocks: seconds ahead of the receiver's, and drift."""
ONE_CLOCK = ((0.0, 0.0), (0.0, 0.0))
EPOCH_NS = 1_700_000_000 * 10**9
PATH_SECONDS = 350e-6
JITTER_SECONDS = 40e-6


@dataclass(frozen=True)
class SimulatedQueue:
    """S and L in packets, and what the queue does above S."""

    threshold: int
    limit: int
    capable: Literal["mark", "drop", "pass"] = "mark"
    others: Literal["drop", "pass"] = "drop"
    weight: float = 1.0
    """Of the newest length in the average."""
    cap: float | None = None
    """Part of the port's rate that it may have."""
    share: float | None = None
    """Part of the port's rate that it gets whatever waits before it; for the last queue."""


@dataclass(frozen=True)
class _Arrival:
    time: float
    sender: int
    sequence: int
    class_index: int
    ecn: int


class SimulatedPort:
    """Strict priority over its queues, first served first; classes that it does not know share the last."""

    def __init__(
        self,
        order: dict[int, SimulatedQueue],
        *,
        rate_share: float = 1.0,
        marks_at: Literal["enqueue", "dequeue"] = "enqueue",
        pauses: tuple[float, float] | None = None,
        clocks: tuple[tuple[float, float], ...] = CLOCKS,
        seed: int = 1,
    ) -> None:
        self.order = order
        self._clocks = clocks
        self.marks_at = marks_at
        self.marked = self.dropped = 0
        self._pauses = pauses
        """(seconds from one pause of all senders to the next, its length)."""
        self._packet_seconds = PACKET_SECONDS / rate_share
        self._generator = np.random.default_rng(seed)

    def exchange(self, run: Run) -> Exchanged:
        """The run as hosts with these clocks would report it."""
        sent, arrivals = [], []
        for sender, schedule in enumerate(run):
            entry, mine = self._send(sender, schedule)
            sent.append(entry)
            arrivals += mine
        arrivals.sort(key=lambda arrival: arrival.time)
        return Exchanged(run, tuple(sent), 0.001, np.array(self._serve(arrivals), dtype=RECORD))

    def _send(self, sender: int, schedule: Schedule) -> tuple[npt.NDArray[np.int64], list[_Arrival]]:
        leaves = schedule.time_seconds
        if self._pauses is not None:
            every, length = self._pauses
            leaves = np.maximum(leaves, np.floor(leaves / every) * every + length)
        ahead, drift = self._clocks[sender]
        sent_ns = EPOCH_NS + np.round((leaves * (1 + drift) + ahead) * 1e9).astype(np.int64)
        on_the_way = PATH_SECONDS * (1 + sender) + self._generator.exponential(JITTER_SECONDS, len(leaves))
        arrivals = [
            _Arrival(time, sender, sequence, index, Ecn.ECT_0 if is_important else Ecn.NOT_ECT)
            for sequence, (time, index, is_important) in enumerate(
                zip(
                    (leaves + on_the_way).tolist(),
                    schedule.class_index.tolist(),
                    schedule.is_important.tolist(),
                    strict=True,
                )
            )
        ]
        return sent_ns, arrivals

    def _next(self, waiting: dict[int, deque[tuple[_Arrival, int]]], now: float) -> int:
        """The queue that is served now; a queue with a cap stands still after each packet."""
        ready = [index for index, queue in waiting.items() if queue and self._held_until[index] <= now]
        index, last = ready[0], list(self.order)[-1]
        share = self.order[last].share
        if share is not None and last in ready:
            self._credit += share
            if self._credit >= 1.0:
                index = last
            self._credit -= index == last
        cap = self.order[index].cap
        if cap is not None:
            self._held_until[index] = now + self._packet_seconds / cap
        return index

    def _serve(self, arrivals: list[_Arrival]) -> list[tuple[int, int, int, int]]:
        waiting: dict[int, deque[tuple[_Arrival, int]]] = {index: deque() for index in self.order}
        average = dict.fromkeys(self.order, 0.0)
        self._held_until = dict.fromkeys(self.order, 0.0)
        self._credit = 0.0
        rows: list[tuple[int, int, int, int]] = []
        free = 0.0
        position = 0
        while position < len(arrivals) or any(waiting.values()):
            upcoming = arrivals[position].time if position < len(arrivals) else float("inf")
            turn = min(
                (max(free, self._held_until[index]) for index, queue in waiting.items() if queue),
                default=float("inf"),
            )
            if turn <= upcoming and turn < float("inf"):
                free = turn
                index = self._next(waiting, free)
                arrival, tos = waiting[index].popleft()
                rule = self.order[index]
                if self.marks_at == "dequeue" and arrival.ecn and len(waiting[index]) >= rule.threshold:
                    tos |= Ecn.CE
                free += self._packet_seconds
                at = EPOCH_NS + round((free + 0.001) * 1e9)
                rows.append((arrival.sender, tos, arrival.sequence, at))
                self.marked += (tos & Ecn.CE) == Ecn.CE
                continue
            arrival = arrivals[position]
            position += 1
            index = arrival.class_index if arrival.class_index in self.order else list(self.order)[-1]
            rule, queue = self.order[index], waiting[index]
            if not any(waiting.values()):
                free = max(free, arrival.time)
            average[index] += rule.weight * (len(queue) - average[index])
            tos = arrival.ecn
            above = average[index] >= rule.threshold
            action = rule.capable if arrival.ecn else rule.others
            if len(queue) >= rule.limit or (above and action == "drop"):
                self.dropped += 1
                continue
            if above and action == "mark" and self.marks_at == "enqueue":
                tos |= Ecn.CE
            queue.append((arrival, tos))
        return rows
