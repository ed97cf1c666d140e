"""A real plan, each target and its emulated switch: push twice, and verify after a change by hand."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.twins import snapshot
from mltswitch.deploy import Question, Status, diff, push, verify
from mltswitch.errors import DeviceError, UnsupportedPlanError
from switchsim import (
    KINDS,
    CumulusDevice,
    DellSonicDevice,
    DropBeforeLine,
    Faults,
    IcosDevice,
    OnyxDevice,
    RefuseLine,
    SonicDevice,
)
from tests.deploy.emulated import plan_of, served
from tests.targets.dell_sonic.device import lines_of


def by_nvue(switch: Any, *lines: str) -> None:
    for line in (*lines, "config apply -y"):
        assert switch.execute("cumulus", f"nv {line}").status == 0


def on_cumulus(switch: Any) -> None:
    profile = switch.applied["interface"]["swp2"]["qos"]["congestion-control"]["profile"]
    queue = f"set qos congestion-control {profile} traffic-class 5"
    by_nvue(switch, f"{queue} min-threshold 6144", f"{queue} max-threshold 6144")


def on_dell_sonic(switch: Any) -> None:
    lines = lines_of(switch.configuration, "interface Eth1/2")
    [bound] = [line for line in lines if line.startswith("queue 5 wred-policy ")]
    curve = "green minimum-threshold 12000 maximum-threshold 12000 drop-probability 100"
    assert switch.configure(f"qos {bound.removeprefix('queue 5 ')}", curve) == ""


def on_eos(switch: Any) -> None:
    threshold = "minimum-threshold 2560 bytes maximum-threshold 2560 bytes"
    line = f"random-detect ecn {threshold} max-mark-probability 100 weight 0"
    assert switch.configure("interface Ethernet2/1", "uc-tx-queue 4", line) == ""


def on_icos(switch: Any) -> None:
    curve = "min-thresh 99 99 99 99 max-thresh 99 99 99 99 drop-prob-scale 100 100 100 100 ecn"
    assert switch.configure("interface te1/0/2", f"random-detect queue-parms 4 {curve}") == ""


def on_onyx(switch: Any) -> None:
    curve = "congestion-control both minimum-absolute 6 maximum-absolute 6"
    assert switch.configure(f"interface ethernet 1/2 traffic-class 5 {curve}") == ""


def on_sonic(switch: Any) -> None:
    profiles = switch.config_db["WRED_PROFILE"]
    name = next(name for name in sorted(profiles) if name.startswith("MLT_Q5_"))
    changed = {**profiles[name], "green_min_threshold": "12288", "green_max_threshold": "12288"}
    switch.config_db = {**switch.config_db, "WRED_PROFILE": {**profiles, name: changed}}


@dataclass(frozen=True)
class Case:
    """How one platform's switch is changed by hand, and what is told of it and of a push."""

    says: str
    """A part of the first push."""
    by_hand: Callable[[Any], None]
    queue: int
    found: str
    """The threshold that somebody set."""
    refused: Faults
    answer: str = "% Refused by a fault"
    """To the line that is refused."""
    most_lines: int = 10**9
    """Of the push that mends it."""


CASES = {
    "cumulus": Case(
        *("nv set qos congestion-control mlt-swp1 traffic-class", on_cumulus, 5, "6144"),
        *(RefuseLine("config apply", "Invalid config [rev_id: 2]"), "Invalid config [rev_id: 2]", 4),
    ),
    "dell-sonic": Case(
        *("service-policy type qos in mltswitch-rewrite-", on_dell_sonic, 5, "12000000"),
        *(RefuseLine("queue 5 wred-policy"),),
        most_lines=3,
    ),
    "eos": Case(
        "   interface Ethernet2/1\n      uc-tx-queue",
        *(on_eos, 4, "2560", RefuseLine("qos map dscp")),
        most_lines=5,
    ),
    "icos": Case(
        *("random-detect queue-parms", on_icos, 4, str(99 * 6667), RefuseLine("ip route")), most_lines=3
    ),
    "onyx": Case("traffic-class", on_onyx, 5, "6144", RefuseLine("1/2 .* congestion-control")),
    "sonic": Case(
        "MLT",
        on_sonic,
        5,
        "12288",
        RefuseLine(r"cat \| sudo config apply-patch", "Error: refused"),
        "refused",
    ),
}


@pytest.mark.parametrize("platform", CASES)
def test_push_is_idempotent_and_verify_finds_a_change_by_hand(platform: str, tmp_path: Path) -> None:
    plan, case = plan_of(platform), CASES[platform]
    switch = KINDS[platform]("leaf1", 8)
    with served(tmp_path, platform, switch) as rack:
        [first] = push(plan, rack, accept=[*Question]).devices
        assert (first.status, first.error) == (Status.CHANGED, "")
        assert case.says in first.change
        running, saved = snapshot(switch, platform)
        assert running == saved
        report = push(plan, rack, accept=[*Question])
        assert [(each.status, each.change, each.error) for each in report.devices] == [(Status.OK, "", "")]
        assert report.warnings == ("switch spine1 of fabric small is not in the inventory inventory",)
        assert snapshot(switch, platform) == (running, saved)
        case.by_hand(switch)
        [told] = verify(plan, rack).devices
        assert told.status is Status.DIFFERS
        assert ("gradient-0", case.queue, "ecn_threshold_bytes", case.found) in {
            (each.traffic_class, each.queue, each.field, each.found) for each in told.differences
        }
        [third] = push(plan, rack, accept=[*Question]).devices
        assert (third.status, third.error) == (Status.CHANGED, "")
        lines = [line for line in third.change.splitlines() if not line.startswith("#")]
        assert len(lines) <= case.most_lines
        assert [each.status for each in verify(plan, rack).devices] == [Status.OK]


@pytest.mark.parametrize("platform", CASES)
def test_a_refused_line_takes_the_switch_back(platform: str, tmp_path: Path) -> None:
    plan, case = plan_of(platform), CASES[platform]
    switch = KINDS[platform]("leaf1", 8)
    with served(tmp_path, platform, switch, case.refused) as rack:
        before = snapshot(switch, platform)
        report = push(plan, rack, accept=[*Question])
        [failed] = report.devices
        assert failed.status is Status.FAILED
        assert "refuses step " in failed.error
        assert case.answer in failed.error
        assert failed.error.endswith("It runs again what it ran before")
        assert report.exit_code == DeviceError.exit_code
        assert snapshot(switch, platform) == before
        [left] = diff(plan, rack).devices
        assert (left.status, left.change) == (Status.WOULD_CHANGE, failed.change)


@pytest.mark.parametrize(
    ("platform", "switch", "error"),
    [
        ("dell-sonic", DellSonicDevice(ports=1), "port Eth1/2: the switch has no such port"),
        ("icos", IcosDevice(ports=1), "show classofservice trust te1/0/2"),
    ],
)
def test_a_port_that_the_switch_lacks_stops_before_anything_is_sent(
    platform: str, switch: IcosDevice | DellSonicDevice, error: str, tmp_path: Path
) -> None:
    before = switch.configuration
    with served(tmp_path, platform, switch) as rack:
        [failed] = push(plan_of(platform), rack).devices
        assert failed.status is Status.FAILED
        assert error in failed.error
        assert switch.configuration == before


def test_code_points_that_get_in_have_to_be_accepted(tmp_path: Path) -> None:
    with served(tmp_path, "onyx", OnyxDevice()) as rack:
        with pytest.raises(UnsupportedPlanError, match="`--accept-leak` pushes all the same") as refused:
            push(plan_of("onyx"), rack)
        assert refused.value.where == "onyx1"
        assert "packets that come by 1/1 keep code points" in str(refused.value)
        [shown] = diff(plan_of("onyx"), rack).devices
        assert shown.status is Status.WOULD_CHANGE
        assert any("keep code points" in text for text in shown.shortfalls)


def test_what_somebody_else_left_pending_stops_a_diff(tmp_path: Path) -> None:
    switch = CumulusDevice()
    with served(tmp_path, "cumulus", switch) as rack:
        assert switch.execute("cumulus", "nv set system hostname other").status == 0
        report = diff(plan_of("cumulus"), rack)
        assert report.exit_code == DeviceError.exit_code
        assert "`nv set system hostname other` for one" in report.devices[0].error


def test_a_push_that_broke_off_before_the_apply_can_be_tried_again(tmp_path: Path) -> None:
    plan, switch = plan_of("cumulus"), CumulusDevice()
    fault = DropBeforeLine(pattern="interface .* qos mapping")
    with served(tmp_path, "cumulus", switch, fault) as rack:
        [failed] = push(plan, rack).devices
        assert failed.status is Status.FAILED
        assert failed.error.endswith("It runs again what it ran before")
        assert switch.revisions.pending is None
        [again] = push(plan, rack).devices
        assert (again.status, again.error) == (Status.CHANGED, "")
        assert switch.revisions.pending is None
        assert switch.saved == switch.applied
        assert [each.status for each in verify(plan, rack).devices] == [Status.OK]


def test_what_was_wrong_already_is_told_as_such_and_nothing_is_sent(tmp_path: Path) -> None:
    plan, switch = plan_of("sonic"), SonicDevice()
    with served(tmp_path, "sonic", switch) as rack:
        switch.config_db["PORT_QOS_MAP"]["Ethernet99"] = {"pfc_enable": "3"}
        before, points = copy.deepcopy(switch.config_db), switch.checkpoints
        [told], [refused] = diff(plan, rack).devices, push(plan, rack, accept=[*Question]).devices
        assert (told.status, refused.status) == (Status.CANNOT, Status.FAILED)
        for said in (told.differences[0].found, refused.error):
            assert "already, before this change" in said
            assert "PORT_QOS_MAP|Ethernet99" in said
        assert "Nothing was sent" in refused.error
        assert (switch.config_db, switch.checkpoints) == (before, points)


def test_sonic_returns_to_its_checkpoint_and_saves_it_by_the_way_back_that_is_printed(tmp_path: Path) -> None:
    switch = SonicDevice()
    before = copy.deepcopy(switch.config_db)
    with served(tmp_path, "sonic", switch) as rack:
        [report] = push(plan_of("sonic"), rack, accept=[*Question]).devices
    assert (report.status, report.error) == (Status.CHANGED, "")
    assert switch.config_db != before
    assert switch.execute("admin", report.way_back).status == 0
    assert switch.config_db == before
    assert json.loads(switch.files.read("/etc/sonic/config_db.json")) == before


def test_cumulus_returns_to_the_revision_before_and_saves_it(tmp_path: Path) -> None:
    switch = CumulusDevice()
    with served(tmp_path, "cumulus", switch) as rack:
        by_nvue(switch, "set system hostname leaf1")
        before = copy.deepcopy(switch.applied)
        number = len(switch.revisions.history)
        [report] = push(plan_of("cumulus"), rack).devices
    assert (report.status, report.error) == (Status.CHANGED, "")
    assert switch.applied != before
    commands = report.way_back.partition(" (")[0].replace("REVISION", f"{number} -y")
    for command in commands.split(" && "):
        assert switch.execute("cumulus", command).status == 0
    assert switch.applied == switch.saved == before
