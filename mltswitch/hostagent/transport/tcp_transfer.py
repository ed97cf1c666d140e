"""One transfer of the transport `tcp`, as its user and its connection see it."""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

import numpy as np

from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.transport.description import Outcome, Progress, Receive, Send, TransferStatistics
from mltswitch.hostagent.transport.tcp_frames import MOST_CHUNKS

if TYPE_CHECKING:
    from mltswitch.hostagent.transport.tcp import TcpConnection

Key = tuple[int, int]
"""Tensor and round."""


class TcpTicket:
    """One transfer, a `Ticket`; all but what its user calls is the engine's thread's."""

    def __init__(self, connection: "TcpConnection", request: Send | Receive) -> None:
        memory = request.memory
        self.request = request
        self.key: Key = (request.tensor, request.round_number)
        self.is_send = isinstance(request, Send)
        self.number = -1
        """Of its READY, which tells chunks of an earlier attempt apart; -1: there was none."""
        self.view = memory.data.data
        size = memory.element_type.size_bytes
        self.chunk_elements = max(connection.chunk_bytes // size, -(-memory.element_count // MOST_CHUNKS))
        self.chunk_bytes = self.chunk_elements * size
        self.arrived = np.zeros(-(-len(self.view) // self.chunk_bytes), np.bool_)
        self.arrived_count = self.taken = self.bytes_sent = 0
        self.dscp = request.dscp if isinstance(request, Send) else 0
        self.posted_ns = monotonic_ns()
        self.ready_ns = self.first_ns = self.last_ns = 0
        self.timers: list[asyncio.TimerHandle] = []
        self.is_soft = self.is_over = False
        """Soft: the bounds are enough from now on."""
        self._connection = connection
        self._done = threading.Event()
        self._outcome: Outcome | None = None
        self._callbacks: list[Callable[[], object]] = []

    def wait(self, timeout_seconds: float | None) -> bool:
        """See Ticket."""
        return self._done.wait(timeout_seconds)

    def notify(self, callback: Callable[[], object]) -> None:
        """See Ticket."""
        with self._connection.lock:
            if self._outcome is None:
                self._callbacks.append(callback)
                return
        self._connection.soon(callback)

    def outcome(self) -> Outcome | None:
        """See Ticket."""
        return self._outcome

    def progress(self) -> Progress:
        """See Ticket."""
        return Progress(
            packets=len(self.arrived),
            arrived_packets=self.arrived_count,
            important_packets=None,
            arrived_important=None,
        )

    def finish(self) -> None:
        """See Ticket."""
        self._connection.soon(lambda: self._connection.take(self))

    def cancel(self, reason: str) -> None:
        """See Ticket."""
        self._connection.soon(lambda: self._connection.give_up(self, "cancelled", reason))

    def retag(self, dscp: int) -> None:
        """See Ticket."""
        self.dscp = dscp

    def end(self, error: AgentError | None) -> None:
        """The memory is the user's again."""
        size, count = len(self.view), self.arrived_count
        short = len(self.arrived) * self.chunk_bytes - size if self.arrived[-1] else 0
        self.is_over, self.view = True, memoryview(b"")
        for timer in self.timers:
            timer.cancel()
        statistics = TransferStatistics(
            size_bytes=size,
            packets=len(self.arrived),
            packets_sent=self.taken,
            packets_resent=0,
            bytes_sent=self.bytes_sent,
            packets_received=count,
            bytes_received=count * self.chunk_bytes - short,
            packets_duplicate=None if self.is_send else 0,
            posted_ns=self.posted_ns,
            ready_ns=self.ready_ns,
            first_ns=self.first_ns,
            last_ns=self.last_ns,
            ended_ns=monotonic_ns(),
        )
        with self._connection.lock:
            self._outcome = Outcome(
                error=error,
                statistics=statistics,
                arrived=self.arrived,
                elements_per_packet=self.chunk_elements,
            )
        self._done.set()
        for callback in self._callbacks:
            self._connection.soon(callback)
