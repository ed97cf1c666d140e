"""A real plan, the Cumulus target and the emulated switch: push twice, and verify after a change by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mltswitch.deploy import Status, diff, push, verify
from mltswitch.errors import DeviceError
from mltswitch.inventory import Inventory
from mltswitch.lab.emulators import (
    DropBeforeLine,
    EmulatorServer,
    Faults,
    RefuseLine,
    load_authorized_keys,
    load_host_key,
)
from mltswitch.lab.emulators.cumulus import CumulusDevice
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key
from tests.plan.examples import SMALL


def cumulus_plan() -> Plan:
    """A fabric of one spine and one leaf with two ports."""
    group = {"count": 1, "platform": "cumulus"}
    document = SMALL | {
        "topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 1}},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
        "ports": {"rate": "10Gbps", "buffer": "1MB"},
    }
    return build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
    )


@contextmanager
def served(folder: Path, faults: Faults | None = None) -> Iterator[tuple[CumulusDevice, Inventory]]:
    """An emulated leaf, and the inventory in which it stands."""
    host_key = make_key(folder / "host")
    make_key(folder / "id")
    switch = CumulusDevice()
    with EmulatorServer(
        switch,
        host_key=load_host_key(folder / "host"),
        authorized_keys=load_authorized_keys(folder / "id.pub"),
        faults=faults,
    ) as server:
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        leaf = device(
            "cumulus1",
            platform="cumulus",
            switch="leaf1",
            port=server.port,
            key_file=folder / "id",
            known_hosts_file=folder / "known_hosts",
        )
        yield switch, Inventory((leaf,), Path("inventory"))


def by_hand(switch: CumulusDevice, *lines: str) -> None:
    for line in (*lines, "config apply -y"):
        assert switch.execute("cumulus", f"nv {line}").status == 0


def test_push_is_idempotent_and_verify_finds_a_change_by_hand(tmp_path: Path) -> None:
    plan = cumulus_plan()
    with served(tmp_path) as (switch, rack):
        [first] = push(plan, rack).devices
        assert (first.status, first.error) == (Status.CHANGED, "")
        assert "nv set qos congestion-control mlt-swp1 traffic-class" in first.change
        assert switch.applied["interface"]["swp1"]["acl"] == {
            name: {"inbound": {}} for name in ("mlt-host-ipv4", "mlt-host-ipv6")
        }
        assert switch.saved == switch.applied
        applied = len(switch.revisions.history)
        [second] = push(plan, rack).devices
        assert (second.status, second.error, second.change) == (Status.OK, "", "")
        assert len(switch.revisions.history) == applied
        profile = switch.applied["interface"]["swp2"]["qos"]["congestion-control"]["profile"]
        queue = f"set qos congestion-control {profile} traffic-class 5"
        by_hand(switch, f"{queue} min-threshold 6144", f"{queue} max-threshold 6144")
        [found] = verify(plan, rack).devices
        assert found.status is Status.DIFFERS
        assert {
            (entry.queue, entry.traffic_class, entry.field, entry.found) for entry in found.differences
        } == {(5, "gradient-0", "ecn_threshold_bytes", "6144")}
        [mended] = push(plan, rack).devices
        assert mended.status is Status.CHANGED
        assert len([line for line in mended.change.splitlines() if not line.startswith("#")]) <= 4
        [after] = verify(plan, rack).devices
        assert after.status is Status.OK


def test_a_refused_command_leaves_the_switch_as_it_was(tmp_path: Path) -> None:
    plan = cumulus_plan()
    with served(tmp_path, RefuseLine("config apply", "Invalid config [rev_id: 2]")) as (switch, rack):
        before = switch.applied
        [failed] = push(plan, rack).devices
        assert failed.status is Status.FAILED
        assert "refuses step " in failed.error
        assert "Invalid config [rev_id: 2]" in failed.error
        assert switch.applied == switch.saved == before
        assert switch.revisions.pending is None
        [left] = diff(plan, rack).devices
        assert left.status is Status.WOULD_CHANGE
        assert left.change == failed.change
        assert switch.execute("cumulus", "nv set system hostname other").status == 0
        report = diff(plan, rack)
        assert report.exit_code == DeviceError.exit_code
        assert "`nv set system hostname other` for one" in report.devices[0].error


def test_a_push_that_broke_off_before_the_apply_can_be_tried_again(tmp_path: Path) -> None:
    plan = cumulus_plan()
    with served(tmp_path, DropBeforeLine(pattern="interface .* qos mapping")) as (switch, rack):
        [failed] = push(plan, rack).devices
        assert failed.status is Status.FAILED
        assert failed.error.endswith("It runs again what it ran before")
        assert switch.revisions.pending is None
        [again] = push(plan, rack).devices
        assert (again.status, again.error) == (Status.CHANGED, "")
        assert switch.revisions.pending is None
        assert switch.saved == switch.applied
        assert [each.status for each in verify(plan, rack).devices] == [Status.OK]
