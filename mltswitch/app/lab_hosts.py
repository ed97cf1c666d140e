"""The hosts that a lab beside an inventory has, and what the switches count of the packets that they send."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from mltswitch.deploy import FleetReport, Status
from mltswitch.errors import UserInputError
from mltswitch.inventory import Inventory
from mltswitch.lab import Lab
from mltswitch.measure import TestHost
from mltswitch.measure.queue_check import check_queues
from mltswitch.plan import Plan

STATE_FOLDER: Final = ".lab"
"""Name of the lab's folder below the inventory, to whose keys its group variables point."""


def lab_of(inventory_path: Path) -> Lab:
    """The lab of an inventory's folder."""
    return Lab(inventory_path / STATE_FOLDER)


def lab_host(lab: Lab, name: str) -> TestHost:
    """A host of the lab, which runs commands in its namespace; raises UserInputError for any other."""
    return TestHost(name, tuple(lab.host_namespace(name).command(())))


def lab_hosts(plan: Plan, inventory_paths: Iterable[Path]) -> dict[str, TestHost]:
    """Name of a plan's host → the lab's host; raises MachineError where no lab is up."""
    folders = [path if path.is_dir() else path.parent for path in inventory_paths]
    lab = lab_of(next((each for each in folders if (each / STATE_FOLDER).is_dir()), folders[0]))
    found = {}
    for host in plan.topology.hosts:
        with suppress(UserInputError):  # a host on paper alone
            found[host.name] = lab_host(lab, host.name)
    return found


def with_traffic(
    report: FleetReport, plan: Plan, inventory: Inventory, limit: str | None, hosts: Mapping[str, TestHost]
) -> FleetReport:
    """The report, with differences where switches counted the lab hosts' packets in wrong queues."""
    if report.with_status(Status.FAILED):
        return replace(report, warnings=(*report.warnings, "no packets were sent, since a switch failed"))
    found, notes = check_queues(plan, inventory, hosts, limit=limit)
    devices = tuple(
        replace(each, status=Status.DIFFERS, differences=(*each.differences, *found[each.device]))
        if each.device in found
        else each
        for each in report.devices
    )
    return replace(report, devices=devices, warnings=(*report.warnings, *notes))
