"""Whom a receiver lets in: those it expects, or the first who comes."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from mltswitch.cli.strangers import Strangers
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.identity import host_name_problem
from mltswitch.hostagent.errors import AgentError, DeadlineExceededError
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerConnected, PeerLost

SHOWN_NAMES: Final = 8
"""Of those who are waited for, in one line."""


class Admission:
    """Decides for an agent (`AgentSettings.admit`), and observes it from its beginning. Whoever is not
    expected is refused and told why, and nobody waits less for that."""

    def __init__(self, expected: Sequence[str], wait_seconds: float) -> None:
        """`expected`: by their names; nobody: the first who comes."""
        self._wait_seconds = wait_seconds
        self._end = time.monotonic() + wait_seconds
        self._expected = tuple(expected)
        self._takes_the_first = not expected
        self._changed = threading.Condition()
        self._connected: set[str] = set()
        self._asked: set[str] = set()
        """Connected ones that `wait` has returned."""
        self._told: set[str] = set()
        """Connected ones that a line has named."""
        self._came_before: set[str] = set()
        """Expected ones, whether or not they are there now."""
        self.names: tuple[str, ...] = ()
        """Who was there when `wait` ended."""
        self._reasons: dict[str, str] = {}
        """Why expected peers went."""
        self._last_reason = ""
        """Why anybody did."""
        self._strangers = Strangers()
        self._is_waiting = True
        """Else a progress bar has standard error."""

    def waits_for(self) -> str:
        """A line about it."""
        names = _listed(self._expected) if self._expected else "the first who connects"
        return f"waiting for {names}, up to {self._wait_seconds:g} s"

    def wait(self, tell: Callable[[str], None]) -> tuple[str, ...]:
        """Until all who are expected are there, however often they went before; returns those who are new.

        `tell` is given a line for each as it comes. Raises DeadlineExceededError.
        """
        self._is_waiting = True
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._arrived() or self._is_complete(),
                        max(0.0, self._end - time.monotonic()),
                    )
                    arrived, is_complete = self._arrived(), self._is_complete()
                    if not arrived and not is_complete:
                        raise self._nobody()
                    lines = self._lines_about(arrived)
                    if is_complete:
                        self.names = self._expected
                        newcomers = tuple(name for name in self.names if name not in self._asked)
                        self._asked.update(newcomers)
                for is_first, line in lines:
                    # Who comes and goes all the time is told of as seldom as a stranger.
                    (tell if is_first else self._strangers.tell)(line)
                if is_complete:
                    return newcomers
        finally:
            self._is_waiting = False

    def wait_again(
        self, agent: Agent, errors: Sequence[AgentError], tell: Callable[[str], None]
    ) -> tuple[str, ...]:
        """The same, after some did not say what they send: they are sent away, and may come back.

        Raises the first error where no time is left for that, and AgentError where the agent has failed.
        """
        if time.monotonic() >= self._end:
            raise errors[0]
        agent.observe(self)  # it does already; where no engine is left, nobody would come any more
        with self._changed:
            for error in errors:
                self._strangers.tell(f"not connected: {error.peer}: {error.what}")
                if error.peer in self._asked:  # else it went, and may be there again
                    agent.disconnect(error.peer, error.what)
            # What ended its tensor is told sooner than that it went.
            left = self._asked.isdisjoint
            names = [error.peer for error in errors]
            self._changed.wait_for(lambda: left(names), max(0.0, self._end - time.monotonic()))
        return self.wait(tell)

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
                    self._asked.discard(event.peer)
                    self._told.discard(event.peer)
                    self._last_reason = event.reason
                    if self._takes_the_first and self._expected == (event.peer,):
                        self._expected = ()
                    elif event.peer in self._expected:  # strangers must not fill the memory
                        self._reasons[event.peer] = event.reason
                    self._changed.notify_all()
                self._tell(event.peer, event.reason)

    def _tell(self, peer: str, reason: str) -> None:
        if self._is_waiting:
            self._strangers.tell(f"not connected: {peer}: {reason}")

    def _arrived(self) -> list[str]:
        """Whom no line has named yet."""
        return [name for name in self._expected if name in self._connected and name not in self._told]

    def _lines_about(self, arrived: Sequence[str]) -> list[tuple[bool, str]]:
        """Whether each has come for the first time, and a line about it."""
        lines: list[tuple[bool, str]] = []
        for name in arrived:
            self._told.add(name)
            missing = [other for other in self._expected if other not in self._told]
            line = f"connected: {name}" + (f"; waiting for {_listed(missing)}" if missing else "")
            # Where anybody may come, all names but the first are strangers', and would fill the memory.
            is_first = not self._came_before if self._takes_the_first else name not in self._came_before
            lines.append((is_first, line))
            if is_first:
                self._came_before.add(name)
        return lines

    def _is_complete(self) -> bool:
        return bool(self._expected) and self._connected.issuperset(self._expected)

    def _nobody(self) -> DeadlineExceededError:
        missing = next((name for name in self._expected if name not in self._connected), "")
        reason = self._reasons.get(missing) if missing else self._last_reason
        what = "has not connected" if missing else "nobody has connected"
        before = f"; before: {reason}" if reason else ""
        return DeadlineExceededError(f"{what} within {self._wait_seconds:g} s{before}", peer=missing)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
