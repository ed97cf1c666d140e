"""`mltswitch history`, `show`, `status`, `resume`, `confirm`, `rollback`, `remove`: what pushes did."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from mltswitch import deploy
from mltswitch.cli.command import JSON, argument, command, flag, option
from mltswitch.cli.deploy import YES, Accepted, agreed_losses, agreed_ports
from mltswitch.cli.fleet import Bar, report_answer
from mltswitch.cli.options import PATH
from mltswitch.cli.output import Answer, table
from mltswitch.cli.switches import CONCURRENCY, Switches
from mltswitch.deploy import Fleet, FleetReport, Journal, Question
from mltswitch.deploy.journal import GOES_FORWARD, counted
from mltswitch.errors import printable
from mltswitch.inventory import Inventory, load_inventory

Operation = Callable[..., FleetReport]
"""A function of `mltswitch.deploy` that takes a journal, an inventory, a limit and a fleet."""
CHANGE: Final[Any] = argument("[CHANGE]", required=False)


@dataclass(frozen=True, slots=True)
class Change:
    """Options of commands that continue or undo a recorded change."""

    identifier: str | None = CHANGE
    inventory_paths: tuple[Path, ...] = option(
        "In place of the inventory of the push.", PATH, "-i", "--inventory", multiple=True
    )
    limit: str | None = option("Devices or groups of the change, by Ansible's patterns.")
    concurrency: int = CONCURRENCY
    as_json: bool = JSON

    def opened(self) -> tuple[Journal, Inventory]:
        """The change's journal, and the inventory of its devices."""
        journal = deploy.change(self.identifier)
        return journal, load_inventory(*(self.inventory_paths or journal.header.inventory_paths))

    def carried_out(self, title: str, operation: Operation) -> Answer:
        """Run the operation on the change, and answer with its report and the change's new state."""
        journal, inventory = self.opened()
        devices = len(journal.header.devices)
        with Bar(title, devices, self.concurrency, finishes=title != "looking") as bar:
            report = operation(journal, inventory, limit=self.limit, fleet=bar.fleet)

        def last() -> Iterator[str]:
            after = deploy.change(journal.identifier)
            yield f"change {after.identifier}: {counted(after.last.values())}"

        return report_answer(report, is_interrupted=bar.is_interrupted, last=last())


@command("mltswitch history --json")
def history() -> Answer:
    """List the changes that pushes from this machine made, the latest first."""
    journals = deploy.changes()
    rows = [
        (each.identifier, each.header.work.user, len(each.header.devices), counted(each.last.values()))
        for each in journals
    ]
    text = table("Changes", "change | by | devices # | how they stand", rows)
    return Answer([_summary(journal) for journal in journals], (text,))


@command("mltswitch show 20261126-120501 --limit leaf1")
def show(
    identifier: str | None = CHANGE,
    device: str | None = option("One device: what was sent to it, too.", None, "--limit"),
) -> Answer:
    """Show what became of CHANGE, step by step; the latest, where none is named."""
    journal = deploy.change(identifier)
    entries = [entry for entry in journal.entries if device in (None, entry.device)]
    sent = journal.backup(device).change if device and journal.has_backup(device) else ""

    def text() -> Iterator[str]:
        yield f"change {journal.identifier}: {counted(journal.last.values())}"
        yield f"  by {journal.header.work}, plan {journal.folder / 'plan.json'}"
        for entry in entries:
            note = f": {printable(entry.note)}" if entry.note else ""
            yield f"  {entry.at} {entry.device} {entry.state}{note}"
        yield from (f"    {printable(line)}" for line in sent.splitlines())

    return Answer({**_summary(journal), "entries": entries, "sent": sent}, text())


@command("mltswitch status")
def status(change: Change) -> Answer:
    """Ask the switches of CHANGE what they run: the plan, what ran before, or neither. Sends nothing."""
    return change.carried_out("looking", deploy.status)


@command("mltswitch resume 20261126-120501 --limit 'leaf*'")
def resume(*, change: Change, yes: bool = YES, accepted: Accepted) -> Answer:
    """Finish CHANGE where it broke off: forward where it went forward, back where it went back."""
    may_lose = Question.LOSSLESS in accepted.questions
    report = None if yes and may_lose else _ahead(change)
    operation = partial(
        deploy.resume,
        may_go_down=None if yes or report is None else agreed_ports(report, "Resume"),
        may_lose=None if may_lose or report is None else agreed_losses(report, "Resume"),
    )
    return change.carried_out("resuming", operation)


def _ahead(change: Change) -> FleetReport:
    """What finishing a change would do, to be asked about; a change that goes back asks nothing."""
    journal, inventory = change.opened()
    chosen = inventory.select(change.limit)
    devices = [each.name for each in chosen if journal.last.get(each.name) in GOES_FORWARD]
    if not devices:
        return FleetReport(())
    with Bar("comparing", len(devices), change.concurrency) as bar:
        return deploy.diff(journal.plan(), inventory, limit=",".join(devices), fleet=bar.fleet)


@command("mltswitch rollback 20261126-120501 --limit leaf1")
def rollback(
    change: Change, abandon: bool = flag("Ask no switch: only record that nobody will finish the change.")
) -> Answer:
    """Take the switches of CHANGE back to what they ran before it, and before all later changes of theirs."""

    def abandoned(journal: Journal, _: Inventory, *, limit: str | None, fleet: Fleet) -> FleetReport:  # noqa: ARG001
        deploy.abandon(journal, limit)
        return FleetReport((), change=journal.identifier)

    return change.carried_out("rolling back", abandoned if abandon else deploy.rollback)


@command("mltswitch confirm 20261126-120501")
def confirm(change: Change) -> Answer:
    """Keep CHANGE, which was pushed with --confirm: save the switches that still run it."""
    return change.carried_out("confirming", deploy.confirm)


@command("mltswitch remove -i inventories/rack --limit leaf1")
def remove(switches: Switches) -> Answer:
    """Take everything of ours off the switches: back to what they ran before the first push on record."""
    inventory, limit = switches.inventory(), switches.limit
    with Bar("removing", len(inventory.select(limit)), switches.concurrency, finishes=True) as bar:
        report = deploy.remove(inventory, limit=limit, fleet=bar.fleet)
    return report_answer(report, is_interrupted=bar.is_interrupted)


def _summary(journal: Journal) -> dict[str, Any]:
    return {
        "change": journal.identifier,
        "work": journal.header.work,
        "inventories": journal.header.inventory_paths,
        "devices": journal.last,
    }
