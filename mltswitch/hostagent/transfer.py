"""A transfer as its owner sees it, from post to completion."""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.engine import Engine
from mltswitch.hostagent.errors import DeadlineExceededError
from mltswitch.hostagent.transport.description import Ticket
from mltswitch.hostagent.transport.records import Completion, Direction, Send, TransferStatistics
from mltswitch.hostagent.waiting import LONGEST_SECONDS

_log: Final = logging.getLogger(__name__)


class CompletionQueue:
    """Queue of completions, in the order in which transfers ended; any thread may take them."""

    def __init__(self) -> None:
        self._entries: queue.SimpleQueue[Completion | None] = queue.SimpleQueue()
        """None: there will be no more."""

    def poll(self, timeout_seconds: float = 0.0) -> Completion | None:
        """The next completion; None if none comes in time, or none will come any more."""
        until = time.monotonic() + timeout_seconds
        while True:
            left = until - time.monotonic() if timeout_seconds > 0 else 0.0
            try:
                found = self._entries.get(left > 0, min(LONGEST_SECONDS, max(0.0, left)))
            except queue.Empty:
                if left <= 0:
                    return None
                continue
            if found is None:
                self._entries.put(None)  # for others who wait
            return found

    def add(self, completion: Completion) -> None:
        """Add a completion; called by the agent."""
        self._entries.put(completion)

    def close(self) -> None:
        """End all waiting in `poll` once the queued completions are taken; called by the agent."""
        self._entries.put(None)


class Transfer:
    """A posted send or receive: wait for it, or await it."""

    def __init__(
        self, engine: Engine, peer: str, channel: str, ticket: Ticket, completions: CompletionQueue | None
    ) -> None:
        self.peer: Final = peer
        self.channel: Final = channel
        self._engine = engine
        self._is_watched = False
        self._ticket: Ticket | None = ticket  # from here on, an interrupted one is watched to its end
        request = ticket.request
        self.tensor: Final = request.tensor
        self.round_number: Final = request.round_number
        self.direction: Final = Direction.SEND if isinstance(request, Send) else Direction.RECEIVE
        self._completions = completions
        self._lock = threading.Lock()
        self._completion: Completion | None = None
        self._callbacks: list[Callable[[], object]] = []

    @property
    def completion(self) -> Completion | None:
        """The transfer's completion; None while it is open."""
        return self._completion or self.settle()

    @property
    def progress(self) -> TransferStatistics:
        """Statistics of the transfer so far; while it is open they need not be of one moment."""
        with self._lock:
            if self._ticket is not None:
                return self._ticket.statistics()
        assert self._completion is not None  # noqa: S101  (it has ended)
        return self._completion.statistics

    def wait(self, timeout_seconds: float | None = None) -> Completion:
        """Wait until the transfer ends, at its deadline at the latest; None: without a timeout.

        Raises the transfer's AgentError if it failed, DeadlineExceededError if it has not ended within the
        timeout (it goes on).
        """
        completion = self._completion
        if completion is None:
            self._engine.check_wait()
            ticket = self._ticket
            if ticket is not None and not ticket.wait(timeout_seconds):
                raise DeadlineExceededError(
                    f"has not ended within {timeout_seconds:g} s",
                    peer=self.peer,
                    tensor=self.tensor,
                    round_number=self.round_number,
                )
            completion = self.settle()
        return _result(completion)

    def __await__(self) -> Generator[Any, None, Completion]:
        """The completion; raises the transfer's AgentError."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def answer() -> None:
            if not done.done():
                done.set_result(None)

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(answer)

        self.add_done_callback(tell)
        yield from done.__await__()
        return _result(self.settle())

    def finish(self) -> None:
        """Complete a receive now with what has arrived, whatever its bounds."""
        if self.direction is Direction.SEND:
            raise UserInputError("only a receive can take what is there", where="Transfer.finish")
        with self._lock:
            if self._ticket is not None:
                self._ticket.finish()

    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the transfer, here and at the peer; does nothing if it has ended.

        Where the peer has not posted its end yet, that fails as soon as it has, unless the same tensor and
        round is posted here again before: over `mlt`, and for the last 4,096 such ends with each peer.
        """
        with self._lock:
            if self._ticket is not None:
                self._ticket.cancel(reason)

    def retag(self, dscp: int) -> None:
        """Set the DSCP of a send's further packets; called by the agent."""
        with self._lock:
            if self._ticket is not None:
                self._ticket.retag(dscp)

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Have a function called once when the transfer has ended, in the engine's thread, or else at once.

        What the function raises is logged.
        """
        self.watch()
        with self._lock:
            if self._completion is None:
                self._callbacks.append(callback)
                return
        _call(callback)

    def watch(self) -> None:
        """Have the transfer settled as soon as it ends, even if no thread waits; called by the agent."""
        with self._lock:
            ticket = None if self._is_watched else self._ticket
            self._is_watched = True
        if ticket is not None:
            ticket.notify(self.settle)

    def settle(self) -> Completion | None:
        """The completion, made on the first call after the end; None while open. Called by the agent."""
        with self._lock:
            if self._ticket is None:
                return self._completion
            completion = self._ticket.completion()
            if completion is None:
                return None
            self._ticket, self._completion = None, completion
            callbacks, self._callbacks = self._callbacks, []
        self._engine.transfer_ended(completion)
        if self._completions is not None:
            self._completions.add(completion)
        for callback in callbacks:
            _call(callback)
        return completion

    def __del__(self) -> None:
        ticket = getattr(self, "_ticket", None)
        if ticket is not None and not self._is_watched:
            # Nobody can ask for it any more; its memory is kept until it has ended, and then it is counted.
            type(self)(self._engine, self.peer, self.channel, ticket, None).watch()


def _result(completion: Completion | None) -> Completion:
    assert completion is not None  # noqa: S101  (it has ended)
    error = completion.error
    if error is not None:
        # A new one each time: a completion must not keep the frames, and the memory, of whoever waits.
        raise error.of_transfer(completion.tensor, completion.round_number)
    return completion


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001  (the user's; whoever ends transfers has others to end)
        _log.exception("what was to be called at the end of a transfer has failed")
