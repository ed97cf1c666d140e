"""A signal that Python hears of, but that does not end the wait in the kernel, ends the wait nevertheless."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from mltswitch.hostagent import Agent
from mltswitch.hostagent.waiting import LONGEST_SECONDS, wait_in_slices

LONG_SECONDS = 60.0


class ToldError(Exception):
    """By the signal's handler."""


@contextmanager
def signal_elsewhere() -> Iterator[None]:
    """Soon, to another thread: the handler is due, and the main thread's system call goes on.

    The same happens where a signal falls between Python's last look at signals and the call, by chance.
    """

    def told(*_: object) -> None:
        raise ToldError

    def send() -> None:
        time.sleep(LONGEST_SECONDS / 2)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, told)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


WAITS: dict[str, Callable[[Agent, str], object]] = {
    "peers": lambda agent, _: agent.wait_for_peers(["nobody"], LONG_SECONDS),
    "message": lambda agent, peer: agent.receive_message(peer, LONG_SECONDS),
    "completions": lambda agent, _: agent.completions.poll(LONG_SECONDS),
    "transfer": lambda agent, peer: agent.post_receive(peer, np.zeros(9), tensor=1).wait(LONG_SECONDS),
    "transfer without end": lambda agent, peer: agent.post_receive(peer, np.zeros(9), tensor=1).wait(),
}


@pytest.mark.parametrize("pair", ["mlt", "tcp"], indirect=True)
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_it_is_heard_within_a_slice(pair: tuple[Agent, Agent], wait: Callable[[Agent, str], object]) -> None:
    one, other = pair
    began = time.monotonic()
    with signal_elsewhere(), pytest.raises(ToldError):
        wait(one, other.name)
    assert time.monotonic() - began < LONG_SECONDS / 2


@pytest.mark.parametrize("timeout_seconds", [0.0, LONGEST_SECONDS * 1.5, None])
def test_it_ends_by_a_yes_or_by_the_time(timeout_seconds: float | None) -> None:
    asked: list[float] = []

    def says(seconds: float) -> bool:
        asked.append(seconds)
        time.sleep(seconds)
        return timeout_seconds is None and len(asked) == 3

    assert wait_in_slices(says, timeout_seconds) is (timeout_seconds is None)
    assert max(asked) <= LONGEST_SECONDS
    assert timeout_seconds is None or sum(asked) <= timeout_seconds
