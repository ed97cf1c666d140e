"""A post from its beginning to its end, as its owner sees it."""

import logging
import os
import queue
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.arguments import text_given, wait_limit
from mltswitch.hostagent.errors import AgentError, DeadlineExceededError
from mltswitch.hostagent.spraying.standing import PathCondition
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.threads import check_process, refuse_to_wait
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey, TransferStatistics

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What became of a post; its memory is the caller's again."""

    peer: str
    tensor: int
    round_number: int
    direction: Direction
    error: AgentError | None
    statistics: TransferStatistics | None
    """None where the transfer never began."""
    received: NDArray[np.bool_] | None
    """Receiver: which packets have arrived; `layout` says which elements they hold."""
    layout: PacketLayout | None
    completed_ns: int
    """time.monotonic_ns() when it ended."""
    paths: tuple[PathCondition, ...] = ()
    """Sender: delay and loss of each path when it ended, by all that was sent to the peer. Empty at the
    receiver, who measures no round trips, and where the transfer never began."""


class CompletionQueue:
    """Completions in the order in which they happen; any thread may take them."""

    def __init__(self) -> None:
        self._entries: queue.SimpleQueue[Completion | None] = queue.SimpleQueue()
        """None: there will be no more."""

    def poll(self, timeout_seconds: float = 0.0) -> Completion | None:
        """The next one; None where none came in time, or none will come any more.

        Waits no time where it is to wait less than none; raises UserInputError for what is no number.
        """
        limit = wait_limit("timeout_seconds", timeout_seconds)
        try:
            found = self._entries.get(timeout=limit) if limit else self._entries.get_nowait()
        except queue.Empty:
            return None
        if found is None:
            with suppress(queue.Empty):
                found = self._entries.get_nowait()  # told too late
            self._entries.put(None)  # for others who wait
        return found

    def add(self, completion: Completion) -> None:
        """For the agent."""
        self._entries.put(completion)

    def close(self) -> None:
        """For the agent: who waits, waits no more once all that came before has been taken."""
        self._entries.put(None)


def completion_queue(value: object) -> CompletionQueue | None:
    """None, or what takes completions; raises UserInputError."""
    if value is None or callable(getattr(value, "add", None)):
        return value  # type: ignore[return-value]  # it has what the agent asks of one
    raise UserInputError(
        f"an object of type {type(value).__name__} takes no completions",
        where="completions",
        expected="a CompletionQueue, or what has `add`",
    )


class Transfer:
    """A post on its way: wait for it, or await it."""

    def __init__(
        self,
        peer: str,
        key: TransferKey,
        direction: Direction,
        give_up: Callable[["Transfer", str], None],
    ) -> None:
        """`give_up`: told of a wish to cancel, and the reason."""
        self.peer, self.key, self.direction = peer, key, direction
        self._give_up = give_up
        self._ended = threading.Event()
        self._is_told = False
        """Whether the queue has the completion: who asks from now on is answered at once."""
        self._teller: int | None = None
        """The thread that ends it, which must not wait for itself."""
        self._completion: Completion | None = None
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._numbers = count()
        self._process = os.getpid()

    @property
    def completion(self) -> Completion | None:
        """None while it is on its way."""
        return self._completion

    def wait(self, timeout_seconds: float | None = None) -> Completion:
        """Block until it ends; every post ends by its deadline. None: however long it takes.

        Raises the transfer's AgentError where it failed, DeadlineExceededError where it has not ended in the
        time given here (it goes on), UserInputError for a time that is no number, and in the agent's own
        thread.
        """
        limit = None if timeout_seconds is None else wait_limit("timeout_seconds", timeout_seconds)
        if not self._ended.is_set() and self._teller != threading.get_ident():
            check_process(self._process)
            if self._completion is None:
                refuse_to_wait("waiting for a transfer")
            if not self._ended.wait(limit):
                raise DeadlineExceededError(
                    f"has not ended within {limit:g} s",
                    peer=self.peer,
                    tensor=self.key.tensor,
                    round_number=self.key.round_number,
                )
        return self._result()

    def cancel(self, reason: str = "asked to") -> None:
        """Give it up; it completes with a CancelledError, unless it ends otherwise first.

        Raises UserInputError for a reason that is no text.
        """
        self._give_up(self, text_given("reason", reason))

    def __await__(self) -> Generator[Any, None, Completion]:
        """The completion; raises the transfer's AgentError."""
        import asyncio

        if not self._ended.is_set():
            check_process(self._process)
        if self._completion is None:
            refuse_to_wait("waiting for a transfer")
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not waiting.done():
                waiting.set_result(None)

        def ended() -> None:
            try:
                loop.call_soon_threadsafe(done)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
                return

        number = self._call_when_ended(ended)
        try:
            yield from waiting.__await__()
        finally:
            self._callbacks.pop(number, None)
        return self._result()

    def complete(self, completion: Completion, tell: Callable[[Completion], object] = lambda _: None) -> None:
        """For the agent; a second call changes nothing.

        `tell`: the queue, which has the completion before anybody who waits goes on. Whatever it raises goes
        into the log.
        """
        if self._completion is not None:
            return
        if completion.error is not None:
            # Frames that it was raised in hold the post's memory, which is the caller's now.
            completion.error.__traceback__ = completion.error.__context__ = None
        self._teller = threading.get_ident()
        self._completion = completion
        _call(lambda: tell(completion), "a queue of completions has failed")
        self._is_told = True
        for number in list(self._callbacks):
            self._call_once(number)
        self._ended.set()

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Have it called once: in the thread that ends the transfer, or at once where it has ended.

        Whatever it raises goes into the log.
        """
        self._call_when_ended(callback)

    def _call_when_ended(self, callback: Callable[[], object]) -> int:
        """By this number it is known until it is called."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        if self._is_told:
            self._call_once(number)
        return number

    def _call_once(self, number: int) -> None:
        """By whoever comes first: the thread that ends the transfer, or one that asks just then."""
        callback = self._callbacks.pop(number, None)
        if callback is not None:
            _call(callback)

    def _result(self) -> Completion:
        assert self._completion is not None  # noqa: S101  (it has ended)
        if self._completion.error is not None:
            # Each time a new one: the completion must not keep the frames, and the memory, of whoever waits.
            raise copy(self._completion.error)
        return self._completion


def transfer_given(value: object) -> Transfer:
    """Raises UserInputError for what no post has returned."""
    if not isinstance(value, Transfer):
        raise UserInputError(
            f"an object of type {type(value).__name__} is no transfer",
            where="transfer",
            expected="what a post has returned",
        )
    return value


def _call(
    callback: Callable[[], object],
    failure: str = "what was to be called at the end of a transfer has failed",
) -> None:
    try:
        callback()
    except BaseException:  # noqa: BLE001  (sys.exit, too: who ends a transfer has others to end; the log says it)
        _log.exception(failure)
