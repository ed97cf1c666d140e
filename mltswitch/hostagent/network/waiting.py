"""Waits for descriptors, for other threads and for points in time, to some microseconds.

epoll_wait(2) counts milliseconds and rounds up: bursts that are 300 µs apart would leave in lumps of several.
A timer that is itself a descriptor (timerfd_create(2)) is exact.
"""

import os
import select
import selectors
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final, Self

import numpy as np

from mltswitch.hostagent.network import libc
from mltswitch.units import NANOSECONDS

READABLE: Final = selectors.EVENT_READ
WRITABLE: Final = selectors.EVENT_WRITE
_EXACT_BELOW_NS: Final = 20_000_000
"""Longer waits may end a millisecond late."""


class Waiter:
    """For one thread; only `wake` may be called by others."""

    def __init__(self) -> None:
        """Raises OSError where the process has no descriptors left."""
        with ExitStack() as opened:
            self._epoll = opened.enter_context(select.epoll(flags=select.EPOLL_CLOEXEC))
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            opened.callback(os.close, self._wake)
            self._alarm = libc.create_timer()
            opened.pop_all()
        self._watched: dict[int, int] = {}
        for own in (self._wake, self._alarm):
            self._epoll.register(own, select.EPOLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch(self, wanted: Mapping[int, int]) -> None:
        """Descriptors and what to wait for, as bits (`READABLE`, `WRITABLE`); all others are left.

        A descriptor that was closed and opened again in between must be left by `leave` before.
        """
        if wanted == self._watched:
            return
        for descriptor in [entry for entry in self._watched if not wanted.get(entry)]:
            self._epoll.unregister(descriptor)
            del self._watched[descriptor]
        for descriptor, bits in wanted.items():
            if not bits or self._watched.get(descriptor) == bits:
                continue
            if descriptor in self._watched:
                self._epoll.modify(descriptor, _epoll_bits(bits))
            else:
                self._epoll.register(descriptor, _epoll_bits(bits))
            self._watched[descriptor] = bits

    def leave(self, descriptor: int) -> None:
        """It is about to be closed."""
        if self._watched.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def wait(self, wait_ns: int) -> set[int]:
        """The descriptors that are ready; empty after so long, or when another thread calls `wake`."""
        if 0 < wait_ns < _EXACT_BELOW_NS:
            libc.set_timer(self._alarm, wait_ns)
            found = self._epoll.poll(None)
        else:
            found = self._epoll.poll(wait_ns / NANOSECONDS)
        ready = {descriptor for descriptor, _ in found}
        for own in ready & {self._wake, self._alarm}:
            ready.remove(own)
            try:
                os.read(own, np.dtype(np.uint64).itemsize)
            except BlockingIOError:  # the alarm was set anew since
                continue
        return ready

    def wake(self) -> None:
        """End a wait, or the next one; from any thread. Raises OSError when closed."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Watched descriptors stay open; may be called again."""
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._alarm)
            os.close(self._wake)
            self._wake = -1


def _epoll_bits(bits: int) -> int:
    return (select.EPOLLIN if bits & READABLE else 0) | (select.EPOLLOUT if bits & WRITABLE else 0)
