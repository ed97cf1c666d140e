"""A real plan, the Onyx target and the emulated switch: push twice, and verify after a change by hand."""

import dataclasses
from pathlib import Path

import pytest

from mltswitch.deploy import Status, diff, push, verify
from mltswitch.errors import DeviceError, UnsupportedPlanError
from mltswitch.inventory import Inventory
from mltswitch.lab.emulators.faults import RefuseLine
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from tests.deploy.test_command_line import onyx
from tests.plan.examples import SMALL


def onyx_plan() -> Plan:
    """A fabric of one spine and one leaf with two ports."""
    group = {"count": 1, "platform": "onyx"}
    document = SMALL | {
        "topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 1}},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
        "ports": {"rate": "10Gbps", "buffer": "1MB"},
    }
    return build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
    )


def test_push_is_idempotent_and_verify_finds_a_change_by_hand(tmp_path: Path) -> None:
    plan = onyx_plan()
    with onyx(tmp_path) as (switch, reached):
        leaf = dataclasses.replace(reached, platform="onyx", switch="leaf1")
        rack = Inventory((leaf,), Path("inventory"))
        [first] = push(plan, rack, accept=True).devices
        assert (first.status, first.error) == (Status.CHANGED, "")
        assert "traffic-class" in first.change
        assert switch.files["initial"] == switch.configuration
        report = push(plan, rack, accept=True)
        assert [device.status for device in report.devices] == [Status.OK]
        assert report.warnings == ("switch spine1 of fabric small is not in the inventory inventory",)
        switch.configure(
            "interface ethernet 1/2 traffic-class 5 congestion-control both "
            "minimum-absolute 6 maximum-absolute 6"
        )
        [found] = verify(plan, rack).devices[0].differences
        assert (found.device, found.port, found.queue) == ("onyx1", "1/2", 5)
        assert (found.traffic_class, found.field, found.found) == (
            "gradient-0",
            "ecn_threshold_bytes",
            "6144",
        )


def test_a_refused_line_takes_the_switch_back(tmp_path: Path) -> None:
    plan = onyx_plan()
    with onyx(tmp_path, RefuseLine("1/2 .* congestion-control")) as (switch, reached):
        before, running = switch.files["initial"], switch.configuration
        leaf = dataclasses.replace(reached, platform="onyx", switch="leaf1")
        rack = Inventory((leaf,), Path("inventory"))
        report = push(plan, rack, accept=True)
        [failed] = report.devices
        assert failed.status is Status.FAILED
        assert "refuses step " in failed.error
        assert "% Refused by a fault" in failed.error
        assert report.exit_code == DeviceError.exit_code
        assert switch.files["initial"] == before
        [left] = diff(plan, rack).devices
        assert left.status is Status.WOULD_CHANGE
        assert failed.error.endswith("It runs again what it ran before")
        # No show tells the mode of prefixes, so it stays as the push has set it.
        assert switch.configuration == dataclasses.replace(running, prefix_modes=False)
        assert left.change == failed.change


def test_code_points_that_get_in_have_to_be_accepted(tmp_path: Path) -> None:
    plan = onyx_plan()
    with onyx(tmp_path) as (_, reached):
        leaf = dataclasses.replace(reached, platform="onyx", switch="leaf1")
        rack = Inventory((leaf,), Path("inventory"))
        with pytest.raises(UnsupportedPlanError, match="`--accept` pushes all the same") as refused:
            push(plan, rack)
        assert refused.value.where == leaf.name
        assert "packets that come by 1/1 keep code points" in str(refused.value)
        [shown] = diff(plan, rack).devices
        assert shown.status is Status.WOULD_CHANGE
        assert any("keep code points" in text for text in shown.shortfalls)
