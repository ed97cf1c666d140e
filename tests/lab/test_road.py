"""The whole road on the real lab: push, push again, a change by hand, faults on the way, and the probe."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltswitch import deploy
from mltswitch.app.lab_hosts import STATE_FOLDER
from mltswitch.app.live.picture import state
from mltswitch.cli import main
from mltswitch.documents import dump_yaml
from mltswitch.inventory import load_inventory
from mltswitch.lab import lab_bottleneck
from mltswitch.measure import judge, probe
from mltswitch.measure.watch import watch
from mltswitch.plan import ClassKind, Plan
from tests.lab.conftest import DEVICES, SharedLab
from tests.measuring import measured

pytestmark = [pytest.mark.lab, pytest.mark.root]

Run = Callable[..., tuple[int, Any, str]]


class Rack:
    """A plan and an inventory of the running lab, as files."""

    def __init__(self, folder: Path, running: SharedLab, plan: Plan) -> None:
        self.running = running
        self.folder = folder
        self.plan = folder / "plan.yaml"
        self.plan.write_text(dump_yaml(plan))
        self.inventory = folder / "inventory"
        self.inventory.mkdir()
        (self.inventory / STATE_FOLDER).symlink_to(running.lab.paths.root)  # where commands look for the lab
        self.write()

    def write(self, **changes: dict[str, object]) -> None:
        """Write the inventory, with some hosts' variables changed."""
        hosts = {
            device.name: {
                "ansible_host": device.address,
                "ansible_port": device.port,
                "ansible_user": "root" if device.platform == "linux" else "admin",
                "mltswitch_platform": device.platform,
                "ansible_ssh_private_key_file": str(self.running.lab.paths.private_key),
                "mltswitch_known_hosts_file": str(self.running.lab.paths.known_hosts),
                **changes.get(device.name, {}),
            }
            for device in DEVICES
        }
        (self.inventory / "hosts.yaml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))


@pytest.fixture(scope="module")
def fleet(session_lab: SharedLab, lab_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> SharedLab:
    """A lab whose every switch runs the plan; a test mends what it changes."""
    running = session_lab.up()
    rack = Rack(tmp_path_factory.mktemp("fleet"), running, lab_plan)
    report = deploy.push(lab_plan, load_inventory(rack.inventory), accept=[*deploy.Question])
    assert report.exit_code == 0, [device.error for device in report.devices]
    return running


@pytest.fixture
def rack(tmp_path: Path, fleet: SharedLab, lab_plan: Plan) -> Rack:
    return Rack(tmp_path, fleet, lab_plan)


@pytest.fixture
def run(rack: Rack, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `mltswitch COMMAND plan -i inventory --json …`; returns exit code, JSON, standard error."""

    def call(command: str, *options: str) -> tuple[int, Any, str]:
        with pytest.raises(SystemExit) as end:
            main([command, str(rack.plan), "-i", str(rack.inventory), "--json", *options])
        captured = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, json.loads(captured.out) if captured.out else None, captured.err

    return call


def change_by_hand(rack: Rack, plan: Plan, gradient: int, threshold: int, limit: int, burst: int) -> int:
    """Give a gradient other thresholds on the port before the last host; the number of its queue.

    Gradients have a prio of their own.
    """
    first = next(n for n, entry in enumerate(plan.classes, 1) if entry.kind is ClassKind.GRADIENT)
    queue = first + gradient
    red = f"red limit {limit} min {threshold} max {threshold} avpkt 1000 burst {burst} bandwidth 10gbit"
    done = rack.running.ssh(
        "leaf2",
        f"tc qdisc change dev eth2 parent 30:{gradient + 1:x} handle 1{queue:02x}: {red} probability 1 ecn",
    )
    assert done.returncode == 0, done.stderr
    return queue


def test_push_twice_then_a_change_by_hand(run: Run, rack: Rack, lab_plan: Plan) -> None:
    """After the fleet's first push, one device of each kind: what is asked of the others is the same."""
    each = ("--limit", "leaf2,onyx1,sonic1")
    code, again, _ = run("push", "--accept-leak", *each)
    assert (code, again["summary"]["ok"], again["summary"]["changed"]) == (0, 3, 0)
    assert run("diff", *each)[1]["summary"]["ok"] == 3
    assert run("verify", *each)[0] == 0

    band = change_by_hand(rack, lab_plan, 2, 30_280, 200_000, 31)
    leaves = ("--limit", "leaf1,leaf2")
    code, report, _ = run("verify", *leaves)
    assert code == 5
    assert len(report["devices"]) == 2
    (device,) = [entry for entry in report["devices"] if entry["status"] != "ok"]
    found = {entry["field"]: entry for entry in device["differences"]}
    assert set(found) == {"ecn_threshold_bytes", "limit"}
    threshold = found["ecn_threshold_bytes"]
    assert (threshold["device"], threshold["port"], threshold["queue"]) == ("leaf2", "eth2", band)
    assert threshold["found"] == "30280"
    profile = lab_plan.port_profiles[0]
    planned = next(q for q in profile.queues if q.traffic_class == threshold["traffic_class"])
    assert threshold["expected"] == str(planned.ecn_threshold_bytes)

    code, mended, _ = run("push", *leaves)
    assert (code, mended["summary"]["changed"]) == (0, 1)
    assert run("verify", "--limit", "leaf2")[0] == 0


def test_traffic_shows_a_class_in_the_wrong_queue(run: Run, rack: Rack, lab_plan: Plan) -> None:
    """Configuration and counters agree; then a filter by hand sends one gradient to the queue of the next."""
    switches = ("--limit", "spine1,spine2,leaf1,leaf2")
    run("push", "--accept-leak", *switches)
    code, report, error = run("verify", "--traffic", *switches)
    assert (code, report["summary"]["ok"]) == (0, 4), (report, error)

    first, second = lab_plan.gradient_classes[:2]
    queues = {name: number for number, name in enumerate((entry.name for entry in lab_plan.classes), 1)}
    tos = f"ip_tos 0x{first.dscp[0] << 2:02x}/0xfc"
    add = f"tc filter add dev eth1 parent 30: protocol ip pref 1 flower {tos} classid 30:2"
    done = rack.running.ssh("leaf2", add)
    assert done.returncode == 0, done.stderr
    try:
        code, report, _ = run("verify", "--traffic", *switches)
    finally:
        rack.running.ssh("leaf2", "tc filter del dev eth1 parent 30: protocol ip pref 1")
    assert code == 5
    counted = [
        found
        for device in report["devices"]
        for found in device["differences"]
        if found["field"] == "traffic"
    ]
    places = {(found["device"], found["port"], found["queue"], found["traffic_class"]) for found in counted}
    assert places == {("leaf2", "eth1", queues[entry.name], entry.name) for entry in (first, second)}


def test_watch_sees_packets_and_a_queue_built_anew(rack: Rack, lab_plan: Plan) -> None:
    inventory, queues = load_inventory(rack.inventory), {}
    _, readings = watch(lab_plan, inventory, limit="leaf2", interval_seconds=0.1, count=3)
    for number, reading in enumerate(readings):
        queues[number] = {(each.port, each.queue): each for each in reading.devices[0].queues}
        last = len(lab_plan.classes)
        if number == 0:
            target = lab_plan.topology.hosts[2].address
            assert (
                rack.running.on_host("host4", ["ping", "-c", "5", "-i", "0.2", str(target)]).returncode == 0
            )
        elif number == 1:
            rebuild = (
                "tc qdisc del dev eth1 parent 20:2 && "
                f"tc qdisc add dev eth1 parent 20:2 handle 1{last:02x}: bfifo limit 50000"
            )
            done = rack.running.ssh("leaf2", rebuild)
            assert done.returncode == 0, done.stderr
    moved, anew = queues[1]["eth1", last], queues[2]["eth1", last]
    assert moved.counters.sent_packets is not None
    assert moved.counters.sent_packets >= 5
    assert moved.sent_bps is not None
    assert moved.sent_bps > 0
    assert (anew.restarted, anew.sent_bps) == (True, None)
    assert deploy.push(lab_plan, inventory, limit="leaf2").exit_code == 0


def test_an_overloaded_port_is_the_worst_of_a_reading(rack: Rack, lab_plan: Plan) -> None:
    inventory, target = load_inventory(rack.inventory), lab_plan.topology.hosts[2].address
    _, readings = watch(lab_plan, inventory, limit="leaf1,leaf2", interval_seconds=0.1, count=2)
    next(readings)
    # More at once than the queue of background holds, at a port that is slower than the sender's.
    flood = ["ping", "-q", "-f", "-l", "500", "-c", "500", "-s", "1400", "-w", "5", str(target)]
    rack.running.on_host("host4", flood)
    worst = state(next(readings), [], [])["queues"][0]
    readings.close()
    assert (worst["switch"], worst["port"], worst["traffic_class"]) == ("leaf2", "eth1", "background")
    assert worst["level"] in {"drops", "limit"}
    assert worst["dropped_per_second"] > 0
    assert worst["sent_bps"] > 0
    assert worst["limit_bytes"] > 0


def test_an_unreachable_device_does_not_stop_the_others(run: Run, rack: Rack) -> None:
    rack.write(spine2={"ansible_port": 2})
    code, report, _ = run("push", "--accept-leak", "--limit", "spine2,leaf1,onyx1,sonic1")
    assert code == 4
    statuses = {entry["device"]: entry["status"] for entry in report["devices"]}
    assert statuses.pop("spine2") == "failed"
    assert statuses == dict.fromkeys(("leaf1", "onyx1", "sonic1"), "ok")
    (error,) = [entry["error"] for entry in report["devices"] if entry["error"]]
    assert "spine2" in error
    assert "127.77.9.2:2" in error
    assert "\n" not in error


def test_a_wrong_host_key_stops_the_device(run: Run, rack: Rack) -> None:
    known = rack.folder / "known_hosts"
    lines = rack.running.lab.paths.known_hosts.read_text().splitlines()
    keys = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    names = sorted(keys)
    swapped = dict(zip(names, [keys[name] for name in names[1:] + names[:1]], strict=True))
    known.write_text("".join(f"{name} {key}\n" for name, key in swapped.items()))
    rack.write(leaf1={"mltswitch_known_hosts_file": str(known)})
    code, report, _ = run("verify", "--limit", "leaf1")
    assert code == 4
    assert "host key" in report["devices"][0]["error"]


def test_a_device_that_refuses_a_line_is_reported(run: Run, rack: Rack) -> None:
    """A port of the plan is gone from the switch: tc refuses, and nothing is called done."""
    assert rack.running.ssh("spine2", "ip link set eth3 down && ip link set eth3 name hidden").returncode == 0
    try:
        code, report, _ = run("push", "--limit", "spine2")
    finally:
        mend = "ip link set hidden name eth3 && ip link set eth3 up"
        assert rack.running.ssh("spine2", mend).returncode == 0
    assert code == 4
    assert report["devices"][0]["status"] == "failed"
    assert "eth3" in report["devices"][0]["error"]


def test_a_linux_switch_is_taken_back(run: Run, rack: Rack, lab_plan: Plan) -> None:
    """After a push that breaks off in its routes, and after another switch has failed."""
    change_by_hand(rack, lab_plan, 2, 30_280, 200_000, 31)
    show = "tc -j -d qdisc show; ip -j -N route show proto 173"
    address = rack.running.ssh("leaf2", "ip -4 -o addr show dev eth3").stdout.split()[3]
    assert rack.running.ssh("leaf2", "ip addr flush dev eth3").returncode == 0
    before = rack.running.ssh("leaf2", show).stdout
    try:
        code, report, _ = run("push", "--limit", "leaf2")
        assert (code, rack.running.ssh("leaf2", show).stdout) == (4, before)
        assert "It runs again what it ran before" in report["devices"][0]["error"]
    finally:
        rack.running.ssh("leaf2", f"ip addr add {address} dev eth3")
    rack.write(spine2={"ansible_port": 2})
    code, report, _ = run("push", "--accept-leak", "--atomic", "--limit", "leaf2,spine2")
    assert (code, rack.running.ssh("leaf2", show).stdout) == (4, before)
    assert {entry["device"]: entry["status"] for entry in report["devices"]}["leaf2"] == "rolled-back"
    assert run("push", "--limit", "leaf2")[0] == 0


@pytest.mark.quiet
def test_the_probe_sees_the_plan_and_a_sabotaged_one(run: Run, rack: Rack, lab_plan: Plan) -> None:
    assert run("push", "--limit", "leaf2")[0] == 0
    bottleneck = lab_bottleneck(rack.running.lab, lab_plan, None)
    assert bottleneck.port == "leaf2:eth2"

    def broken(loads: tuple[float, ...]) -> set[str]:
        result = probe(
            lab_plan, bottleneck, loads=loads, seconds=2.0, burst_packets=1, seed=7, progress=lambda _: None
        )
        return {verdict.promise for verdict in judge(lab_plan, result) if verdict.holds is False}

    failed: list[set[str]] = []

    def broken_every_time() -> set[str]:
        failed.append(broken((1.3,)))
        return set.intersection(*failed)

    assert not measured(broken_every_time, lambda found: not found)

    change_by_hand(rack, lab_plan, len(lab_plan.gradient_classes) - 1, 300_000, 400_000, 300)
    promise = f"{lab_plan.gradient_classes[-1].name}: Not-ECT is dropped above S"
    assert promise in measured(lambda: broken(()), lambda found: promise in found)
    assert run("push", "--limit", "leaf2")[0] == 0
