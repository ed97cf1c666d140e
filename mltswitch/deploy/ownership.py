"""Finds in the journal what earlier changes left on a device outside a plan, and how to undo it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from mltswitch.deploy import journal as journals
from mltswitch.deploy.journal import UNDOABLE, Journal, State, open_changes
from mltswitch.deploy.prepare import Job, addresses, prepare
from mltswitch.deploy.results import PUSH, DeviceDifference
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Device, Inventory
from mltswitch.plan import Plan

Undoing = Sequence[tuple[Journal, Job]]
"""Changes of one device to undo, the latest first, each with the job that it was to carry out there."""


def pushed(journal: Journal, job: Job) -> Job:
    """The job that this change was to carry out on the same device."""
    return replace(job, fitted=job.target.fit_to_hardware(journal.plan(), job.device.switch))


def inherited(earlier: Journal, job: Job) -> dict[str, str]:
    """The device's answers from before an unfinished change that this job takes over; raises DeviceError.

    The job must concern all ports and routes that the earlier change did: else a part of it would never be
    finished.
    """
    answers = earlier.backup(job.device.name).answers
    old, new = pushed(earlier, job).fitted.state, job.fitted.state
    is_covered = (
        answers.keys() >= set(job.target.queries(new))
        and {port.name for port in old.ports} <= {port.name for port in new.ports}
        and {route.prefix for route in old.routes} <= {route.prefix for route in new.routes}
    )
    if not is_covered:
        raise DeviceError(
            f"change {earlier.identifier} is unfinished on it, and this plan concerns other ports or routes",
            hint=f"finish it first: `mltswitch resume {earlier.identifier}`, or `rollback` in its place",
        )
    return answers


def undoings(stacks: Mapping[str, Sequence[Journal]], inventory: Inventory) -> dict[str, Undoing]:
    """Device → each of its changes with the job that it was to carry out there, the latest first."""
    concerned: dict[str, tuple[Journal, list[str]]] = {}
    for name, stack in stacks.items():
        for each in stack:
            concerned.setdefault(each.identifier, (each, []))[1].append(name)
    found: dict[str, list[tuple[Journal, Job]]] = {}
    for _, (journal, names) in sorted(concerned.items(), reverse=True):
        for job in prepare(journal.plan(), inventory, ",".join(names))[0]:
            found.setdefault(job.device.name, []).append((journal, job))
    return dict(found)


def left_behind(plan: Plan, devices: Iterable[Device], inventory: Inventory) -> dict[str, Undoing]:
    """Device → its changes back to the oldest one that concerns ports which the plan does not have.

    A device with an unfinished one is left out: a push takes that over, or refuses to. A plan on record
    that this version does not read any more is passed over: an old record must not stop a push for ever.
    """
    by_name = {device.name: device for device in devices}
    plans: dict[str, Plan] = {}
    stacks: dict[str, Sequence[Journal]] = {}
    for name, stack in open_changes(addresses(by_name.values()), journals.changes(), UNDOABLE).items():
        switch, depth = by_name[name].switch, 0
        for place, each in enumerate(stack, start=1):
            digest = each.header.plan_sha256
            if digest not in plans:
                with suppress(UserInputError):
                    plans[digest] = each.plan()
            if not _ports(plan, switch) >= _ports(plans.get(digest), switch):
                depth = place
        if depth and all(each.state(name) is State.CONFIRMED for each in stack[:depth]):
            stacks[name] = stack[:depth]
    return undoings(stacks, inventory)


def _ports(plan: Plan | None, switch: str) -> set[str]:
    found = None if plan is None else plan.topology.by_name.get(switch)
    return set() if found is None else {port.name for port in found.ports}


def strays(
    plan: Plan, devices: Iterable[Device], inventory: Inventory
) -> dict[str, tuple[DeviceDifference, ...]]:
    """Device → differences for ports that an earlier change still configures and the plan no longer has."""
    found: dict[str, tuple[DeviceDifference, ...]] = {}
    for name, undoing in left_behind(plan, devices, inventory).items():
        own = _ports(plan, undoing[0][1].device.switch)
        changes = {
            port.name: journal.identifier for journal, job in undoing for port in job.fitted.state.ports
        }
        found[name] = tuple(
            DeviceDifference(name, port, None, None, PUSH, "nothing of ours", f"that of change {change}")
            for port, change in changes.items()
            if port not in own
        )
    return found
