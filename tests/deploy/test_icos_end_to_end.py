"""A real plan, the ICOS target and the emulated switch: push twice, and verify after a change by hand."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mltswitch.deploy import Status, diff, push, verify
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device, Inventory
from mltswitch.lab.emulators.faults import Faults, RefuseLine
from mltswitch.lab.emulators.icos import IcosDevice
from mltswitch.lab.emulators.keys import load_authorized_keys, load_host_key
from mltswitch.lab.emulators.ssh_server import EmulatorServer
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key
from tests.plan.examples import SMALL


def icos_plan() -> Plan:
    """A fabric of one spine and one leaf with two ports."""
    group = {"count": 1, "platform": "icos", "port_names": {"pattern": "te1/0/{n}"}}
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
def icos(folder: Path, faults: Faults | None = None, ports: int = 16) -> Iterator[tuple[IcosDevice, Device]]:
    """An emulated switch and the device by which one reaches it."""
    host_key = make_key(folder / "host")
    make_key(folder / "id")
    switch = IcosDevice(ports=ports)
    server = EmulatorServer(
        switch,
        host_key=load_host_key(folder / "host"),
        authorized_keys=load_authorized_keys(folder / "id.pub"),
        faults=faults,
    )
    with server:
        known = folder / "known_hosts"
        known.write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        reached = device("icos1", port=server.port, key_file=folder / "id", known_hosts_file=known)
        yield switch, dataclasses.replace(reached, platform="icos", switch="leaf1")


def test_push_is_idempotent_and_verify_finds_a_change_by_hand(tmp_path: Path) -> None:
    plan = icos_plan()
    with icos(tmp_path) as (switch, leaf):
        rack = Inventory((leaf,), Path("inventory"))
        [first] = push(plan, rack).devices
        assert (first.status, first.error) == (Status.CHANGED, "")
        assert "random-detect queue-parms" in first.change
        assert switch.saved == switch.configuration
        [second] = push(plan, rack).devices
        assert (second.status, second.error) == (Status.OK, "")
        switch.configure(
            "interface te1/0/2",
            "random-detect queue-parms 4 min-thresh 99 99 99 99 max-thresh 99 99 99 99 "
            "drop-prob-scale 100 100 100 100 ecn",
        )
        [found] = verify(plan, rack).devices[0].differences
        assert (found.device, found.port, found.queue) == ("icos1", "te1/0/2", 4)
        assert (found.traffic_class, found.field, found.found) == (
            "gradient-0",
            "ecn_threshold_bytes",
            str(99 * 6667),
        )
        [third] = push(plan, rack).devices
        assert (third.status, third.error) == (Status.CHANGED, "")
        assert len(third.change.splitlines()) == 3
        [mended] = verify(plan, rack).devices
        assert mended.status is Status.OK


def test_a_refused_line_takes_the_switch_back(tmp_path: Path) -> None:
    plan = icos_plan()
    with icos(tmp_path, RefuseLine("ip route")) as (switch, leaf):
        before, running = switch.saved, switch.configuration
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
        assert switch.configuration == running
        assert left.change == failed.change


def test_a_port_that_the_switch_lacks_stops_before_anything_is_sent(tmp_path: Path) -> None:
    plan = icos_plan()
    with icos(tmp_path, ports=1) as (switch, leaf):
        before = switch.configuration
        [failed] = push(plan, Inventory((leaf,), Path("inventory"))).devices
        assert failed.status is Status.FAILED
        assert "show classofservice trust te1/0/2" in failed.error
        assert switch.configuration == before
