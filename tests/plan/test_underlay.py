"""What a rack routes without us."""

from ipaddress import IPv4Network

from mltswitch.plan import Fabric, Topology, attached_hosts, underlay
from tests.plan.examples import SMALL


def test_every_host_is_reached_from_every_switch() -> None:
    fabric = Fabric.model_validate(SMALL)
    topology = Topology(fabric)
    for switch in topology.switches:
        routes = (*attached_hosts(switch), *underlay(fabric.addressing, topology, switch))
        for host in topology.hosts:
            best = max(
                (route for route in routes if host.address in route.prefix),
                key=lambda route: route.prefix.prefixlen,
            )
            hops = {route.port for route in routes if route.prefix == best.prefix}
            peers = {port.peer for port in switch.ports if port.name in hops}
            if switch.role == "spine":
                assert peers == {host.leaf}
            elif switch.name == host.leaf:
                assert peers == {host.name}
            else:
                assert peers == {other.name for other in topology.switches if other.role == "spine"}


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
