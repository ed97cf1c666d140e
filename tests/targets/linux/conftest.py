"""One small plan of known numbers, and a Linux to run it on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mltswitch.capabilities import BytesLimit
from mltswitch.plan import (
    ClassKind,
    Fabric,
    LayerRange,
    Paths,
    Plan,
    PortProfile,
    PortRole,
    Provenance,
    QueueSettings,
    TrafficClass,
)
from mltswitch.targets import SwitchState
from mltswitch.targets.linux import TARGET
from tests.targets.linux.uml import Machine, NoMachineError, machine

FABRIC = {
    "schema": "mltswitch/fabric/v1",
    "name": "small",
    "topology": {
        "leaf_spine": {
            tier: {
                "platform": "linux",
                "hardware": "software",
                "count": 1,
                "port_names": {"pattern": "eth{n}"},
            }
            for tier in ("spines", "leaves")
        }
        | {"hosts_per_leaf": 1}
    },
    "addressing": {"hosts": "10.0.0.0/16", "links": "10.1.0.0/16", "alias": {"spine1": "10.100.0.0/16"}},
    "ports": {"rate": "100Mbps", "buffer": "400kB"},
    "trusted_ports": ["leaf1:eth2", "spine1:eth1"],
    "traffic": {"load": 0.9},
    "classes": {"control": {"dscp": [40]}, "gradients": {"dscp": [10, 12]}},
}
CLASSES = (
    ("network-control", ClassKind.NETWORK_CONTROL, (48, 56), None, 24224),
    ("control", ClassKind.CONTROL, (40,), None, 48448),
    ("gradient-0", ClassKind.GRADIENT, (10,), 30280, 200000),
    ("gradient-1", ClassKind.GRADIENT, (12,), 60560, 100000),
    ("background", ClassKind.BACKGROUND, (0,), None, 48448),
)


@pytest.fixture(scope="session")
def small_plan() -> Plan:
    layers = LayerRange(first=0, last=0, first_name="a", last_name="a", size_bytes=1)
    return Plan(
        schema="mltswitch/plan/v2",
        provenance=Provenance(
            tool_version="0",
            queueing_model="paper",
            profile_name="none",
            profile_sha256="0" * 64,
            fabric_sha256="0" * 64,
            sensitivity="none",
        ),
        unimportant_share=0.5,
        classes=tuple(
            TrafficClass(
                name=name,
                kind=kind,
                dscp=dscp,
                load=0.05,
                layers=layers if threshold else None,
                rate_cap_share=0.1 if kind is ClassKind.CONTROL else None,
                guaranteed_share=0.05 if kind is ClassKind.BACKGROUND else None,
            )
            for name, kind, dscp, threshold, _ in CLASSES
        ),
        port_profiles=tuple(
            PortProfile(
                platform="linux",
                hardware="software",
                role=role,
                rate_bps=100_000_000,
                shaped=role is PortRole.LEAF_DOWN,
                packet_bytes=1514,
                buffer_bytes=430_000,
                load=0.9,
                queues=tuple(
                    QueueSettings(
                        traffic_class=name, ecn_threshold_bytes=threshold, limit=BytesLimit(size_bytes=limit)
                    )
                    for name, _, _, threshold, limit in CLASSES
                ),
            )
            for role in PortRole
        ),
        end_to_end=(),
        hops=1,
        paths=Paths(mode="alias", rule="address = alias prefix of the spine + host index", burst_packets=1),
        fabric=Fabric.model_validate(FABRIC),
    )


@pytest.fixture(scope="session")
def plain_state(small_plan: Plan) -> SwitchState:
    """Of a plan from before there were shares and caps."""
    document = small_plan.model_dump(mode="json", by_alias=True)
    for entry in document["classes"]:
        entry |= {"rate_cap_share": None, "guaranteed_share": None}
    return TARGET.quantise(Plan.model_validate(document), "leaf1").state


@pytest.fixture(scope="session")
def state(small_plan: Plan) -> SwitchState:
    return TARGET.quantise(small_plan, "leaf1").state


@pytest.fixture(scope="module")
def linux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder: Path = tmp_path_factory.mktemp("linux")
    try:
        with machine(folder) as instance:
            yield instance
    except NoMachineError as error:
        pytest.skip(str(error))
