"""Waiting for descriptors, threads and times."""

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from mltswitch.hostagent.network.waiting import READABLE, WRITABLE, Waiter

LONG_NS = 60 * 10**9


@pytest.fixture
def waiter() -> Iterator[Waiter]:
    with Waiter() as made:
        yield made


@pytest.mark.parametrize("wait_ns", [1, 300_000, 25_000_000])
def test_a_wait_is_never_shorter(waiter: Waiter, wait_ns: int) -> None:
    began_ns = time.monotonic_ns()
    assert waiter.wait(wait_ns) == set()
    assert time.monotonic_ns() - began_ns >= wait_ns


def test_no_wait(waiter: Waiter) -> None:
    assert waiter.wait(0) == set()


def test_what_is_ready(waiter: Waiter) -> None:
    one, other = socket.socketpair()
    with one, other:
        waiter.watch({one.fileno(): READABLE, other.fileno(): READABLE})
        assert waiter.wait(1000) == set()
        one.send(b"x")
        assert waiter.wait(LONG_NS) == {other.fileno()}
        waiter.watch({one.fileno(): READABLE | WRITABLE})
        assert waiter.wait(LONG_NS) == {one.fileno()}
        waiter.watch({one.fileno(): 0})
        assert waiter.wait(0) == set()


def test_a_descriptor_may_be_opened_anew(waiter: Waiter) -> None:
    reading, writing = os.pipe()
    waiter.watch({reading: READABLE})
    waiter.leave(reading)
    waiter.leave(reading)
    os.close(reading)
    os.close(writing)
    again, writing = os.pipe()
    waiter.watch({again: READABLE})
    os.write(writing, b"x")
    assert waiter.wait(LONG_NS) == {again}
    waiter.leave(again)
    os.close(again)
    os.close(writing)


def test_another_thread_ends_a_wait(waiter: Waiter) -> None:
    thread = threading.Thread(target=waiter.wake)
    thread.start()
    assert waiter.wait(LONG_NS) == set()
    thread.join()
    waiter.wake()
    waiter.wake()
    assert waiter.wait(LONG_NS) == set()
    assert waiter.wait(0) == set()


def test_an_alarm_that_rang_late_is_no_harm(waiter: Waiter) -> None:
    one, other = socket.socketpair()
    with one, other:
        waiter.watch({other.fileno(): READABLE})
        one.send(b"x")
        assert waiter.wait(100_000) == {other.fileno()}
        other.recv(1)
        time.sleep(0.001)  # the alarm of the wait before rings meanwhile
        waiter.wait(0)
        began_ns = time.monotonic_ns()
        assert waiter.wait(2_000_000) == set()
        assert time.monotonic_ns() - began_ns >= 2_000_000
