"""What two connections say to each other when things are given up, or a user's code fails."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
    TaggingError,
    TooManyTransfersError,
    TransferMismatchError,
)
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.interfaces import ConnectionLost, Direction, TransferDone, TransferKey
from mltswitch.hostagent.transport.messages import Goodbye, Hello, Ping, Probe, Ready, encode_message
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import ElementType
from tests.hostagent.transport.ends import (
    connection,
    fail_one_of_two,
    failing,
    incoming,
    outgoing,
    talk,
    tensor,
)


@pytest.fixture
def pair() -> tuple[Connection, Connection]:
    found = connection(1), connection(2)
    talk(*found)
    return found


def errors(end: Connection) -> dict[tuple[int, Direction], type[AgentError] | None]:
    done = [event for event in end.events() if isinstance(event, TransferDone)]
    return {
        (event.key.tensor, event.direction): None if event.error is None else type(event.error)
        for event in done
    }


def test_what_a_receiver_gave_up_does_not_add_up_to_a_violation() -> None:
    sender, receiver = connection(1, ConnectionSettings(maximum_transfers=4)), connection(2)
    talk(sender, receiver)
    for number in range(50):
        receiver.receive(incoming(number), 1)
        receiver.cancel(TransferKey(number, 1), Direction.RECEIVE, "skipped", 1)
        talk(sender, receiver)
    assert not sender.is_over
    sender.send(outgoing(49), 1)
    assert errors(sender) == {(49, Direction.SEND): CancelledError}
    sender.send(outgoing(3), 1)  # forgotten long ago: it waits until its deadline
    assert errors(sender) == {}


def test_memory_beyond_what_the_sender_keeps_in_mind_ends_that_transfer_alone() -> None:
    """The ends allow for different numbers of transfers."""
    sender, receiver = connection(1, ConnectionSettings(maximum_transfers=4)), connection(2)
    talk(sender, receiver)
    for number in range(6):
        receiver.receive(incoming(number), 1)
    talk(sender, receiver)
    done = {event.key.tensor: event for event in receiver.events() if isinstance(event, TransferDone)}
    assert set(done) == {4, 5}
    for event in done.values():
        assert isinstance(event.error, CancelledError)
        assert "neither it nor 4 others" in event.error.what
    for number in (5, 3):
        sender.send(outgoing(number), 1)
    (refused,) = [event.error for event in sender.events() if isinstance(event, TransferDone)]
    assert isinstance(refused, CancelledError)
    assert "too early" in refused.what
    bursts = sender.bursts(1, 100)
    assert bursts is not None
    assert bursts.headers["tensor"].tolist() == [3] * bursts.packet_count
    receiver.receive(incoming(9), 1)
    talk(sender, receiver)
    assert errors(receiver) == {}, "there is room again"


def test_a_flood_of_memory_fills_none_of_ours() -> None:
    sender = connection(1, ConnectionSettings(maximum_transfers=4))
    talk(sender, connection(2))
    for number in range(1000):
        ready = Ready(TransferKey(number, 1), 1, 100, 0.0, None)
        sender.control_received(2 * encode_message(ready), 1)
    assert not sender.is_over
    outbox = sender._outbox
    assert (len(outbox._ready), len(outbox._rounds._given_up)) == (4, 4)
    assert set(outbox._ready._rounds) == {0, 1, 2, 3}, "what is said again of these changes nothing"


@pytest.mark.parametrize("message", [Ready(TransferKey(1, 1), 1, 100, 0.0, None), Ping(1)])
def test_what_is_asked_before_we_answer_is_not_answered_for_ever(message: Ready | Ping) -> None:
    """A call that is held back makes us keep what it will be told; the channel knows nothing of that yet."""
    end = connection(1, ConnectionSettings(maximum_transfers=1))
    end.greeting.is_quiet = True
    end.control_received(connection(2).control_to_send(), 1)

    def ask(times: int) -> None:
        for number in range(times):
            asked = replace(message, key=TransferKey(number, 1)) if isinstance(message, Ready) else message
            end.control_received(encode_message(asked) * 20, 1)
            assert end.control_to_send() == b""

    ask(10)
    with pytest.raises(PeerUnreachableError, match="says too much before it is answered"):
        ask(10_000)


@pytest.mark.parametrize(
    ("is_greeted", "kind", "words"),
    [
        (False, PeerRefusedError, "refused the connection: is connected already"),
        (True, PeerUnreachableError, "closed the connection: is connected already"),
    ],
)
def test_a_goodbye_instead_of_a_hello_is_a_refusal(
    is_greeted: bool, kind: type[AgentError], words: str
) -> None:
    end = connection(1)
    if is_greeted:
        end.control_received(connection(2).control_to_send(), 1)
    end.control_received(encode_message(Goodbye("is connected already")), 1)
    (lost,) = [event.error for event in end.events() if isinstance(event, ConnectionLost)]
    assert (type(lost), lost.what) == (kind, words)


def test_a_sender_that_gave_up_first_answers_whoever_is_ready_later(
    pair: tuple[Connection, Connection],
) -> None:
    sender, receiver = pair
    sender.send(outgoing(7), 1)
    sender.cancel(TransferKey(7, 1), Direction.SEND, "skipped", 1)
    talk(sender, receiver)
    receiver.receive(incoming(7), 1)
    assert errors(receiver) == {(7, Direction.RECEIVE): CancelledError}


def test_a_deadline_ends_both_ends(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    sender.send(outgoing(7), 1)
    receiver.receive(incoming(7, deadline_ns=1000), 1)
    talk(sender, receiver)
    receiver.timer(1000)
    talk(sender, receiver, 1000)
    assert errors(receiver) == {(7, Direction.RECEIVE): DeadlineExceededError}
    assert errors(sender) == {(7, Direction.SEND): DeadlineExceededError}


class _Odd:
    """A policy, and its marking."""

    def mark(self, *_: object) -> "_Odd":
        return self

    def important(self, first: int, last: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.ones(last - first + 1, np.bool_)


@pytest.mark.parametrize(
    "changes", [{"policy": _Odd()}, {"dscp": failing}, {"dscp": lambda: 99}, {"dscp": lambda: 48}]
)
def test_a_users_code_fails_its_transfer_alone(
    pair: tuple[Connection, Connection], changes: dict[str, Any]
) -> None:
    sender, receiver = pair
    fail_one_of_two(sender, receiver, **changes)
    assert errors(sender) == {(7, Direction.SEND): TaggingError}
    assert errors(receiver) == {(7, Direction.RECEIVE): CancelledError}


def test_versions_that_do_not_meet() -> None:
    end = connection(1)
    body = connection(2).control_to_send()[5:].replace(b'"versions": [1]', b'"versions": [2]')
    end.control_received(encode_message(Hello(body)), 1)
    lost = [event for event in end.events() if isinstance(event, ConnectionLost)]
    assert [type(event.error) for event in lost] == [PeerRefusedError]
    assert "1 here, 2 there" in str(lost[0].error)


@pytest.mark.parametrize("message", [Probe(TransferKey(1, 1), 1, 10**6), Hello(b"{}")])
def test_nonsense_ends_the_connection(pair: tuple[Connection, Connection], message: Probe | Hello) -> None:
    _, receiver = pair
    receiver.receive(incoming(1), 1)
    receiver.control_received(encode_message(message), 1)
    assert errors(receiver) == {(1, Direction.RECEIVE): ProtocolViolationError}
    assert receiver.is_over


def test_after_the_end_nothing_can_be_posted(pair: tuple[Connection, Connection]) -> None:
    end, _ = pair
    end.control_received(encode_message(Goodbye("done")), 1)
    with pytest.raises(AgentError, match="host2, tensor 1, round 1"):
        end.send(outgoing(1), 1)


def test_a_round_comes_once(pair: tuple[Connection, Connection]) -> None:
    sender, _ = pair
    sender.send(outgoing(1, 5), 1)
    for earlier in (5, 4):
        with pytest.raises(TransferMismatchError, match="rounds rise"):
            sender.send(outgoing(1, earlier), 1)


@pytest.mark.parametrize("is_ready_first", [True, False])
def test_rounds_that_the_sender_skips_end_at_the_receiver(
    pair: tuple[Connection, Connection], is_ready_first: bool
) -> None:
    sender, receiver = pair
    for number, round_number in ((7, 1), (7, 2), (7, 3), (7, 4), (8, 1)):
        receiver.receive(incoming(number, round_number), 1)
    if is_ready_first:
        talk(sender, receiver)
    sender.send(outgoing(7, 3), 1)
    talk(sender, receiver)
    done = [event for event in receiver.events() if isinstance(event, TransferDone)]
    assert [(event.key.tensor, event.key.round_number) for event in done] == [(7, 1), (7, 2)]
    for event in done:
        assert type(event.error) is CancelledError
        assert event.error.what == "given up by the peer: the sender has given it up"
    bursts = sender.bursts(1, 100)
    assert bursts is not None, "the round that is there goes on"
    assert bursts.headers["round"].tolist() == [3] * bursts.packet_count
    sender.send(outgoing(7, 4), 1)
    sender.send(outgoing(8), 1)
    assert errors(sender) == {}


def test_skipped_rounds_make_room_for_others() -> None:
    sender, receiver = connection(1, ConnectionSettings(maximum_transfers=4)), connection(2)
    talk(sender, receiver)
    for last in range(4, 40, 4):
        for round_number in range(last - 3, last + 1):
            receiver.receive(incoming(7, round_number), 1)
        talk(sender, receiver)
        sender.send(outgoing(7, last), 1)
        sender.cancel(TransferKey(7, last), Direction.SEND, "skipped", 1)
        talk(sender, receiver)
        assert receiver.traffic().open_receives == 0
    assert not sender.is_over


@pytest.mark.parametrize("direction", list(Direction))
def test_more_open_transfers_than_may_be_are_no_mismatch(direction: Direction) -> None:
    end, peer = connection(1, ConnectionSettings(maximum_transfers=4)), connection(2)
    talk(end, peer)

    def post(number: int) -> None:
        if direction is Direction.SEND:
            end.send(outgoing(number), 1)
        else:
            end.receive(incoming(number), 1)

    for number in range(4):
        post(number)
    with pytest.raises(TooManyTransfersError, match=r"4 transfers are open .*wait for completions") as caught:
        post(4)
    assert "tensor 4, round 1" in str(caught.value)
    end.cancel(TransferKey(0, 1), direction, "no more", 1)
    post(4)


def test_more_tensors_than_are_remembered_are_no_mismatch() -> None:
    end, peer = connection(1, ConnectionSettings(maximum_tensors=2)), connection(2)
    talk(end, peer)
    for number in range(2):
        end.send(outgoing(number), 1)
    with pytest.raises(TooManyTransfersError, match=r"2 tensors .*later rounds of them"):
        end.send(outgoing(2), 1)
    end.send(outgoing(1, 2), 1)


NAMES = {
    ElementType.FLOAT32: "float32",
    ElementType.FLOAT16: "float16",
    ElementType.BFLOAT16: "bfloat16",
    ElementType.FLOAT64: "float64",
    ElementType.INT8: "int8",
}


@pytest.mark.parametrize("element_type", [ElementType.FLOAT16, *list(ElementType)[2:]])
def test_element_types_that_differ_have_their_names(
    pair: tuple[Connection, Connection], element_type: ElementType
) -> None:
    sender, receiver = pair
    memory = TensorView(np.zeros(8 * 12, np.uint8), element_type)
    receiver.receive(replace(incoming(7), tensor=memory), 1)
    sender.send(outgoing(7, tensor=tensor(12)), 1)
    talk(sender, receiver)
    count = memory.element_count
    text = f"the receiver expects {count} elements of {NAMES[element_type]}, the sender has 12 of float32"
    (here,) = [event.error for event in sender.events() if isinstance(event, TransferDone)]
    (there,) = [event.error for event in receiver.events() if isinstance(event, TransferDone)]
    assert here is not None
    assert there is not None
    assert type(here) is type(there) is TransferMismatchError
    assert here.what == text
    assert there.what == f"given up by the peer: {text}"


def test_an_element_type_without_a_name(pair: tuple[Connection, Connection]) -> None:
    sender, _ = pair
    sender.send(outgoing(7, tensor=tensor(12)), 1)
    sender.control_received(encode_message(Ready(TransferKey(7, 1), 99, 12, 0.0, None)), 1)
    (done,) = [event for event in sender.events() if isinstance(event, TransferDone)]
    assert type(done.error) is TransferMismatchError
    assert "12 elements of a type that is not known here (99)," in done.error.what
