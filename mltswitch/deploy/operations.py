"""Diff, push and verify: what is done with one device, and the three operations over a fleet."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.deploy.conversation import Connector, Conversation, explained, place, quoted
from mltswitch.deploy.fleet import DEFAULT_CONCURRENCY, Progress, run_fleet
from mltswitch.deploy.keep import Kept, kept
from mltswitch.deploy.prepare import Job, prepare
from mltswitch.deploy.results import PUSH, DeviceDifference, DeviceReport, FleetReport, Status
from mltswitch.deploy.ssh import connect
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan
from mltswitch.targets import Change, RunningState, Step
from mltswitch.targets.state import differences

_SHOWN_LINES: Final = 3
"""Lines of a change that a difference quotes; `mltswitch diff` shows them all."""
_NOTHING_SENT: Final = "Nothing was sent"
_HALF_DONE: Final = (
    "Nothing is saved; the change may be partly in effect, and `mltswitch diff` shows what is left"
)
_NOT_SAVED: Final = (
    "The plan is applied and read back, but not saved, so a reboot may lose it; the next push saves it"
)


def diff(
    plan: Plan,
    inventory: Inventory,
    *,
    limit: str | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    progress: Progress | None = None,
    connector: Connector = connect,
) -> FleetReport:
    """What a push would change; sends nothing.

    Raises what `prepare` raises; a device's failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    return FleetReport(run_fleet(jobs, _Diff(connector), concurrency, progress), warnings)


def push(
    plan: Plan,
    inventory: Inventory,
    *,
    limit: str | None = None,
    dry_run: bool = False,
    accept: bool = False,
    keep: Path | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    progress: Progress | None = None,
    connector: Connector = connect,
) -> FleetReport:
    """Make the devices run the plan: change, read back, compare, and only then save.

    Nothing is sent to any device before the plan was rendered for all of them, nor, unless `accept` is true,
    where one of them cannot rewrite code points that its ports may not use. A device that already runs the
    plan is only told to save it: the push before may have ended between change and save. What a
    device answered before a change is written into the folder `keep`; where it cannot be, nothing is sent.
    Raises what `prepare` raises; a device's failure is reported and stops no other.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    if not dry_run and not accept:
        _check_leaks(jobs)
    work = _Diff(connector) if dry_run else _Push(connector, keep)
    return FleetReport(run_fleet(jobs, work, concurrency, progress), warnings)


def _check_leaks(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.quantised.leak:
            raise UnsupportedPlanError(
                job.quantised.leak,
                where=job.device.name,
                hint="`--accept` pushes all the same; `mltswitch plan` lists all such ports",
            )


def verify(
    plan: Plan,
    inventory: Inventory,
    *,
    limit: str | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    progress: Progress | None = None,
    connector: Connector = connect,
) -> FleetReport:
    """Compare what the devices run with the plan, value by value; sends nothing.

    Where every value is the plan's and a push would still send something or be refused, that is a difference.
    Raises what `prepare` raises; a device's failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    return FleetReport(run_fleet(jobs, _Verify(connector), concurrency, progress), warnings)


@dataclass(frozen=True, slots=True)
class _Diff:
    connector: Connector

    def __call__(self, job: Job) -> DeviceReport:
        started = time.monotonic()
        with self.connector(job.device, job.target) as conversation:
            running = _read(conversation, job)
        change = job.target.diff(running, job.quantised.state, job.quantised.capabilities)
        found = (*_differences(job, running), *_unconfirmed(job, running))
        status = Status.WOULD_CHANGE
        if change.is_empty:
            status = Status.DIFFERS if found else Status.OK
        return _report(job, status, started, change=change.text, differences=found, notes=running.notes)


@dataclass(frozen=True, slots=True)
class _Verify:
    connector: Connector

    def __call__(self, job: Job) -> DeviceReport:
        started = time.monotonic()
        with self.connector(job.device, job.target) as conversation:
            running = _read(conversation, job)
        found = (*_all_differences(job, running), *_unconfirmed(job, running))
        status = Status.DIFFERS if found else Status.OK
        return _report(job, status, started, differences=found, notes=running.notes)


@dataclass(frozen=True, slots=True)
class _Push:
    connector: Connector
    keep: Path | None

    def __call__(self, job: Job) -> DeviceReport:
        started = time.monotonic()
        with self.connector(job.device, job.target) as conversation:
            running = _read(conversation, job)
            before = _differences(job, running)
            change = job.target.diff(running, job.quantised.state, job.quantised.capabilities)
            record = None if self.keep is None else kept(self.keep, job.device, running.answers)
            left, error = _change(conversation, job, change, before, record)
        file = "" if record is None or change.is_empty or not record.path.is_file() else str(record.path)
        if error:
            return _report(
                job, Status.FAILED, started, change=change.text, differences=left, error=error, file=file
            )
        status = Status.OK if change.is_empty else Status.CHANGED
        # What was just saved is what the notes missed; where nothing could be saved, they stand.
        notes = () if change.save else running.notes
        return _report(
            job,
            status,
            started,
            change=change.text,
            differences=before,
            notes=notes,
            way_back="" if change.is_empty else change.way_back,
            file=file,
        )


def _change(
    conversation: Conversation,
    job: Job,
    change: Change,
    before: tuple[DeviceDifference, ...],
    record: Kept | None,
) -> tuple[tuple[DeviceDifference, ...], str]:
    """Apply, read back, and save if it is right; returns what is not, and why it failed where it did."""
    left, state = before, _NOTHING_SENT
    try:
        _check_steps((*change.steps, *change.save))
        if not change.is_empty:
            if record is not None:
                record.write()
            state = _HALF_DONE
            conversation.apply(change.steps)
            left = _all_differences(job, _read(conversation, job))
        if left:
            return left, f"{place(job.device)}: runs something else than the plan. {state}"
        state = _NOT_SAVED
        conversation.apply(change.save)
    except Exception as error:  # noqa: BLE001 (whatever it is, the operator must learn how far it came)
        return (), f"{explained(job.device, error)}. {state}"
    return left, ""


def _check_steps(steps: Iterable[Step]) -> None:
    """The last gate before the wire: a line end would make two commands of one."""
    for step in steps:
        if not step.command.isprintable():
            raise UserInputError(
                f"the line {step.command!r} has a control character in it, so it is not sent"
            )


def _read(conversation: Conversation, job: Job) -> RunningState:
    wanted = job.quantised.state
    answers = {query: conversation.ask(query) for query in job.target.queries(wanted)}
    return job.target.read(answers, wanted, job.quantised.capabilities)


def _all_differences(job: Job, running: RunningState) -> tuple[DeviceDifference, ...]:
    """Values that are not the plan's; where there are none, what a push would send all the same."""
    found = _differences(job, running)
    if found:
        return found
    try:
        change = job.target.diff(running, job.quantised.state, job.quantised.capabilities)
    except DeviceError as error:
        unstated = f"a refusal: {quoted(str(error))}"
    else:
        if change.is_empty:
            return ()
        unstated = _shortened(change)
    return (DeviceDifference(job.device.name, "", None, None, PUSH, "nothing to send", unstated),)


def _unconfirmed(job: Job, running: RunningState) -> tuple[DeviceDifference, ...]:
    """What the device undoes by itself; a push reads it back before it confirms, so there it is no fault."""
    return tuple(
        DeviceDifference(job.device.name, "", None, None, PUSH, "confirmed", text)
        for text in running.unconfirmed
    )


def _shortened(change: Change) -> str:
    """The first lines of a change, on one line."""
    lines = change.text.splitlines() or [step.command for step in change.steps]
    shown = quoted("; ".join(line.strip() for line in lines[:_SHOWN_LINES]))
    more = len(lines) - _SHOWN_LINES
    return f"{shown}; and {more} more" if more > 0 else shown


def _differences(job: Job, running: RunningState) -> tuple[DeviceDifference, ...]:
    class_of = {queue: name for name, queue in job.quantised.class_queues.items()}
    return tuple(
        DeviceDifference(
            job.device.name,
            found.port,
            found.queue,
            None if found.queue is None else class_of.get(found.queue),
            found.field,
            found.expected,
            found.found,
        )
        for found in differences(job.quantised.state, running.state)
    )


def _report(
    job: Job,
    status: Status,
    started: float,
    *,
    change: str = "",
    differences: tuple[DeviceDifference, ...] = (),
    error: str = "",
    notes: tuple[str, ...] = (),
    way_back: str = "",
    file: str = "",
) -> DeviceReport:
    return DeviceReport(
        device=job.device.name,
        platform=job.device.platform,
        hardware=job.quantised.capabilities.hardware,
        status=status,
        seconds=time.monotonic() - started,
        change=change,
        differences=differences,
        roundings=job.quantised.roundings,
        error=error,
        notes=notes,
        shortfalls=job.quantised.shortfalls,
        way_back=way_back,
        before_file=file,
    )
