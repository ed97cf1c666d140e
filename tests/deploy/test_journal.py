"""Nothing half done: whatever ends a push, and wherever, the journal tells the truth and leads out of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mltswitch import deploy
from mltswitch.deploy import Fleet, Journal, Rollout, State, Status, push, resume, rollback, status
from mltswitch.deploy.journal import OPEN, TRANSITIONS, UNDOABLE
from mltswitch.deploy.results import DeviceReport
from mltswitch.deploy.transaction import Transaction
from mltswitch.errors import DeviceError, MachineError, UserInputError
from mltswitch.inventory import Inventory
from mltswitch.targets import FittedState
from tests.deploy.doubles import (
    PLANNED_LIMIT_BYTES,
    SWITCHES,
    FileTarget,
    ScriptedSwitches,
    device,
    inventory,
    small_plan,
    state_of,
)

PLAN = small_plan()
OLD = 7


class Killed(BaseException):
    """The process ends here: nothing catches it."""


def fleet_of(switches: ScriptedSwitches) -> Fleet:
    return replace(switches.fleet, concurrency=1)


def dying(monkeypatch: pytest.MonkeyPatch, moment: int) -> Callable[[], int]:
    """End the process before, or after, its n-th step: a line in the journal, or a line to a switch."""
    steps = 0

    def counted(function: Callable[..., None]) -> Callable[..., None]:
        def wrapper(*given: object, **named: object) -> None:
            nonlocal steps
            for after in (False, True):
                if steps == moment:
                    raise Killed
                steps += 1
                if not after:
                    function(*given, **named)

        return wrapper

    monkeypatch.setattr(Journal, "record", counted(Journal.record))
    monkeypatch.setattr(ScriptedSwitches, "take", counted(ScriptedSwitches.take))
    return lambda: steps


@pytest.mark.parametrize("way_out", ["resume", "rollback", "push"])
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("moment", range(40))
def test_wherever_it_is_killed_every_device_ends_old_or_new(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch, moment: int, atomic: bool, way_out: str
) -> None:
    switches = ScriptedSwitches({"leaf1": OLD, "leaf2": OLD})
    rack, fleet = inventory("leaf1", "leaf2"), fleet_of(switches)
    with monkeypatch.context() as patch:
        steps = dying(patch, moment)
        try:
            push(PLAN, rack, rollout=Rollout(atomic=atomic), fleet=fleet)
        except Killed:
            pass
        else:
            assert steps() <= moment
    journal = deploy.change(None)
    for name, state in journal.last.items():
        runs = switches.limits[name]
        assert runs == OLD or state not in {State.PLANNED, State.DROPPED}
        assert runs == PLANNED_LIMIT_BYTES or state not in {State.APPLIED, State.VERIFIED, State.CONFIRMED}
        [seen] = status(journal, rack, limit=name, fleet=fleet).devices
        assert seen.status is (Status.RUNS_OLD if runs == OLD else Status.RUNS_NEW)
    if way_out == "push":
        push(PLAN, rack, fleet=fleet)
        assert set(switches.limits.values()) == {PLANNED_LIMIT_BYTES}
        rollback(deploy.change(None), rack, fleet=fleet) if _undoable(deploy.change(None)) else None
    elif way_out == "resume" and _concerned(journal, {*OPEN, State.PLANNED}):
        report = resume(journal, rack, fleet=fleet)
        assert report.exit_code == 0, report
        assert set(switches.limits.values()) == {PLANNED_LIMIT_BYTES}
        assert set(deploy.change(None).last.values()) <= {State.CONFIRMED, State.UNCHANGED}
    elif way_out == "rollback" and _undoable(journal):
        report = rollback(journal, rack, fleet=fleet)
        assert report.exit_code == 0, report
        assert set(switches.limits.values()) == {OLD}
    assert not deploy.journal.open_changes(journal.header.work.devices, deploy.changes())


def _concerned(journal: Journal, states: set[State]) -> bool:
    return bool(states & set(journal.last.values()))


def _undoable(journal: Journal) -> bool:
    return _concerned(journal, {*UNDOABLE})


def test_the_moments_above_reach_the_end(target: FileTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    switches = ScriptedSwitches({"leaf1": OLD, "leaf2": OLD})
    steps = dying(monkeypatch, 10**6)
    push(PLAN, inventory("leaf1", "leaf2"), rollout=Rollout(atomic=True), fleet=fleet_of(switches))
    assert 15 < steps() < 40


def test_rollback_takes_later_changes_back_first(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": OLD})
    rack, fleet = inventory("leaf1"), fleet_of(switches)
    first = push(PLAN, rack, fleet=fleet).change
    switches.limits["leaf1"] = 9
    second = push(PLAN, rack, fleet=fleet).change
    assert first < second
    switches.log.clear()
    report = rollback(deploy.change(first), rack, fleet=fleet)
    assert [entry.status for entry in report.devices] == [Status.ROLLED_BACK]
    assert switches.limits == {"leaf1": OLD}
    assert [journal.last["leaf1"] for journal in deploy.changes()] == [State.ROLLED_BACK] * 2
    assert switches.said("leaf1").count("saved") == 2
    assert rollback(deploy.change(first), rack, fleet=fleet).devices == ()
    with pytest.raises(UserInputError, match="nothing to do: 1 rolled-back"):
        deploy.confirm(deploy.change(first), rack, fleet=fleet)


def test_a_change_that_is_taken_over_keeps_what_ran_before_it(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    switches = ScriptedSwitches({"leaf1": OLD})
    rack, fleet = inventory("leaf1"), fleet_of(switches)
    with monkeypatch.context() as patch:
        dying(patch, 4)  # the line was sent, and nobody wrote that it was taken
        with pytest.raises(Killed):
            push(PLAN, rack, fleet=fleet)
    assert switches.limits == {"leaf1": PLANNED_LIMIT_BYTES}
    again = push(PLAN, rack, fleet=fleet)
    assert [entry.status for entry in again.devices] == [Status.OK]
    assert [journal.last["leaf1"] for journal in deploy.changes()] == [State.CONFIRMED, State.CONTINUED]
    rollback(deploy.change(None), rack, fleet=fleet)
    assert switches.limits == {"leaf1": OLD}


def test_a_device_that_cannot_be_reached_for_its_way_back_stays_open(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": OLD, "leaf2": OLD}, deaf=frozenset({"leaf1"}), vanishing={"leaf1"})
    rack, fleet = inventory("leaf1", "leaf2"), fleet_of(switches)
    report = push(PLAN, rack, fleet=fleet)
    failed, changed = report.devices
    assert (failed.status, changed.status) == (Status.FAILED, Status.CHANGED)
    assert f"`mltswitch status {report.change}`" in failed.error
    assert deploy.change(None).last == {"leaf1": State.APPLIED, "leaf2": State.CONFIRMED}
    switches.vanishing = set()
    assert rollback(deploy.change(None), rack, limit="leaf1", fleet=fleet).exit_code == 0
    assert deploy.change(None).last == {"leaf1": State.ROLLED_BACK, "leaf2": State.CONFIRMED}
    assert switches.limits == {"leaf1": OLD, "leaf2": PLANNED_LIMIT_BYTES}


def test_what_nobody_will_finish_is_abandoned(target: FileTarget) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, OLD), frozenset(SWITCHES), vanishing=set(SWITCHES))
    push(PLAN, inventory(*SWITCHES), fleet=fleet_of(switches))
    deploy.abandon(deploy.change(None), "leaf*:!leaf2")
    states = deploy.change(None).last
    assert {name for name, state in states.items() if state is State.ABANDONED} == {"leaf1"}
    with pytest.raises(UserInputError, match="device spine1 of change"):
        rollback(deploy.change(None), inventory("leaf2"), fleet=fleet_of(switches))
    switches.vanishing = set()
    assert push(PLAN, inventory("leaf1"), fleet=fleet_of(switches)).devices[0].status is Status.FAILED


def test_a_smaller_plan_does_not_take_over(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": OLD}, deaf=frozenset({"leaf1"}), vanishing={"leaf1"})
    rack, fleet = inventory("leaf1"), fleet_of(switches)
    first = push(PLAN, rack, fleet=fleet).change
    switches.vanishing, switches.deaf = set(), frozenset()
    seen: list[FittedState] = []

    def other_ports(fitted: FittedState) -> FittedState:
        """The plan of the second push names another port; that on record, the first one."""
        seen.append(fitted)
        return fitted if len(seen) > 1 else replace(fitted, state=state_of("other", PLANNED_LIMIT_BYTES))

    target.fits = other_ports
    [refused] = push(PLAN, rack, fleet=fleet).devices
    assert f"change {first} is unfinished on it" in refused.error
    assert refused.error.endswith("Nothing was sent")
    assert deploy.change(first).last["leaf1"] in OPEN


@pytest.mark.parametrize(("serial", "last"), [("100%", 3), ("1", 2)])
def test_an_atomic_change_that_began_to_go_back_goes_back_whole(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch, serial: str, last: int
) -> None:
    switches = ScriptedSwitches({"leaf1": OLD, "leaf2": OLD, "spine1": OLD}, refusing={"spine1": "cat >"})
    rack, fleet = inventory("leaf1", "leaf2", "spine1"), fleet_of(switches)
    backs = []
    back = Transaction.back

    def killed(transaction: Transaction) -> DeviceReport:
        backs.append(transaction.name)
        if len(backs) == last:
            raise Killed
        return back(transaction)

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "back", killed)
        with pytest.raises(Killed):
            push(PLAN, rack, rollout=Rollout(serial=serial, atomic=True), fleet=fleet)
    switches.refusing = {}
    assert PLANNED_LIMIT_BYTES in switches.limits.values()
    assert resume(deploy.change(None), rack, fleet=fleet).exit_code == 0
    assert set(switches.limits.values()) == {OLD}


def test_an_atomic_change_does_not_go_forward_without_a_device_that_failed(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    switches = ScriptedSwitches({"leaf1": OLD})
    rack, fleet = inventory("leaf1", "leaf2"), fleet_of(switches)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("mltswitch.deploy.fleet_change.FleetChange.taken_back", killed)
        with pytest.raises(Killed):
            push(PLAN, rack, rollout=Rollout(atomic=True), fleet=fleet)
    switches.limits["leaf2"] = OLD  # it can be reached again
    assert deploy.change(None).last == {"leaf1": State.APPLIED, "leaf2": State.DROPPED}
    with pytest.raises(UserInputError, match="devices of it failed or went back, and it is atomic"):
        resume(deploy.change(None), rack, fleet=fleet)
    assert rollback(deploy.change(None), rack, fleet=fleet).exit_code == 0
    assert set(switches.limits.values()) == {OLD}


@pytest.mark.parametrize(
    ("rollout", "ends", "waves"),
    [
        (Rollout(serial="1,2"), "failed not-begun not-begun not-begun", [1, 2, 2, 3]),
        (Rollout(serial="2", max_fail_percentage=50), "failed changed changed changed", [1, 1, 2, 2]),
        (Rollout(serial="50%", max_fail_percentage=49), "failed changed not-begun not-begun", [1, 1, 2, 2]),
        (Rollout(atomic=True), "failed rolled-back rolled-back rolled-back", [0] * 4),
        (Rollout(atomic=True, serial="3"), "failed rolled-back rolled-back not-begun", [1, 1, 1, 2]),
        (Rollout(), "failed changed changed changed", [0] * 4),
    ],
)
def test_waves(target: FileTarget, rollout: Rollout, ends: str, waves: list[int]) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, OLD), refusing={SWITCHES[0]: "cat >"})
    told: list[DeviceReport] = []
    fleet = replace(fleet_of(switches), progress=told.append)
    report = push(PLAN, inventory(*SWITCHES), rollout=rollout, fleet=fleet)
    assert " ".join(entry.status for entry in report.devices) == ends
    assert [entry.wave for entry in report.devices] == waves
    assert sorted(entry.wave for entry in told) == sorted(waves[: len(told)])
    assert report.exit_code == DeviceError.exit_code
    journal = deploy.change(report.change)
    assert not {*OPEN, State.PLANNED} & set(journal.last.values())
    for entry in report.devices:
        runs_new = entry.status is Status.CHANGED
        assert switches.limits[entry.device] == (PLANNED_LIMIT_BYTES if runs_new else OLD)
        if entry.status in {Status.ROLLED_BACK, Status.NOT_BEGUN}:
            assert "saved" not in switches.said(entry.device)


@pytest.mark.parametrize("serial", ["", "0", "1,", "x", "10%%", "-1"])
def test_a_useless_wave_is_refused(target: FileTarget, serial: str) -> None:
    with pytest.raises(UserInputError, match="is no size of a wave"):
        push(PLAN, inventory("leaf1"), rollout=Rollout(serial=serial), fleet=fleet_of(ScriptedSwitches({})))


def test_what_the_disk_does_not_take_is_not_sent(target: FileTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    switches = ScriptedSwitches({"leaf1": OLD})
    monkeypatch.setattr("mltswitch.deploy.journal.os.fsync", full)
    with pytest.raises(MachineError, match="No space left"):
        push(PLAN, inventory("leaf1"), fleet=fleet_of(switches))
    assert switches.limits == {"leaf1": OLD}
    assert "changed" not in switches.said("leaf1")


def test_a_torn_line_was_never_written(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": OLD})
    journal = deploy.change(push(PLAN, inventory("leaf1"), fleet=fleet_of(switches)).change)
    path = journal.folder / "journal.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        count = whole[:end].count(b"\n")
        assert len(deploy.change(None).entries) == count
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:9])
    resume(deploy.change(None), inventory("leaf1"), fleet=fleet_of(switches))
    assert path.read_bytes().count(b"\n") == len(lines)
    assert deploy.change(None).last == {"leaf1": State.CONFIRMED}
    path.write_bytes(lines[0] + b"{}\n" + lines[1])
    with pytest.raises(UserInputError, match=r"journal\.jsonl:2"):
        deploy.change(None)


def test_what_was_changed_on_the_disk_is_not_sent(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": OLD})
    rack, fleet = inventory("leaf1"), fleet_of(switches)
    journal = deploy.change(push(PLAN, rack, fleet=fleet).change)
    path = (journal.folder / "before@leaf1.json").rename(journal.folder / "leaf1.json")  # as once written
    record = json.loads(path.read_text())
    record["answers"] = dict.fromkeys(record["answers"], "8\n")
    path.write_text(json.dumps(record))
    report = rollback(journal, rack, fleet=fleet)
    assert f"{path}: is damaged" in report.devices[0].error
    assert switches.limits == {"leaf1": PLANNED_LIMIT_BYTES}
    (journal.folder / "plan.json").write_text("{}")
    with pytest.raises(UserInputError, match="not the plan of this change"):
        rollback(journal, rack, fleet=fleet)


def test_a_host_has_the_name_of_a_file_on_record(target: FileTarget) -> None:
    hosts = (device("plan", switch="leaf1"), device("change", switch="leaf2", address="127.0.0.2"))
    switches, rack = ScriptedSwitches({"plan": OLD, "change": OLD}), Inventory(hosts, Path("inventory"))
    assert push(PLAN, rack, fleet=fleet_of(switches)).exit_code == 0
    assert rollback(deploy.change(None), rack, fleet=fleet_of(switches)).exit_code == 0
    assert switches.limits == {"plan": OLD, "change": OLD}


def test_a_plan_on_record_that_nobody_reads_any_more_stops_no_push(target: FileTarget) -> None:
    switches = ScriptedSwitches({"leaf1": OLD})
    rack, fleet = inventory("leaf1"), fleet_of(switches)
    journal = deploy.change(push(PLAN, rack, fleet=fleet).change)
    (journal.folder / "plan.json").write_text("{}")
    assert deploy.verify(PLAN, rack, fleet=fleet).exit_code == 0
    assert push(PLAN, rack, fleet=fleet).exit_code == 0


def test_changes_are_found_by_the_beginning_of_their_names(target: FileTarget) -> None:
    with pytest.raises(UserInputError, match="no change on record"):
        deploy.change(None)
    fleet = fleet_of(ScriptedSwitches({"leaf1": OLD}))
    names = [push(PLAN, inventory("leaf1"), fleet=fleet).change for _ in range(2)]
    assert deploy.change(names[0]).identifier == names[0]
    assert deploy.change(None).identifier == names[1]
    with pytest.raises(UserInputError, match="2 changes begin with '20"):
        deploy.change("20")
    with pytest.raises(UserInputError, match="no change 'x'"):
        deploy.change("x")


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path)], ids=["file", "loop"])
def test_a_record_that_cannot_be_read_is_not_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    monkeypatch.setenv("MLTSWITCH_STATE", str(tmp_path / "state"))
    assert deploy.changes() == []
    make(tmp_path / "state")
    for ask in (deploy.changes, lambda: deploy.change(None)):
        with pytest.raises(UserInputError, match="state/changes: the record of changes cannot be read: "):
            ask()


def test_every_state_can_end() -> None:
    for state in State:
        reached = {state}
        while (more := reached.union(*(TRANSITIONS[each] for each in reached))) != reached:
            reached = more
        assert any(not TRANSITIONS[each] for each in reached)
        assert (State.ROLLED_BACK in reached) == (state in UNDOABLE | {State.PLANNED, State.ROLLED_BACK})


def test_what_may_not_follow_is_a_bug(target: FileTarget) -> None:
    fleet = fleet_of(ScriptedSwitches({"leaf1": PLANNED_LIMIT_BYTES}))
    journal = deploy.change(push(PLAN, inventory("leaf1"), fleet=fleet).change)
    assert journal.last == {"leaf1": State.UNCHANGED}
    with pytest.raises(ValueError, match="applied after unchanged"):
        journal.record("leaf1", State.APPLIED)
