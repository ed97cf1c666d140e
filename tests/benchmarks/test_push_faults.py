"""The campaign of disturbed pushes: what it compares, what the emulators do, and two of its runs."""

import pytest

from benchmarks.push_faults import VIOLATIONS, campaign, configured, fabric_plans, planned, send, snapshot
from mltswitch.lab.emulators import KINDS
from mltswitch.targets import target_for


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


def test_disturbed_pushes_leave_nothing_half_done() -> None:
    found = campaign(seed=0, first=0, runs=2)
    assert found["runs"] == 2
    assert [name for name in VIOLATIONS if found[name]] == []
