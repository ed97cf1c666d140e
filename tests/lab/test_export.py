"""The exported playbook on the real lab: Linux switches and the emulated SONiC."""

from pathlib import Path

import pytest

from mltswitch.deploy import Status, verify
from mltswitch.inventory import load_inventory
from mltswitch.plan import Plan
from tests.export.test_ansible import exported, play
from tests.lab.conftest import SharedLab
from tests.lab.test_road import Rack

pytestmark = [pytest.mark.lab, pytest.mark.root]

CHOSEN = "leaf1,spine1,sonic1"


def test_linux_and_sonic_take_the_plan(session_lab: SharedLab, lab_plan: Plan, tmp_path: Path) -> None:
    session_lab.down()  # no switch runs the plan
    rack = Rack(tmp_path, session_lab.up(), lab_plan)
    folder = exported(rack.plan, rack.inventory, tmp_path / "out", "--limit", CHOSEN)
    for options, changes in (["--check"], True), ([], True), ([], False), (["--check"], False):
        counts = play(folder, *options)
        assert set(counts) == set(CHOSEN.split(","))
        for device, count in counts.items():
            assert (count["failed"], count["unreachable"]) == (0, 0), device
            assert bool(count["changed"]) is changes, (device, options)
    reports = verify(lab_plan, load_inventory(rack.inventory), limit=CHOSEN).devices
    assert {report.device: report.status for report in reports} == dict.fromkeys(counts, Status.OK)
    changed = rack.running.ssh("leaf1", "tc qdisc del dev eth1 root")
    assert changed.returncode == 0, changed.stderr
    assert {name: count["changed"] > 0 for name, count in play(folder).items()} == {
        name: name == "leaf1" for name in counts
    }
