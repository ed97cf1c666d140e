"""Config sessions: a change is one, committed with a timer, and so is the lock of whoever makes it.

A session takes effect as a whole when it is committed: unless the change is read back and confirmed in time,
the switch restores what ran before. One of ours that waits for its confirmation is confirmed where the switch
runs the plan; else nobody can know which of both the operator wants. On the way back a commit of the push
that still waits is aborted, and nothing else: the switch itself keeps what ran before. If an earlier push has
to be undone too, the answers after the abort show that. All else goes back in a session that is committed
without a timer: who takes a change back does not want the switch to return to it.

What keeps two operators apart is a session that nobody commits.

    mltswitch-NUMBER-OWNER-SINCE-WHO    the lock: pending, empty, aborted at the end
    mltswitch-NUMBER                    the change of whoever has the lock with this number

Sessions have names, and everybody sees them, but whoever enters one that is there gets it. So each operator
makes one of a name that only he has, and looks then: where another one is there, too, both step back. The
switch itself drops a pending session after 24 hours and at a reboot (EOS User Manual, Configure Session). A
pending session whose commit was sent, and not answered, is aborted: after that it cannot be committed.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, Claim, Lock, RunningState, Step, Timer
from mltswitch.targets.common import Key, json_in, known_form, known_word
from mltswitch.targets.engine.target import LineTarget
from mltswitch.targets.eos.sheet import INDENTATION
from mltswitch.targets.state import SwitchState

SESSIONS: Final = "show configuration sessions detail | json"
CONFIRM_WITHIN: Final = "00:10:00"
"""How long the switch waits before it undoes an unconfirmed commit: longer than reading back takes."""
_LEAVE: Final = "end"
_SAVE: Final = "write memory"
_COMMIT_SECONDS: Final = 120.0
"""A commit programs the chip before the prompt comes back."""
_OWN: Final = re.compile(r"mltswitch-(?P<number>[0-9]{1,6})")
_LOCK: Final = re.compile(rf"{_OWN.pattern}-(?P<owner>[0-9a-f]{{8}})-(?P<since>[0-9]{{10}})-(?P<who>\S+)")
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_NAME: Final = 64
_WAITING: Final = "pendingCommitTimer"
_STATES: Final = {state: state for state in ("pending", _WAITING, "committed", "completed", "aborted")}
"""Of config sessions. Up to 4.31 one whose timer runs is `pendingCommitTimer`; since 4.32 it is `committed`,
and the answer names it at its top (napalm, issue 2166 and its driver eos)."""
_TIMED: Final = "commitTimerSessionName"
_OF_TIMER: Final = re.compile(r"(?i)timer|pending|expire")
_KNOWN_OF_TIMER: Final = frozenset({_TIMED, "commitTimerExpireTime"})
_SAVES_AT_ONCE: Final = "saveToStartupConfigOnCommit"


def read_sessions(answer: str) -> dict[str, str]:
    """Config session → its state, by the words of 4.31; a running commit timer is `pendingCommitTimer`.

    Raises DeviceError for an answer of another form, and for a state that no release is known to have.
    """
    with known_form(SESSIONS):
        shown = dict(json_in(answer))
        states = {
            str(name): known_word(entry["state"], _STATES, f"the state of config session {name}", SESSIONS)
            for name, entry in shown["sessions"].items()
        }
        if unknown := [key for key in shown if _OF_TIMER.search(key) and key not in _KNOWN_OF_TIMER]:
            raise ValueError(f"{unknown[0]}: {shown[unknown[0]]!r}")
        if timed := shown.get(_TIMED):
            states[str(timed)] = _WAITING
        elif shown.get("commitTimerExpireTime", 0) > 0:
            raise ValueError(f"a commit timer runs, and {_TIMED} does not say of which session")
    return states


def waiting_sessions(sessions: Mapping[str, str], *, own: bool = True) -> list[str]:
    """The sessions, mltswitch's or (`own` False) others', that are committed and not yet confirmed."""
    return [
        name
        for name, state in sessions.items()
        if state == _WAITING and (_OWN.fullmatch(name) is not None) is own
    ]


def _saves_at_commit(answer: str) -> bool:
    """Whether a commit is saved at once, so that a reboot brings back what was undone."""
    with known_form(SESSIONS):
        return bool(dict(json_in(answer)).get(_SAVES_AT_ONCE))


class SessionTarget(LineTarget):
    """A target whose lines take effect together, in a config session."""

    def diff(self, running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
        """The lines of the rendered file that change something, and removals of what is not planned."""
        sessions = read_sessions(running.answers[SESSIONS])
        if others := waiting_sessions(sessions, own=False):
            raise DeviceError(
                f"config session {others[0]}, which is not ours, waits for its commit timer: it may take "
                "back what runs, and until then the switch takes no other commit",
                where=SESSIONS,
                hint=f"wait, or ask who committed it: `configure session {others[0]} commit` keeps it, "
                f"`configure session {others[0]} abort` undoes it",
            )
        waiting = waiting_sessions(sessions)
        lines, stays = self.lines_to(running.answers, wanted, capabilities)
        if not lines:
            return Change((), _save(waiting), stays=stays)
        if waiting:
            raise DeviceError(
                f"a push waits to be confirmed, in config session {waiting[0]}, and what runs is not the "
                "plan",
                hint=f"`configure session {waiting[0]} commit` keeps it, `configure session {waiting[0]} "
                f"abort` undoes it, and after at most {CONFIRM_WITHIN} the switch undoes it by itself",
            )
        if _saves_at_commit(running.answers[SESSIONS]):
            raise DeviceError(
                "the switch saves each commit to its startup configuration, before a change was read back",
                where=SESSIONS,
                expected="saveToStartupConfigOnCommit false",
                hint="switch that off for config sessions: a push saves by itself, after it has read back",
            )
        name = _next_name(sessions)
        commit = f"configure session {name} commit timer {CONFIRM_WITHIN}"
        return replace(self._session(lines, name, commit, capabilities), save=_save([name]), stays=stays)

    def restore(
        self,
        before: Mapping[str, str],
        running: RunningState,
        wanted: SwitchState,
        capabilities: Capabilities,
    ) -> Change:
        """The change that undoes a push of the wanted state, as far as `before` differs from what runs."""
        sessions = read_sessions(running.answers[SESSIONS])
        waited = waiting_sessions(read_sessions(before[SESSIONS]))
        if waiting := [name for name in waiting_sessions(sessions) if name not in waited]:
            aborts = [f"configure session {name} abort" for name in waiting]
            return Change(tuple(map(Step, (_LEAVE, *aborts))), _save([]), "\n".join(aborts) + "\n")
        lines = self.lines_back(before, running.answers, wanted, capabilities)
        if not lines:
            return Change((), _save([]))
        name = _next_name(sessions)
        return self._session(lines, name, f"configure session {name} commit", capabilities)

    def _session(self, lines: Iterable[Key], name: str, commit: str, capabilities: Capabilities) -> Change:
        """The lines in a config session of their own."""
        begin = f"configure session {name}"
        entered = list(self.sheet(capabilities).with_modes(lines))
        inside = (Step(text, prepares=True, modes=(begin, *modes)) for modes, text in entered)
        leave = Step(_LEAVE, prepares=True)
        shown = (INDENTATION * (1 + len(modes)) + text for modes, text in entered)
        return Change(
            (leave, Step(begin, prepares=True), *inside, leave, Step(commit, seconds=_COMMIT_SECONDS)),
            _save([]),
            "\n".join((begin, *shown, commit)) + "\n",
        )


def _save(waiting: Iterable[str]) -> tuple[Step, ...]:
    """What confirms the sessions that wait, and saves."""
    confirm = (f"configure session {name} commit" for name in waiting)
    return tuple(map(Step, (_LEAVE, *confirm, _SAVE)))


def _next_number(sessions: Iterable[str]) -> int:
    """A number that no session of ours has, nor a lock."""
    return max((int(match["number"]) for match in map(_OWN.match, sessions) if match), default=0) + 1


def _next_name(sessions: Iterable[str]) -> str:
    """A name that the switch does not know yet: the one that goes with the lock, where there is that."""
    sessions = list(sessions)
    locks = [int(match["number"]) for match in map(_LOCK.fullmatch, sessions) if match]
    return f"mltswitch-{max(locks, default=_next_number(sessions))}"


def _timed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same change, with another time than the one in which a push reads back."""
    del before, wanted, name
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    steps = (replace(step, command=step.command.replace(CONFIRM_WITHIN, time)) for step in change.steps)
    return replace(change, steps=tuple(steps), text=change.text.replace(CONFIRM_WITHIN, time))


TIMER: Final = Timer(_timed, lambda _: ())
"""How a commit timer undoes a change by itself; saving confirms the commit."""


def _locks(answer: str) -> dict[str, re.Match[str]]:
    """Name of each lock → its parts."""
    pending = (name for name, state in read_sessions(answer).items() if state == "pending")
    return {match[0]: match for match in map(_LOCK.fullmatch, pending) if match}


def _read(answer: str) -> tuple[int, tuple[Claim, ...]]:
    matches = _locks(answer).values()
    claims = (Claim(match["owner"], match["who"], int(match["since"])) for match in matches)
    return int(time.time()), tuple(claims)


def _take(claim: Claim, answer: str) -> tuple[Step, ...]:
    number = _next_number(read_sessions(answer))
    name = f"mltswitch-{number}-{claim.owner}-{claim.since}-{_NO_WORD.sub('-', claim.who)}"
    return tuple(map(Step, (_LEAVE, f"configure session {name[:_LONGEST_NAME]}", _LEAVE)))


def _release(answer: str, owner: str) -> tuple[Step, ...]:
    """A commit that waits stays: it is confirmed, or taken back, by name. The lock goes last: until then
    nobody else begins."""
    sessions = read_sessions(answer)
    gone: list[str] = []
    for name, match in _locks(answer).items():
        if match["owner"] == owner:
            change = f"mltswitch-{match['number']}"
            gone += [change] if sessions.get(change) == "pending" else []
            gone.append(name)
    return (Step(_LEAVE), *(Step(f"configure session {name} abort") for name in gone)) if gone else ()


LOCK: Final = Lock(SESSIONS, _read, _take, _release)
