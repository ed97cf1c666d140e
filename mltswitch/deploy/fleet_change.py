"""A change on all of its devices: its waves, when it stops, and how all are rolled back when some fail."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from mltswitch.deploy.comparison import report
from mltswitch.deploy.fleet import Fleet, Work
from mltswitch.deploy.journal import OPEN, UNDOABLE, Journal, State, before, open_changes
from mltswitch.deploy.ownership import Undoing
from mltswitch.deploy.prepare import Job, addresses
from mltswitch.deploy.results import DeviceReport, Status
from mltswitch.deploy.transaction import Transaction
from mltswitch.errors import MachineError
from mltswitch.targets import Lossless

Verb = Callable[[Transaction], DeviceReport]


class FleetChange:
    """A change in the journal, and the transactions of those of its devices that are worked on."""

    def __init__(self, fleet: Fleet, journal: Journal, transactions: Iterable[Transaction]) -> None:
        self.journal = journal
        self._fleet = fleet
        self._transactions = {each.name: each for each in transactions}

    @classmethod
    def going_forward(
        cls,
        fleet: Fleet,
        journal: Journal,
        jobs: Sequence[Job],
        left: Mapping[str, Undoing],
        may_go_down: Mapping[str, Collection[str]] | None,
        may_lose: Mapping[str, Collection[Lossless]] | None,
    ) -> Self:
        """The change that makes devices run its plan; `Transaction` explains the mappings by device."""
        devices, past = addresses(job.device for job in jobs), before(journal)
        earlier, abandoned = (open_changes(devices, past, states) for states in (OPEN, {State.ABANDONED}))
        transactions = []
        for job in jobs:
            name = job.device.name
            ports = None if may_go_down is None else may_go_down.get(name, ())
            lossless = None if may_lose is None else may_lose.get(name, ())
            taken_over = earlier.get(name, ()), abandoned.get(name, ()), left.get(name, ())
            transactions.append(Transaction(fleet, journal, job, *taken_over, ports, lossless))
        return cls(fleet, journal, transactions)

    def run(self, jobs: Sequence[Job], verb: Verb, *, wave: int = 0) -> tuple[DeviceReport, ...]:
        """Run one verb of the devices' transactions; a report per job, in order."""
        return self._fleet.run(jobs, self._work(verb), wave)

    def _finish(self, jobs: Sequence[Job], verb: Verb) -> tuple[DeviceReport, ...]:
        return self._fleet.unhurried.run(jobs, self._work(verb))

    def _work(self, verb: Verb) -> Work:
        return lambda job: verb(self._transactions[job.device.name])

    def in_waves(self, jobs: Sequence[Job]) -> tuple[DeviceReport, ...]:
        """Change the devices in the waves of the rollout, up to a wave that fails; returns a report per job.

        In an atomic change, all devices are checked for refusals before any of them is touched.
        """
        rollout, reports = self.journal.header.rollout, list[DeviceReport]()
        waves = rollout.waves(jobs)
        numbers = [number if len(waves) > 1 else 0 for number, wave in enumerate(waves, 1) for _ in wave]
        if rollout.atomic and {self.journal.state(job.device.name) for job in jobs} == {State.PLANNED}:
            looks = self._finish(jobs, Transaction.check)
            if rollout.is_failure(looks):
                return tuple(
                    look if look.status is Status.FAILED else replace(look, status=Status.NOT_BEGUN)
                    for look in looks
                )
        for wave in waves:
            reports += self.run(wave, Transaction.forward, wave=numbers[len(reports)])
            if rollout.is_failure(reports[-len(wave) :]):
                break
        else:
            saves = rollout.atomic and rollout.confirm_seconds is None
            return self._saved(jobs, reports) if saves else tuple(reports)
        if rollout.atomic:
            reports = [*self.taken_back(jobs[: len(reports)], reports)]
        now, begun = time.monotonic(), len(reports)
        for job, number in zip(jobs[begun:], numbers[begun:], strict=True):
            reports.append(report(job, Status.NOT_BEGUN, now, wave=number))
        return tuple(reports)

    def _saved(self, jobs: Iterable[Job], reports: Sequence[DeviceReport]) -> tuple[DeviceReport, ...]:
        """Every device runs the plan: save them all, or take all back where one of them does not save it."""
        waiting = [job for job in jobs if self.journal.state(job.device.name) in OPEN]
        ends = self._finish(waiting, Transaction.confirm)
        saved = _continued(reports, ends)
        return self.taken_back(jobs, saved) if has_failed(ends) else saved

    def taken_back(self, jobs: Iterable[Job], reports: Sequence[DeviceReport]) -> tuple[DeviceReport, ...]:
        """Roll all changed devices back after one device has failed, and return all reports."""
        changed = [job for job in jobs if self.journal.state(job.device.name) in UNDOABLE]
        all_go_back(self.journal, changed)
        return _continued(reports, self._finish(changed, Transaction.back))


def has_failed(reports: Iterable[DeviceReport]) -> bool:
    """Whether any device has failed."""
    return any(report.status is Status.FAILED for report in reports)


def all_go_back(journal: Journal, jobs: Iterable[Job]) -> None:
    """Record that all these devices are rolled back, before the first one is: `resume` then finishes it."""
    for job in jobs:
        with suppress(MachineError):  # where the disk is full, the way back fails by itself, and says so
            journal.record(job.device.name, State.ROLLING_BACK)


def _continued(reports: Iterable[DeviceReport], ends: Iterable[DeviceReport]) -> tuple[DeviceReport, ...]:
    """The reports of all devices after more work on some of them, which `ends` tell of."""
    by_name = {end.device: end for end in ends}
    return tuple(_ended(each, by_name[each.device]) if each.device in by_name else each for each in reports)


def _ended(report: DeviceReport, end: DeviceReport) -> DeviceReport:
    seconds = report.seconds + end.seconds
    if report.status is Status.FAILED:
        then = f"Then: {end.error}" if end.error else "It runs again what it ran before"
        return replace(report, error=f"{report.error}. {then}", seconds=seconds)
    return replace(report, status=end.status, error=end.error, notes=end.notes, seconds=seconds)
