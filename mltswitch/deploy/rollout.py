"""Devices in waves: how many at once, in which order, and what becomes of all when some fail."""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from mltswitch.deploy.comparison import report
from mltswitch.deploy.connector import connect
from mltswitch.deploy.fleet import DEFAULT_CONCURRENCY, Progress, Work, run_fleet
from mltswitch.deploy.journal import OPEN, UNDOABLE, Journal, State
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.results import DeviceReport, Status
from mltswitch.deploy.session import Connector, Session, place
from mltswitch.deploy.ssh import bounded
from mltswitch.deploy.transaction import Transaction
from mltswitch.errors import DeviceError, MachineError, UserInputError
from mltswitch.inventory import Device
from mltswitch.targets import Target

_WAVE: Final = re.compile(r"([1-9][0-9]*)(%?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How devices are worked on."""

    concurrency: int = DEFAULT_CONCURRENCY
    """How many devices are worked on at the same time."""
    progress: Progress | None = None
    """Hears of each device as it ends."""
    connector: Connector = connect
    device_seconds: float | None = None
    """How long one connection may stand: a device that takes longer is hung up on, and has failed."""
    deadline: float | None = None
    """Of the monotonic clock; work on no device begins after it."""
    interrupted: threading.Event = field(default_factory=threading.Event)
    """Work on no device begins once it is set; what is begun is finished."""

    @property
    def is_late(self) -> bool:
        """Whether no further device is begun: the deadline has passed, or somebody has interrupted."""
        return self.interrupted.is_set() or (self.deadline is not None and time.monotonic() > self.deadline)

    def run(self, jobs: Sequence[Job], work: Work, wave: int = 0) -> tuple[DeviceReport, ...]:
        """A report per job, in order."""

        def tell(report: DeviceReport) -> None:
            if self.progress is not None:
                self.progress(replace(report, wave=wave))

        reports = run_fleet(jobs, self._in_time(work), self.concurrency, tell)
        return tuple(replace(report, wave=wave) for report in reports)

    def _in_time(self, work: Work) -> Work:
        def begin(job: Job) -> DeviceReport:
            if self.is_late:
                why = "it was interrupted" if self.interrupted.is_set() else "the deadline has passed"
                hint = "`mltswitch resume` goes on with a push; any other command is given again"
                raise DeviceError(f"is not begun: {why}", where=place(job.device), hint=hint)
            return work(job)

        return begin

    @contextmanager
    def session(self, device: Device, target: Target) -> Iterator[Session]:
        """A session that ends in time; raises DeviceError."""
        with self.connector(device, target) as session:
            if self.device_seconds is None:
                yield session
                return
            late = DeviceError(f"takes longer than {self.device_seconds:g} s", where=place(device))
            with bounded(self.device_seconds, session.hang_up, late):
                yield session


@dataclass(frozen=True, slots=True)
class Rollout:
    """In which order a push takes the devices, and when it stops, in Ansible's words."""

    serial: str = "100%"
    """Sizes of the waves, in devices or per cent of all of them: `1,10%,50%`; the last one repeats."""
    max_fail_percentage: float = 0.0
    """Of a wave's devices; where more fail, no further wave begins."""
    atomic: bool = False
    """One failure takes all devices back, and none is saved before all of them run the plan."""
    confirm_seconds: int | None = None
    """After which the devices go back by themselves unless `confirm` saves them; None: they are saved."""

    def waves(self, jobs: Sequence[Job]) -> list[Sequence[Job]]:
        """The jobs, wave by wave; raises UserInputError."""
        sizes = []
        for word in self.serial.split(","):
            match = _WAVE.fullmatch(word.strip())
            if match is None:
                raise UserInputError(
                    f"{word.strip()!r} is no size of a wave", where="serial", expected="such as 1,10%,50%"
                )
            number = int(match[1])
            sizes.append(max(1, len(jobs) * min(number, 100) // 100) if match[2] else number)
        waves: list[Sequence[Job]] = []
        begin = 0
        while begin < len(jobs):
            size = sizes[min(len(waves), len(sizes) - 1)]
            waves.append(jobs[begin : begin + size])
            begin += size
        return waves

    def is_failure(self, reports: Sequence[DeviceReport]) -> bool:
        """Whether a wave went so badly that no other one begins."""
        bad = sum(report.status is Status.FAILED for report in reports)
        return bad > 0 if self.atomic else 100 * bad > self.max_fail_percentage * len(reports)


def in_waves(
    transaction: Transaction, waves: Sequence[Sequence[Job]], rollout: Rollout, fleet: Fleet
) -> tuple[DeviceReport, ...]:
    """Go forward wave by wave, and stop behind one that went badly; a report per job, in order.

    Of an atomic change, what one device refuses is found out before any of them is touched.
    """
    reports: list[DeviceReport] = []
    jobs = [job for wave in waves for job in wave]
    numbers = [number if len(waves) > 1 else 0 for number, wave in enumerate(waves, 1) for _ in wave]
    if rollout.atomic and {transaction.journal.state(job.device.name) for job in jobs} == {State.PLANNED}:
        looks = run_fleet(jobs, transaction.check, fleet.concurrency, None)
        if rollout.is_failure(looks):
            return tuple(
                look if look.status is Status.FAILED else replace(look, status=Status.NOT_BEGUN)
                for look in looks
            )
    for wave in waves:
        reports += fleet.run(wave, transaction.forward, numbers[len(reports)])
        if rollout.is_failure(reports[-len(wave) :]):
            break
    else:
        saves = rollout.atomic and rollout.confirm_seconds is None
        return _saved(transaction, jobs, reports, fleet) if saves else tuple(reports)
    if rollout.atomic:
        reports = [*taken_back(transaction, jobs[: len(reports)], reports, fleet)]
    now = time.monotonic()
    return (
        *reports,
        *(
            replace(report(job, Status.NOT_BEGUN, now), wave=wave)
            for job, wave in zip(jobs[len(reports) :], numbers[len(reports) :], strict=True)
        ),
    )


def _saved(
    transaction: Transaction, jobs: Sequence[Job], reports: Sequence[DeviceReport], fleet: Fleet
) -> tuple[DeviceReport, ...]:
    """Every device runs the plan: save them all, or take all back where one of them does not save it."""
    waiting = [job for job in jobs if transaction.journal.state(job.device.name) in OPEN]
    ends = {end.device: end for end in run_fleet(waiting, transaction.confirm, fleet.concurrency, None)}
    saved = tuple(_ended(report, ends.get(report.device)) for report in reports)
    if any(end.status is Status.FAILED for end in ends.values()):
        return taken_back(transaction, jobs, saved, fleet)
    return saved


def taken_back(
    transaction: Transaction, jobs: Sequence[Job], reports: Sequence[DeviceReport], fleet: Fleet
) -> tuple[DeviceReport, ...]:
    """One device failed: take all that were changed back."""
    changed = [job for job in jobs if transaction.journal.state(job.device.name) in UNDOABLE]
    all_go_back(transaction.journal, changed)
    ends = {end.device: end for end in run_fleet(changed, transaction.back, fleet.concurrency, None)}
    return tuple(_ended(report, ends.get(report.device)) for report in reports)


def all_go_back(journal: Journal, jobs: Iterable[Job]) -> None:
    """Say of all that they go back, before one of them does: `resume` goes on with what is left of that."""
    for job in jobs:
        with suppress(MachineError):  # where the disk is full, the way back fails by itself, and says so
            journal.record(job.device.name, State.ROLLING_BACK)


def _ended(report: DeviceReport, end: DeviceReport | None) -> DeviceReport:
    if end is None:
        return report
    seconds = report.seconds + end.seconds
    if report.status is Status.FAILED:
        then = f"Then: {end.error}" if end.error else "It runs again what it ran before"
        return replace(report, error=f"{report.error}. {then}", seconds=seconds)
    return replace(report, status=end.status, error=end.error, notes=end.notes, seconds=seconds)
