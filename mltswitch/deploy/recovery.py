"""After a push: what its devices run, and how a change is finished, kept or taken back."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from mltswitch.deploy import journal as journals
from mltswitch.deploy.comparison import all_differences, reached, read, report, rollback_change
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.fleet_change import FleetChange, all_go_back, has_failed
from mltswitch.deploy.journal import GOES_BACK, GOES_FORWARD, OPEN, UNDOABLE, Journal, State, counted
from mltswitch.deploy.occupation import occupant
from mltswitch.deploy.ownership import left_behind, undoings
from mltswitch.deploy.prepare import Job, addresses, prepare
from mltswitch.deploy.results import DeviceReport, FleetReport, Status
from mltswitch.deploy.session import Connector
from mltswitch.deploy.state_directory import Work, state_directory, working
from mltswitch.deploy.transaction import Transaction, undo
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Device, Inventory
from mltswitch.inventory.patterns import matching
from mltswitch.targets import Lossless

_WENT_BACK: Final = GOES_BACK | {State.ROLLED_BACK, State.DROPPED}
"""What a device of an atomic change never comes to alone."""
_UNDONE: Final = frozenset({State.ROLLED_BACK, State.UNCHANGED, State.DROPPED})
_CONTRADICTIONS: Final = frozenset({(State.ROLLED_BACK, False, False), (State.CONFIRMED, True, True)})
"""State on record, whether the device differs from the plan, whether it runs what ran before."""
_BEGUN: Final = frozenset(State) - {State.PLANNED, State.DROPPED}
_DONE: Final = frozenset({State.CONFIRMED, State.UNCHANGED})
_ALONE: Final = Fleet()


def status(
    journal: Journal, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """Report what the devices of a change run now, by their own answers; sends nothing that changes them."""
    jobs, warnings = _jobs(journal, inventory, limit, set(State))
    overtaken = _overtaken(journal, (job.device for job in jobs))
    work = partial(_where_it_stands, fleet.session, journal, overtaken)
    return FleetReport(fleet.run(jobs, work), warnings, journal.identifier)


def _where_it_stands(
    connector: Connector, journal: Journal, overtaken: Collection[str], job: Job
) -> DeviceReport:
    """What a device of a change runs now, by its own answers: the plan, what it ran before, or neither.

    Where it may still be at work, or somebody else works on it, that is not certain. A record that a later
    change has `overtaken` cannot be contradicted.
    """
    started, name = time.monotonic(), job.device.name
    with reached(connector, job) as session:
        running = read(session, job)
        others = occupant(session, job)
    left = all_differences(job, running)
    state, notes = journal.state(name), running.notes
    is_old = state in {State.PLANNED, State.DROPPED} and bool(left)
    if (left or state is State.ROLLED_BACK) and not is_old and journal.has_backup(name):
        try:
            is_old = rollback_change(job, journal.backup(name).answers, running).is_empty
        except DeviceError as error:
            notes = (*notes, str(error))
    status = Status.RUNS_NEW if not left else Status.RUNS_OLD if is_old else Status.DIFFERS
    if name not in overtaken and (state, bool(left), is_old) in _CONTRADICTIONS:
        told = f"somebody has changed it: the record says {state}, and it {status.replace('-', ' ')}"
        notes = (*notes, told)
        status = Status.CONTRADICTS
    if state is State.UNCERTAIN or others:
        not_idle = f"it was not idle when it was left: `mltswitch resume {journal.identifier}` finishes it"
        status, notes = Status.UNCERTAIN, (*notes, others or not_idle)
    return report(job, status, started, differences=left, notes=notes)


def resume(
    journal: Journal,
    inventory: Inventory,
    *,
    limit: str | None = None,
    may_go_down: Mapping[str, Collection[str]] | None = None,
    may_lose: Mapping[str, Collection[Lossless]] | None = None,
    fleet: Fleet = _ALONE,
) -> FleetReport:
    """Finish a change: roll back devices that were going back, push the others, in the waves of the push.

    Nothing is pushed to a device whose ports would go down that are not in `may_go_down`, or whose
    running lossless classes would lose what is not in `may_lose` (None: all may, of both). A device on
    which nothing was begun and a later change has worked is left alone; one on which something was begun
    raises UserInputError then. So do devices of an atomic change of which others failed or went back, for
    then these have to.
    """
    jobs, warnings = _jobs(journal, inventory, limit, {*OPEN, State.PLANNED}, set(State))
    if not jobs:
        return FleetReport((), warnings, journal.identifier)
    saved = _saved_before(journal, inventory)
    with _alone("resume", journal, (*jobs, *saved)):
        journal = journals.change(journal.identifier)
        _drop_overtaken(journal, (*jobs, *saved))
        rollout, states = journal.header.rollout, journal.last
        planned = [job.device for job in jobs if states[job.device.name] is State.PLANNED]
        left = left_behind(journal.plan(), planned, inventory)
        goes_back = [job for job in jobs if states[job.device.name] in GOES_BACK]
        forward = [job for job in jobs if states[job.device.name] in GOES_FORWARD]
        if rollout.atomic and forward and _WENT_BACK & set(states.values()):
            raise UserInputError(
                "devices of it failed or went back, and it is atomic",
                where=f"change {journal.identifier}",
                hint=f"`mltswitch rollback {journal.identifier}` takes the others back, too",
            )
        change = FleetChange.going_forward(fleet, journal, (*jobs, *saved), left, may_go_down, may_lose)
        reports = change.run(goes_back, Transaction.back)
        reports += change.in_waves(forward)
        reports += _with_the_others(change, saved, reports)
    return FleetReport(reports, warnings, journal.identifier)


def _alone(verb: str, journal: Journal, jobs: Iterable[Job]) -> AbstractContextManager[Work]:
    """Have the devices to oneself; the change is to be read once more then, for nobody else writes it."""
    return working(f"{verb} {journal.identifier}", addresses(job.device for job in jobs))


def _drop_overtaken(journal: Journal, jobs: Iterable[Job]) -> None:
    """What a later change has reached is not for this one to begin."""
    for name in _overtaken(journal, (job.device for job in jobs)):
        if journal.state(name) in OPEN:
            raise UserInputError(
                "a later change has worked on it",
                where=f"change {journal.identifier}: {name}",
                hint=f"`mltswitch rollback {journal.identifier}` takes both back; `--limit` leaves it out",
            )
        if journal.state(name) is State.PLANNED:
            journal.record(name, State.DROPPED, "a later change has worked on it")


def _overtaken(journal: Journal, devices: Iterable[Device]) -> Collection[str]:
    """Those on which a later change has done something."""
    return journals.open_changes(addresses(devices), journals.after(journal), _BEGUN)


def _saved_before(journal: Journal, inventory: Inventory) -> tuple[Job, ...]:
    """Devices of an atomic change that are saved already, and go back where another one fails."""
    if not journal.header.atomic:
        return ()
    saved = [each for each in inventory.devices if journal.last.get(each.name) is State.CONFIRMED]
    overtaken = _overtaken(journal, saved)
    names = [device.name for device in saved if device.name not in overtaken]
    return prepare(journal.plan(), inventory, ",".join(names))[0] if names else ()


def _with_the_others(
    change: FleetChange, saved: Sequence[Job], reports: Sequence[DeviceReport]
) -> tuple[DeviceReport, ...]:
    if not has_failed(reports):
        return ()
    left = [job for job in saved if change.journal.state(job.device.name) is State.CONFIRMED]
    all_go_back(change.journal, left)
    return change.run(left, Transaction.back)


def rollback(
    journal: Journal, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """Roll the devices of a change back to what they ran before it.

    Later changes of a device are rolled back before it, the latest first: they began from what this one left.
    """
    jobs, warnings = _jobs(journal, inventory, limit, UNDOABLE, _UNDONE)
    if not jobs:
        return FleetReport((), warnings, journal.identifier)
    with _alone("rollback", journal, jobs):
        journal = journals.change(journal.identifier)
        devices = addresses(job.device for job in jobs)
        stacks = journals.open_changes(devices, journals.after(journal), UNDOABLE)
        confirmed = {name for name, state in journal.last.items() if state is State.CONFIRMED}
        for job in jobs:  # its own devices may have another address by now
            if journal.state(job.device.name) in UNDOABLE:
                stacks.setdefault(job.device.name, []).append(journal)
                if journal.header.atomic:
                    all_go_back(journal, [job])
        standing = {name for name in confirmed if len(stacks.get(name, ())) == 1}
        reports = _taken_from(stacks, inventory, fleet, standing)
    return FleetReport(reports, warnings, journal.identifier)


def confirm(
    journal: Journal, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """Keep a change that was pushed with a timer: save the devices that run it, each read once more.

    Of an atomic change all devices are saved, or all rolled back, also those that `limit` leaves out. Raises
    UserInputError where one of them was not verified.
    """
    jobs, warnings = _jobs(journal, inventory, limit, OPEN, _DONE)
    if not jobs:
        return FleetReport((), warnings, journal.identifier)
    saved = _saved_before(journal, inventory)
    with _alone("confirm", journal, (*jobs, *saved)):
        journal = journals.change(journal.identifier)
        atomic = journal.header.atomic
        fit = {State.VERIFIED, *(_DONE if atomic else ())}
        for name in journal.last if atomic else [job.device.name for job in jobs]:
            state = journal.state(name)
            if state not in fit:
                raise UserInputError(
                    f"is {state}, so it cannot be confirmed",
                    where=f"change {journal.identifier}: {name}",
                    hint=f"`mltswitch resume {journal.identifier}` or `rollback` finishes it",
                )
        transactions = (Transaction(fleet, journal, job) for job in (*jobs, *saved))
        change = FleetChange(fleet, journal, transactions)
        reports = change.run(jobs, Transaction.confirm)
        if atomic and has_failed(reports):
            reports = change.taken_back(jobs, reports)
            reports += _with_the_others(change, saved, reports)
    return FleetReport(reports, warnings, journal.identifier)


def remove(inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE) -> FleetReport:
    """Roll the devices back to what they ran before the first recorded change, the latest change first.

    Raises UserInputError where no change of any of them is on record.
    """
    devices = inventory.select(limit)
    with working("remove", addresses(devices)):
        past, reached = journals.changes(), addresses(devices)
        stacks = journals.open_changes(reached, past, UNDOABLE)
        elsewhere = tuple(
            f"change {each.identifier} of {name} was made at another address, and stays as it is"
            for each in past
            for name, address in each.header.work.devices.items()
            if each.last[name] in UNDOABLE and reached.get(name, address) != address
        )
        none = [device.name for device in devices if device.name not in stacks]
        if not stacks:
            raise UserInputError(
                f"no change of {', '.join(none)} is on record, or all were taken back",
                where=str(state_directory()),
                hint="the record is with the user and on the machine that pushed",
            )
        reports = _taken_from(stacks, inventory, fleet)
    return FleetReport(
        reports, (*(f"there is nothing on record to take {name} back from" for name in none), *elsewhere)
    )


def _taken_from(
    stacks: Mapping[str, Sequence[Journal]],
    inventory: Inventory,
    fleet: Fleet,
    standing: Collection[str] = (),
) -> tuple[DeviceReport, ...]:
    """Take each device back from all of its changes; `standing`: where the latest was in effect."""
    found = undoings(stacks, inventory)
    jobs = [undoing[0][1] for undoing in found.values()]
    return fleet.run(jobs, lambda job: undo(fleet, found[job.device.name], standing))


def abandon(journal: Journal, limit: str | None = None) -> None:
    """Record that nobody will finish the change on these devices; none of them is contacted.

    `limit` selects from the change's own names: a device that is gone is in no inventory.
    """
    on_record = journal.header.work.devices
    chosen = on_record.keys() if limit is None else matching(limit, dict.fromkeys(on_record, ()))
    names = {name: address for name, address in on_record.items() if name in chosen}
    with working(f"abandon {journal.identifier}", names):
        journal = journals.change(journal.identifier)
        for name in names:
            if journal.state(name) in OPEN:
                journal.record(name, State.ABANDONED)


def _jobs(
    journal: Journal,
    inventory: Inventory,
    limit: str | None,
    states: Collection[State],
    settled: Collection[State] = (),
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The change's devices that stand in one of these states.

    None where all that are selected are `settled` already; else raises UserInputError where none does.
    """
    selected = {device.name for device in inventory.select(limit, journal.last)}
    gone = [name for name in journal.last if name not in {device.name for device in inventory.devices}]
    if gone and limit is None:
        raise UserInputError(
            f"device {gone[0]} of change {journal.identifier} is not in it",
            where=str(inventory.path),
            hint="`--limit` leaves it out; where it is no more, `mltswitch rollback --abandon` closes it",
        )
    chosen = {name: state for name, state in journal.last.items() if name in selected}
    names = [name for name, state in chosen.items() if state in states]
    if chosen and not names and settled and set(settled).issuperset(chosen.values()):
        return (), ()
    if not names:
        raise UserInputError(
            "there is nothing to do: " + counted(journal.last.values()), where=f"change {journal.identifier}"
        )
    return prepare(journal.plan(), inventory, ",".join(names))
