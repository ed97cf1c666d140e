"""How agents find each other, and what asks too much of them: real sockets on loopback, no root."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent import datapaths
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.channel import DEFAULT_HANDSHAKE_LIMIT_NS
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import (
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    TaggingError,
)
from mltswitch.hostagent.network.features import Egress
from mltswitch.hostagent.tagging import ByFunction
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.hostagent.transport.exchange import MOST_UNSAID_BYTES
from mltswitch.hostagent.transport.messages import Goodbye, Ping, encode_message
from mltswitch.hostagent.transport.settings import Transport
from tests.hostagent.background import eventually
from tests.hostagent.callers import called, calling_in_vain, hello, listening
from tests.hostagent.opening import Make, opening

DSCP = 34
PATIENCE_SECONDS = 30.0
TRIES = 12
UNTIL_GIVEN_UP_SECONDS = DEFAULT_HANDSHAKE_LIMIT_NS / 1e9
"""A call that nobody takes."""


@pytest.fixture
def opened() -> Iterator[Make]:
    with opening() as one:
        yield one


def values(count: int = 5000) -> NDArray[np.float32]:
    return np.random.default_rng(2).standard_normal(count).astype(np.float32)


def exchange(one: Agent, its_name: str, other: Agent, other_name: str, tensor: int) -> None:
    """One tensor from one to the other."""
    sent, buffer = values(), np.zeros(5000, np.float32)
    there = other.post_recv(
        its_name, buffer, tensor=tensor, round_number=1, deadline_seconds=PATIENCE_SECONDS
    )
    here = one.post_send(
        other_name, sent, tensor=tensor, round_number=1, dscp=DSCP, deadline_seconds=PATIENCE_SECONDS
    )
    here.wait(PATIENCE_SECONDS)
    there.wait(PATIENCE_SECONDS)
    assert (sent == buffer).all()


def has_two_links(agent: Agent) -> bool:
    """Nothing is left of the calls that were not answered."""
    roster = agent._engine._roster
    return len(roster.links) == len(roster.by_token) == len(roster.by_name) == 2


@pytest.mark.parametrize("transport", [Transport.MLT, Transport.TCP])
def test_all_may_call_all_at_once(opened: Make, transport: Transport) -> None:
    for attempt in range(TRIES if transport is Transport.MLT else 3):
        names = [f"host{attempt}-{letter}" for letter in "abc"]
        agents = {name: opened(name, transport=transport) for name in names}
        ways = list(permutations(names, 2))
        with ThreadPoolExecutor(len(ways)) as pool:
            calls = [
                pool.submit(agents[one].connect, other, listening(agents[other]), PATIENCE_SECONDS)
                for one, other in ways
            ]
        for call in calls:
            call.result()
        for number, (one, other) in enumerate(ways):
            exchange(agents[one], one, agents[other], other, number)
        for agent in agents.values():
            assert len(agent.snapshot().peers) == 2
            eventually(partial(has_two_links, agent))
        for agent in agents.values():
            agent.close()


def test_who_is_connected_by_the_peer_need_not_call(opened: Make) -> None:
    one, other = opened("one-a"), opened("two-b")
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    other.wait_for_peers(["one-a"], PATIENCE_SECONDS)
    other.connect("one-a", listening(one), PATIENCE_SECONDS)
    with pytest.raises(PeerRefusedError, match="connected already"):
        one.connect("two-b", listening(other), PATIENCE_SECONDS)
    one.wait_for_peers(["two-b"], PATIENCE_SECONDS)
    exchange(one, "one-a", other, "two-b", 1)


def test_an_attempt_that_took_too_long_is_given_up(opened: Make) -> None:
    one, other = opened("one-a"), opened("two-b")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = Endpoint("127.0.0.1", silent.getsockname()[1])
        with ThreadPoolExecutor(1) as pool:
            patient = pool.submit(one.connect, "two-b", nobody, 0.5)
            eventually(lambda: bool(one._engine._roster.links))
            with pytest.raises(PeerRefusedError, match="being connected"):
                one.connect("two-b", nobody, PATIENCE_SECONDS)  # it is told at once
            assert one._engine._roster.links, "the other thread's attempt goes on"
            with pytest.raises(DeadlineExceededError, match=r"no connection within 0\.5 s"):
                patient.result()
        eventually(lambda: not one._engine._roster.links)
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    exchange(one, "one-a", other, "two-b", 1)


@pytest.mark.parametrize("transport", [Transport.MLT, Transport.TCP])
def test_a_post_that_the_other_end_never_made_has_nothing_to_tell(opened: Make, transport: Transport) -> None:
    one, other = (opened(name, transport=transport) for name in ("one-a", "two-b"))
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    short: dict[str, Any] = {"tensor": 1, "round_number": 1, "deadline_seconds": 0.05}
    for post in (
        one.post_send("two-b", values(), dscp=DSCP, **short),
        one.post_recv("two-b", np.zeros(5000, np.float32), **short),
    ):
        with pytest.raises(DeadlineExceededError):
            post.wait(PATIENCE_SECONDS)
        done = post.completion
        assert done is not None
        assert (done.statistics, done.received, done.layout, done.paths) == (None, None, None, ())
    exchange(one, "one-a", other, "two-b", 2)


def test_who_has_left_is_waited_for(opened: Make) -> None:
    one, other = opened("one-a"), opened("two-b")
    other.connect("one-a", listening(one), PATIENCE_SECONDS)
    one.wait_for_peers(["two-b"], PATIENCE_SECONDS)
    other.close("back soon")
    eventually(lambda: one._peers.error_of("two-b") is not None)
    with pytest.raises(DeadlineExceededError, match=r"has not connected within 0\.05 s; before: .*back soon"):
        one.wait_for_peers(["two-b"], 0.05)
    again = opened("two-b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.wait_for_peers, ["two-b"], PATIENCE_SECONDS)
        again.connect("one-a", listening(one), PATIENCE_SECONDS)
        waiting.result()


@pytest.mark.parametrize(("here", "there"), [(1, 2), (2, 1), (1, 4), (4, 3)])
def test_ends_with_different_numbers_of_paths(opened: Make, here: int, there: int) -> None:
    one, other = opened("one-a", here), opened("two-b", there)
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    other.wait_for_peers(["one-a"], PATIENCE_SECONDS)
    exchange(one, "one-a", other, "two-b", 1)
    exchange(other, "two-b", one, "one-a", 1)
    assert all(entry.snapshot().unknown_datagrams == 0 for entry in (one, other))


@pytest.mark.parametrize(
    "ask",
    [
        lambda agent, _: agent.connect("c", None),
        lambda agent, _: agent.connect("c", "127.0.0.1:5"),
        lambda agent, _: agent.connect(5, Endpoint("127.0.0.1", 5)),
        lambda agent, _: agent.connect("two-b", Endpoint("127.0.0.1", 5), float("nan")),
        lambda agent, _: agent.cancel(None, "because"),
        lambda agent, transfer: agent.cancel(transfer, None),
        lambda agent, _: agent.observe(None),
        lambda agent, _: agent.close(None),
        lambda agent, _: agent.wait_for_peers("two-b", 1),
        lambda agent, _: agent.snapshot(None),
        lambda agent, _: agent.post_recv(["two-b"], values(), tensor=7, round_number=1),
        lambda agent, _: agent.post_recv("two-b", values(), tensor=7, round_number=1, completions="mine"),
        lambda agent, _: agent.post_recv(
            "two-b", values(), tensor=7, round_number=1, deadline_seconds=10**400
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_and_harms_nobody(
    opened: Make, ask: Callable[[Agent, object], object]
) -> None:
    one, other = opened("one-a"), opened("two-b")
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    other.wait_for_peers(["one-a"], PATIENCE_SECONDS)
    waiting = one.post_recv("two-b", np.zeros(10, np.float32), tensor=5, round_number=1)
    with pytest.raises(UserInputError):
        ask(one, waiting)
    waiting.cancel("no longer wanted \ud800")
    with pytest.raises(CancelledError, match="no longer wanted"):
        waiting.wait(PATIENCE_SECONDS)
    exchange(one, "one-a", other, "two-b", 1)
    one.close("enough \ud800")
    waiting.cancel()


def test_what_fails_in_the_agents_thread_fails_alone(opened: Make, caplog: pytest.LogCaptureFixture) -> None:
    one, other = opened("one-a"), opened("two-b")
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    one._engine.call(lambda: 1 // 0)
    exchange(one, "one-a", other, "two-b", 1)
    assert "asked for has failed" in caplog.text


def test_who_is_called_by_the_agent_must_not_wait_for_it(opened: Make) -> None:
    one, other = opened("one-a"), opened("two-b")
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    other.wait_for_peers(["one-a"], PATIENCE_SECONDS)
    never = one.post_recv("two-b", np.zeros(10, np.float32), tensor=5, round_number=1)
    for tensor, ask in enumerate([never.wait, one.close, one.snapshot]):
        other.post_recv("one-a", np.zeros(5000, np.float32), tensor=tensor, round_number=1)
        policy = ByFunction(lambda *_, ask=ask: ask())
        sending = one.post_send("two-b", values(), tensor=tensor, round_number=1, dscp=DSCP, policy=policy)
        with pytest.raises(TaggingError, match="own thread would never end"):
            sending.wait(PATIENCE_SECONDS)
    exchange(one, "one-a", other, "two-b", 9)


class Silent:
    """An observer that says nothing."""

    def observe(self, event: AgentEvent) -> None:
        """Not looked at."""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_at_once(opened: Make) -> None:
    one, other = opened("one-a"), opened("two-b")
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    other.wait_for_peers(["one-a"], PATIENCE_SECONDS)
    open_one = one.post_recv("two-b", np.zeros(10, np.float32), tensor=5, round_number=1)
    questions: list[Callable[[], object]] = [
        lambda: one.post_send("two-b", values(), tensor=1, round_number=1, dscp=DSCP),
        lambda: one.post_recv("two-b", values(), tensor=1, round_number=1),
        open_one.wait,
        lambda: one.connect("three-c", Endpoint("127.0.0.1", 5)),
        lambda: one.wait_for_peers(["two-b"], 1),
        lambda: one.wait_for_a_peer(1),
        lambda: one.poll(1),
        open_one.cancel,
        lambda: one.observe(Silent()),
        lambda: one.stop_observing(Silent()),
        one.snapshot,
        one.close,
    ]
    for question in questions:
        child = os.fork()
        if not child:
            try:
                question()
            except CancelledError as error:
                os._exit(0 if "forked" in str(error) else 2)
            except BaseException:  # noqa: BLE001  (the child must end here whatever it is)
                os._exit(3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    exchange(one, "one-a", other, "two-b", 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_leaves_the_block_closes_nothing(opened: Make) -> None:
    other = opened("two-b")
    with opened("one-a") as one:
        one.connect("two-b", listening(other), PATIENCE_SECONDS)
        other.wait_for_peers(["one-a"], PATIENCE_SECONDS)
        never = one.post_recv("two-b", np.zeros(10, np.float32), tensor=5, round_number=1)
        child = os.fork()
        if not child:
            try:
                one.__exit__(None, None, None)
            except BaseException:  # noqa: BLE001  (the child must end here whatever it is)
                os._exit(2)
            os._exit(0 if never.completion is None else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        exchange(one, "one-a", other, "two-b", 1)


def test_memory_of_a_receive_is_one_posts_alone(opened: Make) -> None:
    one, other = opened("one-a", catch_reuse=True), opened("two-b")
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    buffer = np.zeros(100, np.float32)
    first = one.post_recv("two-b", buffer[:60], tensor=1, round_number=1)
    one.post_recv("two-b", buffer[60:], tensor=2, round_number=1)
    with pytest.raises(UserInputError, match="overlaps that of tensor 1, round 1"):
        one.post_recv("two-b", buffer[50:], tensor=3, round_number=1)
    with pytest.raises(UserInputError, match="overlaps"):
        one.post_send("two-b", buffer[50:60], tensor=3, round_number=1, dscp=DSCP)
    first.cancel()
    with pytest.raises(CancelledError):
        first.wait(PATIENCE_SECONDS)
    one.post_send("two-b", buffer[:60], tensor=3, round_number=1, dscp=DSCP)
    one.post_send("two-b", buffer[:60], tensor=4, round_number=1, dscp=DSCP)


def test_one_that_cannot_be_reached_is_no_reason_not_to_be_called(opened: Make) -> None:
    """Its own call fails, and the peer's, which was held back meanwhile or not, is answered."""
    one, other = opened("one-a"), opened("two-b")
    nobody = Endpoint("127.0.98.1", 1)
    failures: list[Exception] = []

    def call() -> None:
        try:
            one.connect("two-b", nobody, PATIENCE_SECONDS)
        except PeerUnreachableError as error:
            failures.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    other.connect("one-a", listening(one), PATIENCE_SECONDS)
    calling.join(PATIENCE_SECONDS)
    exchange(one, "one-a", other, "two-b", 1)


def test_what_a_stranger_says_in_a_peers_name_ends_no_peer(opened: Make) -> None:
    one, other = opened("one-a"), opened("two-b")
    other.connect("one-a", listening(one), PATIENCE_SECONDS)
    one.wait_for_peers(["two-b"], PATIENCE_SECONDS)
    with called(one, hello("two-b", 7) + encode_message(Goodbye("bye"))) as stranger:
        while stranger.recv(1000):
            pass
    one.wait_for_peers(["two-b"], 0)
    exchange(one, "one-a", other, "two-b", 1)


def test_a_call_that_was_held_back_is_answered_once_and_at_once_where_ours_fails(opened: Make) -> None:
    one = opened("one-a")
    with (
        calling_in_vain(one, "two-b") as (calling, end),
        called(one, hello("two-b", 7)) as first,
        called(one, hello("two-b", 8)) as second,
    ):
        eventually(lambda: sum(link.is_held_back for link in one._engine._roster.links) == 2)
        end()
        calling.result(UNTIL_GIVEN_UP_SECONDS / 2)  # by then nobody has been given up
        answered = [bool(entry.recv(1)) for entry in (first, second)]
        assert answered == [True, False]


def test_a_call_that_is_held_back_makes_us_keep_little(opened: Make) -> None:
    one = opened("one-a")
    links = one._engine._roster.links
    with calling_in_vain(one, "two-b") as (calling, end), called(one, hello("two-b", 7)) as held:
        eventually(lambda: any(link.is_held_back for link in links))
        with suppress(OSError):  # it is left meanwhile
            held.sendall(encode_message(Ping(1)) * (2 * MOST_UNSAID_BYTES // 13))
        eventually(lambda: len(links) == 1)
        end()
        with pytest.raises(PeerUnreachableError, match="closed the connection"):
            calling.result()


def test_who_hears_of_a_loss_may_call_again_at_once(opened: Make) -> None:
    one, other = opened("one-a"), opened("two-b")
    told = threading.Event()

    class Returning:
        """Calls again as soon as it hears of a loss."""

        def observe(self, event: AgentEvent) -> None:
            if isinstance(event, PeerLost):
                told.set()

    one.observe(Returning())
    one.connect("two-b", listening(other), PATIENCE_SECONDS)
    other.close("restarting")
    assert told.wait(PATIENCE_SECONDS)
    again = opened("two-b")
    one.connect("two-b", listening(again), PATIENCE_SECONDS)
    exchange(one, "one-a", again, "two-b", 1)


def test_a_peer_whose_paths_lead_nowhere_hears_why(opened: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(address: str) -> Egress:
        raise MachineError(f"no route to {address}")

    one = opened("one-a")
    monkeypatch.setattr(datapaths, "egress", unreachable)
    with called(one, hello("two-b", 7)) as peer:
        said = b"".join(iter(partial(peer.recv, 1000), b""))
    assert said == encode_message(Goodbye("no route leads to any of its data addresses"))


@contextmanager
def not_answering() -> Iterator[Endpoint]:
    """Where connections are neither taken nor refused: one fills the queue of those that wait to be."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        there = full.getsockname()
        with socket.create_connection(there):
            yield Endpoint(*there)


def test_a_call_of_ours_that_nobody_takes_holds_no_peers_back(opened: Make) -> None:
    """It might be answered for seconds, and the peer's is there."""
    one, other = opened("one-a"), opened("two-b")
    with not_answering() as nobody, ThreadPoolExecutor(1) as pool:
        calling = pool.submit(one.connect, "two-b", nobody, PATIENCE_SECONDS)
        eventually(lambda: bool(one._engine._roster.links))
        other.connect("one-a", listening(one), UNTIL_GIVEN_UP_SECONDS / 2)
        calling.result(UNTIL_GIVEN_UP_SECONDS / 2)
        eventually(lambda: len(one._engine._roster.links) == 1)
    exchange(one, "one-a", other, "two-b", 1)
