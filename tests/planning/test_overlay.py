"""Fabrics as overlays: hosts with ranks, leaves as racks, rates of the ports."""

from pathlib import Path

import pytest

from mltswitch.documents import load_document
from mltswitch.overlay.document import Overlay
from mltswitch.plan import Fabric, Topology, resolve_fabric
from mltswitch.planning.overlay import overlay_of
from mltswitch.targets import hardware_capabilities

INVENTORIES = Path(__file__).parents[2] / "inventories"


@pytest.mark.parametrize("name", ["lab", "mixed", "bmv2"])
def test_a_fabric_is_a_network(name: str) -> None:
    fabric = load_document(INVENTORIES / name / "fabric.yaml", Fabric)
    topology = Topology(resolve_fabric(fabric, hardware_capabilities))
    overlay = overlay_of(topology)
    assert Overlay.model_validate(overlay.model_dump(mode="json", by_alias=True)) == overlay
    assert [node.name for node in overlay.ranks] == [host.name for host in topology.hosts]
    assert overlay.racks == tuple(host.leaf for host in topology.hosts)
    rates = {(link.source, link.target): link.rate_bps for link in overlay.links}
    assert all(rates[target, source] == rate for (source, target), rate in rates.items())
    for host in topology.hosts:
        assert rates[host.name, host.leaf] == topology.switch(host.leaf).port(host.leaf_port).rate_bps
    ports = [port for switch in topology.switches for port in switch.ports if not port.peer_is_host]
    between = sum(
        rate for ends, rate in rates.items() if not {*ends} & {host.name for host in topology.hosts}
    )
    assert between == sum(port.rate_bps for port in ports), "parallel links are one"
