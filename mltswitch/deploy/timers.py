"""The timers by which devices undo a change themselves, unless they are told in time to keep it."""

from collections.abc import Iterable, Mapping

from mltswitch.deploy.comparison import going_back, read, value_differences
from mltswitch.deploy.journal import Journal, State
from mltswitch.deploy.ownership import pushed
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.session import Session
from mltswitch.errors import DeviceError, RefusedError
from mltswitch.targets import Change


def check_timers(session: Session, job: Job, known: Iterable[Journal]) -> None:
    """Raise DeviceError where the device is about to undo a change that is not among those on record."""
    own = {each.identifier for each in known}
    others = [each for each in going_back(session, job) if each not in own]
    if others:
        raise DeviceError(
            f"goes back by itself from change {others[0]}, which is on record elsewhere",
            hint="wait until it is back, or confirm that change where it was pushed from",
        )


def _timer_name(journal: Journal, job: Job) -> str:
    """Switches of a lab may share what they run on."""
    return f"{journal.identifier}-{job.device.name}"


def with_timer(
    session: Session, journal: Journal, job: Job, answers: Mapping[str, str], change: Change
) -> Change:
    """The change with a timer, if the journal says so, by which the device itself would undo it."""
    seconds, timer = journal.header.confirm_seconds, job.target.timer
    if seconds is None or timer is None:
        return change
    if journal.state(job.device.name) is not State.PLANNED:  # resumed: it is to return to what ran before
        answers = journal.backup(job.device.name).answers
        stop_timer(session, journal, job)
    return timer.arm(change, answers, job.fitted.state, _timer_name(journal, job), seconds)


def stop_timer(session: Session, journal: Journal, job: Job) -> bool:
    """Tell the device to keep the change; whether it was told so, and has to be read again.

    It may have undone the change before. Raises DeviceError where it is undoing it now.
    """
    timer = job.target.timer
    if not journal.header.confirm_seconds or timer is None:
        return False
    if not timer.is_named and not _runs(session, journal, job):
        return False  # it has gone back, and what waits there is somebody else's
    steps = timer.keep(_timer_name(journal, job))
    try:
        session.apply(steps)
    except DeviceError as error:
        said = error.what.partition(": ")[2] if isinstance(error, RefusedError) else ""
        if timer.has_ended is not None and timer.has_ended.search(said):
            return True
        error.hint = error.hint or "it may be on its way back by itself: wait for it, and try again"
        raise
    return bool(steps)


def _runs(session: Session, journal: Journal, job: Job) -> bool:
    was = pushed(journal, job)
    return not value_differences(was, read(session, was))
