"""One small plan of known numbers, and a Linux to run it on."""

from collections.abc import Iterator

import pytest

from mltswitch.plan import Plan, PortRole
from mltswitch.targets import SwitchState
from mltswitch.targets.linux import TARGET
from tests.targets.linux.uml import Machine, NoMachineError, machine

SWITCHES = {"platform": "linux", "hardware": "software"}
GROUP = SWITCHES | {"count": 1, "port_names": {"pattern": "eth{n}"}}
FABRIC = {
    "schema": "mltswitch/fabric/v1",
    "name": "small",
    "topology": {"leaf_spine": {"spines": GROUP, "leaves": GROUP, "hosts_per_leaf": 1}},
    "addressing": {"hosts": "10.0.0.0/16", "links": "10.1.0.0/16", "alias": {"spine1": "10.100.0.0/16"}},
    "ports": {"rate": "100Mbps", "buffer": "400kB"},
    "trusted_ports": ["leaf1:eth2", "spine1:eth1"],
    "traffic": {"load": 0.9},
    "classes": {"control": {"dscp": [40]}, "gradients": {"dscp": [10, 12]}},
}
LAYERS = {"first": 0, "last": 0, "first_name": "a", "last_name": "a", "size_bytes": 1}
CLASSES: tuple[tuple[str, str, list[int], int | None, int, dict[str, object]], ...] = (
    ("network-control", "network-control", [48, 56], None, 24224, {}),
    ("control", "control", [40], None, 48448, {"rate_cap_share": 0.1}),
    ("gradient-0", "gradient", [10], 30280, 200000, {"layers": LAYERS}),
    ("gradient-1", "gradient", [12], 60560, 100000, {"layers": LAYERS}),
    ("background", "background", [0], None, 48448, {"guaranteed_share": 0.05}),
)
"""Name, kind, code points, ECN threshold and limit of the queue in bytes, and what else its class has."""


@pytest.fixture(scope="session")
def small_plan() -> Plan:
    provenance = dict.fromkeys(("profile_sha256", "fabric_sha256"), "0" * 64) | {"queueing_model": "paper"}
    provenance |= {"tool_version": "0", "profile_name": "none", "sensitivity": "none"}
    queues = [
        {
            "traffic_class": name,
            "ecn_threshold_bytes": threshold,
            "limit": {"kind": "bytes", "size_bytes": limit},
        }
        for name, _, _, threshold, limit, _ in CLASSES
    ]
    port = {"rate_bps": 100_000_000, "packet_bytes": 1514, "buffer_bytes": 430_000, "load": 0.9}
    document = {
        "schema": "mltswitch/plan/v2",
        "provenance": provenance,
        "unimportant_share": 0.5,
        "classes": [
            {"name": name, "kind": kind, "dscp": dscp, "load": 0.05} | more
            for name, kind, dscp, _, _, more in CLASSES
        ],
        "port_profiles": [
            SWITCHES | port | {"role": role, "shaped": role is PortRole.LEAF_DOWN, "queues": queues}
            for role in PortRole
        ],
        "end_to_end": [],
        "hops": 1,
        "paths": {
            "mode": "alias",
            "rule": "address = alias prefix of the spine + host index",
            "burst_packets": 1,
        },
        "fabric": FABRIC,
    }
    return Plan.model_validate(document)


@pytest.fixture(scope="session")
def plain_state(small_plan: Plan) -> SwitchState:
    """Of a plan from before there were shares and caps."""
    document = small_plan.model_dump(mode="json", by_alias=True)
    for entry in document["classes"]:
        entry |= {"rate_cap_share": None, "guaranteed_share": None}
    return TARGET.fit_to_hardware(Plan.model_validate(document), "leaf1").state


@pytest.fixture(scope="session")
def state(small_plan: Plan) -> SwitchState:
    return TARGET.fit_to_hardware(small_plan, "leaf1").state


@pytest.fixture(scope="module")
def linux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    try:
        with machine(tmp_path_factory.mktemp("linux")) as instance:
            yield instance
    except NoMachineError as error:
        pytest.skip(str(error))
