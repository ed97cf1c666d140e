"""One device's part of a change: forward, saved, and back; each step is in the journal before it is begun.

A device that refuses a line, or reads back wrong, is taken back to what it ran before, at once. Where it
cannot be reached for that, the journal keeps its state, and `resume`, `rollback` or another push goes on from
there: they read what the device runs first, so they do not depend on how far the change came.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

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
from mltswitch.deploy.journal import OPEN, Journal, State
from mltswitch.deploy.occupation import (
    await_idle,
    check_base,
    check_foreign,
    check_kept,
    check_occupied,
    check_timers,
    guard_of,
    is_configured,
    occupy,
    stop_timer,
    timer_name,
    vacate,
)
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.results import DeviceDifference, DeviceReport, Status
from mltswitch.deploy.session import LINE_SECONDS, Connector, Session, check_steps, explained, place
from mltswitch.errors import DeviceError, OccupiedError, RefusedError, UncertainError
from mltswitch.targets import Change, Lossless, RunningState, Step
from mltswitch.targets.common import NOT_SAVED

_ROUNDS: Final = 2
"""Of the way back: EOS first aborts what waits to be confirmed, and then sees what else is to be undone."""
SAVE_SECONDS: Final = 120.0
"""The longest that a platform has for saving."""


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
    may_lose: Mapping[str, Collection[Lossless]] | None = None
    """Device → what its running lossless classes may lose; None: anything."""
    patient: Connector | None = None
    """Reaches devices for the way back, which no limit of time may cut off in the middle."""
    unanswered: dict[str, float] = field(default_factory=dict)
    """Device to which lines went of which nobody knows whether they were carried out → how long one takes."""

    untouched: set[str] = field(default_factory=set)
    """Devices on which this change has begun, and where nothing of it can have taken effect yet."""

    def __post_init__(self) -> None:
        """Of what an earlier process has sent, the last line may have been without an answer."""
        for name, state in self.journal.last.items():
            if state in OPEN or any(each.last[name] in OPEN for each in self.earlier.get(name, ())):
                self.unanswered[name] = SAVE_SECONDS if state is State.VERIFIED else LINE_SECONDS

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
                progress.not_told = check_cabling(job, session)
                check_timers(session, job, self._known(job))
                with self._had(session, job, progress):
                    self._change(session, job, progress)
        except Exception as error:  # noqa: BLE001 (whatever it is, the operator must learn how far it came)
            return self._broken_off(job, progress, error)
        change = progress.change
        return replace(
            report(job, Status.CHANGED if change.steps or progress.cleared else Status.OK, progress.started),
            change=progress.cleared + change.text,
            differences=progress.before,
            notes=self._notes(progress),
            way_back="" if change.is_empty else change.rollback_hint,
        )

    def check(self, job: Job) -> DeviceReport:
        """Whether nothing that is known after one look refuses the change; sends nothing.

        That a device cannot be reached is not for one look to say: going forward, it fails.
        """
        progress = _Progress(time.monotonic())
        session = None
        try:
            with reached(self.connector, job) as session:
                check_cabling(job, session)
                check_timers(session, job, self._known(job))
                self._compare(session, job, progress)
        except Exception as error:  # noqa: BLE001 (whatever it is, the operator must learn of it)
            if session is not None:
                return self._broken_off(job, progress, error)
        return report(job, Status.OK, progress.started)

    def _known(self, job: Job) -> tuple[Journal, ...]:
        name = job.device.name
        return (self.journal, *self.earlier.get(name, ()), *self.abandoned.get(name, ()))

    def _notes(self, progress: "_Progress") -> tuple[str, ...]:
        """Those of the last look; what was saved after it is no more missing from what is saved."""
        is_saved = progress.change.save and self.saves
        notes = tuple(note for note in progress.notes if not (is_saved and note == NOT_SAVED))
        return (*notes, *progress.told, *progress.not_told, *progress.accepted, *progress.taken)

    def _check_undoing(self, job: Job, undoing: "Undoing") -> None:
        """What would be refused after earlier changes are taken back is refused before."""
        if self.may_go_down is not None and job.target.takes_down:
            ports = [port.name for _, undone in undoing for port in undone.fitted.state.ports]
            self._check_ports(job, dict.fromkeys(ports))
        with reached(self.connector, job) as session:
            check_cabling(job, session)
            check_timers(session, job, self._known(job))

    def _check_ports(self, job: Job, takes_down: Iterable[str]) -> None:
        if self.may_go_down is None:
            return
        agreed = self.may_go_down.get(job.device.name, ())
        others = [port for port in takes_down if port not in agreed]
        if others:
            raise _QuestionError(
                f"takes down ports for a while: {', '.join(others)}",
                where=place(job.device),
                hint="`--yes` says that they may go down",
            )

    def _check_losses(self, job: Job, running: RunningState, progress: "_Progress") -> None:
        if not (lost := losses(job, running)):
            return
        agreed = lost if self.may_lose is None else self.may_lose.get(job.device.name, ())
        if others := [each for each in lost if each not in agreed]:
            raise _QuestionError(
                lost_words(others), where=place(job.device), hint="`--accept-lossless` says that it may"
            )
        progress.accepted = (lost_words(lost),)

    def _compare(self, session: Session, job: Job, progress: "_Progress") -> tuple[RunningState, Change]:
        """What runs, and what is to be sent, which may be sent."""
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
                where=place(job.device),
                hint="remove it by hand first; `mltswitch diff` lists all of it, marked `cannot`",
            )
        self._check_ports(job, change.takes_down)
        self._check_losses(job, running, progress)
        return running, change

    def _change(self, session: Session, job: Job, progress: "_Progress") -> None:
        name = job.device.name
        self._await_idle(session, job)
        for each in self.abandoned.get(name, ()):
            stop_timer(session, each, job)
        running, change = self._compare(session, job, progress)
        earlier = [each for each in self.earlier.get(name, ()) if each.state(name) in OPEN]
        if not change.is_empty or earlier:
            answers = running.answers
            for each in earlier:
                answers = _inherited(each, job)
            may_be_saved = any(each.may_be_saved(name) for each in earlier)
            told = [stop_timer(session, each, job) for each in earlier]
            if any(told):
                _, change = self._compare(session, job, progress)  # one may have run out meanwhile
            if not change.is_empty:
                change = self._timed(session, job, answers, change)
                check_steps(change.steps)
            if self.journal.state(name) is State.PLANNED and not earlier:
                self.untouched.add(name)
            self.journal.stage(name, answers, change.text, may_be_saved=may_be_saved)
            for each in earlier:
                each.record(name, State.CONTINUED, self.journal.identifier)
        if not change.is_empty:
            self._send(session, job, change, running, progress)
            self.journal.record(name, State.APPLIED)
            running = read(session, job)
            progress.notes = running.notes
            progress.left = all_differences(job, running)
        if progress.left:
            raise DeviceError("runs something else than the plan", where=place(job.device))
        self._save(session, job, change)

    def _timed(self, session: Session, job: Job, answers: Mapping[str, str], change: Change) -> Change:
        """The change, undone by the device itself where the journal says so."""
        name, timer = job.device.name, job.target.timer
        if self.journal.header.confirm_seconds is None or timer is None:
            return change
        if self.journal.state(name) is not State.PLANNED:  # resumed: it is to return to what ran before
            answers = self.journal.backup(name).answers
            stop_timer(session, self.journal, job)
        seconds = self.journal.header.confirm_seconds
        return timer.arm(change, answers, job.fitted.state, timer_name(self.journal, job), seconds)

    def _await_idle(self, session: Session, job: Job) -> None:
        seconds = self.unanswered.get(job.device.name)
        await_idle(session, job, seconds)
        self.unanswered.pop(job.device.name, None)

    def _send(
        self, session: Session, job: Job, change: Change, base: RunningState, progress: "_Progress"
    ) -> None:
        """Send the lines; raises OccupiedError before the first one that takes effect where the device is not
        ours any more, or does not run any more what they were made for."""
        steps = change.steps
        begin = next((number for number, step in enumerate(steps) if not step.prepares), len(steps))
        self._apply(session, job, steps[:begin])
        try:
            check_occupied(session, job)
            progress.taken += occupy(session, job, begins=True)
            check_base(session, job, base)
        except OccupiedError as error:
            self._let_be(session, job, str(error))
            raise
        self.untouched.discard(job.device.name)
        self._apply(session, job, steps[begin:])

    def _store(self, session: Session, job: Job, save: Sequence[Step]) -> None:
        """Save what runs, without our mark where that is a part of it."""
        if save and is_configured(job):
            vacate(session, job)
        self._apply(session, job, save)

    def _let_be(self, session: Session, job: Job, why: str) -> None:
        """Drop lines that wait to take effect; where none has, leave what others have changed as it is."""
        session.apply(guard_of(job).discard)
        if job.device.name in self.untouched:
            self.journal.record(job.device.name, State.DROPPED, why)

    def _apply(self, session: Session, job: Job, steps: Sequence[Step]) -> None:
        """Send steps; until each was answered, the device may be working on one of them."""
        seconds = max((step.seconds or LINE_SECONDS for step in steps), default=0.0)
        self.unanswered[job.device.name] = seconds
        try:
            session.apply(steps)
        except RefusedError:
            self.unanswered.pop(job.device.name)
            raise
        self.unanswered.pop(job.device.name)

    def confirm(self, job: Job) -> DeviceReport:
        """Save a device that runs the plan; one that does not any more fails, and stays as it is."""
        progress = _Progress(started := time.monotonic())
        with reached(self.connector, job) as session, self._had(session, job, progress):
            self._await_idle(session, job)
            running = read(session, job)
            left = all_differences(job, running)
            if not left and stop_timer(session, self.journal, job):
                running = read(session, job)  # its time may have run out before it heard
                left = all_differences(job, running)
            if left:
                error = f"{place(job.device)}: {self._gone(session, job, running)}. Nothing is saved"
                return replace(report(job, Status.FAILED, started), differences=left, error=error)
            self._confirm(session, job, remaining(job, running))
        notes = tuple(note for note in running.notes if note != NOT_SAVED)
        return replace(report(job, Status.CHANGED, started), notes=(*notes, *progress.taken))

    @contextmanager
    def _had(self, session: Session, job: Job, progress: "_Progress") -> Iterator[None]:
        """Keep others away from the device; while the change is unfinished also afterwards, unless the device
        itself tells them that it will go back."""
        name = job.device.name
        for each in (self.journal, *self.earlier.get(name, ())):
            if _has_mark(each, job):
                check_kept(session, job, each)
        progress.taken, progress.has_it = occupy(session, job), True
        try:
            yield
        finally:
            if not _has_mark(self.journal, job):
                with suppress(DeviceError):  # else another connection does it, or the mark grows too old
                    vacate(session, job)
                    progress.has_it = False

    def _gone(self, session: Session, job: Job, running: RunningState) -> str:
        name = job.device.name
        answers = self.journal.backup(name).answers
        if not self.journal.header.confirm_seconds or not rollback_change(job, answers, running).is_empty:
            return "runs something else than the plan by now"
        why = "was not confirmed in time, and went back by itself to what it ran before"
        self.journal.record(name, State.ROLLING_BACK, why)
        stop_timer(session, self.journal, job)  # somebody else may have taken it back before its time
        self.journal.record(name, State.ROLLED_BACK, why)
        return why

    def back(self, job: Job, *, is_standing: bool = False) -> DeviceReport:
        """Take the device back to what it ran before, read it back, and save it where the change may have
        saved; raises MltswitchError.

        One that was in effect as a whole (`is_standing`) is not taken back over what others changed since.
        """
        progress, name = _Progress(started := time.monotonic()), job.device.name
        backup, sent = self.journal.backup(name), ""
        with reached(self.patient or self.connector, job) as session, self._had(session, job, progress):
            try:
                self._await_idle(session, job)
            except UncertainError as error:
                if self.journal.state(name) in OPEN:
                    self.journal.record(name, State.UNCERTAIN, str(error))
                raise
            if is_standing:
                check_foreign(job, backup.answers, read(session, job))
            if self.journal.header.confirm_seconds and not self.journal.came_to(name, State.CONFIRMED):
                self.journal.record(name, State.ROLLING_BACK)  # without its timer, nothing else takes it back
                stop_timer(session, self.journal, job)
            running = read(session, job)
            change = rollback_change(job, backup.answers, running)
            ours = {step.command for step in guard_of(job).discard}
            if name in self.untouched and any(step.command not in ours for step in change.steps):
                moved = "nothing of it took effect, and somebody has changed it meanwhile"
                self._let_be(session, job, moved)
                raise OccupiedError(moved, where=place(job.device))
            for _ in range(_ROUNDS):
                check_steps((*change.steps, *change.save))
                self.journal.record(name, State.ROLLING_BACK)
                if change.is_empty:
                    break
                sent += change.text
                self._send(session, job, change, running, progress)
                running = read(session, job)
                change = rollback_change(job, backup.answers, running)
            if not change.is_empty:
                raise DeviceError(
                    f"does not run what it ran before: still to be sent are {len(change.steps)} lines, "
                    f"{change.steps[0].command!r} first",
                    where=place(job.device),
                )
            if self.journal.may_be_saved(name):
                self._store(session, job, change.save)
            self.journal.record(name, State.ROLLED_BACK)
        return replace(report(job, Status.ROLLED_BACK, started), change=sent, notes=progress.taken)

    def _save(self, session: Session, job: Job, change: Change) -> None:
        name = job.device.name
        if change.is_empty and self.journal.state(name) is State.PLANNED:
            self._store(session, job, change.save)  # the change before may not have been saved
            self.journal.record(name, State.UNCHANGED)
            return
        if self.journal.state(name) is State.STAGED:  # resumed, and all lines had been taken
            self.journal.record(name, State.APPLIED)
        if self.saves:
            self._confirm(session, job, change)
        elif self.journal.header.confirm_seconds and self.journal.state(name) is State.APPLIED:
            self.journal.record(name, State.VERIFIED)

    def _confirm(self, session: Session, job: Job, change: Change) -> None:
        name = job.device.name
        if self.journal.state(name) is State.APPLIED:
            self.journal.record(name, State.VERIFIED)
        self._store(session, job, change.save)
        self.journal.record(name, State.CONFIRMED)

    def _broken_off(self, job: Job, progress: "_Progress", error: Exception) -> DeviceReport:
        """The report of a device that failed, after it was taken back where something was sent."""
        why = explained(job.device, error)
        # The way back takes ports down, too, and what is not ours, or not idle, is not to be touched.
        untouched = isinstance(error, _QuestionError | OccupiedError | UncertainError)
        if untouched and self.journal.state(job.device.name) in OPEN:
            stands = ", and it stands as it stood" if isinstance(error, _QuestionError) else ""
            ending = f"Nothing was sent{stands or ' after that'}"
        else:
            ending = self._ending(job, why, progress)
        if progress.has_it and self.journal.state(job.device.name) not in OPEN:
            with suppress(DeviceError), reached(self.patient or self.connector, job) as session:
                vacate(session, job)
        return replace(
            report(job, Status.FAILED, progress.started),
            change=progress.change.text,
            differences=progress.left,
            notes=progress.notes,
            error=f"{why}. {ending}",
        )

    def _ending(self, job: Job, why: str, progress: "_Progress") -> str:
        """How the device stands after its change has failed, as a sentence."""
        name, identifier = job.device.name, self.journal.identifier
        state = self.journal.state(name)
        if state is State.PLANNED:
            self.journal.record(name, State.DROPPED, why)
        if state not in OPEN:
            if state is State.CONFIRMED or (name in self.unanswered and not self.earlier.get(name)):
                return f"It runs the plan, and {'has' if state is State.CONFIRMED else 'may have'} saved it"
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
            said, begin = (
                explained(job.device, second),
                "The change may be partly in effect, and nothing is saved",
            )
            if self.journal.state(name) is State.DROPPED:
                return f"And then: {said}"
            if isinstance(second, UncertainError):
                begin = "Whether it is taken back is not certain"
            return (
                f"{begin}; the way back failed: {said}. `mltswitch status {identifier}` tells what it runs, "
                f"`mltswitch resume {identifier}` and `mltswitch rollback {identifier}` finish it"
            )
        return "It runs again what it ran before"


def _has_mark(journal: Journal, job: Job) -> bool:
    """Whether a change is unfinished on a device that does not itself tell others that it will go back."""
    state, timer = journal.state(job.device.name), job.target.timer
    goes_back = journal.header.confirm_seconds and timer is not None and timer.is_named
    return state in OPEN and not (state is State.VERIFIED and goes_back)


class _QuestionError(DeviceError):
    """A port would go down, or a lossless class would lose code points, and nobody has agreed to it."""


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


Undoing = Sequence[tuple[Journal, Job]]
"""Changes of one device, the latest first, with what each of them made it run."""


def undo(connector: Connector, undoing: Undoing, standing: Collection[str] = ()) -> DeviceReport:
    """Take one change after the other back; raises MltswitchError, and leaves the earlier ones then.

    On devices in `standing`, the first to be taken back was in effect as a whole, whatever its journal says.
    """
    reports: list[DeviceReport] = []
    for journal, job in undoing:
        name = job.device.name
        is_standing = not reports and (journal.state(name) is State.CONFIRMED or name in standing)
        reports.append(Transaction(connector, journal).back(job, is_standing=is_standing))
    change = "".join(report.change for report in reports)
    return replace(reports[-1], change=change, seconds=sum(report.seconds for report in reports))


def _inherited(earlier: Journal, job: Job) -> dict[str, str]:
    """What ran before an unfinished change, which this one takes over; raises DeviceError.

    It must concern all that the earlier one did: else a part of that would stay half in effect for ever.
    """
    answers = earlier.backup(job.device.name).answers
    old, new = job.target.fit_to_hardware(earlier.plan(), job.device.switch).state, job.fitted.state
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
