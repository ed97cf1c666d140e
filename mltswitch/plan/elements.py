"""Switches, ports, hosts, paths and routes: of what a topology consists."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from mltswitch.plan.addresses import block_at
from mltswitch.plan.topology_document import PortRole, SwitchRole

ADDRESSES_OF_A_LINK: Final = 4
"""The number of addresses of a link, a /30: the leaf has the first one, the spine or the host the second."""
NO_ADDRESS: Final = IPv4Address(0)
"""Placeholder address of a port or a host for which the fabric file gives none (`qos_only`)."""


class Port(NamedTuple):
    """One switch port of the fabric, with both ends' addresses."""

    name: str
    role: PortRole
    peer: str
    peer_port: str
    peer_is_host: bool
    address: IPv4Address
    peer_address: IPv4Address
    trusted: bool
    rate_bps: int
    number: int
    """The index of the link between two switches, from 0; for a port to a host, the host's index."""
    breakout: int = 1
    """Ports into which the box's port is broken out, as far as the fabric file says."""
    lag: str = ""
    """Link aggregation group, which has the addresses; "": the port is in none."""
    vlan: int | None = None

    @property
    def interface(self) -> str:
        """What has the addresses: the port, or its link aggregation group."""
        return self.lag or self.name


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch and its ports in the order in which the device numbers them."""

    name: str
    role: SwitchRole
    platform: str
    hardware: str | None
    index: int
    """The switch's 0-based position within its tier."""
    ports: tuple[Port, ...]

    def port(self, name: str) -> Port:
        """The port of this name; raises KeyError."""
        for port in self.ports:
            if port.name == name:
                return port
        raise KeyError(name)

    @property
    def links(self) -> tuple[Port, ...]:
        """The ports that have addresses of their own: one for each link, and the first of each link
        aggregation group."""
        return tuple({port.interface: port for port in reversed(self.ports)}.values())[::-1]


@dataclass(frozen=True, slots=True)
class Host:
    """One port of a host; its addresses follow from its index, unless the fabric file gives an address.

    A host with several ports has a Host for each, each with a name of its own such as host1.eth0.
    """

    name: str
    interface: str
    leaf: str
    leaf_port: str
    index: int
    address: IPv4Address
    gateway: IPv4Address
    alias_prefixes: tuple[tuple[str, IPv4Network], ...]
    """Each path's name and its alias prefix, the same for all hosts of a pod."""
    machine: str = ""
    """The name of the host that the port belongs to."""
    is_explicit: bool = False
    """Whether the fabric file gives the address, so that it does not follow from the host's index."""
    vlan: int | None = None

    @property
    def aliases(self) -> tuple[tuple[str, IPv4Address], ...]:
        """Each path's name and the host's alias address for it: packets to that address take that path."""
        return tuple((path, prefix.network_address + self.index) for path, prefix in self.alias_prefixes)


class Route(NamedTuple):
    """One static route of the plan: an alias prefix and the next hop that makes it one path."""

    prefix: IPv4Network
    next_hop: IPv4Address
    port: str
    """The port that the route leads through, or its link aggregation group."""

    @property
    def discards(self) -> bool:
        """Whether the route drops packets: they are for addresses that no more specific route covers."""
        return not self.port and self.next_hop == NO_ADDRESS


def discard_route(first: int, size: int) -> Route:
    """A route that drops packets to a block of `size` addresses (a power of two) that no longer prefix
    covers."""
    return Route(block_at(first, size), NO_ADDRESS, "")


class PathName(NamedTuple):
    """The name of one of the paths between hosts."""

    name: str
    top: str
    """The switch at the top of the path: a spine, or between pods a core."""
    link: int
    """Index of the parallel link that the path takes, from 0, modulo the number of parallel links."""
