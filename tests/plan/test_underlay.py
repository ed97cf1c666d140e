"""What a rack routes without us."""

from ipaddress import IPv4Network

from mltswitch.plan import Fabric, Topology, underlay
from tests.plan.examples import SMALL


def test_links_that_lead_nowhere_are_left_out() -> None:
    fabric = Fabric.model_validate(SMALL)
    topology = Topology(fabric)
    leaf = topology.switch("leaf1")
    [route] = underlay(fabric.addressing, topology, leaf, lambda port: port.peer == "spine2")
    assert (route.prefix, leaf.port(route.port).peer) == (fabric.addressing.hosts, "spine2")
    assert underlay(fabric.addressing, topology, leaf, lambda port: False) == ()


def test_a_spine_sends_a_block_of_hosts_to_each_leaf() -> None:
    fabric = Fabric.model_validate(SMALL)
    routes = underlay(fabric.addressing, Topology(fabric), Topology(fabric).switch("spine1"))
    stride = fabric.addressing.leaf_stride
    assert fabric.addressing.hosts is not None
    first = fabric.addressing.hosts.network_address
    assert [route.prefix for route in routes] == [
        IPv4Network((int(first) + 4 * stride * place, 32 - (4 * stride).bit_length() + 1))
        for place in range(len(routes))
    ]
