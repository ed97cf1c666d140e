"""When the kernel shall send each message: departure times (SO_TXTIME) that fq keeps (tc-fq(8)).

Not SO_MAX_PACING_RATE: a UDP socket keeps the lowest rate that it was ever given (net/core/sock.c; measured
with Linux 6.1), so a rate that goes up and down cannot be set by it. And fq takes each destination of an
unconnected socket for a flow of its own (net/sched/sch_fq.c, `fq_classify`) and gives each the whole rate.
Departure times belong to messages: every peer has its own rate, on however many paths and sockets.

An ordinary user may ask for them on CLOCK_MONOTONIC (socket(7); sock_setsockopt). Other queueing disciplines
send at once.
"""

import socket
import struct
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.network import libc
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

SPEED_UP: Final = 9 / 8
"""Packets leave so much faster than the rate that decides how many may: what has been handed over is gone
when more may follow, and nothing waits in the host for good."""


def enable_departures(opened: socket.socket) -> bool:
    """Let messages of this socket carry departure times; False where the kernel knows none (before 4.19)."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, libc.SO_TXTIME, struct.pack("=iI", time.CLOCK_MONOTONIC, 0))
    except OSError:
        return False
    return True


class Departures:
    """Of the messages to one peer: one after the other, at its rate."""

    def __init__(
        self,
        rate_bps: Callable[[], float],
        header_bytes: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`rate_bps` is asked for each batch; `clock` is CLOCK_MONOTONIC in ns.

        `header_bytes`: what a packet is longer than its UDP payload, as a queue counts it.
        """
        self._rate_bps = rate_bps
        self._header_bytes = header_bytes
        self._clock = clock
        self._free_ns = 0
        self._ends_ns: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def free_ns(self) -> int:
        """When all that has been handed over is gone."""
        return self._free_ns

    @property
    def header_bytes(self) -> int:
        """What a packet is longer than its UDP payload, as a queue counts it."""
        return self._header_bytes

    def plan(self, payload_bytes: NDArray[np.int64], packets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times of messages with so many bytes of UDP payload and packets each, in ns.

        Nothing counts until `left`.
        """
        size_bytes = payload_bytes + packets * self._header_bytes
        per_byte_ns = BITS_PER_BYTE * NANOSECONDS / (self._rate_bps() * SPEED_UP)
        durations = (size_bytes * per_byte_ns).astype(np.int64)
        self._ends_ns = max(self._free_ns, self._clock()) + durations.cumsum()
        return self._ends_ns - durations

    def left(self, messages: int) -> None:
        """So many leading ones of those planned last have been handed over."""
        if messages:
            self._free_ns = int(self._ends_ns[messages - 1])
