"""A real plan, the SONiC target and the emulated switch: push twice, and verify after a change by hand."""

from pathlib import Path

from mltswitch.deploy import Status, push, verify
from mltswitch.inventory import Inventory
from mltswitch.lab.emulators import EmulatorServer, SonicDevice, load_authorized_keys, load_host_key
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key
from tests.plan.examples import SMALL


def sonic_plan() -> Plan:
    """A fabric of one spine and one leaf with two ports."""
    group = {"count": 1, "platform": "sonic"}
    document = SMALL | {
        "topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 1}},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
        "ports": {"rate": "10Gbps", "buffer": "1MB"},
    }
    return build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
    )


def test_push_is_idempotent_and_verify_finds_a_change_by_hand(tmp_path: Path) -> None:
    host_key = make_key(tmp_path / "host")
    make_key(tmp_path / "id")
    keys = load_authorized_keys(tmp_path / "id.pub")
    switch = SonicDevice()
    factory_profiles = set(switch.config_db.get("WRED_PROFILE", {}))
    with EmulatorServer(switch, host_key=load_host_key(tmp_path / "host"), authorized_keys=keys) as server:
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        leaf = device(
            "sonic1",
            platform="sonic",
            switch="leaf1",
            port=server.port,
            key_file=tmp_path / "id",
            known_hosts_file=tmp_path / "known_hosts",
        )
        plan, rack = sonic_plan(), Inventory((leaf,), Path("inventory"))
        [first] = push(plan, rack, accept=True).devices
        assert (first.status, first.error) == (Status.CHANGED, "")
        [second] = push(plan, rack, accept=True).devices
        assert (second.status, second.error) == (Status.OK, "")
        profiles = switch.config_db["WRED_PROFILE"]
        name = next(name for name in sorted(profiles) if name not in factory_profiles)
        changed = {**profiles[name], "green_min_threshold": "12288", "green_max_threshold": "12288"}
        switch.config_db = {**switch.config_db, "WRED_PROFILE": {**profiles, name: changed}}
        [found] = verify(plan, rack).devices
        assert found.status is Status.DIFFERS
        assert {(entry.field, entry.found) for entry in found.differences} == {
            ("ecn_threshold_bytes", "12288")
        }
