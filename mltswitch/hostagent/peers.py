"""Who is connected to an agent, or was; any thread may wait for somebody."""

import threading
from collections.abc import Callable, Sequence
from copy import copy
from typing import Final

from mltswitch.hostagent.errors import AgentError, DeadlineExceededError

MOST_REMEMBERED: Final = 4096
"""Connected or lost."""


class Peers:
    """Names, and the error that ended each connection that is no more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._known: dict[str, AgentError | None] = {}
        self._end: AgentError | None = None
        """Why nobody will connect any more."""

    def close(self, error: AgentError) -> None:
        """Nobody will: who waits is told this."""
        with self._changed:
            self._end = self._end or error
            self._changed.notify_all()

    def connected(self, name: str) -> None:
        """It said hello."""
        with self._changed:
            self._known[name] = None
            self._changed.notify_all()

    def lost(self, name: str, error: AgentError) -> None:
        """It is connected no more, or the attempt has failed."""
        with self._changed:
            self._known[name] = error
            if len(self._known) > MOST_REMEMBERED:
                # Names that strangers made up must not fill the memory.
                lost = (other for other, reason in self._known.items() if reason is not None)
                self._known.pop(next(lost))
            self._changed.notify_all()

    def error_of(self, name: str) -> AgentError | None:
        """What ended the last connection; None where it is connected, or never was."""
        return self._known.get(name)

    def changed(self) -> None:
        """Something else may have ended a wait."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, is_over: Callable[[], bool], timeout_seconds: float) -> None:
        """Or until so much time has passed; `changed` makes us look again."""
        with self._changed:
            self._wait_for(is_over, timeout_seconds)

    def wait_for_attempt(self, name: str, before: AgentError | None, timeout_seconds: float) -> bool:
        """Whether a peer is connected in time; raises the AgentError of an attempt that has failed, but for
        the one of `before`, as `error_of` told it."""
        with self._changed:
            self._wait_for(lambda: self._is_connected(name) or self._is_lost(name, before), timeout_seconds)
            if self._is_lost(name, before):
                self._raise(name)
            return self._is_connected(name)

    def wait_for(self, names: Sequence[str], timeout_seconds: float) -> None:
        """Until all of them are connected. Whoever was lost before may come back.

        Raises the AgentError of one that was lost meanwhile, or of the agent's end, DeadlineExceededError for
        one that has not come.
        """
        with self._changed:
            before = {name: self._known.get(name) for name in names}
            self._wait_for(
                lambda: all(self._is_connected(name) or self._is_lost(name, before[name]) for name in names),
                timeout_seconds,
            )
            for name in names:
                if self._is_lost(name, before[name]):
                    self._raise(name)
            missing = [name for name in names if not self._is_connected(name)]
        if missing:
            reason = before[missing[0]]
            ended = "" if reason is None else f"; before: {reason.what}"
            what = f"has not connected within {timeout_seconds:g} s{ended}"
            raise DeadlineExceededError(what, peer=missing[0])

    def wait_for_one(self, timeout_seconds: float) -> str:
        """The name of one that is connected, whoever it is.

        Raises DeadlineExceededError, or the AgentError of the agent's end.
        """
        with self._changed:
            self._wait_for(lambda: None in self._known.values(), timeout_seconds)
            for name, error in self._known.items():
                if error is None:
                    return name
            lost = [str(error) for error in self._known.values()]
        reason = f"; {lost[-1]}" if lost else ""
        raise DeadlineExceededError(f"nobody has connected within {timeout_seconds:g} s{reason}")

    def _wait_for(self, is_over: Callable[[], bool], timeout_seconds: float) -> None:
        """Raises the AgentError of the agent's end, unless what is waited for has happened before."""
        self._changed.wait_for(lambda: is_over() or self._end is not None, timeout_seconds)
        if self._end is not None and not is_over():
            raise copy(self._end)

    def _is_connected(self, name: str) -> bool:
        return name in self._known and self._known[name] is None

    def _is_lost(self, name: str, before: AgentError | None) -> bool:
        error = self._known.get(name)
        return error is not None and error is not before

    def _raise(self, name: str) -> None:
        error = self._known[name]
        assert error is not None  # noqa: S101  (its callers looked)
        raise copy(error)  # ours must not keep the frames of all who were told
