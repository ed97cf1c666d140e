from ipaddress import IPv6Network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.plan import Fabric, PortRole, Segments, Topology
from mltswitch.plan.topology_document import SwitchRole
from tests.plan.examples import SMALL


def fabric_with(leaves: int, spines: int, hosts: int, block: str) -> Fabric:
    group = {"platform": "linux", "port_names": {"pattern": "eth{n}"}}
    shape = {
        "spines": group | {"count": spines},
        "leaves": group | {"count": leaves},
        "hosts_per_leaf": hosts,
    }
    addressing = SMALL["addressing"] | {
        "alias": {f"spine{n + 1}": f"10.{100 + n}.0.0/16" for n in range(spines)},
        "segments": block,
    }
    changes = {
        "topology": {"leaf_spine": shape},
        "addressing": addressing,
        "spraying": {"mode": "srv6"},
    }
    return Fabric.model_validate(SMALL | changes)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 5))
def test_every_host_is_reached_over_every_spine(leaves: int, spines: int, hosts: int) -> None:
    fabric = fabric_with(leaves, spines, hosts, "fd00:6d6c::/32")
    topology = Topology(fabric)
    assert fabric.addressing.segments is not None
    rules = Segments(fabric.addressing.segments, fabric.addressing)
    next_hop = {
        (switch.name, route.prefix): (route.port, route.next_hop)
        for switch in topology.switches
        for route in rules.routes(switch, topology.tier_index)
    }
    own = {
        rules.port_addresses(port)[0]: switch.name for switch in topology.switches for port in switch.ports
    }
    assert len(own) == sum(len(switch.ports) for switch in topology.switches)
    for leaf in (each for each in topology.switches if each.role is SwitchRole.LEAF):
        for spine in (each for each in topology.switches if each.role is SwitchRole.SPINE):
            locator = rules.own_locator(spine)
            assert locator is not None
            port, address = next_hop[leaf.name, locator]
            assert leaf.port(port).peer == spine.name == own[address]
            for host in topology.hosts:
                (down,) = {
                    hop
                    for (name, prefix), hop in next_hop.items()
                    if name == spine.name and rules.host_address(host) in prefix
                }
                assert spine.port(down[0]).peer == host.leaf == own[down[1]]


def test_host_and_leaf_port_share_a_link() -> None:
    fabric = fabric_with(2, 1, 2, "2001:db8::/32")
    topology = Topology(fabric)
    rules = Segments(IPv6Network("2001:db8::/32"), fabric.addressing)
    for host in topology.hosts:
        port = topology.switch(host.leaf).port(host.leaf_port)
        assert port.role is PortRole.LEAF_DOWN
        own, peer = rules.port_addresses(port)
        assert peer == rules.host_address(host) == own + 1


@pytest.mark.parametrize("block", ["fd00::/48", "fe80::/32", "10.0.0.0/8", "ff00::/32", "fd00:1::1/32", 7])
def test_a_block_of_another_kind_is_refused(block: object) -> None:
    document = SMALL | {"addressing": SMALL["addressing"] | {"segments": block}, "spraying": {"mode": "srv6"}}
    with pytest.raises(ValueError, match="is no unicast IPv6 prefix of 32 bits"):
        Fabric.model_validate(document)


@pytest.mark.parametrize(("mode", "block"), [("alias", "fd00:6d6c::/32"), ("srv6", None)])
def test_a_block_and_the_mode_come_together(mode: str, block: str | None) -> None:
    document = SMALL | {"addressing": SMALL["addressing"] | {"segments": block}, "spraying": {"mode": mode}}
    with pytest.raises(ValueError, match="belong together"):
        Fabric.model_validate(document)
