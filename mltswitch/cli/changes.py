"""`mltswitch history`, `show`, `status`, `resume`, `confirm`, `rollback`, `remove`: what pushes did."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from mltswitch import deploy
from mltswitch.cli.deploy import (
    Bar,
    accept_option,
    agreed_losses,
    agreed_ports,
    concurrency_option,
    print_report,
    yes_option,
)
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.cli.render import inventory_options, opened
from mltswitch.deploy import Fleet, FleetReport, Journal, Question
from mltswitch.deploy.journal import GOES_FORWARD, counted
from mltswitch.errors import printable
from mltswitch.inventory import Inventory, load_inventory

Command = TypeVar("Command", bound=Callable[..., Any])
_Operation = Callable[..., FleetReport]
"""Of `mltswitch.deploy`, asked by journal, inventory, limit and fleet."""


def _arguments(command: Command) -> Command:
    for decorate in (
        json_option,
        concurrency_option,
        click.option("--limit", help="Devices or groups of the change, by Ansible's patterns."),
        click.option(
            "-i",
            "--inventory",
            "inventory_paths",
            multiple=True,
            type=click.Path(path_type=Path),
            help="In place of the inventory of the push.",
        ),
        click.argument("identifier", required=False, metavar="[CHANGE]"),
    ):
        command = decorate(command)
    return command


@click.command(epilog="\b\nExample:\n  mltswitch history --json")
@json_option
def history(as_json: bool) -> None:
    """List the changes that pushes from this machine made, the latest first."""
    journals = deploy.changes()
    if as_json:
        print_json([_summary(journal) for journal in journals])
        return
    rows = [
        (
            journal.identifier,
            journal.header.work.user,
            len(journal.header.devices),
            counted(journal.last.values()),
        )
        for journal in journals
    ]
    console().print(table("Changes", ("change", "by", "devices #", "how they stand"), rows))


@click.command(epilog="\b\nExample:\n  mltswitch show 20261126-120501 --limit leaf1")
@click.argument("identifier", required=False, metavar="[CHANGE]")
@click.option("--limit", "device", help="One device: what was sent to it, too.")
@json_option
def show(identifier: str | None, device: str | None, as_json: bool) -> None:
    """Show what became of CHANGE, step by step; the latest, where none is named."""
    journal = deploy.change(identifier)
    entries = [entry for entry in journal.entries if device in (None, entry.device)]
    sent = journal.backup(device).change if device and journal.has_backup(device) else ""
    if as_json:
        print_json({**_summary(journal), "entries": entries, "sent": sent})
        return
    click.echo(f"change {journal.identifier}: {counted(journal.last.values())}")
    click.echo(f"  by {journal.header.work}, plan {journal.folder / 'plan.json'}")
    for entry in entries:
        note = f": {printable(entry.note)}" if entry.note else ""
        click.echo(f"  {entry.at} {entry.device} {entry.state}{note}")
    for line in sent.splitlines():
        click.echo(f"    {printable(line)}")


@click.command(epilog="\b\nExample:\n  mltswitch status")
@_arguments
def status(
    identifier: str | None,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    concurrency: int,
    as_json: bool,
) -> int:
    """Ask the switches of CHANGE what they run: the plan, what ran before, or neither. Sends nothing."""
    return _carried_out("looking", deploy.status, identifier, inventory_paths, limit, concurrency, as_json)


@click.command(epilog="\b\nExample:\n  mltswitch resume 20261126-120501 --limit 'leaf*'")
@_arguments
@yes_option
@accept_option
def resume(
    identifier: str | None,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    concurrency: int,
    as_json: bool,
    yes: bool,
    accept: tuple[Question, ...],
) -> int:
    """Finish CHANGE where it broke off: forward where it went forward, back where it went back."""
    may_lose = Question.LOSSLESS in accept
    report = None if yes and may_lose else _ahead(*_opened(identifier, inventory_paths), limit, concurrency)
    operation = partial(
        deploy.resume,
        may_go_down=None if yes or report is None else agreed_ports(report, "Resume"),
        may_lose=None if may_lose or report is None else agreed_losses(report, "Resume"),
    )
    return _carried_out("resuming", operation, identifier, inventory_paths, limit, concurrency, as_json)


def _ahead(journal: Journal, inventory: Inventory, limit: str | None, concurrency: int) -> FleetReport:
    """What finishing a change would do, to be asked about; a change that goes back asks nothing."""
    devices = [each.name for each in inventory.select(limit) if journal.last.get(each.name) in GOES_FORWARD]
    if not devices:
        return FleetReport(())
    with Bar("comparing", len(devices), concurrency) as bar:
        return deploy.diff(journal.plan(), inventory, limit=",".join(devices), fleet=bar.fleet)


@click.command(epilog="\b\nExample:\n  mltswitch rollback 20261126-120501 --limit leaf1")
@_arguments
@click.option(
    "--abandon", is_flag=True, help="Ask no switch: only record that nobody will finish the change."
)
def rollback(
    identifier: str | None,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    concurrency: int,
    as_json: bool,
    abandon: bool,
) -> int:
    """Take the switches of CHANGE back to what they ran before it, and before all later changes of theirs."""

    def undo(journal: Journal, inventory: Inventory, *, limit: str | None, fleet: Fleet) -> FleetReport:
        if abandon:
            deploy.abandon(journal, limit)
            return FleetReport((), change=journal.identifier)
        return deploy.rollback(journal, inventory, limit=limit, fleet=fleet)

    return _carried_out("rolling back", undo, identifier, inventory_paths, limit, concurrency, as_json)


@click.command(epilog="\b\nExample:\n  mltswitch confirm 20261126-120501")
@_arguments
def confirm(
    identifier: str | None,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    concurrency: int,
    as_json: bool,
) -> int:
    """Keep CHANGE, which was pushed with --confirm: save the switches that still run it."""
    return _carried_out(
        "confirming", deploy.confirm, identifier, inventory_paths, limit, concurrency, as_json
    )


@click.command(epilog="\b\nExample:\n  mltswitch remove -i inventories/rack --limit leaf1")
@json_option
@concurrency_option
@inventory_options
def remove(
    inventory_paths: tuple[Path, ...], limit: str | None, strict: bool, concurrency: int, as_json: bool
) -> int:
    """Take everything of ours off the switches: back to what they ran before the first push on record."""
    inventory = opened(inventory_paths, limit, strict)
    with Bar("removing", len(inventory.select(limit)), concurrency, finishes=True) as bar:
        report = deploy.remove(inventory, limit=limit, fleet=bar.fleet)
    return bar.exit_code(print_report(report, as_json, with_changes=False, untested={}))


def _carried_out(
    title: str,
    operation: _Operation,
    identifier: str | None,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    concurrency: int,
    as_json: bool,
) -> int:
    journal, inventory = _opened(identifier, inventory_paths)
    with Bar(title, len(journal.header.devices), concurrency, finishes=title != "looking") as bar:
        report = operation(journal, inventory, limit=limit, fleet=bar.fleet)
    code = bar.exit_code(print_report(report, as_json, with_changes=False, untested={}))
    journal = deploy.change(journal.identifier)
    if not as_json:
        click.echo(f"change {journal.identifier}: {counted(journal.last.values())}")
    return code


def _opened(identifier: str | None, inventory_paths: tuple[Path, ...]) -> tuple[Journal, Inventory]:
    journal = deploy.change(identifier)
    return journal, load_inventory(*(inventory_paths or journal.header.inventory_paths))


def _summary(journal: Journal) -> dict[str, Any]:
    return {
        "change": journal.identifier,
        "work": journal.header.work,
        "inventories": journal.header.inventory_paths,
        "devices": journal.last,
    }
