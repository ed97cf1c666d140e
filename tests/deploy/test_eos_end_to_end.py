"""A real plan, the EOS target and the emulated switch: push twice, and verify after a change by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mltswitch.deploy import Status, change, diff, push, rollback, verify
from mltswitch.errors import DeviceError
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan
from switchsim.eos import EosDevice
from switchsim.faults import DropBeforeLine, Faults, RefuseLine
from tests.deploy.emulated import plan_of, served


@contextmanager
def eos(folder: Path, faults: Faults | None = None) -> Iterator[tuple[EosDevice, Inventory, list[float]]]:
    """An emulated switch, the inventory by which one reaches it, and its clock."""
    clock = [0.0]
    switch = EosDevice(clock=lambda: clock[0])
    with served(folder, "eos", switch, faults) as rack:
        yield switch, rack, clock


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of("eos")


def test_the_timer_of_a_push_undoes_nothing_later(tmp_path: Path, plan: Plan) -> None:
    with eos(tmp_path) as (_, rack, clock):
        [first] = push(plan, rack).devices
        assert first.change.splitlines()[0] == "configure session mltswitch-1"
        assert first.change.splitlines()[-1] == "configure session mltswitch-1 commit timer 00:10:00"
        clock[0] += 3600
        [second] = push(plan, rack).devices
        assert (second.status, second.change, second.error) == (Status.OK, "", "")


def test_a_rollback_stays_after_the_timer(tmp_path: Path, plan: Plan) -> None:
    with eos(tmp_path) as (switch, rack, clock):
        report = push(plan, rack)
        pushed = switch.configuration
        assert pushed == switch.saved
        [gone_back] = rollback(change(report.change), rack).devices
        assert (gone_back.status, gone_back.error) == (Status.ROLLED_BACK, "")
        clock[0] += 601
        assert switch.configuration == switch.saved != pushed
        assert diff(plan, rack).devices[0].differences == report.devices[0].differences


def test_a_refused_line_leaves_no_session(tmp_path: Path, plan: Plan) -> None:
    faults = RefuseLine("qos map dscp")
    with eos(tmp_path, faults) as (switch, rack, _):
        assert push(plan, rack).exit_code == DeviceError.exit_code
        assert not switch.sessions.by_name
        faults.pattern = "never"
        [again] = push(plan, rack).devices
        assert (again.status, again.error) == (Status.CHANGED, "")
        assert list(switch.sessions.by_name) == ["mltswitch-1"]


def test_a_connection_lost_before_the_confirmation(tmp_path: Path, plan: Plan) -> None:
    """The switch undoes the change by itself; a push in time confirms it."""
    with eos(tmp_path, DropBeforeLine(pattern="commit$", times=2)) as (switch, rack, clock):
        before = switch.configuration
        [failed] = push(plan, rack).devices
        assert failed.status is Status.FAILED
        assert switch.configuration != before
        assert switch.saved == before
        [waiting] = verify(plan, rack).devices
        assert waiting.status is Status.DIFFERS
        [difference] = waiting.differences
        assert str(difference).startswith(
            "eos1: push expected confirmed, found config session mltswitch-1 waits"
        )
        [left] = diff(plan, rack).devices
        assert (left.status, left.differences) == (Status.DIFFERS, (difference,))
        clock[0] += 601
        assert switch.configuration == before
        [failed] = push(plan, rack).devices
        assert failed.status is Status.FAILED
        [confirmed] = push(plan, rack).devices
        assert (confirmed.status, confirmed.change, confirmed.error) == (Status.OK, "", "")
        clock[0] += 601
        assert switch.saved == switch.configuration
        assert verify(plan, rack).devices[0].status is Status.OK
