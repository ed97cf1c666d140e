"""Whom a receiver lets in: those it expects, or the first who comes."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from mltswitch.cli.strangers import Strangers
from mltswitch.hostagent.announced import ANNOUNCEMENT_TENSOR
from mltswitch.hostagent.control.identity import host_name_problem
from mltswitch.hostagent.errors import (
    AgentError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
)
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerConnected, PeerLost

MOST_REMEMBERED: Final = 1024
"""Reasons why peers went."""


class Admission:
    """Decides for an agent (`AgentSettings.admit`), and observes it. Whoever is not expected is refused and
    told why, and nobody waits less for that."""

    def __init__(self, expected: Sequence[str], wait_seconds: float) -> None:
        """`expected`: by their names; nobody: the first who comes."""
        self._wait_seconds = wait_seconds
        self._end = time.monotonic() + wait_seconds
        self._expected = tuple(expected)
        self._takes_the_first = not expected
        self._changed = threading.Condition()
        self._connected: set[str] = set()
        self._reasons: dict[str, str] = {}
        """Why peers went, by their names."""
        self._strangers = Strangers()
        self._is_waiting = True
        """Else a progress bar has standard error."""
        self._has_left = False
        """Somebody who was expected, after all were there."""

    def wait(self) -> tuple[str, ...]:
        """Until all who are expected are there, however often they went before; raises
        DeadlineExceededError."""
        with self._changed:
            self._is_waiting = True
            try:
                self._changed.wait_for(self._is_complete, max(0.0, self._end - time.monotonic()))
            finally:
                self._is_waiting = False
            if not self._is_complete():
                raise self._nobody()
            self._has_left = False
            return self._expected

    def wait_again(self, error: AgentError) -> tuple[str, ...]:
        """The same, after the only one went before it said what it sends; raises the error where there were
        others, whose words are not to be had again, or where it is no such error."""
        has_begun = error.tensor != ANNOUNCEMENT_TENSOR or len(self._expected) > 1
        if has_begun or not isinstance(error, PeerUnreachableError | PeerRefusedError):
            raise error
        self._strangers.tell(f"not connected: {error.peer}: {error.what}")
        with self._changed:  # what ended its tensor is told sooner than that it went
            self._changed.wait_for(lambda: self._has_left, max(0.0, self._end - time.monotonic()))
        return self.wait()

    def admit(self, peer: str) -> str:
        """Empty, or why it is refused; in the agent's thread."""
        with self._changed:
            if peer in self._expected:
                return ""
            if not self._takes_the_first:
                return f"{peer} is not expected here (--from)"
            if self._expected:
                return f"{peer} comes too late: {self._expected[0]} was first"
        return host_name_problem(peer) or ""

    def observe(self, event: AgentEvent) -> None:
        """In the agent's thread."""
        match event:
            case PeerConnected():
                with self._changed:
                    self._expected = self._expected or (event.peer,)
                    self._connected.add(event.peer)
                    self._changed.notify_all()
            case PeerLost():
                with self._changed:
                    self._connected.discard(event.peer)
                    self._has_left |= event.peer in self._expected
                    self._changed.notify_all()
                    if self._takes_the_first and self._expected == (event.peer,):
                        self._expected = ()
                    if len(self._reasons) < MOST_REMEMBERED:  # strangers must not fill the memory
                        self._reasons[event.peer] = event.reason
                self._tell(event.peer, event.reason)

    def _tell(self, peer: str, reason: str) -> None:
        if self._is_waiting:
            self._strangers.tell(f"not connected: {peer}: {reason}")

    def _is_complete(self) -> bool:
        return bool(self._expected) and self._connected.issuperset(self._expected)

    def _nobody(self) -> DeadlineExceededError:
        missing = next((name for name in self._expected if name not in self._connected), "")
        reason = self._reasons.get(missing) if missing else next(reversed(self._reasons.values()), None)
        what = "has not connected" if missing else "nobody has connected"
        before = f"; before: {reason}" if reason else ""
        return DeadlineExceededError(f"{what} within {self._wait_seconds:g} s{before}", peer=missing)
