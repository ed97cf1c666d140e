"""Compares a whole inventory with a plan, and pushes the plan to it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from mltswitch.deploy import journal as journals
from mltswitch.deploy.comparison import Comparison
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.fleet_change import FleetChange
from mltswitch.deploy.journal import Journal, State
from mltswitch.deploy.ownership import Undoing, left_behind, strays
from mltswitch.deploy.prepare import Job, addresses, prepare
from mltswitch.deploy.results import DeviceReport, FleetReport, Question, Status
from mltswitch.deploy.rollout import Rollout
from mltswitch.deploy.state_directory import working
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan
from mltswitch.targets import Lossless

_ALONE: Final = Fleet()
_AT_ONCE: Final = Rollout()


def diff(plan: Plan, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE) -> FleetReport:
    """Report what a push would change; sends nothing that changes a device.

    Raises what `prepare` raises; a device's failure is reported.
    """
    return _compared(Comparison.diff, plan, inventory, limit, fleet)


def verify(
    plan: Plan, inventory: Inventory, *, limit: str | None = None, fleet: Fleet = _ALONE
) -> FleetReport:
    """Compare what the devices run with the plan, value by value; sends nothing.

    Where every value is the plan's and a push would still send something or be refused, that is a difference.
    Raises what `prepare` raises; a device's failure is reported.
    """
    return _compared(Comparison.verify, plan, inventory, limit, fleet)


def _compared(
    how: Callable[[Comparison, Job], DeviceReport],
    plan: Plan,
    inventory: Inventory,
    limit: str | None,
    fleet: Fleet,
) -> FleetReport:
    jobs, warnings = prepare(plan, inventory, limit)
    comparison = Comparison(fleet.session, strays(plan, (job.device for job in jobs), inventory))
    return FleetReport(fleet.run(jobs, partial(how, comparison)), warnings)


def leaks(plan: Plan, inventory: Inventory, *, limit: str | None = None) -> dict[str, str]:
    """Device → which code points pass there that its ports may not use, found from the plan alone.

    Raises what `prepare` raises.
    """
    jobs, _ = prepare(plan, inventory, limit)
    return {job.device.name: job.fitted.leak for job in jobs if job.fitted.leak}


def push(
    plan: Plan,
    inventory: Inventory,
    *,
    limit: str | None = None,
    accept: bool | Collection[Question] = (),
    may_go_down: Mapping[str, Collection[str]] | None = None,
    may_lose: Mapping[str, Collection[Lossless]] | None = None,
    rollout: Rollout = _AT_ONCE,
    fleet: Fleet = _ALONE,
) -> FleetReport:
    """Make the devices run the plan: change, read back, compare, and only then save.

    Nothing is sent to any device before the plan was rendered for all of them, nor, unless `accept` has LEAK,
    where one of them cannot rewrite code points that its ports may not use. A device that fails is rolled
    back to what it ran before. Nothing is sent to one that runs what no line of a push removes, whose ports
    would go down that are not in `may_go_down`, or, unless `accept` has LOSSLESS, whose running lossless
    classes would lose what is not in `may_lose`. One that already runs it is only told to save it. Where an
    earlier change is unfinished, this one takes it over; where one concerns ports that this one does not, it
    is rolled back first. Every step is in the journal before it is begun. `accept=True` stands for all
    questions. Raises what `prepare` raises, and MachineError where the journal cannot be written; a device's
    failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    if isinstance(accept, bool):
        accept = tuple(Question) if accept else ()
    if Question.LEAK not in accept:
        _check_leaks(jobs)
    rollout.waves(jobs)  # raises where its sizes are none
    with working("push", addresses(job.device for job in jobs)) as work:
        left = left_behind(plan, (job.device for job in jobs), inventory)
        _check_rollout(rollout, jobs, journals.open_changes(work.devices, journals.changes()), left)
        change = FleetChange.going_forward(
            fleet,
            journals.begin(work, plan, inventory.sources, rollout),
            jobs,
            left,
            may_go_down,
            None if Question.LOSSLESS in accept else may_lose or {},
        )
        reports = change.in_waves(jobs)
        if not fleet.is_late:  # else `resume` begins with those that were not begun
            _drop(change.journal, reports)
    return FleetReport(reports, warnings, change.journal.identifier)


def _check_rollout(
    rollout: Rollout,
    jobs: Iterable[Job],
    earlier: Mapping[str, Sequence[Journal]],
    left: Mapping[str, Undoing],
) -> None:
    """Raise UserInputError or UnsupportedPlanError where a device cannot keep what the rollout promises."""
    if left and (rollout.atomic or rollout.confirm_seconds is not None):
        name = next(iter(left))
        change = left[name][-1][0].identifier
        raise UserInputError(
            f"change {change} concerns ports that this plan does not, and has to be taken back first",
            where=name,
            hint=f"`mltswitch rollback {change}`, for a way back from this push would not bring it again",
        )
    if rollout.confirm_seconds is None:
        return
    for job in jobs:
        if job.target.timer is None:
            raise UnsupportedPlanError(
                f"platform {job.device.platform} has no timer that takes a change back, and runs no job of "
                "ours",
                where=job.device.name,
                hint="push to it without `--confirm`; `--limit` leaves it out",
            )
        if unfinished := earlier.get(job.device.name):
            raise UserInputError(
                f"change {unfinished[0].identifier} is unfinished, and would not be undone with this one",
                where=job.device.name,
                hint=f"finish it first: `mltswitch resume {unfinished[0].identifier}`, or `rollback`",
            )


def _drop(journal: Journal, reports: Iterable[DeviceReport]) -> None:
    for report in reports:
        if report.status is Status.NOT_BEGUN:
            journal.record(report.device, State.DROPPED, "an earlier wave failed")


def _check_leaks(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.fitted.leak:
            raise UnsupportedPlanError(
                job.fitted.leak,
                where=job.device.name,
                hint="`--accept-leak` pushes all the same; `mltswitch plan` lists all such ports",
            )
