"""One device's part of a change: pushed, saved, and rolled back; each step is in the journal before it
begins.

A device that refuses a line, or reads back wrong, is rolled back to what it ran before, at once. Where it
cannot be reached for that, the journal keeps its state, and `resume`, `rollback` or another push goes on from
there: they read what the device runs first, so they do not depend on how far the change came.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mltswitch.deploy.comparison import (
    all_differences,
    check_cabling,
    losses,
    lost_words,
    reached,
    read,
    remaining,
    report,
    rollback_change,
    tried,
    value_differences,
)
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.journal import OPEN, Journal, State
from mltswitch.deploy.occupation import (
    await_idle,
    check_base,
    check_foreign,
    check_kept,
    check_occupied,
    has_mark,
    is_configured,
    occupy,
    vacate,
)
from mltswitch.deploy.ownership import Undoing, inherited
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.results import DeviceDifference, DeviceReport, Status
from mltswitch.deploy.session import LINE_SECONDS, Connector, Session, check_steps, explained, place
from mltswitch.deploy.timers import check_timers, stop_timer, with_timer
from mltswitch.errors import DeviceError, OccupiedError, RefusedError, UncertainError
from mltswitch.targets import Change, Lossless, RunningState, Step
from mltswitch.targets.common import NOT_SAVED

_ROUNDS: Final = 2
"""Of the way back: EOS first aborts what waits to be confirmed, and then sees what else is to be undone."""
SAVE_SECONDS: Final = 120.0
"""Time limit in seconds for saving, the longest that any platform needs."""


@dataclass(slots=True)
class Transaction:
    """One device's part of a change; each of `forward`, `check`, `confirm` and `back` opens a session.

    `back` uses the fleet's connector directly: no time limit may cut a rollback off in the middle.
    """

    fleet: Fleet
    journal: Journal
    job: Job
    earlier: Sequence[Journal] = ()
    """The changes that are unfinished on the device, which this one takes over, the latest first."""
    abandoned: Sequence[Journal] = ()
    """Abandoned changes of the device whose timers would undo this one."""
    left: Undoing = ()
    """Finished changes that are rolled back first, because they concern ports that this one does not."""
    may_go_down: Collection[str] | None = None
    """Ports that may stop forwarding during the change; None: all."""
    may_lose: Collection[Lossless] | None = None
    """What the device's running lossless classes may lose by the change; None: anything."""
    unanswered: float | None = field(init=False, default=None)
    """How many seconds an unanswered line may still take to be carried out; None: all lines were answered."""
    is_untouched: bool = field(init=False, default=False)
    """Whether the change has begun, and nothing of it can have taken effect yet."""
    _session: Session = field(init=False)
    _progress: "_Progress" = field(init=False)

    def __post_init__(self) -> None:
        """Of what an earlier process has sent, the last line may have been without an answer."""
        if self.state in OPEN or any(each.state(self.name) in OPEN for each in self.earlier):
            self.unanswered = SAVE_SECONDS if self.state is State.VERIFIED else LINE_SECONDS

    @property
    def name(self) -> str:
        """The device's name in the inventory and in the journal."""
        return self.job.device.name

    @property
    def state(self) -> State:
        """The last recorded state of the device in this change."""
        return self.journal.state(self.name)

    def _record(self, state: State, note: str = "") -> None:
        self.journal.record(self.name, state, note)

    @property
    def _saves(self) -> bool:
        """Whether the device is saved as soon as it is verified; else `confirm` does it."""
        return not self.journal.header.atomic and self.journal.header.confirm_seconds is None

    def forward(self) -> DeviceReport:
        """Change the device, read it back, save it; where that fails, roll it back, and report why."""
        progress = self._progress = _Progress()
        try:
            if self.left:
                self._check_undoing()
                progress.cleared = undo(self.fleet, self.left).change
            with self._reached(self.fleet.session) as session:
                progress.not_told = check_cabling(self.job, session)
                check_timers(session, self.job, self._known)
                with self._had():
                    self._change()
        except Exception as error:  # noqa: BLE001 (whatever it is, the operator must learn how far it came)
            return self._broken_off(error)
        change = progress.change
        # What was saved after the last look is no more missing from what is saved.
        is_saved = change.save and self._saves
        notes = (note for note in progress.notes if not (is_saved and note == NOT_SAVED))
        return self._report(
            Status.CHANGED if change.steps or progress.cleared else Status.OK,
            change=progress.cleared + change.text,
            differences=progress.before,
            notes=(*notes, *progress.told, *progress.not_told, *progress.accepted, *progress.taken),
            way_back="" if change.is_empty else change.rollback_hint,
        )

    def check(self) -> DeviceReport:
        """Check, by one reading, whether anything known refuses the change; nothing is changed.

        An unreachable device passes this check; `forward` fails on it.
        """
        self._progress, session = _Progress(), None
        try:
            with self._reached(self.fleet.session) as session:
                check_cabling(self.job, session)
                check_timers(session, self.job, self._known)
                self._compare()
        except Exception as error:  # noqa: BLE001 (whatever it is, the operator must learn of it)
            if session is not None:
                return self._broken_off(error)
        return self._report(Status.OK)

    def confirm(self) -> DeviceReport:
        """Save a device that runs the plan; one that no longer does is reported as failed, and left alone."""
        self._progress = _Progress()
        with self._reached(self.fleet.session) as session, self._had():
            self._await_idle()
            running = read(session, self.job)
            left = all_differences(self.job, running)
            if not left and stop_timer(session, self.journal, self.job):
                running = read(session, self.job)  # its time may have run out before it heard
                left = all_differences(self.job, running)
            if left:
                error = f"{place(self.job.device)}: {self._gone(running)}. Nothing is saved"
                return self._report(Status.FAILED, differences=left, error=error)
            self._confirm(remaining(self.job, running))
        notes = tuple(note for note in running.notes if note != NOT_SAVED)
        return self._report(Status.CHANGED, notes=(*notes, *self._progress.taken))

    def back(self, *, is_standing: bool = False) -> DeviceReport:
        """Roll the device back to its former state, read it back, and save it where the change was.

        A change in effect as a whole (`is_standing`) is not rolled back over what others changed since.
        Raises MltswitchError.
        """
        self._progress, job = _Progress(), self.job
        backup, sent = self.journal.backup(self.name), ""
        with self._reached(self.fleet.connector) as session, self._had():
            try:
                self._await_idle()
            except UncertainError as error:
                if self.state in OPEN:
                    self._record(State.UNCERTAIN, explained(job.device, error))
                raise
            if is_standing:
                check_foreign(job, backup.answers, read(session, job))
            if self.journal.header.confirm_seconds and not self.journal.came_to(self.name, State.CONFIRMED):
                self._record(State.ROLLING_BACK)  # without its timer, nothing else takes it back
                stop_timer(session, self.journal, job)
            running = read(session, job)
            change = rollback_change(job, backup.answers, running)
            ours = {step.command for step in job.target.guard.discard}
            if self.is_untouched and any(step.command not in ours for step in change.steps):
                moved = "nothing of it took effect, and somebody has changed it meanwhile"
                self._let_be(moved)
                raise OccupiedError(moved)
            for _ in range(_ROUNDS):
                check_steps((*change.steps, *change.save))
                self._record(State.ROLLING_BACK)
                if change.is_empty:
                    break
                sent += change.text
                self._send(change, running)
                running = read(session, job)
                change = rollback_change(job, backup.answers, running)
            if not change.is_empty:
                raise DeviceError(
                    f"does not run what it ran before: still to be sent are {len(change.steps)} lines, "
                    f"{change.steps[0].command!r} first"
                )
            if self.journal.may_be_saved(self.name):
                self._store(change.save)
            self._record(State.ROLLED_BACK)
        return self._report(Status.ROLLED_BACK, change=sent, notes=self._progress.taken)

    def _report(self, status: Status, **more: Any) -> DeviceReport:
        return report(self.job, status, self._progress.started, **more)

    @contextmanager
    def _reached(self, connector: Connector) -> Iterator[Session]:
        """A session with the device, for all that is done inside."""
        with reached(connector, self.job) as self._session:
            yield self._session

    @contextmanager
    def _had(self) -> Iterator[None]:
        """Keep others away from the device; while the change is unfinished also afterwards, unless the device
        itself tells them that it will go back."""
        session, progress = self._session, self._progress
        for each in (self.journal, *self.earlier):
            check_kept(session, self.job, each)
        progress.taken, progress.has_it = occupy(session, self.job), True
        try:
            yield
        finally:
            if not has_mark(self.journal, self.job):
                with suppress(DeviceError):  # else another connection does it, or the mark grows too old
                    vacate(session, self.job)
                    progress.has_it = False

    @property
    def _known(self) -> tuple[Journal, ...]:
        """The changes whose timers may wait on the device."""
        return (self.journal, *self.earlier, *self.abandoned)

    def _check_undoing(self) -> None:
        """What would be refused after earlier changes are taken back is refused before."""
        if self.job.target.takes_down:
            ports = [port.name for _, undone in self.left for port in undone.fitted.state.ports]
            self._check_ports(dict.fromkeys(ports))
        with self._reached(self.fleet.session) as session:
            check_cabling(self.job, session)
            check_timers(session, self.job, self._known)

    def _check_ports(self, takes_down: Iterable[str]) -> None:
        agreed = self.may_go_down
        others = [] if agreed is None else [port for port in takes_down if port not in agreed]
        if others:
            what = f"takes down ports for a while: {', '.join(others)}"
            raise _QuestionError(what, hint="`--yes` says that they may go down")

    def _check_losses(self, running: RunningState) -> None:
        lost, agreed = losses(self.job, running), self.may_lose
        if others := [] if agreed is None else [each for each in lost if each not in agreed]:
            raise _QuestionError(lost_words(others), hint="`--accept-lossless` says that it may")
        if lost:
            self._progress.accepted = (lost_words(lost),)

    def _compare(self) -> tuple[RunningState, Change]:
        """What runs, and what is to be sent, which may be sent."""
        session, job, progress = self._session, self.job, self._progress
        running = read(session, job)
        progress.notes = running.notes
        progress.before = progress.left = value_differences(job, running)
        progress.change = change = remaining(job, running)
        progress.told = tried(session, change)
        check_steps((*change.steps, *change.save))
        progress.left = value_differences(job, running, change.stays)
        if cannot := [each for each in progress.left if each.cannot]:
            more = f" (and {len(cannot) - 1} more)" if len(cannot) > 1 else ""
            raise DeviceError(
                f"has what is not the plan's, and no line of a push removes it: {cannot[0].place}: "
                f"{cannot[0].found}{more}",
                hint="remove it by hand first; `mltswitch diff` lists all of it, marked `cannot`",
            )
        self._check_ports(change.takes_down)
        self._check_losses(running)
        return running, change

    def _change(self) -> None:
        session, job, name, progress = self._session, self.job, self.name, self._progress
        self._await_idle()
        for each in self.abandoned:
            stop_timer(session, each, job)
        running, change = self._compare()
        earlier = [each for each in self.earlier if each.state(name) in OPEN]
        if not change.is_empty or earlier:
            answers = running.answers
            for each in earlier:
                answers = inherited(each, job)
            may_be_saved = any(each.may_be_saved(name) for each in earlier)
            told = [stop_timer(session, each, job) for each in earlier]
            if any(told):
                _, change = self._compare()  # one may have run out meanwhile
            if not change.is_empty:
                change = with_timer(session, self.journal, job, answers, change)
                check_steps(change.steps)
            if self.state is State.PLANNED and not earlier:
                self.is_untouched = True
            self.journal.stage(name, answers, change.text, may_be_saved=may_be_saved)
            for each in earlier:
                each.record(name, State.CONTINUED, self.journal.identifier)
        if not change.is_empty:
            self._send(change, running)
            self._record(State.APPLIED)
            running = read(session, job)
            progress.notes = running.notes
            progress.left = all_differences(job, running)
        if progress.left:
            raise DeviceError("runs something else than the plan")
        self._save(change)

    def _await_idle(self) -> None:
        await_idle(self._session, self.job, self.unanswered)
        self.unanswered = None

    def _send(self, change: Change, base: RunningState) -> None:
        """Send the lines; raises OccupiedError before the first one that takes effect where the device is not
        ours any more, or does not run any more what they were made for."""
        steps = change.steps
        begin = next((number for number, step in enumerate(steps) if not step.prepares), len(steps))
        self._apply(steps[:begin])
        try:
            check_occupied(self._session, self.job)
            self._progress.taken += occupy(self._session, self.job, begins=True)
            check_base(self._session, self.job, base)
        except OccupiedError as error:
            self._let_be(explained(self.job.device, error))
            raise
        self.is_untouched = False
        self._apply(steps[begin:])

    def _store(self, save: Sequence[Step]) -> None:
        """Save what runs, without our mark where that is a part of it."""
        if save and is_configured(self.job):
            vacate(self._session, self.job)
        self._apply(save)

    def _let_be(self, why: str) -> None:
        """Drop lines that wait to take effect; where none has, leave what others have changed as it is."""
        self._session.apply(self.job.target.guard.discard)
        if self.is_untouched:
            self._record(State.DROPPED, why)

    def _apply(self, steps: Sequence[Step]) -> None:
        """Send steps; until each was answered, the device may be working on one of them."""
        self.unanswered = max((step.seconds or LINE_SECONDS for step in steps), default=0.0)
        try:
            self._session.apply(steps)
        except RefusedError:
            self.unanswered = None
            raise
        self.unanswered = None

    def _save(self, change: Change) -> None:
        if change.is_empty and self.state is State.PLANNED:
            self._store(change.save)  # the change before may not have been saved
            self._record(State.UNCHANGED)
            return
        if self.state is State.STAGED:  # resumed, and all lines had been taken
            self._record(State.APPLIED)
        if self._saves:
            self._confirm(change)
        elif self.journal.header.confirm_seconds and self.state is State.APPLIED:
            self._record(State.VERIFIED)

    def _confirm(self, change: Change) -> None:
        if self.state is State.APPLIED:
            self._record(State.VERIFIED)
        self._store(change.save)
        self._record(State.CONFIRMED)

    def _gone(self, running: RunningState) -> str:
        """Why a device does not run the plan any more that is to be confirmed."""
        answers = self.journal.backup(self.name).answers
        is_timed = self.journal.header.confirm_seconds
        if not is_timed or not rollback_change(self.job, answers, running).is_empty:
            return "runs something else than the plan by now"
        why = "was not confirmed in time, and went back by itself to what it ran before"
        self._record(State.ROLLING_BACK, why)
        # Somebody else may have taken it back before its time.
        stop_timer(self._session, self.journal, self.job)
        self._record(State.ROLLED_BACK, why)
        return why

    def _broken_off(self, error: Exception) -> DeviceReport:
        """The report of a device that failed, after it was taken back where something was sent."""
        why, failed = explained(self.job.device, error), self._progress
        # The way back takes ports down, too, and what is not ours, or not idle, is not to be touched.
        if isinstance(error, _QuestionError | OccupiedError | UncertainError) and self.state in OPEN:
            stands = ", and it stands as it stood" if isinstance(error, _QuestionError) else ""
            ending = f"Nothing was sent{stands or ' after that'}"
        else:
            ending = self._ending(why)
        if failed.has_it and self.state not in OPEN:
            with suppress(DeviceError), self._reached(self.fleet.connector) as session:
                vacate(session, self.job)
        self._progress = failed
        return self._report(
            Status.FAILED,
            change=failed.change.text,
            differences=failed.left,
            notes=failed.notes,
            error=f"{why}. {ending}",
        )

    def _ending(self, why: str) -> str:
        """How the device stands after its change has failed, as a sentence."""
        identifier, state = self.journal.identifier, self.state
        if state is State.PLANNED:
            self._record(State.DROPPED, why)
        if state not in OPEN:
            if state is State.CONFIRMED or (self.unanswered is not None and not self.earlier):
                return f"It runs the plan, and {'has' if state is State.CONFIRMED else 'may have'} saved it"
            cleared = " of it. What is taken back are the changes before it that concern other ports"
            return f"Nothing was sent{cleared if self._progress.cleared else ''}"
        if state is State.VERIFIED:
            return (
                "The plan is applied and read back, but not saved, so a reboot may lose it; "
                f"`mltswitch resume {identifier}` or the next push saves it"
            )
        try:
            self.back()
        except Exception as second:  # noqa: BLE001 (the first error is what the operator must see)
            said = explained(self.job.device, second)
            if self.state is State.DROPPED:
                return f"And then: {said}"
            begin = "The change may be partly in effect, and nothing is saved"
            if isinstance(second, UncertainError):
                begin = "Whether it is taken back is not certain"
            return (
                f"{begin}; the way back failed: {said}. `mltswitch status {identifier}` tells what it runs, "
                f"`mltswitch resume {identifier}` and `mltswitch rollback {identifier}` finish it"
            )
        return "It runs again what it ran before"


class _QuestionError(DeviceError):
    """A port would go down, or a lossless class would lose code points, and nobody has agreed to it."""


@dataclass(slots=True)
class _Progress:
    """What the report of one device will say, as far as its change has come."""

    started: float = field(default_factory=time.monotonic)
    change: Change = field(default_factory=lambda: Change(()))
    cleared: str = ""
    """What was sent to take earlier changes back."""
    before: tuple[DeviceDifference, ...] = ()
    left: tuple[DeviceDifference, ...] = ()
    notes: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """By the device before the first line."""
    not_told: tuple[str, ...] = ()
    """That its neighbours are not known."""
    accepted: tuple[str, ...] = ()
    """What running lossless classes lose by the change."""
    taken: tuple[str, ...] = ()
    """Marks of others that were too old."""
    has_it: bool = False
    """Whether others are kept away from the device."""


def undo(fleet: Fleet, undoing: Undoing, standing: Collection[str] = ()) -> DeviceReport:
    """Undo one change of a device after the other; raises MltswitchError, and leaves the earlier ones then.

    On devices in `standing`, the first change to roll back was in effect as a whole, whatever its journal
    says.
    """
    reports: list[DeviceReport] = []
    for journal, job in undoing:
        transaction = Transaction(fleet, journal, job)
        stood = transaction.state is State.CONFIRMED or transaction.name in standing
        reports.append(transaction.back(is_standing=stood and not reports))
    change = "".join(report.change for report in reports)
    return replace(reports[-1], change=change, seconds=sum(report.seconds for report in reports))
