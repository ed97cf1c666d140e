"""Whom a receiver lets in: those it expects, or the first who comes."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from mltswitch.cli.strangers import Strangers
from mltswitch.errors import MltswitchError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.announced import ANNOUNCEMENT_BYTES, ANNOUNCEMENT_TENSOR, FIRST_ROUND
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
    """Observes an agent. Whoever is not expected is refused and told why, and nobody waits less for that."""

    def __init__(self, agent: Agent, expected: Sequence[str], wait_seconds: float) -> None:
        """`expected`: by their names; nobody: the first who comes."""
        self._wait_seconds = wait_seconds
        self._end = time.monotonic() + wait_seconds
        self._agent = agent
        self._expected = tuple(expected)
        self._takes_the_first = not expected
        self._changed = threading.Condition()
        self._connected: set[str] = set()
        self._refused: set[str] = set()
        self._reasons: dict[str, str] = {}
        """Why peers went, by their names."""
        self._strangers = Strangers()
        self._is_waiting = True
        """Else a progress bar has standard error."""
        self._has_left = False
        """Somebody who was expected, after all were there."""
        agent.observe(self)

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

    def observe(self, event: AgentEvent) -> None:
        """In the agent's thread."""
        match event:
            case PeerConnected():
                refusal = self._let_in(event.peer)
                if refusal:
                    self._refused.add(event.peer)
                    self._tell(event.peer, refusal)
                    self._refuse(event.peer, refusal)
            case PeerLost():
                if event.peer in self._refused:  # and that has been told
                    self._refused.discard(event.peer)
                    return
                with self._changed:
                    self._connected.discard(event.peer)
                    self._has_left |= event.peer in self._expected
                    self._changed.notify_all()
                    if self._takes_the_first and self._expected == (event.peer,):
                        self._expected = ()
                    if len(self._reasons) < MOST_REMEMBERED:  # strangers must not fill the memory
                        self._reasons[event.peer] = event.reason
                self._tell(event.peer, event.reason)

    def _let_in(self, peer: str) -> str:
        """Empty, or why it is refused."""
        with self._changed:
            if self._takes_the_first and not self._expected and not host_name_problem(peer):
                self._expected = (peer,)
            if peer in self._expected:
                self._connected.add(peer)
                self._changed.notify_all()
                return ""
        if self._takes_the_first:
            return host_name_problem(peer) or f"comes too late: {self._expected[0]} was first"
        return "is not expected here (--from)"

    def _refuse(self, peer: str, reason: str) -> None:
        """By taking its first tensor and giving it up: the library ends connections all together, or none."""
        with suppress(MltswitchError):  # it has gone
            self._agent.post_recv(
                peer,
                np.zeros(ANNOUNCEMENT_BYTES, np.int8),
                tensor=ANNOUNCEMENT_TENSOR,
                round_number=FIRST_ROUND,
            ).cancel(f"{peer} {reason}")

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
