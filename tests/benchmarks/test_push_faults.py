"""The campaign of disturbed pushes: what it compares, what the emulators do, and two of its runs."""

from pathlib import Path

import pytest

from benchmarks.emulated import Rack
from benchmarks.push_faults import VIOLATIONS, Trouble, campaign
from benchmarks.twins import configured, fabric_plans, planned, send, snapshot
from mltswitch.deploy import connect
from mltswitch.errors import DeviceError
from mltswitch.inventory import load_inventory
from mltswitch.targets import Step, target_for
from switchsim import KINDS, Accept


@pytest.mark.parametrize("platform", sorted(KINDS))
def test_half_a_change_is_seen_and_a_reboot_loses_it(platform: str) -> None:
    plan, former, (leaf,) = fabric_plans(1, (platform,))
    target = target_for(platform)
    switch, twin = (KINDS[platform](leaf.name, 4) for _ in range(2))
    for each in (switch, twin):
        configured(each, target, former)
    old = snapshot(switch, platform)
    assert old[0] == old[1]
    steps = planned(switch, target, plan).steps
    configured(twin, target, plan)
    new = snapshot(twin, platform)
    assert new[0] == new[1] != old[0]
    send(switch, target, steps[:-1])
    assert snapshot(switch, platform) != new
    switch.reboot()
    assert snapshot(switch, platform) == old
    send(switch, target, planned(switch, target, plan).steps)
    assert snapshot(switch, platform) == (new[0], old[1])


@pytest.mark.parametrize("platform", ["dell-sonic", "eos", "icos"])
def test_lines_for_a_port_that_did_not_open_are_not_sent(platform: str, tmp_path: Path) -> None:
    """FASTPATH would take them for all its ports, those outside the plan too."""
    plan, _, (leaf,) = fabric_plans(1, (platform,))
    port = plan.topology.by_name[leaf.switch].ports[0].name
    line = f"interface {port}"
    switch = KINDS[platform](leaf.name, 4)
    before = snapshot(switch, platform)
    rack = Rack(tmp_path / "rack", [leaf])
    with rack.server(leaf.name, switch, Trouble(lines=frozenset({line}), at=1, act=Accept)) as server:
        rack.write({leaf.name: server.port})
        [device] = load_inventory(rack.inventory).devices
        with (
            connect(device, target_for(platform)) as session,
            pytest.raises(DeviceError, match=f"step 1 of 2, '{line}': still in the mode of"),
        ):
            session.apply([Step(line), Step("cos-queue strict 2")])
    assert snapshot(switch, platform) == before


def test_disturbed_pushes_leave_nothing_half_done() -> None:
    found = campaign(seed=0, first=0, runs=2)
    assert found["runs"] == 2
    assert [name for name in VIOLATIONS if found[name]] == []
