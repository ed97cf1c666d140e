"""A real plan, Enterprise SONiC and the emulated switch: push twice, and verify after a change by hand."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mltswitch.deploy import Status, diff, push, verify
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device, Inventory
from mltswitch.lab.emulators.dell_sonic import DellSonicDevice
from mltswitch.lab.emulators.faults import Faults, RefuseLine
from mltswitch.lab.emulators.keys import load_authorized_keys, load_host_key
from mltswitch.lab.emulators.ssh_server import EmulatorServer
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key
from tests.plan.examples import SMALL


def dell_plan() -> Plan:
    """A fabric of one spine and one leaf with two ports."""
    group = {"count": 1, "platform": "dell-sonic", "port_names": {"pattern": "Eth1/{n}"}}
    document = SMALL | {
        "topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 1}},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
        "ports": {"rate": "10Gbps", "buffer": "600kB"},
        "classes": SMALL["classes"] | {"gradients": {"dscp": [34, 36]}},
    }
    return build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
    )


@contextmanager
def dell(
    folder: Path, faults: Faults | None = None, ports: int = 8
) -> Iterator[tuple[DellSonicDevice, Device]]:
    """An emulated switch and the device by which one reaches it."""
    host_key = make_key(folder / "host")
    make_key(folder / "id")
    switch = DellSonicDevice(ports=ports)
    server = EmulatorServer(
        switch,
        host_key=load_host_key(folder / "host"),
        authorized_keys=load_authorized_keys(folder / "id.pub"),
        faults=faults,
    )
    with server:
        known = folder / "known_hosts"
        known.write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        reached = device("dell1", port=server.port, key_file=folder / "id", known_hosts_file=known)
        yield switch, dataclasses.replace(reached, platform="dell-sonic", switch="leaf1")


def test_push_is_idempotent_and_verify_finds_a_change_by_hand(tmp_path: Path) -> None:
    plan = dell_plan()
    with dell(tmp_path) as (switch, leaf):
        rack = Inventory((leaf,), Path("inventory"))
        [first] = push(plan, rack).devices
        assert (first.status, first.error) == (Status.CHANGED, "")
        assert "qos wred-policy mltswitch-wred-" in first.change
        assert "service-policy type qos in mltswitch-rewrite-" in first.change
        assert switch.saved == switch.configuration
        [second] = push(plan, rack).devices
        assert (second.status, second.error) == (Status.OK, "")
        name = switch.ports["Eth1/2"].wred[5]
        switch.configure(
            f"qos wred-policy {name}",
            "green minimum-threshold 12000 maximum-threshold 12000 drop-probability 100",
        )
        differences = verify(plan, rack).devices[0].differences
        [found] = [each for each in differences if each.port == "Eth1/2" and each.queue is not None]
        assert (found.device, found.traffic_class, found.queue) == ("dell1", "gradient-0", 5)
        assert (found.field, found.found) == ("ecn_threshold_bytes", "12000000")
        [third] = push(plan, rack).devices
        assert (third.status, third.error) == (Status.CHANGED, "")
        assert len(third.change.splitlines()) == 3
        [mended] = verify(plan, rack).devices
        assert mended.status is Status.OK


def test_a_refused_line_takes_the_switch_back(tmp_path: Path) -> None:
    plan = dell_plan()
    with dell(tmp_path, RefuseLine("queue 5 wred-policy")) as (switch, leaf):
        before = switch.saved
        rack = Inventory((leaf,), Path("inventory"))
        report = push(plan, rack)
        [failed] = report.devices
        assert failed.status is Status.FAILED
        assert "refuses step " in failed.error
        assert "% Refused by a fault" in failed.error
        assert report.exit_code == DeviceError.exit_code
        assert switch.saved == before
        [left] = diff(plan, rack).devices
        assert left.status is Status.WOULD_CHANGE
        assert failed.error.endswith("It runs again what it ran before")
        assert left.change == failed.change


def test_a_port_that_the_switch_lacks_stops_before_anything_is_sent(tmp_path: Path) -> None:
    plan = dell_plan()
    with dell(tmp_path, ports=1) as (switch, leaf):
        before = switch.configuration
        [failed] = push(plan, Inventory((leaf,), Path("inventory"))).devices
        assert failed.status is Status.FAILED
        assert "port Eth1/2: the switch has no such port" in failed.error
        assert switch.configuration == before
