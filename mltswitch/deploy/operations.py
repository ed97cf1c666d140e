"""What is done with a whole inventory: compare, push in waves, finish or undo what a push began."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

from mltswitch.deploy import journal as journals
from mltswitch.deploy.comparison import Diff, Verify
from mltswitch.deploy.conversation import Connector
from mltswitch.deploy.fleet import DEFAULT_CONCURRENCY, Progress, Work, failed, run_fleet
from mltswitch.deploy.journal import OPEN, UNDOABLE, Journal, State, counted, working
from mltswitch.deploy.prepare import Job, prepare
from mltswitch.deploy.results import DeviceReport, FleetReport, Status
from mltswitch.deploy.ssh import connect
from mltswitch.deploy.transaction import Transaction, where_it_stands
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.inventory import Inventory
from mltswitch.inventory.patterns import matching
from mltswitch.plan import Plan

_GOES_BACK: Final = frozenset({State.ROLLING_BACK, State.ROLLED_BACK})
_WAVE: Final = re.compile(r"([1-9][0-9]*)(%?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How devices are worked on."""

    concurrency: int = DEFAULT_CONCURRENCY
    """At once."""
    progress: Progress | None = None
    """Hears of each device as it ends."""
    connector: Connector = connect

    def run(self, jobs: Sequence[Job], work: Work) -> tuple[DeviceReport, ...]:
        """A report per job, in order."""
        return run_fleet(jobs, work, self.concurrency, self.progress)


_ALONE: Final = Fleet()


def diff(plan: Plan, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE) -> FleetReport:
    """What a push would change; sends nothing.

    Raises what `prepare` raises; a device's failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    return FleetReport(fleet.run(jobs, Diff(fleet.connector)), warnings)


def verify(
    plan: Plan, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """Compare what the devices run with the plan, value by value; sends nothing.

    Where every value is the plan's and a push would still send something or be refused, that is a difference.
    Raises what `prepare` raises; a device's failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    return FleetReport(fleet.run(jobs, Verify(fleet.connector)), warnings)


@dataclass(frozen=True, slots=True)
class Rollout:
    """In which order a push takes the devices, and when it stops, in Ansible's words."""

    serial: str = "100%"
    """Sizes of the waves, in devices or per cent of all of them: `1,10%,50%`; the last one repeats."""
    max_fail_percentage: float = 0.0
    """Of a wave's devices; where more fail, no further wave begins."""
    atomic: bool = False
    """One failure takes all devices back, and none is saved before all of them run the plan."""

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


_AT_ONCE: Final = Rollout()


def push(
    plan: Plan,
    inventory: Inventory,
    *,
    limit: str | None = None,
    accept: bool = False,
    rollout: Rollout = _AT_ONCE,
    fleet: Fleet = _ALONE,
) -> FleetReport:
    """Make the devices run the plan: change, read back, compare, and only then save.

    Nothing is sent to any device before the plan was rendered for all of them, nor, unless `accept` is true,
    where one of them cannot rewrite code points that its ports may not use. A device that fails is taken back
    to what it ran before; one that already runs the plan is only told to save it. Where an earlier change is
    unfinished, this one takes it over. Every step is in the journal before it is begun. Raises what `prepare`
    raises, and MachineError where the journal cannot be written; a device's failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    if not accept:
        _check_leaks(jobs)
    waves = rollout.waves(jobs)
    with working("push", _addresses(jobs)) as work:
        earlier = journals.open_changes(work.devices, journals.changes())
        journal = journals.begin(work, plan, inventory.sources, **asdict(rollout))
        transaction = Transaction(fleet.connector, journal, not rollout.atomic, earlier)
        reports = _in_waves(transaction, waves, rollout, fleet)
        _drop(journal, reports)
    return FleetReport(reports, warnings, journal.identifier)


def _in_waves(
    transaction: Transaction, waves: Sequence[Sequence[Job]], rollout: Rollout, fleet: Fleet
) -> tuple[DeviceReport, ...]:
    reports: list[DeviceReport] = []
    jobs = [job for wave in waves for job in wave]
    for wave in waves:
        reports += fleet.run(wave, transaction.forward)
        if rollout.is_failure(reports[-len(wave) :]):
            break
    else:
        return _saved(transaction, jobs, reports, fleet) if rollout.atomic else tuple(reports)
    if rollout.atomic:
        reports = [*_taken_back(transaction, jobs[: len(reports)], reports, fleet)]
    untouched = (failed(job, "", 0.0) for job in jobs[len(reports) :])
    return (*reports, *(replace(report, status=Status.NOT_BEGUN) for report in untouched))


def _saved(
    transaction: Transaction, jobs: Sequence[Job], reports: Sequence[DeviceReport], fleet: Fleet
) -> tuple[DeviceReport, ...]:
    """Every device runs the plan: save them all, or take all back where one of them does not save it."""
    waiting = [job for job in jobs if transaction.journal.state(job.device.name) in OPEN]
    ends = {end.device: end for end in run_fleet(waiting, transaction.confirm, fleet.concurrency, None)}
    saved = tuple(_ended(report, ends.get(report.device)) for report in reports)
    if any(end.status is Status.FAILED for end in ends.values()):
        return _taken_back(transaction, jobs, saved, fleet)
    return saved


def _taken_back(
    transaction: Transaction, jobs: Sequence[Job], reports: Sequence[DeviceReport], fleet: Fleet
) -> tuple[DeviceReport, ...]:
    """One device failed: take all that were changed back."""
    changed = [job for job in jobs if transaction.journal.state(job.device.name) in UNDOABLE]
    ends = {end.device: end for end in run_fleet(changed, transaction.back, fleet.concurrency, None)}
    return tuple(_ended(report, ends.get(report.device)) for report in reports)


def _ended(report: DeviceReport, end: DeviceReport | None) -> DeviceReport:
    if end is None:
        return report
    seconds = report.seconds + end.seconds
    if report.status is Status.FAILED:
        then = f"Then: {end.error}" if end.error else "It runs again what it ran before"
        return replace(report, error=f"{report.error}. {then}", seconds=seconds)
    return replace(report, status=end.status, error=end.error, seconds=seconds)


def _drop(journal: Journal, reports: Iterable[DeviceReport]) -> None:
    for report in reports:
        if report.status is Status.NOT_BEGUN:
            journal.record(report.device, State.DROPPED, "an earlier wave failed")


def _check_leaks(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.quantised.leak:
            raise UnsupportedPlanError(
                job.quantised.leak,
                where=job.device.name,
                hint="`--accept` pushes all the same; `mltswitch plan` lists all such ports",
            )


def status(
    journal: Journal, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """What the devices of a change run now, by their own answers; sends nothing."""
    jobs, warnings = _jobs(journal, inventory, limit, set(State))
    work = partial(where_it_stands, fleet.connector, journal)
    return FleetReport(fleet.run(jobs, work), warnings, journal.identifier)


def resume(
    journal: Journal, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """Finish a change: back where it went back, forward where it went forward, in the waves of the push.

    A device on which nothing was begun and a later change has worked is left alone. Raises UserInputError
    where some devices of an atomic change went back, for then the others have to.
    """
    unfinished = {*OPEN, State.PLANNED}
    jobs, warnings = _jobs(journal, inventory, limit, unfinished)
    with working(f"resume {journal.identifier}", _addresses(jobs)) as own:
        journal = journals.change(journal.identifier)  # as it is now that nobody else writes it
        header = journal.header
        _drop_overtaken(journal, own.devices)
        rollout = Rollout(header.serial, header.max_fail_percentage, header.atomic)
        transaction = Transaction(fleet.connector, journal, not header.atomic)
        goes_back = [job for job in jobs if journal.state(job.device.name) is State.ROLLING_BACK]
        forward = [
            job for job in jobs if job not in goes_back and journal.state(job.device.name) in unfinished
        ]
        if header.atomic and forward and _GOES_BACK & set(journal.last.values()):
            raise UserInputError(
                "devices of it went back, and it is atomic",
                where=f"change {journal.identifier}",
                hint=f"`mltswitch rollback {journal.identifier}` takes the others back, too",
            )
        reports = fleet.run(goes_back, transaction.back)
        reports += _in_waves(transaction, rollout.waves(forward), rollout, fleet)
    return FleetReport(reports, warnings, journal.identifier)


def _drop_overtaken(journal: Journal, addresses: Mapping[str, str]) -> None:
    """What a later change has reached is not for this one to begin."""
    later = [each for each in journals.changes() if each.identifier > journal.identifier]
    for name, address in addresses.items():
        touched = any(
            each.header.work.devices.get(name) == address
            and each.last[name] not in {State.PLANNED, State.DROPPED}
            for each in later
        )
        if touched and journal.state(name) is State.PLANNED:
            journal.record(name, State.DROPPED, "a later change has worked on it")


def rollback(
    journal: Journal, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """Take the devices of a change back to what they ran before it.

    Later changes of a device are taken back before it, the latest first: they began from what this one left.
    """
    jobs, warnings = _jobs(journal, inventory, limit, UNDOABLE)
    with working(f"rollback {journal.identifier}", _addresses(jobs)) as own:
        undone: dict[str, list[tuple[Journal, Job]]] = {}
        for each in journals.changes():
            there = each.header.work.devices
            is_this = each.identifier == journal.identifier
            concerned = [
                name
                for name, address in own.devices.items()
                if each.last.get(name) in UNDOABLE and (is_this or there[name] == address)
            ]
            if each.identifier >= journal.identifier and concerned:
                for job in prepare(each.plan(), inventory, ",".join(concerned))[0]:
                    undone.setdefault(job.device.name, []).append((each, job))

        def work(job: Job) -> DeviceReport:
            reports = [Transaction(fleet.connector, each).back(own) for each, own in undone[job.device.name]]
            change = "".join(report.change for report in reports)
            return replace(reports[-1], change=change, seconds=sum(report.seconds for report in reports))

        concerned_jobs = [job for job in jobs if job.device.name in undone]
        return FleetReport(fleet.run(concerned_jobs, work), warnings, journal.identifier)


def abandon(journal: Journal, limit: str | None = None) -> None:
    """Record that nobody will finish the change on these devices, and look at none of them.

    `limit` selects from the change's own names: a device that is gone is in no inventory.
    """
    addresses = journal.header.work.devices
    chosen = addresses.keys() if limit is None else matching(limit, dict.fromkeys(addresses, ()))
    names = {name: address for name, address in addresses.items() if name in chosen}
    with working(f"abandon {journal.identifier}", names):
        journal = journals.change(journal.identifier)
        for name in names:
            if journal.state(name) in OPEN:
                journal.record(name, State.ABANDONED)


def _addresses(jobs: Iterable[Job]) -> dict[str, str]:
    """What a process has to itself: several P4Runtime devices may stand behind one address."""
    devices = (job.device for job in jobs)
    return {device.name: f"{device.endpoint} {device.device_id}" for device in devices}


def _jobs(
    journal: Journal, inventory: Inventory, limit: str | None, states: Collection[State]
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The change's devices that stand in one of these states; raises UserInputError where none does."""
    selected = {device.name for device in inventory.select(limit)}
    gone = [name for name in journal.last if name not in {device.name for device in inventory.devices}]
    if gone and limit is None:
        raise UserInputError(
            f"device {gone[0]} of change {journal.identifier} is not in it",
            where=str(inventory.path),
            hint="`--limit` leaves it out; where it is no more, `mltswitch rollback --abandon` closes it",
        )
    names = [name for name, state in journal.last.items() if name in selected and state in states]
    if not names:
        raise UserInputError(
            "there is nothing to do: " + counted(journal.last.values()), where=f"change {journal.identifier}"
        )
    return prepare(journal.plan(), inventory, ",".join(names))
