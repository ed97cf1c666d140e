"""One device's part of a change: forward, saved, and back; each step is in the journal before it is begun.

A device that refuses a line, or reads back wrong, is taken back to what it ran before, at once. Where it
cannot be reached for that, the journal keeps its state, and `resume`, `rollback` or another push goes on from
there: they read what the device runs first, so they do not depend on how far the change came.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mltswitch.deploy.cabling import check_cabling
from mltswitch.deploy.comparison import (
    all_differences,
    going_back,
    reached,
    read,
    remaining,
    report,
    value_differences,
)
from mltswitch.deploy.conversation import Connector, Conversation, explained, place
from mltswitch.deploy.journal import OPEN, Journal, State
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.results import DeviceDifference, DeviceReport, Status
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import Change, RunningState, Step

_ROUNDS: Final = 2
"""Of the way back: EOS first aborts what waits to be confirmed, and then sees what else is to be undone."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Carries one change out, device by device."""

    connector: Connector
    journal: Journal
    earlier: Mapping[str, Sequence[Journal]] = field(default_factory=dict)
    """Device → the changes that are unfinished on it, which this one takes over."""
    left: Mapping[str, "Undoing"] = field(default_factory=dict)
    """Device → the finished changes that are taken back first: they concern ports that this one does not."""
    may_go_down: Mapping[str, Collection[str]] | None = None
    """Device → ports that may stop forwarding for it; None: all."""
    abandoned: Mapping[str, Sequence[Journal]] = field(default_factory=dict)
    """Device → changes that nobody finishes, and whose timers would undo this one."""
    patient: Connector | None = None
    """Reaches devices for the way back, which no limit of time may cut off in the middle."""

    @property
    def saves(self) -> bool:
        """Whether each device is saved as soon as it is verified; else `confirm` does it."""
        return not self.journal.header.atomic and self.journal.header.confirm_seconds is None

    def forward(self, job: Job) -> DeviceReport:
        """Change the device, read it back, save it; where that fails, take it back, and report why."""
        progress = _Progress(time.monotonic())
        try:
            if undoing := self.left.get(job.device.name):
                self._check_undoing(job, undoing)
                progress.cleared = undo(self.patient or self.connector, undoing).change
            with reached(self.connector, job) as session:
                self._change(session, job, progress)
        except Exception as error:  # noqa: BLE001 (whatever it is, the operator must learn how far it came)
            return self._broken_off(job, progress, error)
        change = progress.change
        return replace(
            report(job, Status.CHANGED if change.steps or progress.cleared else Status.OK, progress.started),
            change=progress.cleared + change.text,
            differences=progress.before,
            # What was just saved is what the notes missed; where nothing could be saved, they stand.
            notes=() if change.save and self.saves else progress.notes,
            way_back="" if change.is_empty else change.way_back,
        )

    def _check_timers(self, session: Conversation, job: Job) -> None:
        """Raise DeviceError where the device would undo this change with one that is not on record here."""
        own = {each.identifier for each in (self.journal, *self.earlier.get(job.device.name, ()))}
        others = [each for each in going_back(session, job) if each not in own]
        if others:
            raise DeviceError(
                f"goes back by itself from change {others[0]}, which is on record elsewhere",
                where=place(job.device),
                hint="wait until it is back, or confirm that change where it was pushed from",
            )

    def _check_undoing(self, job: Job, undoing: "Undoing") -> None:
        """What would be refused after earlier changes are taken back is refused before."""
        if self.may_go_down is not None and job.target.takes_down:
            ports = [port.name for _, undone in undoing for port in undone.quantised.state.ports]
            self._check_ports(job, dict.fromkeys(ports))
        with reached(self.connector, job) as session:
            check_cabling(job, session)
            self._check_timers(session, job)

    def _check_ports(self, job: Job, takes_down: Iterable[str]) -> None:
        if self.may_go_down is None:
            return
        agreed = self.may_go_down.get(job.device.name, ())
        others = [port for port in takes_down if port not in agreed]
        if others:
            raise _PortsError(
                f"takes down ports for a while: {', '.join(others)}",
                where=place(job.device),
                hint="`--yes` says that they may go down",
            )

    def _compare(self, session: Conversation, job: Job, progress: "_Progress") -> tuple[RunningState, Change]:
        """What runs, and what is to be sent, which may be sent."""
        running = read(session, job)
        progress.notes = running.notes
        progress.before = progress.left = value_differences(job, running)
        progress.change = change = remaining(job, running)
        _check_steps((*change.steps, *change.save))
        self._check_ports(job, change.takes_down)
        return running, change

    def _change(self, session: Conversation, job: Job, progress: "_Progress") -> None:
        name = job.device.name
        check_cabling(job, session)
        for each in self.abandoned.get(name, ()):
            _stop_timer(session, each, job)
        self._check_timers(session, job)
        running, change = self._compare(session, job, progress)
        earlier = [each for each in self.earlier.get(name, ()) if each.state(name) in OPEN]
        if not change.is_empty or earlier:
            answers = running.answers
            for each in earlier:
                answers = _inherited(each, job)
            may_be_saved = any(each.may_be_saved(name) for each in earlier)
            told = [_stop_timer(session, each, job) for each in earlier]
            if any(told):
                _, change = self._compare(session, job, progress)  # one may have run out meanwhile
            if not change.is_empty:
                change = self._timed(session, job, answers, change)
                _check_steps(change.steps)
            self.journal.stage(name, answers, change.text, may_be_saved=may_be_saved)
            for each in earlier:
                each.record(name, State.CONTINUED, self.journal.identifier)
        if not change.is_empty:
            session.apply(change.steps)
            self.journal.record(name, State.APPLIED)
            progress.left = all_differences(job, read(session, job))
        if progress.left:
            raise DeviceError("runs something else than the plan", where=place(job.device))
        self._save(session, job, change)

    def _timed(self, session: Conversation, job: Job, answers: Mapping[str, str], change: Change) -> Change:
        """The change, undone by the device itself where the journal says so."""
        name, timer = job.device.name, job.target.timer
        if self.journal.header.confirm_seconds is None or timer is None:
            return change
        if self.journal.state(name) is not State.PLANNED:  # resumed: it is to return to what ran before
            answers = self.journal.backup(name).answers
            _stop_timer(session, self.journal, job)
        seconds = self.journal.header.confirm_seconds
        return timer.arm(change, answers, job.quantised.state, _timer_name(self.journal, job), seconds)

    def confirm(self, job: Job) -> DeviceReport:
        """Save a device that runs the plan; one that does not any more fails, and stays as it is."""
        started = time.monotonic()
        with reached(self.connector, job) as session:
            running = read(session, job)
            left = all_differences(job, running)
            if not left and _stop_timer(session, self.journal, job):
                running = read(session, job)  # its time may have run out before it heard
                left = all_differences(job, running)
            if left:
                error = f"{place(job.device)}: {self._gone(session, job, running)}. Nothing is saved"
                return replace(report(job, Status.FAILED, started), differences=left, error=error)
            self._confirm(session, job.device.name, remaining(job, running))
        return report(job, Status.CHANGED, started)

    def _gone(self, session: Conversation, job: Job, running: RunningState) -> str:
        name = job.device.name
        answers = self.journal.backup(name).answers
        if not self.journal.header.confirm_seconds or not _way_back(job, answers, running).is_empty:
            return "runs something else than the plan by now"
        why = "was not confirmed in time, and went back by itself to what it ran before"
        self.journal.record(name, State.ROLLING_BACK, why)
        _stop_timer(session, self.journal, job)  # somebody else may have taken it back before its time
        self.journal.record(name, State.ROLLED_BACK, why)
        return why

    def back(self, job: Job) -> DeviceReport:
        """Take the device back to what it ran before, read it back, and save it where the change may have
        saved; raises MltswitchError."""
        started, name = time.monotonic(), job.device.name
        backup, sent = self.journal.backup(name), ""
        with reached(self.patient or self.connector, job) as session:
            if self.journal.header.confirm_seconds and not self.journal.came_to(name, State.CONFIRMED):
                self.journal.record(name, State.ROLLING_BACK)  # without its timer, nothing else takes it back
                _stop_timer(session, self.journal, job)
            change = _way_back(job, backup.answers, read(session, job))
            for _ in range(_ROUNDS):
                _check_steps((*change.steps, *change.save))
                self.journal.record(name, State.ROLLING_BACK)
                if change.is_empty:
                    break
                sent += change.text
                session.apply(change.steps)
                change = _way_back(job, backup.answers, read(session, job))
            if not change.is_empty:
                raise DeviceError(
                    f"does not run what it ran before: still to be sent are {len(change.steps)} lines, "
                    f"{change.steps[0].command!r} first",
                    where=place(job.device),
                )
            if self.journal.may_be_saved(name):
                session.apply(change.save)
        self.journal.record(name, State.ROLLED_BACK)
        return replace(report(job, Status.ROLLED_BACK, started), change=sent)

    def _save(self, session: Conversation, job: Job, change: Change) -> None:
        name = job.device.name
        if change.is_empty and self.journal.state(name) is State.PLANNED:
            session.apply(change.save)  # it ran the plan already; the change before may not have been saved
            self.journal.record(name, State.UNCHANGED)
            return
        if self.journal.state(name) is State.STAGED:  # resumed, and all lines had been taken
            self.journal.record(name, State.APPLIED)
        if self.saves:
            self._confirm(session, name, change)
        elif self.journal.header.confirm_seconds and self.journal.state(name) is State.APPLIED:
            self.journal.record(name, State.VERIFIED)

    def _confirm(self, session: Conversation, name: str, change: Change) -> None:
        if self.journal.state(name) is State.APPLIED:
            self.journal.record(name, State.VERIFIED)
        session.apply(change.save)
        self.journal.record(name, State.CONFIRMED)

    def _broken_off(self, job: Job, progress: "_Progress", error: Exception) -> DeviceReport:
        """The report of a device that failed, after it was taken back where something was sent."""
        why = explained(job.device, error)
        if isinstance(error, _PortsError) and self.journal.state(job.device.name) in OPEN:
            ending = "Nothing was sent, and it stands as it stood"  # the way back, too, takes ports down
        else:
            ending = self._ending(job, why, progress)
        return replace(
            report(job, Status.FAILED, progress.started),
            change=progress.change.text,
            differences=progress.left,
            error=f"{why}. {ending}",
        )

    def _ending(self, job: Job, why: str, progress: "_Progress") -> str:
        """How the device stands after its change has failed, as a sentence."""
        name, identifier = job.device.name, self.journal.identifier
        state = self.journal.state(name)
        if state is State.PLANNED:
            self.journal.record(name, State.DROPPED, why)
        if state not in OPEN:
            if state is State.CONFIRMED:
                return "It runs the plan, and has saved it"
            cleared = " of it. What is taken back are the changes before it that concern other ports"
            return f"Nothing was sent{cleared if progress.cleared else ''}"
        if state is State.VERIFIED:
            return (
                "The plan is applied and read back, but not saved, so a reboot may lose it; "
                f"`mltswitch resume {identifier}` or the next push saves it"
            )
        try:
            self.back(job)
        except Exception as second:  # noqa: BLE001 (the first error is what the operator must see)
            return (
                "The change may be partly in effect, and nothing is saved; the way back failed: "
                f"{explained(job.device, second)}. `mltswitch status {identifier}` tells what it runs, "
                f"`mltswitch resume {identifier}` and `mltswitch rollback {identifier}` finish it"
            )
        return "It runs again what it ran before"


class _PortsError(DeviceError):
    """A port would go down that nobody has agreed to."""


@dataclass(slots=True)
class _Progress:
    """What the report of one device will say, as far as its change has come."""

    started: float
    change: Change = field(default_factory=lambda: Change(()))
    cleared: str = ""
    """What was sent to take earlier changes back."""
    before: tuple[DeviceDifference, ...] = ()
    left: tuple[DeviceDifference, ...] = ()
    notes: tuple[str, ...] = ()


Undoing = Sequence[tuple[Journal, Job]]
"""Changes of one device, the latest first, with what each of them made it run."""


def undo(connector: Connector, undoing: Undoing) -> DeviceReport:
    """Take one change after the other back; raises MltswitchError, and leaves the earlier ones then."""
    reports = [Transaction(connector, journal).back(job) for journal, job in undoing]
    change = "".join(report.change for report in reports)
    return replace(reports[-1], change=change, seconds=sum(report.seconds for report in reports))


def check_timer(job: Job) -> None:
    """Raise UnsupportedPlanError where the device cannot go back by itself."""
    if job.target.timer is None:
        raise UnsupportedPlanError(
            f"platform {job.device.platform} has no timer that takes a change back, and runs no job of ours",
            where=job.device.name,
            hint="push to it without `--confirm`; `--limit` leaves it out",
        )


def _timer_name(journal: Journal, job: Job) -> str:
    """Switches of a lab may share what they run on."""
    return f"{journal.identifier}-{job.device.name}"


def _stop_timer(session: Conversation, journal: Journal, job: Job) -> bool:
    """What follows must not be undone: whether the device was told so, and has to be read again.

    It may have gone back before. Raises DeviceError where it is on its way.
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
        error.hint = error.hint or "it may be on its way back by itself: wait for it, and try again"
        raise
    return bool(steps)


def _runs(session: Conversation, journal: Journal, job: Job) -> bool:
    pushed = replace(job, quantised=job.target.quantise(journal.plan(), job.device.switch))
    return not value_differences(pushed, read(session, pushed))


def _inherited(earlier: Journal, job: Job) -> dict[str, str]:
    """What ran before an unfinished change, which this one takes over; raises DeviceError.

    It must concern all that the earlier one did: else a part of that would stay half in effect for ever.
    """
    answers = earlier.backup(job.device.name).answers
    old, new = job.target.quantise(earlier.plan(), job.device.switch).state, job.quantised.state
    is_covered = (
        answers.keys() >= set(job.target.queries(new))
        and {port.name for port in old.ports} <= {port.name for port in new.ports}
        and {route.prefix for route in old.routes} <= {route.prefix for route in new.routes}
    )
    if not is_covered:
        raise DeviceError(
            f"change {earlier.identifier} is unfinished on it, and this plan concerns other ports or routes",
            where=place(job.device),
            hint=f"finish it first: `mltswitch resume {earlier.identifier}`, or `rollback` in its place",
        )
    return answers


def _way_back(job: Job, answers: dict[str, str], running: RunningState) -> Change:
    missing = [query for query in job.target.queries(job.quantised.state) if query not in answers]
    if missing:
        raise UserInputError(
            f"another version of mltswitch has recorded what it ran before, without {missing[0]!r}",
            where=place(job.device),
        )
    return job.target.restore(answers, running, job.quantised.state, job.quantised.capabilities)


def where_it_stands(connector: Connector, journal: Journal, job: Job) -> DeviceReport:
    """What a device of a change runs now, by its own answers: the plan, what it ran before, or neither."""
    started, name = time.monotonic(), job.device.name
    with reached(connector, job) as session:
        running = read(session, job)
    left = all_differences(job, running)
    if not left:
        return replace(report(job, Status.RUNS_NEW, started), notes=running.notes)
    status, notes = Status.DIFFERS, running.notes
    if journal.state(name) in {State.PLANNED, State.DROPPED}:
        status = Status.RUNS_OLD
    elif journal.has_backup(name):
        try:
            if _way_back(job, journal.backup(name).answers, running).is_empty:
                status = Status.RUNS_OLD
        except DeviceError as error:
            notes = (*notes, str(error))
    return replace(report(job, status, started), differences=left, notes=notes)


def _check_steps(steps: Iterable[Step]) -> None:
    """The last gate before the wire: a line end would make two commands of one."""
    for step in steps:
        if not step.command.isprintable():
            raise UserInputError(
                f"the line {step.command!r} has a control character in it, so it is not sent"
            )
