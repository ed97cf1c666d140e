"""A user's code may do what it likes: its own transfer fails, and says why; nobody else's does."""

import logging
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.errors import CancelledError, TaggingError
from mltswitch.hostagent.tagging import ByFunction
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.interfaces import ConnectionLost, Direction, TransferDone, TransferKey
from tests.hostagent.transport.ends import connection, fail_one_of_two, incoming, outgoing, talk

SURROGATE = "\ud800"
"""Half of a pair: no encoding has it."""


class Marks:
    """All packets; `mark` gives what it is told to."""

    def __init__(self, given: object = None) -> None:
        self._given = given

    def mark(self, tensor: TensorView, layout: PacketLayout) -> Any:
        return self._given

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        return np.ones(last - first, np.bool_)


class NotToBeCalled(Marks):
    important = None  # type: ignore[assignment]  # what a user may do


class Speechless(Exception):  # noqa: N818  (a user's)
    def __str__(self) -> str:
        raise RuntimeError("no words")


class SpeechlessOfOurs(UserInputError):  # noqa: N818  (a user's, too)
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Raises:
    """A policy that fails as it is asked to mark, or its marking as it is asked what is important."""

    def __init__(self, error: BaseException, *, is_early: bool) -> None:
        self._error, self._is_early = error, is_early

    def mark(self, tensor: TensorView, layout: PacketLayout) -> "Raises":
        if self._is_early:
            raise self._error
        return self

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        raise self._error


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


def done(end: Connection) -> dict[TransferKey, TransferDone]:
    """Of a connection that goes on."""
    events = end.events()
    assert not [event for event in events if isinstance(event, ConnectionLost)]
    return {event.key: event for event in events if isinstance(event, TransferDone)}


def failure_of(**changes: Any) -> str:
    """What a transfer fails with that has such a policy or code point; others go on."""
    try:
        return _failure_of(**changes)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # not for pytest
        pytest.fail(f"{type(error).__name__} got out")


def _failure_of(**changes: Any) -> str:
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    fail_one_of_two(sender, receiver, **changes)
    (here,), (there,) = done(sender).values(), done(receiver).values()
    assert here.key == there.key == TransferKey(7, 1)
    assert type(here.error) is TaggingError
    assert type(there.error) is CancelledError
    assert there.error.what == f"given up by the peer: {here.error.what}"
    here.error.what.encode()
    return here.error.what


@pytest.mark.parametrize(
    ("given", "name"), [(None, "NoneType"), (1, "int"), (NotToBeCalled(), "NotToBeCalled"), (Marks, "type")]
)
def test_a_mark_that_marks_nothing(given: object, name: str) -> None:
    if given is Marks:
        given = type("type", (), {})
    what = failure_of(policy=Marks(given))
    assert what.startswith(f"`mark` of the policy returned an object of type {name}, without")


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError("no idea"), "raised ValueError: no idea"),
        (ValueError(), "raised ValueError"),
        (UserInputError("no idea", where="mine"), "mine: no idea"),
        (ValueError(f"a {SURROGATE} b"), "raised ValueError: a ? b"),
        (SystemExit("enough"), "raised SystemExit: enough"),
        (SystemExit(), "raised SystemExit"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt"),
        (GeneratorExit(), "raised GeneratorExit"),
        (Speechless(), "raised Speechless, whose text cannot be had"),
        (SpeechlessOfOurs("no idea"), "raised SpeechlessOfOurs, whose text cannot be had"),
    ],
)
def test_whatever_a_users_code_raises(error: BaseException, what: str, is_early: bool) -> None:
    assert failure_of(policy=Raises(error, is_early=is_early)) == what
    assert failure_of(dscp=raising(error)) == what


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError(f"a {SURROGATE} b"), r"importance function fail: raised ValueError: a ? b"),
        (SystemExit("enough"), "raised SystemExit: enough"),
        (Speechless(), "importance function fail: raised Speechless, whose text cannot be had"),
    ],
)
def test_whatever_an_importance_function_raises(error: BaseException, what: str) -> None:
    assert failure_of(policy=ByFunction(raising(error))) == what


def test_exit_in_a_function_of_code_points() -> None:
    assert failure_of(dscp=lambda: sys.exit("enough")) == "raised SystemExit: enough"


@pytest.mark.parametrize("direction", list(Direction))
def test_a_reason_to_cancel_that_cannot_be_encoded(direction: Direction) -> None:
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    sender.send(outgoing(7), 1)
    receiver.receive(incoming(7), 1)
    end = sender if direction is Direction.SEND else receiver
    end.cancel(TransferKey(7, 1), direction, f"a {SURROGATE} b", 1)
    talk(sender, receiver)
    peer = receiver if direction is Direction.SEND else sender
    (here,), (there,) = done(end).values(), done(peer).values()
    assert type(here.error) is type(there.error) is CancelledError
    assert there.error.what == "given up by the peer: cancelled: a ? b"


def test_a_farewell_that_cannot_be_encoded() -> None:
    end, peer = connection(1), connection(2)
    talk(end, peer)
    end.close(f"a {SURROGATE} b", 1)
    talk(end, peer)
    assert end.is_over
    (lost,) = [event.error.what for event in peer.events() if isinstance(event, ConnectionLost)]
    assert lost == "closed the connection: a ? b"


class FailsAtTheEnd(Marks):
    """A policy, and its marking."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def mark(self, tensor: TensorView, layout: PacketLayout) -> "FailsAtTheEnd":
        return self

    def look_no_more(self) -> None:
        raise self._error


class FailsWhenLookedAt(FailsAtTheEnd):
    @property
    def look_no_more(self) -> NoReturn:
        raise self._error


@pytest.mark.parametrize("policy", [FailsAtTheEnd, FailsWhenLookedAt])
@pytest.mark.parametrize("error", [ValueError("not now"), SystemExit(), Speechless()])
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_marking_that_fails_at_the_end(
    caplog: pytest.LogCaptureFixture,
    policy: Callable[[BaseException], Marks],
    error: BaseException,
    is_cancelled: bool,
) -> None:
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    receiver.receive(incoming(7), 1)
    sender.send(outgoing(7, policy=policy(error)), 1)
    talk(sender, receiver)
    with caplog.at_level(logging.ERROR):
        if is_cancelled:
            sender.cancel(TransferKey(7, 1), Direction.SEND, "skipped", 1)
        else:
            sender.close("done", 1)
    assert [type(entry.exc_info[1]) for entry in caplog.records if entry.exc_info] == [type(error)]
    (ended,) = [event for event in sender.events() if isinstance(event, TransferDone)]
    assert type(ended.error) is CancelledError
    assert sender.traffic().open_sends == 0
