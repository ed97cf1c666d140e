"""What an agent makes of a post: when its time begins, what its errors name, and whom its end is told."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic_ns
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.completions import Completion, CompletionQueue, Transfer
from mltswitch.hostagent.errors import CancelledError
from mltswitch.hostagent.telemetry.events import AgentEvent, TransferPosted
from mltswitch.hostagent.transport.interfaces import Direction, Incoming, Outgoing
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.units import NANOSECONDS
from tests.hostagent.opening import Make, joined, opening

PATIENCE_SECONDS = 60.0
DSCP = 34


@pytest.fixture
def make() -> Iterator[Make]:
    with opening() as one:
        yield one


def send(agent: Agent, round_number: int = 1, tensor: int = 3, **options: Any) -> Transfer:
    data = np.arange(1, 1001, dtype=np.float32)
    settings: dict[str, Any] = {"dscp": DSCP} | options
    return agent.post_send("host-b", data, tensor=tensor, round_number=round_number, **settings)


def receive(agent: Agent, round_number: int = 1, tensor: int = 3, **options: Any) -> Transfer:
    memory = np.zeros(1000, np.float32)
    return agent.post_recv("host-a", memory, tensor=tensor, round_number=round_number, **options)


@pytest.mark.parametrize(
    ("post", "handed_to"),
    [
        (lambda sender, _: send(sender, deadline_seconds=2), "send"),
        (lambda _, receiver: receive(receiver, deadline_seconds=2), "receive"),
    ],
)
def test_the_time_of_a_post_is_that_of_the_call(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    post: Callable[[Agent, Agent], Transfer],
    handed_to: str,
) -> None:
    """However long the engine is busy with something else."""
    ends = joined(make)
    agent, peer = (ends[0], "host-b") if handed_to == "send" else (ends[1], "host-a")
    given: list[Outgoing | Incoming] = []
    told: list[AgentEvent] = []
    monkeypatch.setattr(agent._engine.connection(peer), handed_to, lambda asked, _: given.append(asked))
    agent.observe(type("", (), {"observe": lambda _, event: told.append(event)})())
    goes_on, is_done = threading.Event(), threading.Event()
    agent._engine.call(lambda: goes_on.wait(PATIENCE_SECONDS))
    before_ns = monotonic_ns()
    post(*ends)
    after_ns = monotonic_ns()
    agent._engine.call(is_done.set)
    goes_on.set()
    assert is_done.wait(PATIENCE_SECONDS)
    posted_ns = given[0].posted_ns
    assert posted_ns is not None
    assert before_ns <= posted_ns <= after_ns
    assert given[0].deadline_ns == posted_ns + 2 * NANOSECONDS
    assert [event.time_ns for event in told if isinstance(event, TransferPosted)] == [posted_ns]


@pytest.mark.parametrize("transport", Transport)
def test_the_time_of_a_transfer_counts_from_its_post(
    make: Make, monkeypatch: pytest.MonkeyPatch, transport: Transport
) -> None:
    sender, receiver = joined(make, transport=transport)
    there_at, here_at = receiver._engine.connection("host-a"), sender._engine.connection("host-b")
    take, give = there_at.receive, here_at.send
    monkeypatch.setattr(there_at, "receive", lambda asked, now_ns: take(_earlier(asked), now_ns))
    monkeypatch.setattr(here_at, "send", lambda asked, now_ns: give(_earlier(asked), now_ns))
    for transfer in (receive(receiver), send(sender)):
        statistics = transfer.wait(PATIENCE_SECONDS).statistics
        assert statistics is not None
        assert 100 <= statistics.seconds < 100 + PATIENCE_SECONDS


def _earlier(asked: Any) -> Any:
    return replace(asked, posted_ns=asked.posted_ns - 100 * NANOSECONDS)


@pytest.mark.parametrize("post", [send, receive])
def test_a_closed_agent_says_which_post_it_refuses(make: Make, post: Callable[..., Transfer]) -> None:
    agent = make("host-a")
    agent.close()
    with pytest.raises(
        CancelledError, match=r"^peer host-., tensor 3, round 5: the agent is closed"
    ) as raised:
        post(agent, 5)
    error = raised.value
    assert (error.peer[:-1], error.tensor, error.round_number) == ("host-", 3, 5)


@pytest.mark.parametrize("post", [send, receive])
def test_the_child_of_a_process_says_which_post_it_refuses(
    make: Make, monkeypatch: pytest.MonkeyPatch, post: Callable[..., Transfer]
) -> None:
    agent = make("host-a")
    with monkeypatch.context() as patched:
        patched.setattr(agent, "_process", agent._process + 1)
        with pytest.raises(CancelledError, match=r"^peer host-., tensor 3, round 5: .*forked"):
            post(agent, 5)


def test_memory_that_is_posted_twice_is_named(make: Make) -> None:
    agent = make("host-a", catch_reuse=True)
    memory = np.zeros(10, np.float32)
    goes_on = threading.Event()
    agent._engine.call(lambda: goes_on.wait(PATIENCE_SECONDS))  # else it fails at once: nobody is connected
    agent.post_recv("host-b", memory, tensor=1, round_number=2)
    for peer, said in (
        ("host-b", "which is posted. Wait"),
        ("host-c", "which is posted with peer host-b. Wait"),
    ):
        with pytest.raises(UserInputError, match=f"^peer {peer}, tensor 3, round 4: .* 1, round 2, {said}"):
            agent.post_recv(peer, memory, tensor=3, round_number=4)
    goes_on.set()


def test_who_has_waited_finds_the_completion_in_the_queue(make: Make) -> None:
    """A queue that takes its time: nobody who waits goes on before it has the completion."""

    class Slow(CompletionQueue):
        def __init__(self) -> None:
            super().__init__()
            self.transfer: Transfer | None = None
            self.goes_on = threading.Event()
            self.found: list[object] = []

        def add(self, completion: Completion) -> None:
            assert self.goes_on.wait(PATIENCE_SECONDS)
            assert self.transfer is not None
            # Whoever adds it knows the end already, and need not wait for itself.
            self.found += [self.transfer.completion, self.transfer.wait(), self.transfer._ended.is_set()]
            super().add(completion)

    sender, receiver = joined(make)
    slow = Slow()
    slow.transfer = receive(receiver, completions=slow)
    send(sender)
    slow.goes_on.set()
    completion = slow.transfer.wait(PATIENCE_SECONDS)
    assert slow.poll() is completion
    assert slow.found == [completion, completion, False]


@pytest.mark.parametrize("wish", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_a_queue_that_fails_harms_nobody(
    make: Make, caplog: pytest.LogCaptureFixture, wish: type[BaseException]
) -> None:
    class Leaving(CompletionQueue):
        def add(self, completion: Completion) -> None:
            raise wish(completion.tensor)

    sender, receiver = joined(make)
    other = send(sender, tensor=4)
    there, here = receive(receiver), send(sender, completions=Leaving())
    assert here.wait(PATIENCE_SECONDS).error is there.wait(PATIENCE_SECONDS).error is None
    assert [record.getMessage() for record in caplog.records] == ["a queue of completions has failed"]
    receive(receiver, tensor=4).wait(PATIENCE_SECONDS)
    assert other.wait(PATIENCE_SECONDS).error is None


@pytest.mark.parametrize("kind", [np.matrix])
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_arrives_whole(make: Make, kind: type[Any]) -> None:
    sender, receiver = joined(make)
    matrix, memory = kind(np.full((30, 100), 7, np.float32)), kind(np.zeros((30, 100), np.float32))
    there = receiver.post_recv("host-a", memory, tensor=1, round_number=1)
    sender.post_send("host-b", matrix, tensor=1, round_number=1, dscp=DSCP)
    completion = there.wait(PATIENCE_SECONDS)
    assert completion.direction is Direction.RECEIVE
    assert completion.statistics is not None
    assert completion.statistics.size_bytes == 12_000
    assert (np.asarray(memory) == 7).all()
