"""Config sessions of an emulated Arista switch: copies of the configuration that take effect as a whole.

Inferred: a session is a copy of what ran when it was opened, so that committing it also undoes what others
changed since; the timer of a commit restores what ran before it. Our own choice: a name is used once, and
how errors are worded. A session that its timer took back leaves the list since 4.32 (observed on cEOS 4.35).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from switchsim.grammar import invalid
from switchsim.settings import Facts

MAX_PENDING: Final = 5
MAX_SESSIONS: Final = 1_000


class SessionState(StrEnum):
    """The state of a configuration session, as `show configuration sessions` names it."""

    PENDING = "pending"
    WAITING = "pendingCommitTimer"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(slots=True)
class ConfigSession:
    """One config session; `former` is the configuration that its commit timer restores."""

    configuration: Facts
    former: Facts
    state: SessionState = SessionState.PENDING
    deadline_seconds: float = 0.0


class ConfigSessions:
    """The running configuration and all config sessions; callers must hold the device's lock."""

    def __init__(self, running: Facts, clock: Callable[[], float], *, forgets: bool) -> None:
        self._clock = clock
        self._running = running
        self._forgets = forgets
        """Whether a commit that was taken back leaves the list."""
        self.by_name: dict[str, ConfigSession] = {}

    @property
    def running(self) -> Facts:
        """The running configuration, after a commit whose timer has run out has been undone."""
        for name, session in list(self.by_name.items()):
            if session.state is SessionState.WAITING and self._clock() >= session.deadline_seconds:
                self._restore(name)
        return self._running

    @running.setter
    def running(self, configuration: Facts) -> None:
        self._running = configuration

    def open(self, name: str) -> ConfigSession:
        """The pending config session of this name; a new one, a copy of what runs, where there is none."""
        running, states = self.running, [each.state for each in self.by_name.values()]
        if name not in self.by_name:
            if states.count(SessionState.PENDING) >= MAX_PENDING or len(states) >= MAX_SESSIONS:
                raise invalid("there are too many config sessions")
            self.by_name[name] = ConfigSession(running, running)
        return self._find(name, SessionState.PENDING)

    def commit(self, name: str, timer_seconds: int | None) -> None:
        """Make a session's configuration run, or confirm it if it runs already.

        After `timer_seconds` it is undone unless it is confirmed; None: it stays.
        """
        running, session = self.running, self._find(name, SessionState.PENDING, SessionState.WAITING)
        if session.state is SessionState.PENDING:
            if any(each.state is SessionState.WAITING for each in self.by_name.values()):
                raise invalid("another commit waits to be confirmed")
            session.former, self._running = running, session.configuration
        session.state = SessionState.COMPLETED if timer_seconds is None else SessionState.WAITING
        session.deadline_seconds = self._clock() + (timer_seconds or 0)

    def abort(self, name: str) -> None:
        """Drop a pending session, or, if its commit waits to be confirmed, restore what ran before it."""
        _ = self.running
        if self._find(name, SessionState.PENDING, SessionState.WAITING).state is SessionState.WAITING:
            self._restore(name)
        else:
            del self.by_name[name]

    def _find(self, name: str, *states: SessionState) -> ConfigSession:
        if (session := self.by_name.get(name)) is None:
            raise invalid(f"there is no config session {name}")
        if session.state not in states:
            raise invalid(f"config session {name} is {session.state}")
        return session

    def _restore(self, name: str) -> None:
        self._running, self.by_name[name].state = self.by_name[name].former, SessionState.ABORTED
        if self._forgets:
            del self.by_name[name]
