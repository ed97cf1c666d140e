"""Switches that finish late, and two operators who push from places of their own, on emulated switches.

What a record says is held against what the switch runs when nothing can change that any more.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.emulated import Rack
from benchmarks.twins import ask, configured, fabric_plans, planned, send, snapshot
from mltswitch import deploy
from mltswitch.deploy import Fleet, FleetReport, State, Status, push, resume, rollback, status
from mltswitch.deploy.occupation import STALE_SECONDS, owner
from mltswitch.deploy.state_directory import STATE_VARIABLE
from mltswitch.errors import DeviceError, UserInputError, VerificationError
from mltswitch.inventory import Inventory, load_inventory
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import Claim, hardware_capabilities, target_for
from mltswitch.targets.common import LINK
from switchsim import KINDS, EmulatorServer, Faults, Late
from switchsim.faults import Drop, Fault

PLATFORMS: Final = sorted(KINDS)
AT_ONCE: Final = ("dell-sonic", "icos", "onyx")
"""Each line takes effect by itself."""
PORTS: Final = 4


@dataclass
class Once(Faults):
    """Does something as the switch gets one line, once."""

    line: str = ""
    act: Callable[[], Fault | None] = lambda: None
    is_done: bool = False

    def on_line(self, number: int, line: str) -> Fault | None:
        """The fault, at its line."""
        del number
        if self.is_done or self.line not in line:
            return None
        self.is_done = True
        return self.act()


@dataclass
class Box:
    """One emulated switch, what it runs before and with the plan, and how one reaches it."""

    server: EmulatorServer
    faults: Once
    inventory: Inventory
    plan: Plan
    former: Plan
    commits: str
    """The line of the push behind which the plan begins to run."""
    old: tuple[str, str]
    new: tuple[str, str]

    def now(self) -> tuple[str, str]:
        """What it runs, and what it has saved."""
        return snapshot(self.server.device, self.inventory.devices[0].platform)

    def push(self, plan: Plan | None = None, **settings: Any) -> FleetReport:
        """A push of the plan, ports may go down."""
        return push(plan or self.plan, self.inventory, accept=[*deploy.Question], fleet=Fleet(**settings))

    def push_killed(self) -> None:
        """A push that loses the switch in its middle, and whose process ends then."""
        self.faults.line, self.faults.act = self.commits, Drop
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mltswitch.deploy.transaction.Transaction.back", _killed)
            self.push()
        assert self.faults.is_done


@contextmanager
def box(platform: str, folder: Path) -> Iterator[Box]:
    """A switch that runs an earlier plan."""
    plan, former, (leaf,) = fabric_plans(1, (platform,))
    switch, twin = (KINDS[platform](leaf.name, PORTS) for _ in range(2))
    target = target_for(platform)
    for each in (switch, twin):
        configured(each, target, former)
    steps = [step.command for step in planned(twin, target, plan).steps]
    old = snapshot(twin, platform)
    configured(twin, target, plan)
    rack, faults = Rack(folder / "rack", [leaf]), Once()
    with rack.server(leaf.name, switch, faults) as server:
        rack.write({leaf.name: server.port})
        # Where each line takes effect at once, one in the middle.
        commits = steps[len(steps) // 2] if platform in AT_ONCE else steps[-1]
        inventory = load_inventory(rack.inventory)
        yield Box(server, faults, inventory, plan, former, commits, old, snapshot(twin, platform))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest line takes seconds here, and not half a minute."""
    monkeypatch.setattr("mltswitch.deploy.transaction.LINE_SECONDS", 4.0)
    monkeypatch.setattr("mltswitch.deploy.occupation.IDLE_SECONDS", 2.0)


@contextmanager
def other(folder: Path) -> Iterator[None]:
    """Inside as somebody else, on another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(folder / "another"))
        yield


def the_state() -> State:
    """Of the only device of the latest change."""
    [state] = deploy.change(None).last.values()
    return state


@pytest.mark.parametrize("seconds", [3.0, 6.0])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_finishes_late_is_not_said_to_be_taken_back(
    platform: str, seconds: float, tmp_path: Path
) -> None:
    with box(platform, tmp_path) as each:
        each.faults.line, each.faults.act = each.commits, lambda: Late(seconds)
        report = each.push(device_seconds=2.0)
        assert report.with_status(Status.FAILED)
        if the_state() is State.UNCERTAIN:
            told = status(deploy.change(None), each.inventory)
            assert (told.exit_code, told.devices[0].status) == (VerificationError.exit_code, Status.UNCERTAIN)
        time.sleep(seconds)  # it is awake by now, whatever it does
        if the_state() is not State.ROLLED_BACK:
            assert [entry.error for entry in resume(deploy.change(None), each.inventory).devices] == [""]
        assert the_state() is State.ROLLED_BACK
        assert each.now()[0] == each.old[0]
        assert status(deploy.change(None), each.inventory).devices[0].status is Status.RUNS_OLD
        assert each.push().devices[0].error == ""
        assert each.now() == each.new


def test_an_updater_that_works_on_makes_the_record_uncertain(tmp_path: Path) -> None:
    with box("sonic", tmp_path) as each:
        each.faults.line, each.faults.act = each.commits, lambda: Late(9.0)
        [report] = each.push(device_seconds=2.0).devices
        assert the_state() is State.UNCERTAIN
        assert "Whether it is taken back is not certain" in report.error
        assert "still works after 2 s: 1000 cat | sudo config apply-patch" in report.error
        told = status(deploy.change(None), each.inventory)
        assert told.exit_code == VerificationError.exit_code
        assert any(
            "it still works: 1000 cat | sudo config apply-patch" in note for note in told.devices[0].notes
        )
        [still] = resume(deploy.change(None), each.inventory).devices
        assert (still.status, the_state()) == (Status.FAILED, State.UNCERTAIN)
        with pytest.raises(UserInputError, match="is uncertain, so it cannot be confirmed"):
            deploy.confirm(deploy.change(None), each.inventory)
        time.sleep(6.0)
        [done] = rollback(deploy.change(None), each.inventory).devices
        assert (done.status, each.now()[0]) == (Status.ROLLED_BACK, each.old[0])


def test_another_push_takes_over_what_is_uncertain(tmp_path: Path) -> None:
    with box("sonic", tmp_path) as each:
        each.faults.line, each.faults.act = each.commits, lambda: Late(6.0)
        each.push(device_seconds=2.0)
        first = deploy.change(None).identifier
        time.sleep(3.0)
        assert [report.error for report in each.push().devices] == [""]
        assert each.now() == each.new
        assert deploy.change(first).last == {"leaf1": State.CONTINUED}


def test_a_record_that_the_switch_contradicts_is_told(tmp_path: Path) -> None:
    with box("eos", tmp_path) as each:
        each.push()
        assert rollback(deploy.change(None), each.inventory).exit_code == 0
        own = deploy.change(None)
        with other(tmp_path):
            each.push()
        told = status(own, each.inventory)
        assert (told.exit_code, told.devices[0].status) == (VerificationError.exit_code, Status.CONTRADICTS)
        assert told.devices[0].notes[-1] == (
            "somebody has changed it: the record says rolled-back, and it runs the plan"
        )


@pytest.mark.parametrize("platform", PLATFORMS)
def test_of_two_operators_at_once_none_undoes_or_mixes_the_other(platform: str, tmp_path: Path) -> None:
    """The second one pushes another plan as the first one has sent the line that commits, or half of them."""
    with box(platform, tmp_path) as each:
        second: list[FleetReport] = []

        def meanwhile() -> Fault | None:
            before = each.now()
            with other(tmp_path):
                second.append(each.push(each.former))
            assert each.now() == before
            return None

        each.faults.line, each.faults.act = each.commits, meanwhile
        [first] = each.push().devices
        [late] = second[0].devices
        assert (first.status, each.now()) == (Status.CHANGED, each.new)
        assert "works on it, so nothing of this takes effect" in late.error
        assert "min)" in late.error
        assert second[0].exit_code != 0


@pytest.mark.parametrize("platform", AT_ONCE)
def test_of_two_who_make_their_marks_at_once_one_steps_back(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's mark comes to stand between the look for one and the mark that follows it."""
    monkeypatch.setattr("mltswitch.deploy.occupation._STEP_BACK_SECONDS", 0.05)
    with box(platform, tmp_path) as each:
        switch: Any = each.server.device
        lock = target_for(platform).guard.lock
        assert lock is not None
        [mark] = lock.take(Claim("0badcafe", "bob@jump2", int(time.time()) - 120), "")

        def meanwhile() -> Fault | None:
            switch.configure(mark.command)
            return None

        each.faults.line, each.faults.act = f"mlt-{owner(each.inventory.devices[0])}", meanwhile
        [report] = each.push().devices
        assert each.faults.is_done
        assert "bob-jump2 (since" in report.error
        assert "2 min) works on it, so nothing of this takes effect" in report.error
        assert the_state() is State.DROPPED
        [gone] = lock.release(ask(switch, target_for(platform), lock.query), "0badcafe")
        switch.configure(gone.command)
        assert each.now() == each.old
        assert each.push().devices[0].error == ""
        assert each.now() == each.new


@pytest.mark.parametrize("platform", sorted({*PLATFORMS} - {"sonic"}))
def test_what_somebody_changed_meanwhile_is_not_pushed_over(platform: str, tmp_path: Path) -> None:
    """Behind the first look and before the first line that takes effect. A patch of SONiC names what it
    changes, and takes nothing else along."""
    with box(platform, tmp_path) as each:
        switch: Any = each.server.device
        target = target_for(platform)
        now: list[tuple[str, str]] = []

        def meanwhile() -> Fault | None:
            if platform == "eos":
                assert switch.configure("ip routing") == ""
            else:
                configured(switch, target, each.plan)
            now.append(each.now())
            return None

        # As the lines are prepared, or where there are none such, just before the mark.
        each.faults.line = {"eos": "qos map dscp", "cumulus": "nv set "}.get(platform, "mlt-")
        each.faults.act = meanwhile
        [report] = each.push().devices
        assert now
        assert "somebody has changed it meanwhile, so nothing takes effect" in report.error
        assert the_state() is State.DROPPED
        assert [each.now()] == now


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_lock_of_a_killed_operator(platform: str, tmp_path: Path) -> None:
    """Keeps others away until it is too old, and never him: here by a push that lost its way back, too."""
    with box(platform, tmp_path) as each:
        each.push_killed()
        left = each.now()
        assert the_state() is State.STAGED
        with other(tmp_path):
            [refused] = each.push().devices
            assert "works on it, so nothing of this takes effect" in refused.error
            assert each.now() == left
            told = status(deploy.change(None), each.inventory)
            assert told.exit_code == VerificationError.exit_code
        assert [report.error for report in resume(deploy.change(None), each.inventory).devices] == [""]
        assert each.now() == each.new
        with other(tmp_path):
            assert [report.error for report in each.push().devices] == [""]


def _killed(*_: object, **__: object) -> None:
    raise SystemError("killed")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_mark_that_is_too_old_is_taken_away_and_not_missed_by_either(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with box(platform, tmp_path) as each:
        each.push_killed()
        broken = deploy.change(None).identifier
        monkeypatch.setattr("mltswitch.deploy.occupation.STALE_SECONDS", 0)
        with other(tmp_path):
            [report] = each.push().devices
        assert (report.status, report.error) == (Status.CHANGED, "")
        assert any("had it, and has not ended that: taken from them" in note for note in report.notes)
        assert each.now() == each.new
        for finish in (resume, rollback, lambda *_: each.push(each.former)):
            [refused] = finish(deploy.change(None), each.inventory).devices
            assert f"the mark of change {broken} is gone: it was too old from 20" in refused.error
            assert each.now() == each.new
        deploy.abandon(deploy.change(broken))
        assert each.push(each.former).devices[0].error == ""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_mark_that_is_gone_before_its_time_lets_nobody_go_over_another(
    platform: str, tmp_path: Path
) -> None:
    """Removed by hand, or by a switch that has restarted."""
    with box(platform, tmp_path) as each:
        switch: Any = each.server.device
        target, own = target_for(platform), owner(each.inventory.devices[0])
        lock = target.guard.lock
        assert lock is not None
        each.push_killed()
        send(switch, target, lock.release(ask(switch, target, lock.query), own))
        document = each.plan.fabric.model_dump(mode="json", by_alias=True, exclude_none=True)
        document["classes"] |= {"control": {"dscp": [40]}, "gradients": {"dscp": [10, 18, 26]}}
        third = build_plan(
            resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
        )
        with other(tmp_path):
            assert each.push(third).devices[0].error == ""
        runs = each.now()
        for finish in (resume, rollback, lambda *_: each.push()):
            [refused] = finish(deploy.change(None), each.inventory).devices
            assert "somebody has changed it since" in refused.error
            assert each.now() == runs


def test_a_mark_from_a_time_to_come_is_not_said_to_grow_old(tmp_path: Path) -> None:
    with box("sonic", tmp_path) as each:
        switch: Any = each.server.device
        switch.locks.links[LINK] = f"mltswitch 0badcafe {int(time.time()) + 10**8} bob@jump2"
        [report] = each.push().devices
        assert "a clock is or was wrong, so nobody can tell how old their mark is" in report.error


def test_a_mark_of_another_form_is_named_with_what_removes_it() -> None:
    lock, query = target_for("sonic").guard.lock, f"date +%s; readlink {LINK} || true"
    assert lock is not None
    assert lock.read("100\nmltswitch 0badcafe 99 bob@jump2\n") == (100, (Claim("0badcafe", "bob@jump2", 99),))
    for link in ("somebody's", f"mltswitch 0badcafe {'9' * 17} bob@jump2"):
        with pytest.raises(DeviceError) as caught:
            lock.read(f"100\n{link}\n")
        assert caught.value.what.startswith(f"the answer to {query!r} has another form than known")
        assert (
            caught.value.hint == "where nobody works on the device, enter there: sudo rm /run/lock/mltswitch"
        )


def test_a_way_back_does_not_undo_what_others_changed_since(tmp_path: Path) -> None:
    with box("eos", tmp_path) as each:
        each.push()
        own = deploy.change(None)
        switch: Any = each.server.device
        port = each.plan.topology.by_name["leaf1"].ports[0].name
        assert switch.configure(f"interface {port}", "no qos trust") == ""
        now = each.now()
        [refused] = rollback(own, each.inventory).devices
        assert "somebody has changed it since" in refused.error
        assert each.now() == now
        assert own.identifier in json.dumps([each.identifier for each in deploy.changes()])


def test_each_state_directory_has_its_own_mark_at_each_address(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text("all: {hosts: {leaf1: {mltswitch_platform: sonic, ansible_user: admin}}}\n")
    [device] = load_inventory(inventory).devices
    own = owner(device)
    assert owner(device) == own
    assert owner(replace(device, address="leaf1.lab")) != own
    with other(tmp_path):
        assert owner(device) != own
        (tmp_path / "another" / "owner").write_text("no mark")
        with pytest.raises(UserInputError, match="is damaged"):
            owner(device)
    assert STALE_SECONDS >= 3600
