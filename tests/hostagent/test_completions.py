"""A post's end: how long one waits for it, who may be told, and that it holds no memory."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.completions import (
    Completion,
    CompletionQueue,
    Transfer,
    completion_queue,
    transfer_given,
)
from mltswitch.hostagent.errors import AgentError, CancelledError, DeadlineExceededError
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey
from tests.hostagent.background import in_background

NO_TIMES = [float("nan"), "1", b"1", [1], True, 1j]
FOR_EVER = [float("inf"), 1e10, threading.TIMEOUT_MAX * 2, 10**400]
NO_TIME = [0, -1, -1e300, float("-inf"), -(10**400)]


def completion(error: AgentError | None = None) -> Completion:
    return Completion("host-b", 7, 1, Direction.SEND, error, None, None, None, 1)


def transfer() -> Transfer:
    return Transfer("host-b", TransferKey(7, 1), Direction.SEND, lambda *_: None)


@pytest.mark.parametrize("value", [*NO_TIMES, None])
def test_what_is_no_time_to_poll(value: Any) -> None:
    queue = CompletionQueue()
    with pytest.raises(UserInputError, match=r"^timeout_seconds: .* is no time"):
        queue.poll(value)


@pytest.mark.parametrize("value", NO_TIMES)
def test_what_is_no_time_to_wait(value: Any) -> None:
    posted = transfer()
    with pytest.raises(UserInputError, match=r"^timeout_seconds: .* is no time"):
        posted.wait(value)
    posted.complete(completion())
    with pytest.raises(UserInputError):
        posted.wait(value)


@pytest.mark.parametrize("value", FOR_EVER)
def test_waiting_as_long_as_can_be(value: float) -> None:
    queue, posted, end = CompletionQueue(), transfer(), completion()
    with in_background(queue.poll, value) as polled, in_background(posted.wait, value) as waited:
        posted.complete(end)
        queue.add(end)
        assert polled() is waited() is end


@pytest.mark.parametrize("value", [*NO_TIME, np.float32(0.01)])
def test_not_waiting(value: float) -> None:
    assert CompletionQueue().poll(value) is None
    with pytest.raises(DeadlineExceededError, match="has not ended within 0"):
        transfer().wait(value)
    posted = transfer()
    posted.complete(completion())
    assert posted.wait(value).tensor == 7


def test_who_takes_completions() -> None:
    class Own:
        def add(self, completion: Completion) -> None:
            """As a queue does."""

        def __len__(self) -> int:
            return 0

    for each in (None, CompletionQueue(), own := Own()):
        assert completion_queue(each) is each
    assert not own
    others: tuple[object, ...] = ([], 5, "queue")
    for other in others:
        with pytest.raises(UserInputError, match=r"^completions: .* takes no completions"):
            completion_queue(other)


def test_what_is_a_transfer() -> None:
    posted = transfer()
    assert transfer_given(posted) is posted
    with pytest.raises(UserInputError, match=r"^transfer: an object of type NoneType is no transfer"):
        transfer_given(None)


def test_reasons_are_text() -> None:
    told: list[str] = []
    posted = Transfer("host-b", TransferKey(7, 1), Direction.SEND, lambda _, reason: told.append(reason))
    posted.cancel("not \ud800 wanted")
    assert told == ["not ? wanted"]
    with pytest.raises(UserInputError, match=r"^reason: 5 is no text"):
        posted.cancel(5)  # type: ignore[arg-type]  # on purpose


def fail(memory: object) -> None:
    raise CancelledError(f"with memory of type {type(memory).__name__}")


def test_an_error_holds_no_memory() -> None:
    """Neither of those that it was raised among, nor of those that have waited for it."""
    posted = transfer()
    held: list[weakref.ref[Any]] = []

    def end() -> None:
        memory = np.zeros(3)
        held.append(weakref.ref(memory))
        try:
            fail(memory)
        except AgentError as error:
            posted.complete(completion(error))

    def wait() -> None:
        memory = np.zeros(3)
        held.append(weakref.ref(memory))
        waited_for = posted
        with pytest.raises(CancelledError, match="with memory"):
            waited_for.wait()

    gc.collect()
    gc.disable()
    try:
        end()
        wait()
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()


def test_errors_are_raised_as_they_are() -> None:
    posted = transfer()
    error = DeadlineExceededError("too late", peer="host-b", tensor=7, round_number=1)
    posted.complete(completion(error))
    for _ in range(2):
        with pytest.raises(DeadlineExceededError) as raised:
            posted.wait()
        assert str(raised.value) == str(error)
        assert (raised.value.peer, raised.value.tensor, raised.value.round_number) == ("host-b", 7, 1)


async def _gathered(posted: Transfer) -> Completion:
    (found,) = await asyncio.gather(posted)
    return found


async def _waited_for(posted: Transfer) -> Completion:
    return await asyncio.wait_for(posted, 20)


async def _ensured(posted: Transfer) -> Completion:
    done, _ = await asyncio.wait([asyncio.ensure_future(posted)])
    return done.pop().result()


async def _as_a_task(posted: Transfer) -> Completion:
    async def waiting() -> Completion:
        return await posted

    return await asyncio.create_task(waiting())


@pytest.mark.parametrize("way", [_gathered, _waited_for, _ensured, _as_a_task])
def test_ways_of_asyncio_that_the_page_names(way: Callable[[Transfer], Awaitable[Completion]]) -> None:
    posted, end = transfer(), completion()

    async def both() -> Completion:
        asyncio.get_running_loop().call_later(0.01, posted.complete, end)
        return await way(posted)

    assert asyncio.run(both()) is end


def test_ways_of_asyncio_that_need_more() -> None:
    async def created() -> None:
        asyncio.create_task(transfer())  # type: ignore[arg-type]  # noqa: RUF006  (on purpose: it raises)

    async def waited() -> None:
        await asyncio.wait([transfer()])  # type: ignore[type-var]  # on purpose

    for way in (created, waited):
        with pytest.raises((TypeError, AttributeError)):
            asyncio.run(way())


def test_the_queue_has_a_completion_before_anybody_goes_on() -> None:
    posted, end = transfer(), completion()
    happened: list[object] = []

    def add(told: Completion) -> None:
        happened.append(told)
        posted.when_ended(lambda: happened.append("called"))  # whoever comes meanwhile waits for it, too
        with in_background(posted.wait, 0) as waited, pytest.raises(DeadlineExceededError):
            waited()
        assert posted.completion is posted.wait() is end  # and who adds it would wait for itself
        happened.append("added")

    posted.when_ended(lambda: happened.append("called"))
    posted.complete(end, add)
    assert happened == [end, "added", "called", "called"]
    posted.complete(end, add)
    assert len(happened) == 4


@pytest.mark.parametrize("wish", [SystemExit, KeyboardInterrupt, ValueError])
def test_whatever_is_called_at_the_end_may_fail(
    caplog: pytest.LogCaptureFixture, wish: type[BaseException]
) -> None:
    def fail_at_once(*_: object) -> None:
        raise wish

    posted, called = transfer(), list[int]()
    posted.when_ended(fail_at_once)
    posted.when_ended(lambda: called.append(1))
    posted.complete(completion(), fail_at_once)
    posted.when_ended(fail_at_once)
    assert posted.wait(0).tensor == 7
    assert called == [1]
    assert len(caplog.records) == 3


async def _too_long(posted: Transfer) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(posted, 0.001)


async def _cancelled(posted: Transfer) -> None:
    waiting = asyncio.ensure_future(posted)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _left(posted: Transfer) -> None:
    steps = posted.__await__()
    next(steps)
    steps.close()


@pytest.mark.parametrize("way", [_too_long, _cancelled, _left])
def test_of_who_gave_up_waiting_nothing_is_kept(way: Callable[[Transfer], Awaitable[None]]) -> None:
    posted = transfer()

    async def often() -> None:
        for _ in range(3):
            await way(posted)

    posted.when_ended(own := list[int]().clear)
    asyncio.run(often())
    assert list(posted._callbacks.values()) == [own]
