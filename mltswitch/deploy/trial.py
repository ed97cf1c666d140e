"""Which lines of a plan a device refuses, tried where they only prepare a change; nothing takes effect.

A push stops at the first line that a device refuses. Here the others are tried, too: in a config session of
EOS or a pending revision of Cumulus Linux, which is dropped afterwards. Where lines take effect at once, and
on SONiC, which takes a change whole, none is tried, and the report says so. Nor are lines inside a mode that
the device refuses to open: it would answer for another mode.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final

from mltswitch.deploy.comparison import reached, read, remaining, report
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.occupation import occupy, vacate
from mltswitch.deploy.prepare import Job, addresses, prepare
from mltswitch.deploy.results import DeviceReport, FleetReport, Status
from mltswitch.deploy.session import Session, check_steps
from mltswitch.deploy.state_directory import working
from mltswitch.errors import RefusedError
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan
from mltswitch.targets import Step

_ALONE: Final = Fleet()
NONE_TRIED: Final = "no line was tried: its lines take effect at once, or as a whole; a push tells the first"
SKIPPED: Final = "{} lines were not tried: they stand in modes whose opening line is refused"


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """One line, and what the device said to it."""

    line: str
    answer: str


@dataclass(frozen=True, slots=True)
class Trial:
    """How asking the devices ended, device by device."""

    report: FleetReport
    """`differs` where a line was refused."""
    refused: dict[str, tuple[RefusedLine, ...]]
    """Device → the lines that it refuses, in their order."""


def try_lines(plan: Plan, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE) -> Trial:
    """Enter the lines that a push would send, where they only prepare, and drop them again.

    Raises what `prepare` raises, and UserInputError where another process works on a device; a device's
    failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    refused: dict[str, tuple[RefusedLine, ...]] = {}

    def work(job: Job) -> DeviceReport:
        started = time.monotonic()
        with reached(fleet.session, job) as session:
            tried = _try(session, job)
        if tried is None:
            return report(job, Status.OK, started, notes=(NONE_TRIED,))
        refused[job.device.name], skipped = tried
        notes = (SKIPPED.format(skipped),) if skipped else ()
        return report(job, Status.DIFFERS if refused[job.device.name] else Status.OK, started, notes=notes)

    with working("lab lines", addresses(job.device for job in jobs)):
        reports = fleet.run(jobs, work)
    return Trial(FleetReport(reports, warnings), refused)


def _try(session: Session, job: Job) -> tuple[tuple[RefusedLine, ...], int] | None:
    """What `_refusals` finds; None where no line of the change only prepares."""
    if not _preparing(session, job):
        return None
    occupy(session, job)
    try:
        try:
            return _refusals(session, _preparing(session, job))
        finally:
            session.apply(job.target.guard.discard)
    finally:
        vacate(session, job)


def _preparing(session: Session, job: Job) -> tuple[Step, ...]:
    """Of a change that would be sent now, the lines before the first that takes effect."""
    change = remaining(job, read(session, job))
    return tuple(takewhile(lambda step: step.prepares, change.steps))


def _refusals(session: Session, steps: Sequence[Step]) -> tuple[tuple[RefusedLine, ...], int]:
    """(the lines that are refused, how many lines could not be tried because their mode did not open)."""
    check_steps(steps)
    refused: list[RefusedLine] = []
    skipped = 0
    while steps:
        try:
            session.apply(steps)
        except RefusedError as error:
            closed = steps[error.index]
            refused.append(RefusedLine(closed.command, error.answer))
            mode = (*closed.modes, closed.command)
            rest = steps[error.index + 1 :]
            inside = sum(1 for _ in takewhile(partial(_is_inside, mode), rest))
            steps, skipped = rest[inside:], skipped + inside
        else:
            break
    return tuple(refused), skipped


def _is_inside(mode: tuple[str, ...], step: Step) -> bool:
    return step.modes[: len(mode)] == mode
