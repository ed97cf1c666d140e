"""How agents find each other, whom they let in, and how they end."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent import (
    Agent,
    AgentError,
    CancelledError,
    DeadlineExceededError,
    Endpoint,
    PeerBusyError,
    PeerRefusedError,
    PeerUnreachableError,
)
from mltswitch.hostagent.security.keys import make_keys
from mltswitch.hostagent.telemetry.events import (
    AgentEnded,
    AgentStarted,
    PeerConnected,
    PeerLost,
    TransferEnded,
    TransferPosted,
)
from tests.hostagent.background import eventually, in_background
from tests.hostagent.ends import (
    PATIENCE_SECONDS,
    RECEIVER,
    SENDER,
    Make,
    Notes,
    connect,
    exchange,
    joined,
    opening,
    values,
)


def free_place() -> Endpoint:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return Endpoint("127.0.0.1", taken.getsockname()[1])


# Meeting


def test_connecting_waits_for_who_is_not_there_yet(make: Make) -> None:
    place = free_place()
    one = make("one", peers={"other": str(place)})
    with in_background(one.connect, "other", timeout_seconds=PATIENCE_SECONDS) as connected:
        time.sleep(0.1)
        other = make("other", listen=str(place))
        connected()
    assert other.wait_for_any_peer(PATIENCE_SECONDS) == "one"
    one.connect("other")  # it is connected
    exchange(one, other)


def test_nobody_comes(make: Make) -> None:
    one, place = make("one"), free_place()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(PeerUnreachableError, match="in time"),
    ):
        one.connect("other", Endpoint("127.0.0.1", silent.getsockname()[1]), timeout_seconds=0.3)
    with pytest.raises(PeerUnreachableError, match=f"^peer other: cannot be reached at {place}: "):
        one.connect("other", place, timeout_seconds=0.1)
    with pytest.raises(UserInputError, match="nobody says where it listens"):
        one.connect("other")
    with pytest.raises(DeadlineExceededError, match=r"^peer a, b: not connected within 0\.01 s"):
        one.wait_for_peers(["a", "b"], 0.01)
    with pytest.raises(DeadlineExceededError, match="nobody has connected"):
        one.wait_for_any_peer(0.01)
    with pytest.raises(PeerUnreachableError, match=r"^peer other, tensor 3, round 4: is not connected"):
        one.post_send("other", values(9), tensor=3, round_number=4)


def test_both_may_call_at_once(make: Make) -> None:
    one, other = make("one"), make("other")
    notes = Notes()
    one.observe(notes)
    with ThreadPoolExecutor(2) as pool:
        for number in range(200):
            calls = [
                pool.submit(
                    caller.connect, called.name, called.listening_at, timeout_seconds=PATIENCE_SECONDS
                )
                for caller, called in ((one, other), (other, one))
            ]
            for call in calls:
                call.result(PATIENCE_SECONDS)
            assert (one.peers, other.peers) == (("other",), ("one",))
            if number % 20 == 0:
                exchange(one, other, tensor=number)
            one.disconnect("other")
            eventually(lambda: one.peers == other.peers == ())
    eventually(lambda: sum(event.peer == "other" for event in notes.of(PeerLost)) == 200)
    assert len(notes.of(PeerConnected)) == 200


@pytest.mark.parametrize("is_lesser", [True, False])
def test_a_call_of_ours_that_nobody_takes_holds_no_peer_back(make: Make, is_lesser: bool) -> None:
    """It might be tried for a minute, and the peer is there."""
    one, other = (make("a"), make("b")) if is_lesser else (make("b"), make("a"))
    with in_background(one.connect, other.name, free_place(), timeout_seconds=PATIENCE_SECONDS) as calling:
        time.sleep(0.1)
        other.connect(one.name, one.listening_at, timeout_seconds=5)
        calling()
    exchange(one, other)


def test_names_that_are_not_who_answers(make: Make) -> None:
    one, other = make("one"), make("other")
    with pytest.raises(PeerRefusedError, match=r"^peer third: who answers there is other"):
        one.connect("third", other.listening_at)
    with pytest.raises(UserInputError, match="is this agent itself"):
        one.connect("one", one.listening_at)
    with pytest.raises(PeerRefusedError, match=r"who answers there is one|our own name"):
        one.connect("other", one.listening_at)
    twin = make("one")
    with pytest.raises(PeerRefusedError, match=r"our own name|who answers there is one"):
        twin.connect("other", one.listening_at)
    connect(one, other)
    assert other.peers == ("one",)


def test_the_second_of_one_name_is_busy_until_the_first_has_left(make: Make) -> None:
    server, first = make("server"), make("worker")
    connect(first, server)
    second = make("worker")
    with pytest.raises(PeerBusyError, match="refuses: worker is connected already"):
        second.connect("server", server.listening_at, timeout_seconds=0.1)
    exchange(first, server)
    with in_background(
        second.connect, "server", server.listening_at, timeout_seconds=PATIENCE_SECONDS
    ) as connected:
        first.close()
        connected()
    server.wait_for_peers(["worker"], PATIENCE_SECONDS)  # the other end may be a moment later
    exchange(second, server, tensor=2)


def test_who_is_not_admitted_hears_why(make: Make) -> None:
    notes = Notes()
    asked: list[str] = []

    def admit(name: str) -> str | None:
        asked.append(name)
        if name == "broken":
            raise ValueError("no list")
        return {"unwanted": "not in this \x1b job"}.get(name, "" if name == "empty" else None)

    server = make("server", admit=admit, observers=[notes])
    with pytest.raises(PeerRefusedError, match=r"^peer server: refuses: not in this \? job$"):
        make("unwanted").connect("server", server.listening_at)
    with pytest.raises(PeerRefusedError, match="could not be asked"):
        make("broken").connect("server", server.listening_at)
    assert server.peers == ()
    connect(make("welcome"), server)
    connect(make("empty"), server)
    connect(server, make("broken"))  # whom we call ourselves needs no leave
    assert asked == ["unwanted", "broken", "welcome", "empty"]
    assert [(event.peer, event.result) for event in notes.of(PeerLost)] == [
        ("unwanted", "peer_refused"),
        ("broken", "peer_refused"),
    ]


@pytest.fixture
def jobs(tmp_path: Path) -> dict[str, Path]:
    """Folders of keys: one and other of one job, stranger of another."""
    found: dict[str, Path] = {}
    for job, names in (("job", ("one", "other")), ("elsewhere", ("stranger",))):
        made = make_keys(
            tmp_path / job, {name: [] for name in names}, days=1, authority_days=2, now=datetime.now(UTC)
        )
        found |= {host.name: host.folder for host in made.hosts}
    return found


def test_keys_of_one_job(make: Make, jobs: dict[str, Path]) -> None:
    one, other = make("one", keys=str(jobs["one"])), make("other", keys=str(jobs["other"]))
    assert one.config.authenticate
    connect(one, other)
    exchange(one, other)
    with pytest.raises(PeerRefusedError, match="third"):
        one.connect("third", other.listening_at)


@pytest.mark.parametrize("is_caller", [True, False])
def test_keys_of_another_job_or_none(make: Make, jobs: dict[str, Path], is_caller: bool) -> None:
    one = make("one", keys=str(jobs["one"]))
    for stranger in (make("stranger", keys=str(jobs["stranger"])), make("plain")):
        caller, called = (stranger, one) if is_caller else (one, stranger)
        with pytest.raises((PeerRefusedError, PeerUnreachableError), match=f"peer {called.name}"):
            caller.connect(called.name, called.listening_at, timeout_seconds=0.5)
        assert one.peers == stranger.peers == ()
    other = make("other", keys=str(jobs["other"]))
    connect(one, other)


# Ends


def test_a_peer_that_closes_ends_its_transfers(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    notes = Notes()
    receiver.observe(notes)
    mine = sender.post_send(RECEIVER, values(), tensor=1)
    theirs = receiver.post_receive(SENDER, values(), tensor=2)
    sender.close()
    with pytest.raises(
        PeerUnreachableError, match=r"^peer worker, tensor 2, round 0: has left: the agent was closed"
    ):
        theirs.wait(PATIENCE_SECONDS)
    with pytest.raises(CancelledError, match=r"^peer server, tensor 1, round 0: the agent was closed"):
        mine.wait(PATIENCE_SECONDS)
    eventually(lambda: receiver.peers == ())
    (lost,) = notes.of(PeerLost)
    assert (lost.peer, lost.result) == ("worker", "peer_unreachable")


def test_disconnecting_says_why_and_may_be_followed_by_another_connection(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    theirs = receiver.post_receive(SENDER, values(), tensor=2)
    sender.disconnect(RECEIVER, "a new \nepoch")
    with pytest.raises(PeerUnreachableError, match=r"has left: a new \?epoch"):
        theirs.wait(PATIENCE_SECONDS)
    sender.disconnect("nobody")
    sender.connect(RECEIVER, receiver.listening_at)
    receiver.wait_for_peers([SENDER])
    exchange(sender, receiver)


CHILD = """
import sys, numpy as np
from mltswitch.hostagent import Agent, AgentConfig
agent = Agent(AgentConfig(name="worker", listen="127.0.0.1:0", line_rate="20Mbps", mtu_bytes=1500))
agent.connect("server", sys.argv[1])
agent.post_send("server", np.ones(2_000_000, np.float32), tensor=1)
print("sending", flush=True)
sys.stdin.read()
"""


@contextmanager
def child(server: Agent, *, ends: str = "") -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own that is sending a tensor; `ends`: what it does instead of waiting."""
    program = CHILD.replace("sys.stdin.read()", ends) if ends else CHILD
    with subprocess.Popen(
        [sys.executable, "-c", program, str(server.listening_at)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "sending\n"
            yield process
        finally:
            process.kill()


def test_a_process_that_is_killed_is_noticed_and_may_come_again(make: Make) -> None:
    server = make("server")
    for number in range(2):
        with child(server) as process:
            server.wait_for_peers(["worker"], PATIENCE_SECONDS)
            there = server.post_receive("worker", np.zeros(2_000_000, np.float32), tensor=1, round_number=0)
            eventually(lambda: there.progress.packets_received > 10)  # noqa: B023  (it is called at once)
            process.kill()
            with pytest.raises(PeerUnreachableError, match="peer worker, tensor 1"):
                there.wait(PATIENCE_SECONDS)
        eventually(lambda: server.peers == ())
        assert number < 2
    worker = make("worker")
    connect(worker, server)
    exchange(worker, server)


def test_a_process_that_stands_still_is_silent_for_too_long(make: Make) -> None:
    server = make("server", mlt={"silence_seconds": 1.0})
    with child(server) as process:
        server.wait_for_peers(["worker"], PATIENCE_SECONDS)
        there = server.post_receive("worker", np.zeros(2_000_000, np.float32), tensor=1)
        eventually(lambda: there.progress.packets_received > 10)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(PeerUnreachableError, match="silent for too long"):
            there.wait(PATIENCE_SECONDS)
        eventually(lambda: server.peers == ())


@pytest.mark.parametrize("ends", ["", "sys.exit(0)", "del agent; import gc; gc.collect()", "agent.close()"])
def test_a_program_may_end_in_the_middle(make: Make, ends: str) -> None:
    """With its agent open, or forgotten: no crash, nothing to wait for."""
    server = make("server")
    with child(server, ends=ends or "pass") as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(PATIENCE_SECONDS) == 0, errors
        assert errors == ""
    eventually(lambda: server.peers == ())


def test_closing_ends_all_waits(make: Make) -> None:
    sender, receiver = joined(make)
    never = receiver.post_receive(SENDER, values(), tensor=1)
    waits: list[Callable[[], object]] = [
        lambda: receiver.wait_for_peers(["nobody"], PATIENCE_SECONDS),
        lambda: receiver.connect("nobody", free_place(), timeout_seconds=PATIENCE_SECONDS),
        lambda: receiver.receive_message(SENDER, PATIENCE_SECONDS),
        lambda: never.wait(PATIENCE_SECONDS),
        lambda: receiver.channel("late").post_send(SENDER, values(), tensor=1),
    ]
    with ThreadPoolExecutor(2 * len(waits)) as pool:
        found = [pool.submit(wait) for wait in waits]
        time.sleep(0.1)
        closing = [pool.submit(receiver.close) for _ in range(3)]
        for entry in found:
            with pytest.raises(AgentError, match="closed"):
                entry.result(10)
        for closed in closing:
            closed.result(10)
    receiver.close()
    eventually(lambda: sender.peers == ())


def test_an_agent_whose_thread_is_ended_by_what_it_calls_is_closed(
    pair: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = pair
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # as Python's own does with SystemExit
    never = receiver.post_receive(SENDER, values(9), tensor=1)
    with in_background(receiver.receive_message, SENDER, PATIENCE_SECONDS) as waited:
        ended = receiver.post_receive(SENDER, values(9), tensor=2, deadline_seconds=0.1)
        ended.add_done_callback(sys.exit)
        with pytest.raises(AgentError, match="closed"):
            waited()
    with pytest.raises(CancelledError, match="closed"):
        never.wait(PATIENCE_SECONDS)
    eventually(lambda: sender.peers == ())
    receiver.close()
    receiver.engine._thread.join(PATIENCE_SECONDS)


def test_asking_after_the_end(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    ended = receiver.post_receive(SENDER, np.zeros(9, np.float32), tensor=1)
    sender.post_send(RECEIVER, values(9), tensor=1)
    never = receiver.post_receive(SENDER, values(9), tensor=2)
    other = receiver.post_receive(SENDER, values(9), tensor=3)
    place = receiver.listening_at
    ended.wait(PATIENCE_SECONDS)
    receiver.close()
    asks: list[Callable[[], object]] = [
        lambda: receiver.post_send(SENDER, values(9), tensor=1),
        lambda: receiver.post_receive(SENDER, values(9), tensor=1),
        lambda: receiver.connect(SENDER, sender.listening_at),
        lambda: receiver.wait_for_peers([SENDER]),
        receiver.wait_for_any_peer,
        lambda: receiver.channel("new"),
        lambda: receiver.send_message(SENDER, b"x"),
        receiver.snapshot,
        never.wait,
    ]
    for ask in asks:
        with pytest.raises(AgentError, match="closed"):
            ask()
    assert ended.wait().error is None
    told: list[bool] = []
    other.add_done_callback(lambda: told.append(True))
    assert told == [True]
    never.cancel()
    never.finish()
    receiver.disconnect(SENDER)
    assert receiver.peers == ()
    assert receiver.listening_at == place
    assert receiver.poll() is None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_and_disturbs_nobody(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    never = receiver.post_receive(SENDER, values(9), tensor=9)
    asks: list[Callable[[], object]] = [
        lambda: receiver.post_send(SENDER, values(9), tensor=1),
        lambda: receiver.wait_for_any_peer(1),
        lambda: receiver.connect("x", free_place()),
        lambda: receiver.send_message(SENDER, b"x"),
        lambda: receiver.receive_message(SENDER, 1),
        lambda: receiver.channel("x"),
        never.wait,
    ]
    process = os.fork()
    if not process:
        code = 1
        with suppress(BaseException):
            for ask in asks:
                with pytest.raises((UserInputError, AgentError), match="process that opened it"):
                    ask()
            receiver.__exit__(None, None, None)
            assert never.completion is None
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    exchange(sender, receiver)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_keeps_no_port(make: Make) -> None:
    agent = make("one")
    place = agent.listening_at
    told, tell = os.pipe()
    process = os.fork()
    if not process:
        os.write(tell, b"1")  # by now it has closed what it inherited
        signal.pause()
    try:
        os.read(told, 1)
        agent.close()
        make("one", listen=str(place))
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


# Observers and figures


def test_observers_are_told_in_order(make: Make) -> None:
    notes = Notes()
    sender, receiver = make(SENDER, observers=[notes]), make(RECEIVER)
    connect(sender, receiver)
    exchange(sender, receiver, tensor=5)
    with pytest.raises(DeadlineExceededError):
        sender.post_receive(RECEIVER, values(9), tensor=6, deadline_seconds=0.05).wait(PATIENCE_SECONDS)
    open_one = sender.post_send(RECEIVER, values(9), tensor=7)
    sender.close()
    kinds = [type(event) for event in notes.events]
    assert kinds[0] is AgentStarted
    assert kinds[-1] is AgentEnded
    posted, ended = notes.of(TransferPosted), notes.of(TransferEnded)
    assert [(entry.tensor, entry.direction) for entry in posted] == [(5, "send"), (6, "receive"), (7, "send")]
    assert [(entry.tensor, entry.result) for entry in ended] == [
        (5, "completed"),
        (6, "deadline_exceeded"),
        (7, "cancelled"),
    ]
    assert open_one.completion is not None
    assert kinds.index(PeerConnected) < kinds.index(TransferPosted) < kinds.index(PeerLost)


def test_an_observer_that_fails_is_told_nothing_more(
    pair: tuple[Agent, Agent], caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def __init__(self) -> None:
            self.calls = 0

        def observe(self, event: object) -> None:
            self.calls += 1
            raise RuntimeError("of the observer's")

    failing, notes = Failing(), Notes()
    pair[0].observe(failing)
    pair[0].observe(notes)
    exchange(*pair)
    eventually(lambda: len(notes.events) >= 2)
    assert failing.calls == 1
    assert "of the observer's" in caplog.text
    pair[0].stop_observing(notes)
    count = len(notes.events)
    exchange(*pair, tensor=2)
    assert len(notes.events) == count


def test_an_observer_is_told_of_what_it_wants(pair: tuple[Agent, Agent]) -> None:
    wanting, notes = Notes(), Notes()
    pair[0].observe(wanting, PeerLost)
    assert not pair[0].engine.hears(TransferEnded)
    exchange(*pair)
    pair[0].observe(notes)
    assert pair[0].engine.hears(TransferEnded)
    exchange(*pair, tensor=2)
    pair[1].close()
    eventually(lambda: len(wanting.events) > 0)
    assert [type(event) for event in wanting.events] == [PeerLost]
    eventually(lambda: len(notes.of(PeerLost)) > 0)
    assert [event.tensor for event in notes.of(TransferEnded)] == [2]


def test_a_port_that_is_taken(make: Make) -> None:
    taken = make("one").listening_at
    with pytest.raises(MachineError, match=f"{taken}: cannot listen"):
        make("two", listen=str(taken))


def test_nothing_stays_of_agents_that_have_ended(make: Make) -> None:
    joined(make)[0].close()

    def entries() -> tuple[int, int]:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    with opening() as first:
        exchange(*joined(first))
    before = entries()
    for _ in range(10):
        with opening() as one:
            exchange(*joined(one))
    eventually(lambda: entries() <= before)
