"""Order of phases, isolation of failures and idempotence, without a network."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from mltswitch.deploy import (
    DeviceDifference,
    DeviceReport,
    Fleet,
    FleetReport,
    Session,
    Status,
    diff,
    push,
    verify,
)
from mltswitch.errors import (
    DeviceError,
    MachineError,
    UnsupportedPlanError,
    UserInputError,
    VerificationError,
)
from mltswitch.inventory import Device, Inventory
from mltswitch.targets import Change, RunningState, Step, Target
from mltswitch.targets.common import NOT_SAVED
from tests.deploy.doubles import (
    PLANNED_LIMIT_BYTES,
    ROUNDING,
    SWITCHES,
    FileTarget,
    ScriptedSwitches,
    device,
    inventory,
    small_plan,
)

PLAN = small_plan()


def one(
    operation: Callable[..., FleetReport], switches: ScriptedSwitches, name: str = "leaf1"
) -> DeviceReport:
    """What comes of one device."""
    [report] = operation(PLAN, inventory(name), fleet=switches.fleet).devices
    return report


def _said(change: Change, _: Change) -> Change:
    return change


def statuses(report: FleetReport) -> dict[str, Status]:
    return {entry.device: entry.status for entry in report.devices}


def test_push_changes_reads_back_and_saves_then_has_nothing_to_do(target: FileTarget) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, 1) | {"leaf2": PLANNED_LIMIT_BYTES})
    report = push(PLAN, inventory(*SWITCHES), fleet=switches.fleet)
    assert statuses(report) == dict.fromkeys(SWITCHES, Status.CHANGED) | {"leaf2": Status.OK}
    assert switches.said("leaf1") == ["connected", "asked", "changed", "asked", "saved", "closed"]
    assert switches.said("leaf2") == ["connected", "asked", "saved", "closed"]
    assert report.exit_code == 0
    assert report.warnings == ()
    again = push(PLAN, inventory(*SWITCHES), fleet=switches.fleet)
    assert statuses(again) == dict.fromkeys(SWITCHES, Status.OK)


def test_a_report_says_what_was_changed_and_rounded(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": 7})
    report = one(push, switches)
    assert report.change == f"-limit 7\n+limit {PLANNED_LIMIT_BYTES}\n"
    assert report.roundings == (ROUNDING,)
    [found] = report.differences
    assert (found.traffic_class, found.queue, found.field) == ("background", 0, "limit")
    assert str(found).startswith("leaf1 leaf1, background: limit 7 B → ")


def test_what_a_device_says_does_not_steer_the_terminal() -> None:
    found = DeviceDifference("leaf1", "eth\x1b[2J", 0, None, "unexpected", "", "qdisc \x9b1m\r\n")
    assert str(found).isprintable()
    assert "eth\\x1b[2J" in str(found)
    report = DeviceReport(
        "leaf1", "linux", Status.WOULD_CHANGE, 0.0, "- limit \x1b[2J\r\n+ limit 1\n", (found,)
    )
    assert report.change == "- limit \\x1b[2J\\r\n+ limit 1\n"
    assert json.dumps(dataclasses.asdict(report), ensure_ascii=False).isprintable()


def test_diff_sends_nothing(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": 7, "leaf2": PLANNED_LIMIT_BYTES})
    report = diff(PLAN, inventory("leaf1", "leaf2"), fleet=switches.fleet)
    assert statuses(report) == {"leaf1": Status.WOULD_CHANGE, "leaf2": Status.OK}
    assert not {"changed", "saved"} & {said for _, said in switches.log}
    assert report.exit_code == 0


def test_verify_names_the_difference_and_its_exit_code(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": 7, "leaf2": PLANNED_LIMIT_BYTES})
    report = verify(PLAN, inventory("leaf1", "leaf2"), fleet=switches.fleet)
    assert statuses(report) == {"leaf1": Status.DIFFERS, "leaf2": Status.OK}
    [found] = report.devices[0].differences
    assert (found.device, found.port, found.queue, found.found) == ("leaf1", "leaf1", 0, "7 B")
    assert report.exit_code == VerificationError.exit_code


def test_one_device_that_fails_stops_no_other(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": 1, "leaf2": 1, "spine1": 1}, refusing={"leaf2": "cat >"})
    report = push(PLAN, inventory(*SWITCHES), fleet=switches.fleet)
    assert statuses(report) == {
        "spine1": Status.CHANGED,
        "spine2": Status.FAILED,
        "leaf1": Status.CHANGED,
        "leaf2": Status.FAILED,
    }
    refused = report.devices[3]
    assert "refuses 'cat > " in refused.error
    assert refused.error.endswith("It runs again what it ran before")
    assert refused.change
    assert "saved" not in switches.said("leaf2")
    assert report.exit_code == DeviceError.exit_code


SAVE_ALONE = Change((), (Step("cp a b"),))
PUSHES = {
    "it reads back something else": (
        1,
        {"leaf1"},
        lambda change: change,
        "runs something else than the",
        "1 B",
    ),
    "no step mends what differs": (
        1,
        set(),
        partial(_said, SAVE_ALONE),
        "than the plan. Nothing was sent",
        "1 B",
    ),
    "something would be sent again": (
        PLANNED_LIMIT_BYTES,
        set(),
        lambda change: dataclasses.replace(change, steps=(Step("cat > conf"),), text="again\n"),
        "runs something else than the plan",
        "again",
    ),
}
"""Limit that runs, who is deaf, the change that the target makes, the error, and what still differs."""


@pytest.mark.parametrize(("limit", "deaf", "changes", "error", "differs"), PUSHES.values(), ids=PUSHES)
def test_what_does_not_read_back_as_planned_is_not_saved(
    target: FileTarget,
    limit: int,
    deaf: set[str],
    changes: Callable[[Change], Change],
    error: str,
    differs: str,
) -> None:
    target.changes = changes
    switches = ScriptedSwitches({"leaf1": limit}, frozenset(deaf))
    report = one(push, switches)
    assert report.status is Status.FAILED
    assert error in report.error
    assert [found.found for found in report.differences] == [differs]
    assert "saved" not in switches.said("leaf1")


def test_a_bug_of_ours_concerns_one_device(target: FileTarget) -> None:
    def broken(_: RunningState) -> RunningState:
        raise KeyError("leaf1")

    target.reads = broken
    report = one(verify, ScriptedSwitches({"leaf1": 1}))
    assert report.status is Status.FAILED
    assert report.error == "leaf1 (127.0.0.1:22): a bug in mltswitch: KeyError: 'leaf1'"


def test_what_was_not_saved_is_saved_by_the_next_push(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": 1}, refusing={"leaf1": "cp "})
    for change in (f"-limit 1\n+limit {PLANNED_LIMIT_BYTES}\n", ""):
        refused = one(push, switches)
        assert (refused.status, refused.change) == (Status.FAILED, change)
        assert "refuses 'cp " in refused.error
        assert "applied and read back, but not saved" in refused.error
        assert "saved" not in switches.said("leaf1")
    switches.refusing = {}
    mended = one(push, switches)
    assert (mended.status, mended.error) == (Status.OK, "")
    assert switches.said("leaf1")[-3:] == ["asked", "saved", "closed"]


@pytest.mark.parametrize("operation", [diff, verify])
def test_comparing_saves_nothing(target: FileTarget, operation: Callable[..., FleetReport]) -> None:
    switches = ScriptedSwitches({"leaf1": PLANNED_LIMIT_BYTES})
    operation(PLAN, inventory("leaf1"), fleet=switches.fleet)
    assert switches.said("leaf1") == ["connected", "asked", "closed"]


def test_what_no_value_says_is_noted_until_it_is_mended(target: FileTarget) -> None:
    target.reads = lambda running: dataclasses.replace(running, notes=("odd\x1b", NOT_SAVED))
    switches = ScriptedSwitches({"leaf1": 1})
    for operation in (diff, verify):
        assert one(operation, switches).notes == ("odd\\x1b", NOT_SAVED)
    report = one(push, switches)
    assert (report.status, report.notes) == (Status.CHANGED, ("odd\\x1b",))
    target.changes = lambda change: dataclasses.replace(change, save=())
    report = one(push, switches)
    assert (report.status, report.notes) == (Status.OK, ("odd\\x1b", NOT_SAVED))


def test_verify_names_what_a_push_would_send_though_every_value_is_right(target: FileTarget) -> None:
    lines = "".join(f"  line {number}\n" for number in range(5))
    switches = ScriptedSwitches({"leaf1": PLANNED_LIMIT_BYTES})
    for text, told in ((lines, "line 0; line 1; line 2; and 2 more"), ("", "cat > conf")):
        unstated = Change((Step("cat > conf"),), text=text)
        target.changes = partial(_said, unstated)
        report = verify(PLAN, inventory("leaf1"), fleet=switches.fleet)
        assert (report.devices[0].status, report.exit_code) == (Status.DIFFERS, VerificationError.exit_code)
        [found] = report.devices[0].differences
        assert str(found) == f"leaf1: push expected nothing to send, found {told}"
    assert "changed" not in switches.said("leaf1")


def test_verify_names_why_a_push_would_be_refused(target: FileTarget) -> None:
    def refuse(_: Change) -> Change:
        raise DeviceError("somebody else\nwrote it", where="/etc/unit")

    target.changes = refuse
    for limit, expected in (
        (PLANNED_LIMIT_BYTES, ("push", "a refusal: /etc/unit: somebody else wrote it")),
        (7, ("limit", "7 B")),
    ):
        report = one(verify, ScriptedSwitches({"leaf1": limit}))
        assert report.status is Status.DIFFERS
        assert [(found.field, found.found) for found in report.differences] == [expected]


def test_what_the_device_cannot_do_is_in_every_report(target: FileTarget) -> None:
    target.fits = lambda fitted: dataclasses.replace(fitted, unsupported=("no cap",))
    for operation in (diff, push, verify):
        for limits, fails in (({"leaf1": 1}, False), ({}, True)):
            report = one(operation, ScriptedSwitches(limits))
            assert (report.shortfalls, report.status is Status.FAILED) == (("no cap",), fails)


def test_the_way_back_is_told_after_a_change_alone(target: FileTarget) -> None:
    target.changes = lambda change: dataclasses.replace(change, rollback_hint="rollback \x1b")
    switches = ScriptedSwitches({"leaf1": 1})
    told = [one(operation, switches).way_back for operation in (diff, push, push, verify)]
    assert told == ["", "rollback \\x1b", "", ""]


def test_a_bug_after_the_change_does_not_hide_it(target: FileTarget) -> None:
    def read_once(running: RunningState) -> RunningState:
        if set(running.answers.values()) != {"1\n"}:
            raise KeyError("tc says\n" + "x" * 10_000)
        return running

    target.reads = read_once
    report = one(push, ScriptedSwitches({"leaf1": 1}))
    assert report.status is Status.FAILED
    assert report.change == f"-limit 1\n+limit {PLANNED_LIMIT_BYTES}\n"
    assert "a bug in mltswitch: KeyError: " in report.error
    assert "The change may be partly in effect" in report.error
    assert len(report.error) < 1200
    assert "\n" not in report.error


def test_nothing_is_sent_where_one_device_cannot_express_the_plan(target: FileTarget) -> None:
    target.unable = frozenset({"leaf2"})
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, 1))
    with pytest.raises(UnsupportedPlanError, match="leaf2"):
        push(PLAN, inventory(*SWITCHES), fleet=switches.fleet)
    assert switches.log == []


def test_a_step_with_a_line_end_is_not_sent(target: FileTarget) -> None:
    target.changes = partial(_said, Change((Step("true\nreboot"),), text="true\n"))
    switches = ScriptedSwitches({"leaf1": 1})
    report = one(push, switches)
    assert report.status is Status.FAILED
    assert "control character" in report.error
    assert report.error.endswith("Nothing was sent")
    assert report.change == "true\n"
    assert switches.said("leaf1") == ["connected", "asked", "closed"]


def rack_of(*devices: Device) -> Inventory:
    return Inventory(devices, inventory().path)


@pytest.mark.parametrize(
    ("rack", "line"),
    [
        (rack_of(device("leaf9")), "inventory: leaf9: fabric small has no switch 'leaf9'"),
        (
            rack_of(device("leaf1", platform="onyx")),
            "inventory: leaf1: its platform is onyx in the inventory, file in the plan's fabric",
        ),
        (
            rack_of(device("leaf1", switch="leaf2")),
            "inventory: leaf1: is switch leaf2 by mltswitch_switch, and the fabric has a switch leaf1",
        ),
        (
            rack_of(device("leaf1"), device("tor", switch="leaf1")),
            "inventory: tor: its switch in the fabric is leaf1, as that of leaf1 is",
        ),
        (
            rack_of(device("leaf1", address="Rack1"), device("leaf2", address="rack1")),
            "inventory: leaf2: its address is rack1:22, as that of leaf1 is",
        ),
        (rack_of(device("leaf1", password=None)), "leaf1: has neither a key nor a password"),
    ],
)
def test_inventory_and_fabric_must_agree(target: FileTarget, rack: Inventory, line: str) -> None:
    with pytest.raises(UserInputError) as caught:
        push(PLAN, rack, fleet=ScriptedSwitches({}).fleet)
    assert str(caught.value).startswith(line)


def test_a_switch_outside_the_inventory_is_a_warning_and_a_limit_is_none(target: FileTarget) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, 1))
    report = diff(PLAN, inventory("leaf1", "leaf2", "spine1"), limit="leaf1", fleet=switches.fleet)
    assert statuses(report) == {"leaf1": Status.WOULD_CHANGE}
    assert report.warnings == ("switch spine2 of fabric small is not in the inventory inventory",)


def test_progress_is_told_of_each_device_as_it_ends(target: FileTarget) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES[1:], 1))
    heard: list[DeviceReport] = []
    report = push(PLAN, inventory(*SWITCHES), fleet=Fleet(connector=switches.connect, progress=heard.append))
    assert sorted(entry.device for entry in heard) == sorted(SWITCHES)
    assert {entry.device: entry for entry in heard} == {entry.device: entry for entry in report.devices}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_connections_at_once_than_asked_for(target: FileTarget, concurrency: int) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, 1))
    gate = threading.Semaphore(concurrency)
    together = threading.Barrier(concurrency, timeout=20)
    waited = iter(range(concurrency))

    @contextmanager
    def connector(device: Device, target: Target) -> Iterator[Session]:
        assert gate.acquire(blocking=False)
        if next(waited, None) is not None:
            together.wait()
        with switches.connect(device, target) as session:
            yield session
        gate.release()

    report = diff(PLAN, inventory(*SWITCHES), fleet=Fleet(concurrency=concurrency, connector=connector))
    assert set(statuses(report).values()) == {Status.WOULD_CHANGE}


def test_progress_that_fails_costs_no_report(target: FileTarget) -> None:
    def progress(report: DeviceReport) -> None:
        raise BrokenPipeError

    switches = ScriptedSwitches({"leaf1": 1})
    report = push(PLAN, inventory("leaf1"), fleet=Fleet(connector=switches.connect, progress=progress))
    assert statuses(report) == {"leaf1": Status.CHANGED}


@pytest.mark.parametrize("concurrency", [0, -1, 10_000])
def test_a_useless_concurrency_is_refused(target: FileTarget, concurrency: int) -> None:
    with pytest.raises(UserInputError, match="devices at once"):
        diff(
            PLAN,
            inventory("leaf1"),
            fleet=Fleet(concurrency=concurrency, connector=ScriptedSwitches({}).connect),
        )


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_starts_no_further_device(target: FileTarget) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, 1))
    heard: list[str] = []

    def progress(report: DeviceReport) -> None:
        heard.append(report.device)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)  # the main thread takes note before this device ends

    with pytest.raises(KeyboardInterrupt):
        push(
            PLAN,
            inventory(*SWITCHES),
            fleet=Fleet(concurrency=1, connector=switches.connect, progress=progress),
        )
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(20)
    assert heard == ["spine1"]
    assert {name for name, _ in switches.log} == {"spine1"}


def test_a_missing_package_is_named_with_the_extra_that_has_it(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_module(name: str) -> None:
        if name == "nornir":
            raise ImportError(name)

    monkeypatch.setattr("mltswitch.deploy.ssh.import_module", import_module)
    with pytest.raises(MachineError, match=r"nornir is missing. `pip install 'mltswitch\[deploy\]'`"):
        push(PLAN, inventory("leaf1"))


def test_the_room_opens_without_its_optional_packages() -> None:
    program = "import sys, mltswitch.deploy; sys.exit(bool({'nornir', 'paramiko'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
