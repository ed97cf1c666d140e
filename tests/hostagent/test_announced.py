"""Announced tensors: what is announced, what is refused before memory is made, rounds and peers."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.announced import (
    ANNOUNCEMENT_BYTES,
    ANNOUNCEMENT_TENSOR,
    Announcement,
    Progress,
    ReceiveOptions,
    SendOptions,
    connect_patiently,
    receive_announced,
    send_announced,
)
from mltswitch.hostagent.completions import Transfer
from mltswitch.hostagent.configuration import AgentDocument, configured
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    TransferMismatchError,
)
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.hostagent.tensor.layout import MAXIMUM_ELEMENTS
from mltswitch.wire import ElementType
from tests.hostagent.background import eventually, in_background

PATIENCE_SECONDS = 60.0
SENDING = SendOptions(dscp=34, burst_packets=16, deadline_seconds=PATIENCE_SECONDS)
RECEIVING = ReceiveOptions(maximum_bytes=1 << 24, deadline_seconds=PATIENCE_SECONDS)


def agent(name: str, place: int, listen: bool = True, **more: Any) -> Agent:
    document = AgentDocument(
        name=name,
        addresses=(f"127.0.9.{place}",),
        listen=f"127.0.9.{place}:0" if listen else None,
        data_port=0,
    )
    return Agent(replace(configured(document, folder=Path(), where="test").settings, **more))


@pytest.fixture
def ends() -> Iterator[tuple[Agent, Agent, Agent]]:
    """Two senders and a receiver, connected."""
    with agent("one", 1) as one, agent("two", 2) as two, agent("all", 3) as receiver:
        assert receiver.listening_at is not None
        for sender in (one, two):
            sender.connect("all", receiver.listening_at, PATIENCE_SECONDS)
        receiver.wait_for_peers(["one", "two"], PATIENCE_SECONDS)
        yield one, two, receiver


def nothing(*_: object) -> None:
    pass


def test_two_senders_several_rounds_and_types(ends: tuple[Agent, Agent, Agent]) -> None:
    one, two, receiver = ends
    first = np.random.default_rng(1).standard_normal((3, 50, 7)).astype(np.float32)
    second = np.arange(4001, dtype=np.uint16)
    kept: dict[tuple[str, int], NDArray[Any]] = {}
    steps: list[tuple[int, int]] = []
    with (
        in_background(
            send_announced,
            one,
            ["all"],
            first,
            replaced(rounds=3),
            lambda _, done, total: steps.append((done, total)),
        ) as sent_one,
        in_background(
            send_announced,
            two,
            ["all"],
            second,
            replaced(element_type=ElementType.BFLOAT16, tensor=9),
            nothing,
        ) as sent_two,
    ):
        announced, received = receive_announced(
            receiver,
            ["one", "two"],
            RECEIVING,
            lambda peer, number, data: kept.__setitem__((peer, number), data.copy()),
            nothing,
        )
    assert sent_one().error is sent_two().error is received.error is None
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert set(kept) == {("one", 1), ("one", 2), ("one", 3), ("two", 1)}
    assert (kept["one", 3] == first).all()
    assert kept["one", 3].shape == first.shape
    assert (kept["two", 1] == second).all()
    assert announced["two"].type is ElementType.BFLOAT16
    assert announced["two"].tensor == 9
    assert [entry.missing_elements for entry in received.rounds] == [0, 0, 0, 0]
    assert received.cpu_seconds > 0


def replaced(**changes: Any) -> SendOptions:
    return replace(SENDING, **changes)


def test_nobody_makes_us_allocate(ends: tuple[Agent, Agent, Agent]) -> None:
    one, _, receiver = ends
    data = np.zeros(1000, np.float64)
    small = ReceiveOptions(maximum_bytes=7999, deadline_seconds=PATIENCE_SECONDS)
    words = r"no memory for 8,000 B, the tensor that was announced: 7,999 B may be used in all$"
    with in_background(send_announced, one, ["all"], data, SENDING, nothing) as sent:
        received = receive_announced(receiver, ["one"], small, nothing, nothing)[1]
        assert isinstance(received.error, CancelledError)
        assert re.search(words, str(received.error))
        assert isinstance(sent().error, PeerUnreachableError)
        assert re.search(words, str(sent().error)), "the sender is told why"


def test_who_announces_too_much_takes_no_room_of_others(ends: tuple[Agent, Agent, Agent]) -> None:
    one, two, receiver = ends
    large, small = np.zeros(1000, np.float64), np.ones(1000, np.float32)
    with (
        in_background(send_announced, one, ["all"], large, SENDING, nothing) as refused,
        in_background(send_announced, two, ["all"], small, SENDING, nothing) as sent,
    ):
        _, received = receive_announced(
            receiver, ["one", "two"], replace(RECEIVING, maximum_bytes=4_000), nothing, nothing
        )
        assert refused().error is not None
        assert sent().error is None
    assert [(entry.peer, entry.error is None) for entry in received.rounds] == [
        ("one", False),
        ("two", True),
    ]


@pytest.mark.parametrize("keep_last", [False, True])
def test_a_tensor_that_no_memory_is_left_for_ends_that_peer_alone(
    ends: tuple[Agent, Agent, Agent], monkeypatch: pytest.MonkeyPatch, keep_last: bool
) -> None:
    """It is within what the user allows, and not within what the machine has."""
    one, two, receiver = ends
    huge = Announcement(tensor=5, rounds=2, element_type="float64", shape=(1 << 32,))
    one.post_send("all", huge.encoded(), tensor=ANNOUNCEMENT_TENSOR, round_number=1, dscp=34)
    really = Announcement.empty

    def empty(announcement: Announcement) -> NDArray[Any]:
        if announcement == huge:
            raise MemoryError("Unable to allocate 32.0 GiB")
        return really(announcement)

    monkeypatch.setattr(Announcement, "empty", empty)
    data, kept = np.ones(100, np.float32), list[tuple[str, int]]()
    with in_background(send_announced, two, ["all"], data, replaced(rounds=2), nothing) as sent:
        announced, received = receive_announced(
            receiver,
            ["one", "two"],
            replace(RECEIVING, maximum_bytes=1 << 40, keep_last=keep_last),
            lambda peer, number, _: kept.append((peer, number)),
            nothing,
        )
        assert sent().error is None
    assert kept == [("two", 1), ("two", 2)]
    assert announced["one"] == huge
    assert [(entry.peer, entry.statistics is None) for entry in received.rounds] == [
        ("one", True),
        ("two", False),
        ("two", False),
    ]
    assert isinstance(received.error, CancelledError)
    size = "68,719,476,736" if keep_last else "34,359,738,368"
    assert str(received.error).startswith(f"peer one, tensor 5, round 1: no memory for {size} B"), str(
        received.error
    )


def test_the_last_round_counts_where_it_is_kept(ends: tuple[Agent, Agent, Agent]) -> None:
    one, _, receiver = ends
    data = np.zeros(1000, np.float64)
    small = replace(RECEIVING, maximum_bytes=15_999, keep_last=True)
    options = replaced(deadline_seconds=5.0, rounds=2)
    with in_background(send_announced, one, ["all"], data, options, nothing) as sent:
        received = receive_announced(receiver, ["one"], small, nothing, nothing)[1]
        assert "no memory for 16,000 B, two copies of the tensor" in str(received.error)
        assert isinstance(sent().error, PeerUnreachableError)


def test_the_last_complete_round_stays_while_the_next_one_comes(ends: tuple[Agent, Agent, Agent]) -> None:
    """And a round that fails takes nothing with it."""
    one, _, receiver = ends
    rounds = np.random.default_rng(1).standard_normal((3, 5000)).astype(np.float32)
    announcement = Announcement.of(rounds[0], ElementType.FLOAT32, tensor=0, rounds=4).encoded()
    kept: list[tuple[int, NDArray[Any]]] = []
    one.post_send("all", announcement, tensor=ANNOUNCEMENT_TENSOR, round_number=1, dscp=34)
    for number, data in enumerate(rounds, start=1):
        one.post_send("all", data, tensor=0, round_number=number, dscp=34)
    _, received = receive_announced(
        receiver,
        ["one"],
        replace(RECEIVING, keep_last=True, keep_missing=True, deadline_seconds=3.0),
        lambda _, number, data: kept.append((number, data)),
        nothing,
    )
    assert [number for number, _ in kept] == [1, 2, 3]
    assert isinstance(received.error, DeadlineExceededError)
    assert kept[0][1] is kept[2][1]
    assert kept[0][1] is not kept[1][1]
    # The fourth had the second's memory; what would be missing of it has the values of the third.
    assert (kept[1][1] == rounds[2]).all()
    assert (kept[2][1] == rounds[2]).all()


def test_interrupted_no_complete_round_is_forgotten(ends: tuple[Agent, Agent, Agent]) -> None:
    """Of the second peer it was not even asked for yet: the first one's never comes."""
    one, two, receiver = ends
    data = np.ones(100, np.float32)
    announcement = Announcement.of(data, ElementType.FLOAT32, tensor=0, rounds=1).encoded()
    one.post_send("all", announcement, tensor=ANNOUNCEMENT_TENSOR, round_number=1, dscp=34)
    kept: list[str] = []

    def interrupt() -> None:
        assert send_announced(two, ["all"], data, SENDING, nothing).error is None
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with in_background(interrupt) as interrupted, pytest.raises(KeyboardInterrupt):
        receive_announced(receiver, ["one", "two"], RECEIVING, lambda peer, *_: kept.append(peer), nothing)
    interrupted()
    assert kept == ["two"]


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), CancelledError("the agent's engine has failed")])
def test_what_is_complete_while_others_are_posted_is_not_forgotten(
    ends: tuple[Agent, Agent, Agent], monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    one, two, receiver = ends
    data = np.ones(100, np.float32)
    announcement = Announcement.of(data, ElementType.FLOAT32, tensor=0, rounds=1).encoded()
    two.post_send("all", announcement, tensor=ANNOUNCEMENT_TENSOR, round_number=1, dscp=34)
    real, posted, kept = receiver.post_recv, list[Transfer](), list[str]()

    def post(peer: str, data: object, *, tensor: int, **more: Any) -> Transfer:
        if (peer, tensor) == ("two", 0):
            eventually(lambda: posted[-1].completion is not None)
            raise ending
        posted.append(real(peer, data, tensor=tensor, **more))
        return posted[-1]

    monkeypatch.setattr(receiver, "post_recv", post)
    with in_background(send_announced, one, ["all"], data, SENDING, nothing) as sent:
        with pytest.raises(type(ending)):
            receive_announced(
                receiver, ["one", "two"], RECEIVING, lambda peer, *_: kept.append(peer), nothing
            )
        assert sent().error is None
    assert kept == ["one"]


def test_interrupted_it_is_known_what_was_refused_and_what_was_on_its_way(
    ends: tuple[Agent, Agent, Agent],
) -> None:
    one, two, receiver = ends
    large, small, progress = np.zeros(1000, np.float64), np.ones(1000, np.float32), Progress()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with (
        in_background(send_announced, one, ["all"], large, SENDING, nothing),
        in_background(send_announced, two, ["all"], small, replaced(rounds=2), nothing),
    ):
        with pytest.raises(KeyboardInterrupt):
            receive_announced(
                receiver,
                ["one", "two"],
                replace(RECEIVING, maximum_bytes=4_000),
                nothing,
                interrupt,
                progress,
            )
        receiver.close()
    known = progress.until_now().rounds
    assert [(entry.peer, entry.round_number) for entry in known] == [("one", 1), ("two", 1)]
    assert "no memory for 8,000 B" in str(known[0].error)
    assert (known[1].error, known[1].missing_elements) == (None, 0)
    assert set(progress.announced) == {"one", "two"}
    assert receiver.poll() is None  # what nobody takes would fill the memory


def test_a_peer_that_announces_nonsense(ends: tuple[Agent, Agent, Agent]) -> None:
    one, _, receiver = ends
    one.post_send(
        "all", np.zeros(ANNOUNCEMENT_BYTES, np.int8), tensor=ANNOUNCEMENT_TENSOR, round_number=1, dscp=34
    )
    with pytest.raises(TransferMismatchError, match=r"peer one, .*is not JSON"):
        receive_announced(receiver, ["one"], RECEIVING, nothing, nothing)


def test_a_round_that_fails_ends_that_peer_alone(ends: tuple[Agent, Agent, Agent]) -> None:
    one, two, receiver = ends
    data = np.ones(100, np.float32)
    announcement = Announcement.of(data, ElementType.FLOAT32, tensor=0, rounds=2).encoded()
    one.post_send("all", announcement, tensor=ANNOUNCEMENT_TENSOR, round_number=1, dscp=34)
    kept: list[tuple[str, int]] = []
    with in_background(send_announced, two, ["all"], data, replaced(rounds=2), nothing) as sent:
        _, received = receive_announced(
            receiver,
            ["one", "two"],
            ReceiveOptions(maximum_bytes=1 << 20, deadline_seconds=5.0),
            lambda peer, number, _: kept.append((peer, number)),
            nothing,
        )
    assert sent().error is None
    assert kept == [("two", 1), ("two", 2)]
    assert isinstance(received.error, DeadlineExceededError)
    assert [entry.peer for entry in received.rounds if entry.error is not None] == ["one"]


def test_a_peer_that_is_late() -> None:
    with agent("late", 5) as probe:
        assert probe.listening_at is not None
        endpoint = probe.listening_at
    with agent("early", 4, listen=False) as early:
        with pytest.raises(PeerUnreachableError, match="late"):
            connect_patiently(early, [("late", endpoint)], 0.1)
        with in_background(connect_patiently, early, [("late", endpoint)], PATIENCE_SECONDS) as connected:
            late = listening_again(endpoint)
            with late:
                assert late.wait_for_a_peer(PATIENCE_SECONDS) == "early"
                assert connected() is None


@pytest.mark.parametrize(("name", "most"), [("one", 1024), ("two", 1)])
def test_who_finds_another_connection_in_its_place_tries_again(name: str, most: int) -> None:
    """The one of a crashed sender is there until it has been silent for long enough."""
    refusals: list[str] = []

    class Refusals:
        def observe(self, event: AgentEvent) -> None:
            if isinstance(event, PeerLost):
                refusals.append(event.reason)

    with (
        agent("busy", 7, maximum_peers=most, observers=(Refusals(),)) as busy,
        agent("one", 8, listen=False) as old,
        agent(name, 9, listen=False) as new,
    ):
        place = busy.listening_at
        assert place is not None
        old.connect("busy", place, PATIENCE_SECONDS)
        with pytest.raises(PeerRefusedError, match=r"connected"):  # nobody waits longer than he wants to
            connect_patiently(new, [("busy", place)], 0.5)
        told = len(refusals)
        with in_background(connect_patiently, new, [("busy", place)], PATIENCE_SECONDS) as connected:
            eventually(lambda: len(refusals) > told)
            old.close()
            assert connected() is None


def test_who_is_refused_for_good_hears_it_at_once() -> None:
    asked: list[str] = []

    def admit(peer: str) -> str:
        asked.append(peer)
        return "is not expected here"

    with agent("strict", 10, admit=admit) as strict, agent("one", 11, listen=False) as one:
        assert strict.listening_at is not None
        with pytest.raises(PeerRefusedError, match="not expected"):
            connect_patiently(one, [("strict", strict.listening_at)], 3.0)
    assert asked == ["one"]


def listening_again(endpoint: Endpoint) -> Agent:
    document = AgentDocument(name="late", addresses=(endpoint.address,), listen=str(endpoint), data_port=0)
    return Agent(configured(document, folder=Path(), where="test").settings)


def test_nobody_comes() -> None:
    with agent("alone", 6) as alone, pytest.raises(DeadlineExceededError, match="nobody has connected"):
        alone.wait_for_a_peer(0.05)


def test_data_that_cannot_be_sent(ends: tuple[Agent, Agent, Agent]) -> None:
    with pytest.raises(UserInputError, match="int32"):
        send_announced(ends[0], ["all"], np.zeros(3, np.int32), SENDING, nothing)


@settings(max_examples=200)
@given(
    st.binary(max_size=ANNOUNCEMENT_BYTES)
    | st.dictionaries(
        st.sampled_from(["version", "tensor", "rounds", "element_type", "shape"]),
        st.integers()
        | st.none()
        | st.lists(st.integers(-3, 2**40), max_size=4)
        | st.sampled_from(["float32", "x"]),
    ).map(lambda entry: json.dumps(entry).encode())
)
def test_any_announcement_is_refused_or_has_a_possible_size(data: bytes) -> None:
    padded = np.frombuffer(data[:ANNOUNCEMENT_BYTES].ljust(ANNOUNCEMENT_BYTES), np.int8)
    try:
        found = Announcement.decoded(padded, "host1")
    except AgentError as error:
        assert "\n" not in str(error)
        return
    assert 0 < found.size_bytes <= MAXIMUM_ELEMENTS * 8


@settings(max_examples=50)
@given(
    shape=st.lists(st.integers(1, 9), max_size=6),
    element_type=st.sampled_from(ElementType),
    rounds=st.integers(1, 1000),
)
def test_what_is_announced_is_what_is_read(shape: list[int], element_type: ElementType, rounds: int) -> None:
    said = Announcement.of(np.empty(shape), element_type, tensor=3, rounds=rounds)
    heard = Announcement.decoded(said.encoded(), "host1")
    assert heard == said
    assert heard.empty().shape == tuple(shape)
    assert heard.empty().nbytes == heard.size_bytes
