"""The ordinary routes of a rack, needed by switches that run no routing protocol.

Several routes with the same prefix share its packets (ECMP).
"""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Network

from mltswitch.plan.addresses import block_at, host_prefix
from mltswitch.plan.elements import ADDRESSES_OF_A_LINK, Port, Route, Switch, discard_route
from mltswitch.plan.topology import Topology
from mltswitch.plan.topology_document import Addressing, SwitchRole

_UP = {SwitchRole.LEAF: SwitchRole.SPINE, SwitchRole.SPINE: SwitchRole.CORE}


def underlay(
    addressing: Addressing, topology: Topology, switch: Switch, leads: Callable[[Port], bool] = lambda _: True
) -> tuple[Route, ...]:
    """The routes of one switch: down to each leaf below it, and up over all links for everything else.

    Links for which `leads` returns False are left out: nothing is forwarded behind them.
    """
    ports = [port for port in switch.links if not port.peer_is_host and leads(port)]
    above = _UP.get(switch.role)
    up = [port for port in ports if topology.switch(port.peer).role is above]
    down: dict[str, list[Port]] = {}
    for port in ports:
        if topology.switch(port.peer).role is SwitchRole.LEAF:
            down.setdefault(port.peer, []).append(port)
    if switch.role is SwitchRole.CORE:
        for leaf in (each.name for each in topology.switches if each.role is SwitchRole.LEAF):
            pod = topology.pods[leaf]
            down[leaf] = [port for port in ports if topology.pods[port.peer] == pod]
    ways = [
        (prefix, port)
        for leaf, links in down.items()
        for prefix in _below(addressing, topology, leaf)
        for port in links
    ]
    if up:
        rest = [] if addressing.hosts is None else [addressing.hosts]
        rest += [
            host_prefix(host.address)
            for host in topology.hosts
            if host.is_explicit and host.leaf not in down and host.leaf != switch.name
        ]
        ways += [(prefix, port) for prefix in rest for port in up]
    return tuple(Route(prefix, port.peer_address, port.interface) for prefix, port in ways)


def _below(addressing: Addressing, topology: Topology, leaf: str) -> Iterator[IPv4Network]:
    """What is sent to a leaf: the block of its hosts, and hosts with addresses of their own."""
    if addressing.hosts is not None:
        yield block_at(*_own_block(addressing.hosts, addressing, topology, leaf))
    for host in topology.hosts:
        if host.is_explicit and host.leaf == leaf:
            yield host_prefix(host.address)


def _own_block(hosts: IPv4Network, addressing: Addressing, topology: Topology, leaf: str) -> tuple[int, int]:
    """(first address, how many) of a leaf's hosts by the rule."""
    size = ADDRESSES_OF_A_LINK * addressing.leaf_stride
    return int(hosts.network_address) + size * topology.tier_index[leaf], size


def owned_blocks(addressing: Addressing, topology: Topology, switch: Switch) -> tuple[Route, ...]:
    """Discard routes for the block of a leaf's own hosts, so that packets to unused addresses in it do not go
    up."""
    if switch.role is not SwitchRole.LEAF or addressing.hosts is None:
        return ()
    return (discard_route(*_own_block(addressing.hosts, addressing, topology, switch.name)),)


def attached_hosts(switch: Switch) -> tuple[Route, ...]:
    """Routes to a leaf's own hosts, one by one, as a router knows them from its interfaces' addresses."""
    return tuple(
        Route(host_prefix(port.peer_address), port.peer_address, port.name)
        for port in switch.ports
        if port.peer_is_host
    )
