"""What ends with an agent, or with a post, and what must not."""

import math
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.completions import CompletionQueue
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import AgentError, CancelledError, PeerRefusedError
from mltswitch.hostagent.tagging import TwoQueues
from mltswitch.hostagent.telemetry.server import MetricsServer
from mltswitch.hostagent.transport.settings import Transport
from tests.hostagent.opening import Make, joined, opening

PATIENCE_SECONDS = 60.0
DSCP = 34


@pytest.fixture
def make() -> Iterator[Make]:
    with opening() as one:
        yield one


def zeros() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.zeros(1000, np.float32)


def test_a_cancel_ends_the_post_that_it_names_and_no_later_one(make: Make) -> None:
    sender, receiver = joined(make)
    old = receiver.post_recv("host-a", zeros(), tensor=1, round_number=1)
    there = sender.post_recv("host-b", zeros(), tensor=1, round_number=1)
    receiver.disconnect("host-a")
    for left in (old, there):
        with pytest.raises(AgentError):
            left.wait(PATIENCE_SECONDS)
    assert receiver.listening_at is not None
    sender.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
    receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)
    new = receiver.post_recv("host-a", zeros(), tensor=1, round_number=1)
    old.cancel("cleaning up")
    sender.post_send("host-b", np.ones(1000, np.float32), tensor=1, round_number=1, dscp=DSCP)
    assert new.wait(PATIENCE_SECONDS).error is None


def test_a_cancel_of_another_agents_post_changes_nothing(make: Make) -> None:
    sender, receiver = joined(make)
    here = receiver.post_recv("host-a", zeros(), tensor=1, round_number=1)
    with opening() as elsewhere:
        _, other = joined(elsewhere)
        there = other.post_recv("host-a", zeros(), tensor=1, round_number=1)
        receiver.cancel(there, "a mistake")
        sender.post_send("host-b", np.ones(1000, np.float32), tensor=1, round_number=1, dscp=DSCP)
        assert here.wait(PATIENCE_SECONDS).error is None
        assert there.completion is None


@pytest.mark.parametrize(
    "wait",
    [
        lambda agent: agent.wait_for_peers(["nobody"], math.inf),
        lambda agent: agent.wait_for_a_peer(math.inf),
        lambda agent: agent.poll(math.inf),
    ],
)
def test_nobody_waits_longer_than_the_agent_lives(make: Make, wait: Callable[[Agent], object]) -> None:
    agent = make("host-a")
    found: list[object] = []

    def waiting() -> None:
        try:
            found.append(wait(agent))
        except CancelledError as error:
            found.append(error)

    threads = [threading.Thread(target=waiting, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    agent.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    waiting()  # and who asks afterwards does not, either
    assert len(found) == 4
    assert all(entry is None or "closed" in str(entry) for entry in found)


@pytest.mark.parametrize(
    ("wait", "answer"),
    [
        (lambda agent: agent.wait_for_a_peer(math.inf), "the agent's engine has failed; its log says how"),
        (lambda agent: agent.poll(math.inf), None),
    ],
)
def test_an_engine_that_fails_ends_the_waits(
    make: Make, wait: Callable[[Agent], object], answer: str | None
) -> None:
    agent = make("host-a")
    found: list[object] = []

    def waiting() -> None:
        try:
            found.append(wait(agent))
        except AgentError as error:
            found.append(str(error))

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()

    def fails() -> None:
        raise KeyboardInterrupt

    agent._engine.call(fails)
    thread.join(PATIENCE_SECONDS)
    assert found == [answer]


def test_completions_come_before_the_end() -> None:
    told = CompletionQueue()
    first, second = object(), object()
    told.add(first)  # type: ignore[arg-type]  # it is not looked at
    told.close()
    told.add(second)  # type: ignore[arg-type]  # nor is this one
    assert told.poll() is first
    assert told.poll(math.inf) is second
    assert told.poll(math.inf) is told.poll(math.inf) is None


def test_where_peers_reached_it_is_known_afterwards(make: Make) -> None:
    agent = make("host-a")
    before = agent.listening_at
    agent.close()
    assert agent.listening_at == before


def test_an_agent_does_not_connect_to_itself(make: Make) -> None:
    agent = make("host-a")
    assert agent.listening_at is not None
    with pytest.raises(UserInputError, match="is this agent itself"):
        agent.connect("host-a", agent.listening_at, PATIENCE_SECONDS)
    with pytest.raises(PeerRefusedError, match=r"calls itself 'host-a'|has the name of this agent"):
        agent.connect("host-b", agent.listening_at, PATIENCE_SECONDS)


@contextmanager
def child() -> Iterator[None]:
    """Forked now, and there until the block ends."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        yield
    finally:
        os.close(reading)
        os.close(writing)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("transport", list(Transport))
def test_a_child_keeps_no_port(make: Make, transport: Transport) -> None:
    first = make("host-a", 1, transport=transport)
    peer = make("host-b", 1, transport=transport)
    assert first.listening_at is not None
    control, data = first.listening_at, first._engine._tcp or first._engine._paths
    port = data.addresses[0].port
    peer.connect("host-a", control, PATIENCE_SECONDS)
    with child():
        first.wait_for_peers(["host-b"], PATIENCE_SECONDS)  # the parent's are as they were
        taken = first.post_recv("host-b", zeros(), tensor=1, round_number=1)
        peer.post_send("host-a", np.ones(1000, np.float32), tensor=1, round_number=1, dscp=DSCP)
        assert taken.wait(PATIENCE_SECONDS).error is None
        first.close()
        Agent(replace(first._settings, data_port=port, listen=control)).close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_keeps_no_port_of_the_figures(make: Make) -> None:
    agent = make("host-a")
    with ExitStack() as until_the_child_ends:
        with MetricsServer(agent, Endpoint("127.0.0.1", 0)) as first:
            place = first.listening_at
            until_the_child_ends.enter_context(child())
        with MetricsServer(agent, place):
            pass


def descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir() if entry.exists()}


@contextmanager
def descriptors_left(spare: int) -> Iterator[None]:
    """So many can be opened in the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, descriptors()))
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, limits[1]))
        with suppress(OSError):
            while True:
                held.append(os.dup(2))
        for descriptor in held[len(held) - spare :]:
            os.close(descriptor)
            held.remove(descriptor)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.parametrize("spare", range(5))
def test_without_descriptors_there_is_no_agent_and_nothing_stays_open(make: Make, spare: int) -> None:
    make("host-a").close()  # all modules are loaded
    before = descriptors()
    with descriptors_left(spare), pytest.raises(MachineError, match="oo many open files"):
        make("host-b")
    assert descriptors() == before


@pytest.mark.parametrize("what", ["send", "receive", "cancel", "snapshot"])
def test_a_signal_handler_may_post_and_cancel(make: Make, what: str) -> None:
    """It runs between any two steps of whatever the thread does: here, of posts."""
    sender, receiver = joined(make, two_queues=TwoQueues(DSCP, 10))
    victim = receiver.post_recv("host-a", zeros(), tensor=9, round_number=1)
    calls = 0

    def handle(_signal: int, _frame: object) -> None:
        nonlocal calls
        calls += 1
        if what == "receive":
            receiver.post_recv("host-a", zeros(), tensor=2, round_number=calls, deadline_seconds=1)
        elif what == "send":
            receiver.post_send(
                "host-a", zeros(), tensor=2, round_number=calls, layer=calls, deadline_seconds=1
            )
        elif what == "cancel":
            victim.cancel("a signal")
        else:
            receiver.snapshot(PATIENCE_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, 0.0007)

    before = signal.signal(signal.SIGALRM, handle)
    until = time.monotonic() + 2
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        number = 0
        while time.monotonic() < until:
            number += 1
            receiver.post_recv("host-a", zeros(), tensor=1, round_number=number, deadline_seconds=0.05)
            receiver.post_send(
                "host-a", zeros(), tensor=1, round_number=number, layer=number % 7, deadline_seconds=0.05
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls > 20
    sender.close()
