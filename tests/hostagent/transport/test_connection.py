"""What two connections say to each other when things are given up, or a user's code fails."""

from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    ProtocolViolationError,
    TaggingError,
    TransferMismatchError,
)
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.interfaces import ConnectionLost, Direction, TransferDone, TransferKey
from mltswitch.hostagent.transport.messages import Goodbye, Hello, Probe, encode_message
from mltswitch.hostagent.transport.settings import ConnectionSettings
from tests.hostagent.transport.ends import connection, failing, incoming, outgoing, talk


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


def test_memory_for_more_tensors_than_agreed_is_a_violation() -> None:
    sender, receiver = connection(1, ConnectionSettings(maximum_transfers=4)), connection(2)
    talk(sender, receiver)
    for number in range(5):
        receiver.receive(incoming(number), 1)
    talk(sender, receiver)
    lost = [event for event in sender.events() if isinstance(event, ConnectionLost)]
    assert [type(event.error) for event in lost] == [ProtocolViolationError]
    assert receiver.is_over


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
    for number in (7, 8):
        receiver.receive(incoming(number), 1)
    sender.send(outgoing(7, **changes), 1)
    sender.send(outgoing(8), 1)
    talk(sender, receiver)
    bursts = sender.bursts(1, 100)
    assert bursts is not None
    assert bursts.headers["tensor"].tolist() == [8] * bursts.packet_count
    talk(sender, receiver)
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
