"""Whom an agent lets in, and what the others hear: real sockets on loopback, no root."""

from collections.abc import Iterator

import pytest

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.doctor.messages import PREAMBLE, Decoder
from mltswitch.hostagent.errors import (
    AgentError,
    DeadlineExceededError,
    PeerRefusedError,
)
from mltswitch.hostagent.telemetry.events import AgentEnded, AgentEvent, AgentStarted, PeerLost
from mltswitch.hostagent.transport.messages import Goodbye, Ping, encode_message
from tests.hostagent.background import eventually
from tests.hostagent.callers import answered, called, calling_in_vain, hello, listening
from tests.hostagent.opening import Make, opening

PATIENCE_SECONDS = 30.0


@pytest.fixture
def opened() -> Iterator[Make]:
    with opening() as one:
        yield one


class Losses:
    """Notes who was lost."""

    def __init__(self, agent: Agent) -> None:
        self.names: list[str] = []
        agent.observe(self)

    def observe(self, event: AgentEvent) -> None:
        if isinstance(event, PeerLost):
            self.names.append(event.peer)


@pytest.mark.parametrize("is_first", [True, False])
def test_who_is_not_let_in_hears_why_and_the_others_are_there(opened: Make, is_first: bool) -> None:
    one = opened("one-a", admit=lambda name: "" if name == "two-b" else f"{name} is not wanted")
    two, three = opened("two-b"), opened("three-c")
    losses = Losses(one)
    for agent in (three, two) if is_first else (two, three):
        if agent is two:
            two.connect("one-a", listening(one), PATIENCE_SECONDS)
            continue
        with pytest.raises(PeerRefusedError, match="refused the connection: three-c is not wanted"):
            three.connect("one-a", listening(one), PATIENCE_SECONDS)
    one.wait_for_peers(["two-b"], PATIENCE_SECONDS)
    eventually(lambda: len(losses.names) == 1)
    assert losses.names[0].startswith("127."), "its name is its own word, its address is not"


def test_whom_we_call_needs_no_leave(opened: Make) -> None:
    one, two = opened("one-a", admit=lambda _: "nobody"), opened("two-b")
    one.connect("two-b", listening(two), PATIENCE_SECONDS)
    two.wait_for_peers(["one-a"], PATIENCE_SECONDS)


@pytest.mark.parametrize("name", ["nobody-b", "zero-b"])
def test_whom_we_call_at_the_same_time_needs_none_either(opened: Make, name: str) -> None:
    """Whichever of the two calls is answered."""
    one = opened("one-a", admit=lambda _: "nobody", maximum_peers=1)
    roster = one._engine._roster
    with calling_in_vain(one, name) as (calling, end), called(one, hello(name, 7)) as other:
        eventually(lambda: any(link.is_held_back for link in roster.links) or name in roster.by_name)
        end()
        assert other.recv(1) != b""
        calling.result(PATIENCE_SECONDS)
        one.wait_for_peers([name], PATIENCE_SECONDS)


def test_observers_hear_of_a_refused_caller_once(opened: Make) -> None:
    events: list[AgentEvent] = []

    class All:
        def observe(self, event: AgentEvent) -> None:
            events.append(event)

    one, two = opened("one-a", admit=lambda _: "no", observers=(All(),)), opened("two-b")
    with pytest.raises(PeerRefusedError):
        two.connect("one-a", listening(one), PATIENCE_SECONDS)
    eventually(lambda: any(isinstance(event, PeerLost) for event in events))
    one.close()
    assert [type(event) for event in events] == [AgentStarted, PeerLost, AgentEnded]


@pytest.mark.parametrize("problem", [ValueError("no list"), SystemExit(1)])
def test_a_function_that_fails_lets_nobody_in_and_ends_nothing(opened: Make, problem: BaseException) -> None:
    def admit(name: str) -> str:
        if name == "two-b":
            return ""
        raise problem

    one, two, three = opened("one-a", admit=admit), opened("two-b"), opened("three-c")
    with pytest.raises(PeerRefusedError, match="refused the connection: cannot be decided about now"):
        three.connect("one-a", listening(one), PATIENCE_SECONDS)
    two.connect("one-a", listening(one), PATIENCE_SECONDS)


def test_no_more_peers_than_there_may_be(opened: Make) -> None:
    one = opened("one-a", maximum_peers=2)
    two, three, four = opened("two-b"), opened("three-c"), opened("four-d")
    two.connect("one-a", listening(one), PATIENCE_SECONDS)
    three.connect("one-a", listening(one), PATIENCE_SECONDS)
    with pytest.raises(PeerRefusedError, match="2 peers are connected, and no more may be"):
        four.connect("one-a", listening(one), PATIENCE_SECONDS)
    two.close()
    eventually(lambda: len(one._engine._roster.by_name) == 1)
    four.connect("one-a", listening(one), PATIENCE_SECONDS)


def test_nobody_fails_in_the_name_of_somebody_who_is_awaited(opened: Make) -> None:
    """Its HELLO is refused, for paths of another version of IP, or it is not even right."""
    one = opened("one-a")
    losses = Losses(one)
    of_ipv6 = hello("two-b", 7).replace(b'"127.0.99.1"', b'"fd00::1234"')
    for words in (of_ipv6, hello("two-b", 7).replace(b'"token": 7', b'"token": x')):
        assert len(words) == len(hello("two-b", 7))
        assert b"two-b" not in answered(one, words)
    eventually(lambda: len(losses.names) == 2)
    with pytest.raises(DeadlineExceededError, match=r"has not connected within 0\.1 s$"):
        one.wait_for_peers(["two-b"], 0.1)
    two = opened("two-b")
    two.connect("one-a", listening(one), PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(range(64)),
        b"\0\0\0\0\1",
        encode_message(Ping(1)),
        encode_message(Goodbye("hello")),
    ],
)
def test_who_begins_with_no_hello_hears_nothing(opened: Make, words: bytes) -> None:
    assert answered(opened("one-a"), words) == b""


def test_a_doctor_hears_that_this_is_an_agent(opened: Make) -> None:
    heard = answered(opened("one-a"), PREAMBLE)
    assert b"this is an agent" in heard
    assert b"token" not in heard
    with pytest.raises(PeerRefusedError, match="is an agent, and no doctor"):
        Decoder("host2").feed(heard)


@pytest.mark.parametrize("answer", [None, ""])
def test_no_reason_lets_in(opened: Make, answer: str | None) -> None:
    one, two = opened("one-a", admit=lambda _: answer), opened("two-b")
    two.connect("one-a", listening(one), PATIENCE_SECONDS)


@pytest.mark.parametrize("answer", [False, True, b"no", 5])
def test_what_is_no_reason_lets_nobody_in(opened: Make, answer: object) -> None:
    one, two = opened("one-a", admit=lambda _: answer), opened("two-b")
    with pytest.raises(PeerRefusedError, match="cannot be decided about now"):
        two.connect("one-a", listening(one), PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "words",
    [
        hello("two-b", 7).replace(b'"token": 7', b'"token": x'),
        hello("two-b", 7) + b"\0\0\0\1\xff",
        hello("two-b", 7).replace(b'"transport": "mlt"', b'"transport": "tcp"'),
    ],
)
def test_who_is_refused_hears_the_goodbye_alone(opened: Make, words: bytes) -> None:
    heard = answered(opened("one-a", admit=lambda _: "no"), words)
    assert heard == encode_message(Goodbye(heard[5:].decode()))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b'"token": 7,', b'"token":"7",'),
        (b'"window_bytes": 100000', b'"window_bytes": 1e5   '),
        (b'"authenticate": false', b'"authenticate": 0    '),
        (b'"port": 9999', b'"port": "99"'),
    ],
)
def test_numbers_are_numbers(opened: Make, field: bytes, value: bytes) -> None:
    right = hello("two-b", 7)
    assert len(value) - len(field) in {0, 1}
    wrong = right.replace(field, value)
    if len(wrong) > len(right):
        wrong = (int.from_bytes(right[:4]) + 1).to_bytes(4) + wrong[4:]
    assert b"protocol violation: hello: " in answered(opened("one-a"), wrong)


def test_one_peer_is_left_and_hears_why(opened: Make) -> None:
    one, two, three = opened("one-a"), opened("two-b"), opened("three-c")
    for agent in (two, three):
        agent.connect("one-a", listening(one), PATIENCE_SECONDS)
    one.wait_for_peers(["two-b", "three-c"], PATIENCE_SECONDS)
    buffers = [bytearray(400) for _ in range(3)]
    ours = one.post_recv("two-b", buffers[0], tensor=1, round_number=1, element_type="int8")
    theirs = two.post_recv("one-a", buffers[1], tensor=1, round_number=1, element_type="int8")
    others = three.post_recv("one-a", buffers[2], tensor=1, round_number=1, element_type="int8")
    one.disconnect("two-b", "you ask for too much")
    for transfer in (ours, theirs):
        with pytest.raises(AgentError, match="you ask for too much"):
            transfer.wait(PATIENCE_SECONDS)
    one.disconnect("nobody")
    one.post_send("three-c", bytes(400), tensor=1, round_number=1, dscp=34, element_type="int8")
    others.wait(PATIENCE_SECONDS)
    two.connect("one-a", listening(one), PATIENCE_SECONDS)


def test_a_caller_is_not_heard_for_longer_than_it_may_be_silent(opened: Make) -> None:
    with called(opened("one-a"), b"\0") as caller:
        assert caller.recv(1) == b"", "it is left after some seconds, without a word"
