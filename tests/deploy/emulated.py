"""A small fabric of one platform, and its leaf as an emulated switch that one reaches by SSH."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from mltswitch.inventory import Inventory
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from switchsim import EmulatorServer, load_authorized_keys, load_host_key
from switchsim.device import EmulatedDevice
from switchsim.faults import Faults
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key
from tests.plan.examples import SMALL

PORT_NAMES = {"dell-sonic": "Eth1/{n}", "icos": "te1/0/{n}"}
"""Where the platform's own are not those of the emulator."""


@cache
def plan_of(platform: str, hosts: int = 1) -> Plan:
    """A fabric of one spine and one leaf, with a port to it and one for each host."""
    group: dict[str, Any] = {"count": 1, "platform": platform}
    small = {"ports": {"rate": "10Gbps", "buffer": "1MB"}}
    if platform in PORT_NAMES:
        group["port_names"] = {"pattern": PORT_NAMES[platform]}
        small["classes"] = SMALL["classes"] | {"gradients": {"dscp": [34, 36]}}
        small["ports"]["buffer"] = "600kB"
    document = SMALL | small
    document |= {
        "topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": hosts}},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
    }
    fabric = Fabric.model_validate(document)
    return build_plan(resolve_profile("resnet50"), fabric, hardware_capabilities, "paper")


@contextmanager
def served(
    folder: Path,
    platform: str,
    switch: EmulatedDevice,
    faults: Faults | None = None,
    *,
    password: str | None = None,
    name: str = "",
) -> Iterator[Inventory]:
    """The inventory in which an emulated switch stands as leaf1."""
    folder.mkdir(exist_ok=True)
    host_key = make_key(folder / "host")
    make_key(folder / "id")
    with EmulatorServer(
        switch,
        host_key=load_host_key(folder / "host"),
        authorized_keys=load_authorized_keys(folder / "id.pub"),
        faults=faults,
        password=password,
    ) as server:
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        keys = {"key_file": folder / "id", "known_hosts_file": folder / "known_hosts"}
        leaf = device(name or f"{platform}1", platform=platform, switch="leaf1", port=server.port, **keys)
        yield Inventory((leaf,), Path("inventory"))
