"""The whole road on BMv2 switches: push, push again, packets over every path, captures, and the probe."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mltswitch.documents import load_document
from mltswitch.lab import Engine, Lab, Records, lab_bottleneck
from mltswitch.measure import judge, probe
from mltswitch.plan import Plan
from tests.lab.conftest import bmv2_lab_in, on
from tests.measuring import measured

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.bmv2]

INVENTORY = Path(__file__).parents[2] / "inventories" / "bmv2"


@dataclass(frozen=True)
class Road:
    """A lab of BMv2 switches that is up, with an inventory and a plan for it."""

    lab: Lab
    folder: Path

    @property
    def plan_file(self) -> Path:
        return self.folder / "plan.yaml"

    @property
    def plan(self) -> Plan:
        return load_document(self.plan_file, Plan)

    def call(self, command: str, *options: str) -> tuple[int, Any]:
        """Run `mltswitch COMMAND plan -i inventory --json …`; returns exit code and JSON."""
        argv = [sys.executable, "-m", "mltswitch", command, str(self.plan_file), "-i", str(self.folder)]
        done = subprocess.run([*argv, "--json", *options], check=False, capture_output=True, text=True)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def road(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    """Every test finds the plan pushed."""
    folder = tmp_path_factory.mktemp("bmv2-road") / "inventory"
    shutil.copytree(INVENTORY, folder, ignore=shutil.ignore_patterns(".lab"))
    hosts = folder / "hosts.yaml"
    hosts.write_text(hosts.read_text().replace("127.77.1.", "127.77.9."))
    shared = bmv2_lab_in(request, folder / ".lab", Engine.NAMESPACES)
    road = Road(shared.lab, folder)
    fabric_file = str(folder / "fabric.yaml")
    argv = [sys.executable, "-m", "mltswitch", "plan", "--profile", "resnet50", "--fabric", fabric_file]
    subprocess.run([*argv, "-o", str(road.plan_file)], check=True, capture_output=True)
    shared.up(Records(pcap=True))
    try:
        code, report = road.call("push")
        assert code == 0, report
        yield road
    finally:
        shared.down()


def test_a_second_push_changes_nothing(road: Road) -> None:
    code, report = road.call("push")
    assert code == 0
    assert report["summary"]["changed"] == 0
    code, report = road.call("verify")
    assert code == 0
    assert [entry for device in report["devices"] for entry in device["differences"]] == []


@pytest.mark.parametrize("target", ["host2", "host3", "host4"])
def test_hosts_reach_each_other_over_every_path(road: Road, target: str) -> None:
    status = next(host for host in road.lab.status().hosts if host.name == target)
    for address in (status.address, *status.aliases.values()):
        done = on("host1", "ping", "-q", "-c", "10", "-i", "0.02", "-W", "30", address)
        # Some are dropped where switches wait for the processor: background has little room.
        assert re.search(", [1-9][0-9]* received", done.stdout), (address, done.stdout + done.stderr)


def test_the_captures_hold_what_crossed_a_port(road: Road) -> None:
    capture = road.lab.paths.logs / "spine2" / "eth2_out.pcap"
    status = next(host for host in road.lab.status().hosts if host.name == "host4")
    before = capture.stat().st_size
    ping = ["ping", "-q", "-c", "1", "-W", "30", status.aliases["spine2"], "-p", "6d6c7473"]
    assert on("host1", *ping).returncode == 0
    assert b"mlts" * 8 in capture.read_bytes()[before:]


@pytest.mark.quiet
def test_the_probe_sees_the_plan(road: Road) -> None:
    plan = road.plan
    bottleneck = lab_bottleneck(road.lab, plan, None)
    assert bottleneck.port == "leaf2:eth2"
    assert bottleneck.has_line_behind

    failed: list[set[str]] = []

    def broken_every_time() -> set[str]:
        result = probe(
            plan, bottleneck, loads=(1.3,), seconds=3.0, burst_packets=1, seed=7, progress=lambda _: None
        )
        assert result.behind_seconds > 0
        failed.append({verdict.promise for verdict in judge(plan, result) if verdict.holds is False})
        return set.intersection(*failed)

    assert not measured(broken_every_time, lambda found: not found)
