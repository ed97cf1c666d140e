"""What one device runs, compared with what it should run; nothing here changes a device."""

import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from mltswitch.deploy.identity import check_identity
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.results import CABLING, PUSH, DeviceDifference, DeviceReport, Status
from mltswitch.deploy.session import Connector, Session, named, place, quoted
from mltswitch.errors import DeviceError, PreflightError, UnreachableError, UserInputError
from mltswitch.targets import Change, Lossless, RunningState
from mltswitch.targets.common import known_form
from mltswitch.targets.state import Difference, differences

CONNECTION_TRIES: Final = 3
RETRY_SECONDS: Final = 2.0
"""Longest wait in seconds before the second try to connect; each further one may be twice as long."""
_SHOWN_LINES: Final = 3
"""Lines of a change that a difference quotes; `mltswitch diff` shows them all."""


@contextmanager
def reached(connector: Connector, job: Job) -> Iterator[Session]:
    """An open session with a device whose identity fits the inventory; raises DeviceError.

    A connection that the network breaks while it is opened is tried again, after a random wait, so that a
    thousand devices are not tried at once. Nothing has been sent then.
    """
    with named(job.device), ExitStack() as stack:
        for attempt in range(1, CONNECTION_TRIES + 1):
            try:
                session = stack.enter_context(connector(job.device, job.target))
                break
            except UnreachableError:
                if attempt == CONNECTION_TRIES:
                    raise
                share = random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
                time.sleep(share * RETRY_SECONDS * 2 ** (attempt - 1))
        check_identity(job.device, job.target, session, job.fitted.capabilities.hardware)
        yield session


def read(session: Session, job: Job) -> RunningState:
    """The device's running state, as far as the plan concerns it; raises DeviceError."""
    wanted = job.fitted.state
    return job.target.read(session.ask_all(job.target.queries(wanted)), wanted, job.fitted.capabilities)


def going_back(session: Session, job: Job) -> list[str]:
    """Names of the changes that the device will undo by itself or is undoing now; raises DeviceError."""
    if job.target.timer is None or not job.target.timer.armed:
        return []
    name = re.escape(job.device.name)
    pattern = rf"\b([0-9]{{8}}-[0-9]{{6}}-[0-9]{{6}}a*)-{name}(?:\.\w+)?(?!\S)"
    return list(dict.fromkeys(re.findall(pattern, session.ask(job.target.timer.armed))))


def remaining(job: Job, running: RunningState) -> Change:
    """The change that a push would send; raises DeviceError where it would be refused."""
    return job.target.diff(running, job.fitted.state, job.fitted.capabilities)


def tried(session: Session, change: Change) -> tuple[str, ...]:
    """Notes for the operator on a change that the device would take, as it says; raises DeviceError."""
    return () if change.trial is None else change.trial.judge(session.ask(change.trial.command))


def rollback_change(job: Job, answers: Mapping[str, str], running: RunningState) -> Change:
    """The change back to what the device answered before; raises UserInputError where answers are missing."""
    missing = [query for query in job.target.queries(job.fitted.state) if query not in answers]
    if missing:
        raise UserInputError(
            f"another version of mltswitch has recorded what it ran before, without {missing[0]!r}",
            where=place(job.device),
        )
    return job.target.restore(answers, running, job.fitted.state, job.fitted.capabilities)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares what devices run with what they should run."""

    connector: Connector
    strays: Mapping[str, tuple[DeviceDifference, ...]]
    """Device → what earlier changes left on ports outside the plan; a push undoes it."""

    def diff(self, job: Job) -> DeviceReport:
        """Report what a push would change on one device; a refusal of it counts as a difference, too."""
        started = time.monotonic()
        try:
            with reached(self.connector, job) as session:
                not_told = check_cabling(job, session)
                running = read(session, job)
                change = remaining(job, running)
                told = tried(session, change)
        except PreflightError as error:
            found = replace(_refusal(job, error), cannot=True)
            return report(job, Status.CANNOT, started, differences=(found,))
        left = self.strays.get(job.device.name, ())
        values = value_differences(job, running, change.stays)
        differences = (*values, *_unconfirmed(job, running.unconfirmed), *left)
        status = Status.CANNOT if change.stays else Status.WOULD_CHANGE
        if change.is_empty and not left and not change.stays:
            status = Status.DIFFERS if differences else Status.OK
        lost = losses(job, running)
        asks = f"a push asks, and needs `--accept-lossless` where nobody answers: {lost_words(lost)}"
        takes_down = change.takes_down
        if left and job.target.takes_down:  # what earlier changes put there goes from all of them first
            names = (*(port.name for port in job.fitted.state.ports), *(each.port for each in left))
            takes_down = tuple(dict.fromkeys(names))
        return report(
            job,
            status,
            started,
            change=change.text,
            differences=differences,
            notes=(*running.notes, *told, *not_told, *([asks] if lost else [])),
            takes_down=takes_down,
            loses=lost,
        )

    def verify(self, job: Job) -> DeviceReport:
        """Report whether one device runs the plan, and nothing else among what mltswitch manages."""
        started = time.monotonic()
        with reached(self.connector, job) as session:
            cables, notes = cabling_differences(job, session)
            try:
                running = read(session, job)
            except PreflightError as error:
                found = (*cables, _refusal(job, error))
                return report(job, Status.DIFFERS, started, differences=found, notes=notes)
            found = all_differences(job, running)
            told: tuple[str, ...] = ()
            with suppress(DeviceError):  # then `all_differences` tells it
                change = remaining(job, running)
                try:
                    told = tried(session, change)
                except DeviceError as error:
                    found += (_refusal(job, error),)
            timed = [
                f"going back by itself from change {each}, unless `mltswitch confirm {each}` keeps it"
                for each in going_back(session, job)
            ]
        unconfirmed = _unconfirmed(job, (*running.unconfirmed, *timed))
        found = (*cables, *found, *unconfirmed, *self.strays.get(job.device.name, ()))
        status = Status.DIFFERS if found else Status.OK
        return report(job, status, started, differences=found, notes=(*running.notes, *told, *notes))


def losses(job: Job, running: RunningState) -> tuple[Lossless, ...]:
    """The running lossless classes from which the plan moves code points to queues that drop."""
    kept = {
        port.name: {
            dscp for queue in port.queues if queue.is_lossless and port.trusted for dscp in queue.dscps
        }
        for port in job.fitted.state.ports
    }
    lost = (
        each._replace(dscps=tuple(dscp for dscp in each.dscps if dscp not in kept.get(each.port, ())))
        for each in running.lossless
    )
    return tuple(each for each in lost if each.dscps or each.otherwise)


def lost_words(lost: Iterable[Lossless]) -> str:
    """The losses as one clause, in which ports that lose the same are listed together."""
    ports: dict[str, list[str]] = {}
    for each in lost:
        packets = [f"DSCP {', '.join(map(str, each.dscps))}"] if each.dscps else []
        packets += [f"what `{each.otherwise}` leads to it"] if each.otherwise else []
        words = f"lossless priority {each.priority} loses {' and '.join(packets)}"
        ports.setdefault(words, []).append(each.port)
    return "; ".join(f"{words} on {', '.join(names)}" for words, names in ports.items())


def value_differences(
    job: Job, running: RunningState, stays: tuple[Difference, ...] = ()
) -> tuple[DeviceDifference, ...]:
    """Values that differ from the plan's, and those in `stays`, which no push changes and are marked so."""
    class_of = {queue: name for name, queue in job.fitted.class_queues.items()}
    return tuple(
        DeviceDifference(
            job.device.name,
            found.port,
            found.queue,
            None if found.queue is None else class_of.get(found.queue),
            found.field,
            found.expected,
            found.found,
            found in stays,
        )
        for found in dict.fromkeys((*differences(job.fitted.state, running.state), *stays))
    )


def all_differences(job: Job, running: RunningState) -> tuple[DeviceDifference, ...]:
    """Values that differ from the plan's; if none do, what a push would still send."""
    found = value_differences(job, running)
    if found:
        return found
    try:
        change = remaining(job, running)
    except DeviceError as error:
        return (_refusal(job, error),)
    return () if change.is_empty else (_of_push(job, "nothing to send", _shortened(change)),)


def _refusal(job: Job, error: DeviceError) -> DeviceDifference:
    text = str(error).removeprefix(f"{place(job.device)}: ")
    return _of_push(job, "nothing to send", f"a refusal: {quoted(text)}")


def _of_push(job: Job, expected: str, found: str) -> DeviceDifference:
    return DeviceDifference(job.device.name, "", None, None, PUSH, expected, found)


def _unconfirmed(job: Job, texts: Iterable[str]) -> tuple[DeviceDifference, ...]:
    """What the device undoes by itself; a push reads it back before it confirms, so there it is no fault."""
    return tuple(_of_push(job, "confirmed", text) for text in texts)


def _shortened(change: Change) -> str:
    """The first lines of a change, on one line."""
    lines = change.text.splitlines() or [step.command for step in change.steps]
    shown = quoted("; ".join(line.strip() for line in lines[:_SHOWN_LINES]))
    more = len(lines) - _SHOWN_LINES
    return f"{shown}; and {more} more" if more > 0 else shown


def report(job: Job, status: Status, started: float, **more: Any) -> DeviceReport:
    """The report on one device, timed from `started` (monotonic clock); `more` are its other fields."""
    return DeviceReport(
        device=job.device.name,
        platform=job.device.platform,
        hardware=job.fitted.capabilities.hardware,
        status=status,
        seconds=time.monotonic() - started,
        roundings=job.fitted.roundings,
        shortfalls=job.fitted.unsupported,
        **more,
    )


def cabling_differences(job: Job, session: Session) -> tuple[list[DeviceDifference], tuple[str, ...]]:
    """Ports whose cable leads elsewhere than the plan says, and a note if the device does not tell."""
    if job.target.neighbours is None:
        return [], ()
    query = job.target.neighbour_query
    try:
        with known_form(query):
            told = tuple(job.target.neighbours(session.ask(query)))
    except DeviceError as error:
        return [], (f"the cabling was not held against LLDP: {quoted(str(error))}",)
    found = job.cabling.contradictions(job.device.switch, told)
    return [
        DeviceDifference(job.device.name, port, None, None, CABLING, planned, heard)
        for port, planned, heard in found
    ], ()


def check_cabling(job: Job, session: Session) -> tuple[str, ...]:
    """A note if the device does not tell by LLDP; raises DeviceError where a port leads elsewhere."""
    found, not_told = cabling_differences(job, session)
    if found:
        wrong = "; ".join(f"port {each.port} {each.change}" for each in found)
        raise DeviceError(wrong, hint="correct the cables, or the fabric file, and plan anew")
    return not_told
