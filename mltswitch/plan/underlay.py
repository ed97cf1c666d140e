"""The routes that a rack has without us: what a switch needs that has no routing of its own.

Routes with one prefix share its packets.
"""

from collections.abc import Callable
from ipaddress import IPV4LENGTH

from mltswitch.plan.addresses import prefix_at
from mltswitch.plan.fabric import Addressing, SwitchRole
from mltswitch.plan.topology import ADDRESSES_OF_A_LINK, Port, Route, Switch, Topology


def _every(_: Port) -> bool:
    return True


def underlay(
    addressing: Addressing, topology: Topology, switch: Switch, leads: Callable[[Port], bool] = _every
) -> tuple[Route, ...]:
    """Between leaves: a leaf sends to every host over all spines, a spine to each leaf.

    Links of which `leads` says that nothing is forwarded behind them are left out.
    """
    up = [port for port in switch.ports if not port.peer_is_host and leads(port)]
    if switch.role is SwitchRole.LEAF:
        return tuple(Route(addressing.hosts, port.peer_address, port.name) for port in up)
    addresses_each = ADDRESSES_OF_A_LINK * addressing.leaf_stride
    prefix_length = IPV4LENGTH - (addresses_each.bit_length() - 1)
    first = int(addressing.hosts.network_address)
    return tuple(
        Route(
            prefix_at(first + addresses_each * topology.tier_index[port.peer], prefix_length),
            port.peer_address,
            port.name,
        )
        for port in up
    )


def attached_hosts(switch: Switch) -> tuple[Route, ...]:
    """A leaf's own hosts, one by one: what a router knows from the addresses of its interfaces."""
    return tuple(
        Route(prefix_at(int(port.peer_address), IPV4LENGTH), port.peer_address, port.name)
        for port in switch.ports
        if port.peer_is_host
    )
