"""Config sessions of an emulated Arista switch: copies of the configuration that take effect as a whole.

Inferred: a session is a copy of what ran when it was opened, so that committing it also undoes what others
changed since; the timer of a commit restores what ran before it. Ours: a name is used once, and
how errors are worded. A session that its timer took back leaves the list since 4.32 (observed on cEOS 4.35).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from switchsim.eos_settings import EosConfiguration
from switchsim.grammar import invalid

MAX_PENDING: Final = 5
MAX_SESSIONS: Final = 1_000


class SessionState(StrEnum):
    """As `show configuration sessions` names it."""

    PENDING = "pending"
    WAITING = "pendingCommitTimer"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(slots=True)
class ConfigSession:
    """One session; `former` is what its timer restores."""

    configuration: EosConfiguration
    state: SessionState = SessionState.PENDING
    former: EosConfiguration | None = None
    deadline_seconds: float = 0.0


class ConfigSessions:
    """What runs, and the sessions that want to change it; callers hold the device's lock."""

    def __init__(
        self, configuration: EosConfiguration, clock: Callable[[], float], *, forgets: bool = False
    ) -> None:
        self._clock = clock
        self._running = configuration
        self._forgets = forgets
        """Whether a commit that was taken back leaves the list."""
        self.by_name: dict[str, ConfigSession] = {}

    @property
    def running(self) -> EosConfiguration:
        """What runs now, timers considered."""
        self.expire()
        return self._running

    @running.setter
    def running(self, configuration: EosConfiguration) -> None:
        self._running = configuration

    def expire(self) -> None:
        """Restore what ran before a commit whose timer has run out."""
        for session in list(self.by_name.values()):
            if session.state is SessionState.WAITING and self._clock() >= session.deadline_seconds:
                self._restore(session)

    def open(self, name: str) -> ConfigSession:
        """Enter a session, a new one where there is none of this name."""
        running = self.running
        session = self.by_name.get(name)
        if session is None:
            pending = sum(each.state is SessionState.PENDING for each in self.by_name.values())
            if pending >= MAX_PENDING or len(self.by_name) >= MAX_SESSIONS:
                raise invalid("there are too many config sessions")
            session = self.by_name[name] = ConfigSession(running)
        elif session.state is not SessionState.PENDING:
            raise invalid(f"config session {name} is {session.state}")
        return session

    def commit(self, name: str, timer_seconds: int | None) -> None:
        """Make a session's configuration run, for a time where there is a timer; or confirm it."""
        running, session = self.running, self._find(name)
        if session.state is SessionState.PENDING:
            if any(each.state is SessionState.WAITING for each in self.by_name.values()):
                raise invalid("another commit waits to be confirmed")
            session.former, self._running = running, session.configuration
        elif session.state is not SessionState.WAITING:
            raise invalid(f"config session {name} is {session.state}")
        if timer_seconds is None:
            session.state = SessionState.COMPLETED
        else:
            session.state = SessionState.WAITING
            session.deadline_seconds = self._clock() + timer_seconds

    def abort(self, name: str) -> None:
        """Forget a pending session, or restore what ran before a commit that waits."""
        self.expire()
        session = self._find(name)
        if session.state is SessionState.WAITING:
            self._restore(session)
        elif session.state is SessionState.PENDING:
            del self.by_name[name]
        else:
            raise invalid(f"config session {name} is {session.state}")

    def _find(self, name: str) -> ConfigSession:
        if name not in self.by_name:
            raise invalid(f"there is no config session {name}")
        return self.by_name[name]

    def _restore(self, session: ConfigSession) -> None:
        session.state = SessionState.ABORTED
        if session.former is not None:
            self._running = session.former
        if self._forgets:
            self.by_name = {name: each for name, each in self.by_name.items() if each is not session}
