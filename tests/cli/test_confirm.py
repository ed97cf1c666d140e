"""A push that the switch takes back by itself, and what leaves a switch again: strays, and all of ours."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from mltswitch import deploy
from mltswitch.cli import cli
from mltswitch.deploy import Fleet, Rollout, Session
from mltswitch.deploy.state_directory import STATE_VARIABLE
from mltswitch.documents import dump_yaml
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.inventory import Device, Inventory, load_inventory
from mltswitch.plan import load_plan
from mltswitch.targets import Step, Target
from mltswitch.targets.base import Timer
from switchsim import (
    CumulusDevice,
    EmulatorServer,
    EosDevice,
    Faults,
    OnyxDevice,
    SonicDevice,
    load_authorized_keys,
    load_host_key,
)
from switchsim.device import EmulatedDevice
from switchsim.faults import Fault, RefuseLine
from tests.cli.test_changes import run
from tests.cli.test_deploy import Terminal
from tests.deploy.doubles import FileTarget, ScriptedSwitches, inventory
from tests.deploy.doubles import small_plan as doubled_plan
from tests.deploy.emulated import plan_of
from tests.deploy.sshd import make_key
from tests.targets.eos.under_test import configured

BOTH: Final = [*deploy.Question]
ACCEPT: Final = ("--accept",)
TIMED: Final = ("eos", "eos-4.35", "cumulus", "sonic")
"""Platforms, and a release of which another form is known."""
MADE: Final[dict[str, Callable[[], EmulatedDevice]]] = {
    "eos": lambda: EosDevice(name="leaf1"),
    "eos-4.35": lambda: EosDevice(name="leaf1", release="4.35.0F"),
    "cumulus": lambda: CumulusDevice(name="leaf1"),
    "sonic": lambda: SonicDevice(name="leaf1"),
    "onyx": lambda: OnyxDevice(name="leaf1"),
}
RUNS: Final[dict[str, Callable[[Any], object]]] = {
    "eos": configured,
    "eos-4.35": configured,
    "cumulus": lambda switch: switch.applied,
    "sonic": lambda switch: switch.config_db,
}
"""What the emulated switch runs."""
SAVED: Final[dict[str, Callable[[Any], object]]] = {
    "eos": lambda switch: switch.saved,
    "eos-4.35": lambda switch: switch.saved,
    "cumulus": lambda switch: switch.saved,
    "sonic": lambda switch: switch.files.read("/etc/sonic/config_db.json"),
}
KEPT: Final = {
    "eos": "",
    "eos-4.35": "",
    "cumulus": "nv config apply --confirm-yes",
    "sonic": "sudo systemctl stop mltswitch-{}-leaf1.timer",
}
"""What keeps a change on the switch itself."""
PATIENCE_SECONDS: Final = 30.0


class Slow(Faults):
    """A switch that thinks long about one question."""

    def on_line(self, number: int, line: str) -> Fault | None:
        """Answer late."""
        del number
        time.sleep(5 if line == "show running-config" else 0)
        return None


@contextmanager
def rack(platform: str, folder: Path, faults: Faults | None = None) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """An emulated leaf and the words that name its plan and inventory."""
    host_key = make_key(folder / "host")
    make_key(folder / "id")
    keys = load_authorized_keys(folder / "id.pub")
    switch = MADE[platform]()
    host = load_host_key(folder / "host")
    with EmulatorServer(switch, host_key=host, authorized_keys=keys, faults=faults) as server:
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        leaf = {
            "ansible_host": "127.0.0.1",
            "ansible_port": server.port,
            "ansible_user": "admin",
            "ansible_network_os": platform.partition("-")[0],
            "ansible_ssh_private_key_file": str(folder / "id"),
            "mltswitch_known_hosts_file": str(folder / "known_hosts"),
        }
        (folder / "rack.yaml").write_text(yaml.safe_dump({"all": {"hosts": {"leaf1": leaf}}}))
        (folder / "plan.yaml").write_text(dump_yaml(plan_of(platform.partition("-")[0], 2)))
        yield switch, (str(folder / "plan.yaml"), "-i", str(folder / "rack.yaml"))


@pytest.mark.parametrize("platform", TIMED)
def test_who_confirms_in_time_keeps_the_change(platform: str, tmp_path: Path) -> None:
    with rack(platform, tmp_path) as (switch, words):
        saved = SAVED[platform](switch)
        shown = run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        assert "`mltswitch confirm" in shown
        assert "1 verified" in run("history")
        assert "1 verified" in run("resume")
        pushed = RUNS[platform](switch)
        if platform != "cumulus":  # nothing that it tells says so
            assert "push expected confirmed, found " in run("verify", *words, code=5)
        assert "1 confirmed" in run("confirm")
        assert RUNS[platform](switch) == pushed
        assert SAVED[platform](switch) != saved
        assert "1 ok" in run("verify", *words)
        assert not getattr(switch, "timers", {})


@pytest.mark.parametrize("platform", TIMED)
def test_where_the_operator_vanishes_the_switch_goes_back(platform: str, tmp_path: Path) -> None:
    with rack(platform, tmp_path) as (switch, words):
        start, saved = RUNS[platform](switch), SAVED[platform](switch)
        run("push", *words, *ACCEPT, "--yes", "--confirm", "3")
        assert RUNS[platform](switch) != start
        end = time.monotonic() + PATIENCE_SECONDS
        while RUNS[platform](switch) != start and time.monotonic() < end:
            time.sleep(0.1)
        assert RUNS[platform](switch) == start
        assert SAVED[platform](switch) == saved
        assert "runs-what-ran-before" in run("status")
        assert "went back by itself" in run("confirm", code=4)
        assert "1 rolled-back" in run("history")


@pytest.mark.parametrize("platform", TIMED)
def test_a_timed_change_is_taken_back_at_once(platform: str, tmp_path: Path) -> None:
    with rack(platform, tmp_path) as (switch, words):
        start = RUNS[platform](switch)
        run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        assert "1 rolled-back" in run("rollback")
        assert RUNS[platform](switch) == start
        assert not getattr(switch, "timers", {})


@pytest.mark.parametrize("platform", ["eos", "eos-4.35"])
def test_a_second_operator_keeps_the_same_plan_and_may_not_push_another(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rack(platform, tmp_path) as (switch, words):
        run("push", *words, *ACCEPT, "--confirm", "600")
        with monkeypatch.context() as second:
            second.setenv(STATE_VARIABLE, str(tmp_path / "second"))
            switch.configure("interface Ethernet1/1", "no qos trust")
            other = run("push", *words, *ACCEPT, code=4)
            assert "a push waits to be confirmed, in config session mltswitch-1" in other
            switch.configure("interface Ethernet1/1", "qos trust dscp")
            assert "1 ok" in run("push", *words, *ACCEPT)
            assert switch.saved == switch.configuration
            assert "1 ok" in run("verify", *words)
        assert "1 confirmed" in run("confirm")


@pytest.mark.parametrize("platform", ["eos", "eos-4.35"])
def test_a_commit_of_somebody_else_that_may_be_taken_back(platform: str, tmp_path: Path) -> None:
    with rack(platform, tmp_path) as (switch, words):
        run("push", *words, *ACCEPT)
        session = switch.open_session("other")
        for line in ("enable", "configure session vlans", "ip routing", "commit timer 00:10:00"):
            assert session.enter(line).text == ""
        saved = switch.saved
        expected = "config session vlans, which is not ours, waits for its commit timer"
        assert expected in run("verify", *words, code=5)
        assert expected in run("push", *words, *ACCEPT, code=4)
        assert switch.saved == saved
        assert session.enter("configure session vlans abort").text == ""
        assert "1 ok" in run("verify", *words)


@pytest.mark.parametrize(("word", "code"), [("confirm", 4), ("rollback", 0)])
def test_what_somebody_else_has_on_trial_stays_on_trial(tmp_path: Path, word: str, code: int) -> None:
    with rack("cumulus", tmp_path) as (switch, words):
        run("push", *words, *ACCEPT, "--confirm", "600")
        for line in (
            "nv config apply --confirm-no",
            "nv set interface swp9 link mtu 1500",
            "nv config apply -y --confirm 600s",
        ):
            assert switch.execute("admin", line).status == 0
        run(word, code=code)
        assert "1 rolled-back" in run("history")
        assert switch.revisions.end_trial(keep=False)


def test_what_has_no_timer_is_refused(tmp_path: Path) -> None:
    with rack("onyx", tmp_path) as (_, words), pytest.raises(UnsupportedPlanError, match="has no timer"):
        run("push", *words, *ACCEPT, "--confirm", "600")


@pytest.mark.parametrize("platform", TIMED)
def test_ports_that_leave_the_plan_become_what_they_were(platform: str, tmp_path: Path) -> None:
    with rack(platform, tmp_path) as (switch, words):
        start = RUNS[platform](switch)
        run("push", *words, *ACCEPT, "--yes")
        (tmp_path / "plan.yaml").write_text(dump_yaml(plan_of(platform.partition("-")[0])))
        found = run("verify", *words, code=5)
        assert "expected nothing of ours, found that of change " in found
        assert "1 changed" in run("push", *words, *ACCEPT, "--yes")
        assert "1 ok" in run("verify", *words)
        assert "1 rolled-back" in run("history")
        assert "1 rolled-back" in run("remove", *words[1:])
        assert RUNS[platform](switch) == start


def test_ports_go_down_only_where_they_may(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        start = switch.config_db
        refused = run("push", *words, *ACCEPT, code=4)
        assert "takes down ports for a while: Ethernet" in refused
        assert "Nothing was sent" in refused
        assert switch.config_db == start


class Interrupting(Faults):
    """A switch whose operator presses Ctrl-C once for each command, when its work has begun."""

    commands = 0

    def on_line(self, number: int, line: str) -> Fault | None:
        """Interrupt this process."""
        del number
        if line == "show running-config" and self.commands:
            self.commands -= 1
            os.kill(os.getpid(), signal.SIGINT)
        return None


@pytest.mark.usefixtures("interruptible")
def test_the_first_ctrl_c_finishes_what_was_begun_and_tells_of_it(tmp_path: Path) -> None:
    faults = Interrupting()
    with rack("eos", tmp_path, faults) as (_, words):
        for command, end in ((("push", *words, *ACCEPT), "changed"), (("rollback",), "rolled-back")):
            faults.commands = 1
            said = run(*command, code=130)
            assert said.startswith("interrupted: the devices that were begun are finished")
            assert f"1 {end}\nchange 2" in said
            assert faults.commands == 0


def test_a_switch_that_takes_too_long_is_hung_up_on(tmp_path: Path) -> None:
    with rack("onyx", tmp_path, Slow()) as (_, words):
        late = run("push", *words, *ACCEPT, "--device-timeout", "2", code=4)
        assert "takes longer than 2 s" in late
        assert "Nothing was sent" in late
        assert "the deadline has passed" in run("push", *words, *ACCEPT, "--deadline", "0", code=4)


def test_strays_stay_where_the_push_would_be_refused(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        run("push", *words, *ACCEPT, "--yes")
        pushed = switch.config_db
        (tmp_path / "plan.yaml").write_text(dump_yaml(plan_of("sonic")))
        [told] = json.loads(run("diff", *words, "--json"))["devices"]
        assert sorted(told["takes_down"]) == ["Ethernet0", "Ethernet4", "Ethernet8"]
        refused = run("push", *words, *ACCEPT, code=4)
        assert "takes down ports for a while: Ethernet" in refused
        assert switch.config_db == pushed
        assert "1 confirmed" in run("history")


def test_what_a_resumed_push_finds_unfinished_is_taken_over(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        start = switch.config_db
        (tmp_path / "plan.yaml").write_text(dump_yaml(plan_of("sonic")))
        run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        (tmp_path / "plan.yaml").write_text(dump_yaml(plan_of("sonic", 2)))
        run("push", *words, *ACCEPT, "--yes", "--deadline", "0", code=4)
        assert "1 confirmed" in run("resume", "--yes", *ACCEPT)
        assert not switch.timers
        assert "1 continued" in run("history")
        run("rollback")
        assert switch.config_db == start


@pytest.mark.parametrize("platform", TIMED)
def test_a_confirmation_that_broke_off_is_repeated(platform: str, tmp_path: Path) -> None:
    with rack(platform, tmp_path) as (switch, words):
        run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        name = deploy.change(None).identifier
        for line in KEPT[platform].format(name).splitlines():
            assert switch.execute("admin", line).status == 0
        assert "1 confirmed" in run("confirm")


def test_a_confirmation_that_is_refused_in_unknown_words_is_an_error(tmp_path: Path) -> None:
    said = "Error: nvued does not answer"
    with rack("cumulus", tmp_path, RefuseLine("confirm-yes", said)) as (_, words):
        run("push", *words, *ACCEPT, "--confirm", "600")
        assert said in run("confirm", code=4)


class Thoughtful(Faults):
    """A switch that thinks for a while about the first two readings after it got a line."""

    left: int | None = None

    def on_line(self, number: int, line: str) -> Fault | None:
        """Answer late."""
        del number
        if self.left is None and line.startswith("interface ethernet"):
            self.left = 2
        if self.left and line == "show running-config":
            self.left -= 1
            time.sleep(7)
        return None


def test_no_time_limit_cuts_the_way_back_off(tmp_path: Path) -> None:
    with rack("onyx", tmp_path, Thoughtful()) as (_, words):
        late = run("push", *words, *ACCEPT, "--device-timeout", "6", code=4)
        assert "takes longer than 6 s" in late
        assert "It runs again what it ran before" in late
        assert "1 rolled-back" in run("history")


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSwitches:
    """Two leaves whose platform has a timer."""
    target = FileTarget(tmp_path)
    monkeypatch.setattr(target, "timer", Timer(lambda change, *_: change, lambda _: (Step("keep"),)), False)
    monkeypatch.setattr("mltswitch.deploy.prepare.target_for", lambda platform, where="": target)
    return ScriptedSwitches({"leaf1": 1, "leaf2": 1})


RACK: Final = inventory("leaf1", "leaf2")


def states() -> set[str]:
    """How the devices of the last change stand."""
    return set(deploy.change(None).last.values())


@pytest.mark.parametrize("deadline", [0, None], ids=["late", "interrupted"])
def test_who_was_not_begun_in_time_is_resumed_in_every_wave(
    scripted: ScriptedSwitches, deadline: float | None
) -> None:
    late = Fleet(connector=scripted.connect, deadline=deadline)
    if deadline is None:
        late.interrupted.set()
    deploy.push(doubled_plan(), RACK, rollout=Rollout("1"), fleet=late)
    assert states() == {"planned"}
    deploy.resume(deploy.change(None), RACK, fleet=Fleet(connector=scripted.connect))
    assert states() == {"confirmed"}


@pytest.mark.parametrize("confirmed", ["leaf1", "leaf2"])
def test_an_atomic_change_is_confirmed_by_all_or_none(scripted: ScriptedSwitches, confirmed: str) -> None:
    fleet = Fleet(connector=scripted.connect)
    deploy.push(doubled_plan(), RACK, rollout=Rollout(atomic=True, confirm_seconds=600), fleet=fleet)
    deploy.confirm(deploy.change(None), RACK, limit=confirmed, fleet=fleet)
    [other] = {"leaf1", "leaf2"} - {confirmed}
    scripted.limits[other] = 1
    report = deploy.confirm(deploy.change(None), RACK, fleet=fleet)
    assert {each.device for each in report.devices} == {"leaf1", "leaf2"}
    assert states() == {"rolled-back"}
    assert set(scripted.limits.values()) == {1}


def test_an_atomic_change_of_which_one_device_went_back_is_not_confirmed(scripted: ScriptedSwitches) -> None:
    fleet = Fleet(connector=scripted.connect)
    deploy.push(doubled_plan(), RACK, rollout=Rollout(atomic=True, confirm_seconds=600), fleet=fleet)
    deploy.rollback(deploy.change(None), RACK, limit="leaf1", fleet=fleet)
    with pytest.raises(UserInputError, match="is rolled-back, so it cannot be confirmed"):
        deploy.confirm(deploy.change(None), RACK, fleet=fleet)


def test_an_old_change_is_not_resumed_over_a_later_one(scripted: ScriptedSwitches) -> None:
    fleet = Fleet(connector=scripted.connect)
    deploy.push(doubled_plan(), RACK, rollout=Rollout(confirm_seconds=600), fleet=fleet)
    first = deploy.change(None)
    moved = Inventory(tuple(replace(each, port=2022) for each in RACK.devices), RACK.path)
    deploy.push(doubled_plan(), moved, fleet=fleet)
    with pytest.raises(UserInputError, match="a later change has worked on it"):
        deploy.resume(first, moved, fleet=fleet)


def test_who_has_saved_is_not_said_to_have_got_nothing(scripted: ScriptedSwitches) -> None:
    @contextmanager
    def breaking(device: Device, target: Target) -> Iterator[Session]:
        with scripted.connect(device, target) as session:
            yield session
        raise DeviceError("hangs up", where=device.name)

    report = deploy.push(doubled_plan(), RACK, fleet=Fleet(connector=breaking))
    assert states() == {"confirmed"}
    assert all("It runs the plan, and has saved it" in each.error for each in report.devices)


def test_the_timer_of_an_abandoned_change_undoes_no_later_push(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        run("rollback", "--abandon")
        run("push", *words, *ACCEPT, "--yes")
        assert not switch.timers


def test_a_timed_change_that_goes_on_returns_to_what_ran_before_its_first_try(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        start = switch.config_db
        run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        maps = {
            port: entry for port, entry in switch.config_db["PORT_QOS_MAP"].items() if port != "Ethernet4"
        }
        switch.config_db = switch.config_db | {"PORT_QOS_MAP": maps}
        assert "1 verified" in run("resume", "--yes")
        [timer] = switch.timers.values()
        timer.function()
        assert switch.config_db == start


def test_a_yes_holds_for_the_ports_that_were_named(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        plan, inventory = load_plan(Path(words[0])), load_inventory(Path(words[2]))
        start = switch.config_db
        [told] = deploy.diff(plan, inventory).devices
        first, *others = told.takes_down
        [report] = deploy.push(plan, inventory, accept=BOTH, may_go_down={"leaf1": [first]}).devices
        assert f"takes down ports for a while: {', '.join(others)}" in report.error
        assert switch.config_db == start
        agreed = {"leaf1": told.takes_down}
        assert deploy.push(plan, inventory, accept=True, may_go_down=agreed).exit_code == 0


def test_what_is_resumed_asks_for_the_ports_that_go_down(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        start = switch.config_db
        run("push", *words, *ACCEPT, "--yes", "--deadline", "0", code=4)
        with pytest.raises(UserInputError, match="nobody can be asked; nothing was sent: leaf1: Ethernet0, "):
            run("resume", *ACCEPT)
        assert switch.config_db == start
        assert "1 planned" in run("history")
        with pytest.raises(UserInputError, match="nothing was sent: leaf1: lossless priority 3 loses DSCP 3"):
            run("resume", "--yes")
        assert "1 confirmed" in run("resume", "--yes", *ACCEPT)


def test_each_question_is_asked_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        start = switch.config_db
        assert "`--accept-lossless` says that it may" in run("push", *words, "--yes", "--accept-leak", code=4)
        for answers in ("n\n", "y\nn\n", "y\ny\nn\n"):
            monkeypatch.setattr("sys.stdin", Terminal(answers))
            with pytest.raises(click.Abort):
                cli(["push", *words], standalone_mode=False)
        told = capsys.readouterr().err
        assert [told.count(each) for each in ("not use:", "for a while:", "so far:")] == [3, 2, 1]
        assert switch.config_db == start
        monkeypatch.setattr("sys.stdin", Terminal("y\n"))
        assert cli(["push", *words, "--yes", "--accept-lossless"], standalone_mode=False) == 0


def test_a_resumed_change_stands_as_it_stood_where_its_ports_may_not_go_down(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        drifted = switch.config_db = {
            table: entries for table, entries in switch.config_db.items() if table != "PORT_QOS_MAP"
        }
        journal, inventory = deploy.change(None), load_inventory(Path(words[2]))
        [report] = deploy.resume(journal, inventory, may_go_down={"leaf1": ["Ethernet0"]}).devices
        assert "takes down ports for a while: Ethernet4" in report.error
        assert "it stands as it stood" in report.error
        assert switch.config_db == drifted
        assert states() == {"verified"}


def test_a_timer_of_somebody_else_undoes_no_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rack("sonic", tmp_path) as (switch, words):
        run("push", *words, *ACCEPT, "--yes", "--confirm", "600")
        monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "another"))
        refused = run("push", *words, *ACCEPT, "--yes", code=4)
        assert "goes back by itself from change " in refused
        assert "Nothing was sent" in refused
        [timer] = switch.timers.values()
        timer.function()
        assert "1 changed" in run("push", *words, *ACCEPT, "--yes")


def test_what_ran_before_a_try_that_ended_too_early_is_read_anew(scripted: ScriptedSwitches) -> None:
    fleet = Fleet(connector=scripted.connect)
    deploy.push(doubled_plan(), RACK, fleet=replace(fleet, deadline=0))
    first = deploy.change(None)
    first.stage("leaf1", {}, "")
    (first.folder / "journal.jsonl").unlink()  # the power went before this was on the disk
    scripted.limits["leaf1"] = 5
    deploy.resume(deploy.change(None), RACK, fleet=fleet)
    deploy.rollback(deploy.change(None), RACK, fleet=fleet)
    assert scripted.limits == {"leaf1": 5, "leaf2": 1}


def test_what_was_made_at_another_address_is_not_said_to_be_removed(scripted: ScriptedSwitches) -> None:
    fleet = Fleet(connector=scripted.connect)
    deploy.push(doubled_plan(), RACK, fleet=fleet)
    first = deploy.change(None)
    scripted.limits["leaf1"] = 3
    moved = Inventory(tuple(replace(each, port=2022) for each in RACK.devices), RACK.path)
    deploy.push(doubled_plan(), moved, fleet=fleet)
    report = deploy.remove(moved, fleet=fleet)
    told = f"change {first.identifier} of leaf1 was made at another address, and stays as it is"
    assert told in report.warnings
