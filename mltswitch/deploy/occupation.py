"""Keeps two operators off one device by a mark on it, and tells whether the device is idle.

The lock of the state directory (`working`) knows the processes of one user on one machine. A device that can
hold a mark has only one operator at a time, from before it is read until its change is saved or rolled back;
a second one is told who has it since when. A killed process leaves its mark: the next process with the same
state directory takes it over, others may after `STALE_SECONDS`.
"""

import hashlib
import os
import random
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from mltswitch.deploy.comparison import read, value_differences
from mltswitch.deploy.journal import OPEN, Journal, State
from mltswitch.deploy.ownership import pushed
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.session import Session, quoted
from mltswitch.deploy.state_directory import named_errors, operator, subfolder
from mltswitch.errors import DeviceError, OccupiedError, UncertainError, UserInputError
from mltswitch.inventory import Device
from mltswitch.targets import Claim, Guard, RunningState, SessionKind, Step
from mltswitch.targets.state import differences

STALE_SECONDS: Final = 3600
"""Age in seconds at which a foreign mark is removed: no work on a device lasts so long without a new one."""
_CLOCKS_DIFFER_SECONDS: Final = 300
"""By which a mark from later than now shows that a clock is wrong."""
IDLE_SECONDS: Final = 30.0
"""How many seconds to wait for a device that still works on an earlier change."""
_TRIES: Final = 4
_STEP_BACK_SECONDS: Final = 0.4
_POLL_SECONDS: Final = 0.5
_LOOKS: Final = 3


def owner(device: Device) -> str:
    """The owner ID that marks on the device carry for this state directory, always the same.

    It depends on the device's address: the lock of the state directory knows addresses only, and two pushes
    to one device by two addresses have to see each other's marks. Raises MachineError or UserInputError.
    """
    path = subfolder("running").parent / "owner"
    with named_errors(path):
        if not path.exists():
            fresh = path.with_name(f".owner-{secrets.token_hex(4)}")
            fresh.write_text(secrets.token_hex(4), encoding="ascii")
            with suppress(FileExistsError):  # another thread was first
                os.link(fresh, path)
            fresh.unlink()
        text = path.read_text(encoding="ascii")
    if not re.fullmatch(r"[0-9a-f]{8}", text):
        raise UserInputError("is damaged", where=str(path), expected="8 hexadecimal digits")
    return hashlib.sha256(f"{text} {device.endpoint}".encode()).hexdigest()[:8]


def occupy(session: Session, job: Job, *, begins: bool = False) -> tuple[str, ...]:
    """Reserve the device for this push by a mark on it that names the operator, or raise OccupiedError.

    Lines that this state directory entered there and that never took effect are dropped. Returns notes on
    marks that were too old. On devices whose mark is a part of the running configuration, a call without
    `begins` only looks for others' marks, and one with it, right before the first line that takes effect,
    makes the own mark.
    """
    guard, own, notes = job.target.guard, owner(job.device), []
    if guard.lock is None or (begins and not is_configured(job)):
        return ()
    refused: DeviceError | None = None
    for attempt in range(_TRIES):
        answer = session.ask(guard.lock.query)
        now, claims = guard.lock.read(answer)
        others = [claim for claim in claims if claim.owner != own]
        if living := [each for each in others if now - each.since < STALE_SECONDS]:
            if attempt == _TRIES - 1:
                raise _occupied(living[0], now)
            _step_back()
            continue
        if is_configured(job) and not begins:
            return ()
        for claim in others:
            _take_away(session, guard.lock.release(answer, claim.owner), claim)
            notes.append(f"{_named(claim, now)} had it, and has not ended that: taken from them")
        session.apply(guard.lock.release(answer, own))
        try:
            session.apply(guard.lock.take(Claim(own, operator(), now), answer))
        except DeviceError as error:  # somebody else may have been quicker, which the next look tells
            refused = error
        if _has(session, job, own):  # and nobody else was as quick
            return tuple(notes)
        vacate(session, job)
        _step_back()
    raise refused or OccupiedError("cannot be had alone: others try it, too, or it does not show their marks")


def is_configured(job: Job) -> bool:
    """Whether the device's mark is a part of its running configuration."""
    lock = job.target.guard.lock
    return lock is not None and lock.configured is not None


def _step_back() -> None:
    time.sleep(_STEP_BACK_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)


def check_kept(session: Session, job: Job, journal: Journal) -> None:
    """Raise OccupiedError where a broken-off change's mark is gone and others may have changed the device.

    That is so where the mark was too old, or where what runs is neither that change's nor from before it.
    """
    lock, name = job.target.guard.lock, job.device.name
    if lock is None or not has_mark(journal, job):
        return
    now, claims = lock.read(session.ask(lock.query))
    if any(claim.owner == owner(job.device) for claim in claims):
        return
    old = journal.begun(name).timestamp() + STALE_SECONDS
    if time.time() < old:
        was = pushed(journal, job)
        check_foreign(was, journal.backup(name).answers, read(session, was))
        return
    has_it = f"and {_named(claims[0], now)} has it now" if claims else "or the switch has restarted"
    raise OccupiedError(
        f"the mark of change {journal.identifier} is gone: it was too old from {_clock(int(old))} on, so "
        f"somebody else may have changed the switch since, {has_it}. Nothing is sent over that",
        hint=f"`mltswitch status {journal.identifier}` tells what it runs; `mltswitch rollback "
        f"{journal.identifier} --abandon` closes this change, and the next push begins anew",
    )


def _take_away(session: Session, steps: tuple[Step, ...], claim: Claim) -> None:
    """Remove a mark that is too old; raises DeviceError, which says how, where this account may not."""
    try:
        session.apply(steps)
    except DeviceError as error:
        error.hint = (
            f"the mark of {quoted(claim.who)} is too old, and this account may not remove it: where nobody "
            f"works on the switch, enter there as root: {'; '.join(step.command for step in steps)}"
        )
        raise


def check_occupied(session: Session, job: Job) -> None:
    """Raise OccupiedError where this state directory's mark is gone, or another one is there, too."""
    if not is_configured(job) and not _has(session, job, owner(job.device)):
        raise _meanwhile("else has taken the device")


def _has(session: Session, job: Job, own: str) -> bool:
    lock = job.target.guard.lock
    return lock is None or [each.owner for each in lock.read(session.ask(lock.query))[1]] == [own]


def vacate(session: Session, job: Job) -> None:
    """Remove the mark of this state directory from the device, if it is there."""
    if (lock := job.target.guard.lock) is not None:
        session.apply(lock.release(session.ask(lock.query), owner(job.device)))


def occupant(session: Session, job: Job) -> str:
    """Who else works on the device, or what still works there; empty: nobody and nothing."""
    guard = job.target.guard
    if guard.lock is not None:
        now, claims = guard.lock.read(session.ask(guard.lock.query))
        for claim in claims:
            if claim.owner != owner(job.device):
                return f"{_named(claim, now)} works on it"
    busy = quoted(session.ask(guard.busy)) if guard.busy else ""
    return f"it still works: {busy}" if busy else ""


def await_idle(session: Session, job: Job, seconds: float | None) -> None:
    """Return when nothing that was sent before can still take effect; raises UncertainError.

    A device that tells what it works on is asked. Another one is read twice, `seconds`
    apart: the longest time that an unanswered line may take; None: all lines were answered.
    """
    guard = job.target.guard
    aborts = guard.lock is not None and guard.lock.configured is None  # taking it ends what was sent before
    if guard.busy:
        deadline = time.monotonic() + IDLE_SECONDS
        while busy := quoted(session.ask(guard.busy)):
            if time.monotonic() > deadline:
                raise UncertainError(f"still works after {IDLE_SECONDS:g} s: {busy}")
            time.sleep(_POLL_SECONDS)
    elif seconds is not None and not aborts and job.target.session in {SessionKind.CLI, SessionKind.GNMI}:
        for _ in range(_LOOKS):
            before = read(session, job).state
            time.sleep(seconds)
            if read(session, job).state == before:
                return
        raise UncertainError("what it runs still changes by itself")


def _occupied(claim: Claim, now: int) -> OccupiedError:
    until = f"after {_clock(claim.since + STALE_SECONDS)} their mark is too old, and is taken away"
    if claim.since > now + _CLOCKS_DIFFER_SECONDS:
        until = (
            "a clock is or was wrong, so nobody can tell how old their mark is: docs/deploy.md says how to"
        )
        until += " remove it by hand"
    return OccupiedError(
        f"{_named(claim, now)} works on it, so nothing of this takes effect",
        hint="let them finish it, there `mltswitch status` tells how far it came, and `resume` or `rollback` "
        f"ends it; {until}",
    )


def _named(claim: Claim, now: int) -> str:
    return f"{quoted(claim.who)} (since {_clock(claim.since)}, {max(0, now - claim.since) // 60} min)"


def _clock(since: int) -> str:
    return f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"


def check_base(session: Session, job: Job, base: RunningState) -> None:
    """Raise OccupiedError where the device no longer runs the state for which a change was made."""
    guard = job.target.guard
    if not guard.compares:
        return
    session.apply(guard.enter)
    now = read(session, job)
    whole = (_settings(guard, each.answers[guard.whole]) if guard.whole else () for each in (base, now))
    if now.state != base.state or len(set(whole)) > 1:
        raise _meanwhile("has changed it")


def _meanwhile(what: str) -> OccupiedError:
    hint = "see what it runs (`mltswitch diff`), and push again"
    return OccupiedError(f"somebody {what} meanwhile, so nothing takes effect", hint=hint)


def _settings(guard: Guard, text: str) -> tuple[str, ...]:
    """A configuration without marks, and without comments, which may have the time of the day."""
    mark = guard.lock and guard.lock.configured
    lines = (line for line in text.splitlines() if line and not line.startswith(("!", "#", "exit")))
    return tuple(line for line in lines if not (mark and mark.search(line)))


def check_foreign(job: Job, before: Mapping[str, str], running: RunningState) -> None:
    """Raise OccupiedError for a value that is neither the plan's nor from before it: somebody else set it."""
    was = job.target.read(before, job.fitted.state, job.fitted.capabilities).state
    old = {(each.port, each.queue, each.field, each.found) for each in differences(job.fitted.state, was)}
    for each in value_differences(job, running):
        if (each.port, each.queue, each.field, each.found) not in old:
            raise OccupiedError(
                f"somebody has changed it since: {each.port} {each.queue_name}, {each.change}. The way back "
                "would undo that, too, so nothing was sent",
                hint="push the plan that it shall run; `mltswitch rollback --abandon` closes this change",
            )


def has_mark(journal: Journal, job: Job) -> bool:
    """Whether a change is unfinished on the device, which does not itself show that it will undo it."""
    state, timer = journal.state(job.device.name), job.target.timer
    goes_back = journal.header.confirm_seconds and timer is not None and timer.is_named
    return state in OPEN and not (state is State.VERIFIED and goes_back)
