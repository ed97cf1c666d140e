"""A fabric document expanded into switches, ports, hosts and addresses."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPV4LENGTH, IPv4Address, IPv4Network
from typing import Final, NamedTuple

from mltswitch.errors import UserInputError
from mltswitch.plan.addresses import address_at, prefix_at
from mltswitch.plan.cabling import Link, check_complete, check_links, check_names, collect, tier_indices
from mltswitch.plan.fabric import Fabric, PortRole, SwitchRole

ADDRESSES_OF_A_LINK: Final = 4
"""A /30: the leaf has the first address, the spine or the host the second."""


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


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch and its ports in the order in which the device numbers them."""

    name: str
    role: SwitchRole
    platform: str
    hardware: str | None
    index: int
    """0-based place within its tier."""
    ports: tuple[Port, ...]

    def port(self, name: str) -> Port:
        """The port of this name; raises KeyError."""
        for port in self.ports:
            if port.name == name:
                return port
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its index decides all its addresses."""

    name: str
    interface: str
    leaf: str
    leaf_port: str
    index: int
    address: IPv4Address
    gateway: IPv4Address
    alias_prefixes: tuple[tuple[str, IPv4Network], ...]
    """(spine, its alias prefix), the same for all hosts."""

    @property
    def aliases(self) -> tuple[tuple[str, IPv4Address], ...]:
        """(spine, address): sending to the address crosses that spine."""
        return tuple((spine, prefix.network_address + self.index) for spine, prefix in self.alias_prefixes)


class Route(NamedTuple):
    """One static route of the plan: an alias prefix and the next hop that makes it one path."""

    prefix: IPv4Network
    next_hop: IPv4Address
    port: str


class Topology:
    """Switches, hosts and routes of one fabric, in a fixed order."""

    def __init__(self, fabric: Fabric) -> None:
        """Expand the document; raises UserInputError naming the link, switch or prefix that does not fit."""
        self._fabric = fabric
        self._addressing = fabric.addressing
        self._alias_prefixes = tuple(fabric.addressing.alias.items())
        nodes, hosts, links = collect(fabric)
        self._nodes = {node.name: node for node in nodes}
        check_names(nodes, hosts)
        check_links(links, {node.name: node.role for node in nodes}, set(hosts))
        self._tier_index = tier_indices(nodes)
        self._check_alias_spines()
        check_complete(nodes, links)
        self._host_index = self._number_hosts(hosts, links)
        self.switches, self.hosts = self._connect(links)
        self._check_trusted()

    @cached_property
    def by_name(self) -> dict[str, Switch]:
        """Switches by name."""
        return {switch.name: switch for switch in self.switches}

    def switch(self, name: str) -> Switch:
        """The switch of this name; raises UserInputError."""
        try:
            return self.by_name[name]
        except KeyError:
            raise UserInputError(
                f"no switch {name!r} in fabric {self._fabric.name}",
                expected=f"one of {', '.join(self.by_name)}",
            ) from None

    def routes(self, switch_name: str) -> tuple[Route, ...]:
        """Alias routes of one switch, expanded on demand: the path rule, not a list of host pairs."""
        switch = self.switch(switch_name)
        return tuple(
            self._leaf_routes(switch) if switch.role is SwitchRole.LEAF else self._spine_routes(switch)
        )

    @property
    def tier_index(self) -> dict[str, int]:
        """Switch → 0-based place within its tier."""
        return self._tier_index

    def _leaf_routes(self, leaf: Switch) -> Iterator[Route]:
        for port in leaf.ports:
            if not port.peer_is_host:
                yield Route(self._addressing.alias[port.peer], port.peer_address, port.name)
        spines = [int(prefix.network_address) for prefix in self._addressing.alias.values()]
        for port in leaf.ports:
            if port.peer_is_host:
                index = self._host_index[port.peer]
                for alias in spines:
                    yield Route(prefix_at(alias + index, IPV4LENGTH), port.peer_address, port.name)

    def _spine_routes(self, spine: Switch) -> Iterator[Route]:
        stride = self._addressing.leaf_stride
        prefix_length = IPV4LENGTH - (stride.bit_length() - 1)
        alias = int(self._addressing.alias[spine.name].network_address)
        for port in spine.ports:
            first = alias + self._tier_index[port.peer] * stride
            yield Route(prefix_at(first, prefix_length), port.peer_address, port.name)

    def _check_alias_spines(self) -> None:
        spines = {node.name for node in self._nodes.values() if node.role is SwitchRole.SPINE}
        for name in self._addressing.alias:
            if name not in spines:
                raise UserInputError(
                    f"{name!r} is no spine of the topology",
                    where="addressing.alias",
                    expected=f"one of {', '.join(sorted(spines)) or 'no spine exists'}",
                )
        for name in sorted(spines - self._addressing.alias.keys()):
            raise UserInputError(f"spine {name} has no alias prefix", where="addressing.alias")
        leaves = sum(node.role is SwitchRole.LEAF for node in self._nodes.values())
        needed = leaves * self._addressing.leaf_stride
        prefixes = [
            (f"addressing.alias.{name}", prefix, 1) for name, prefix in self._addressing.alias.items()
        ]
        hosts = ("addressing.hosts", self._addressing.hosts, ADDRESSES_OF_A_LINK)
        for where, prefix, addresses_each in [*prefixes, hosts]:
            if prefix.num_addresses < needed * addresses_each:
                raise UserInputError(
                    f"{prefix} holds {prefix.num_addresses} addresses, {leaves} leaves with leaf_stride "
                    f"{self._addressing.leaf_stride} need {needed * addresses_each}",
                    where=where,
                )

    def _number_hosts(self, hosts: list[str], links: list[Link]) -> dict[str, int]:
        leaf_of: dict[str, str] = {}
        known = set(hosts)
        for link in links:
            for (name, _), (peer, _) in ((link.a, link.b), (link.b, link.a)):
                if name in known:
                    if name in leaf_of:
                        raise UserInputError(f"host {name} has two links", where="topology.links")
                    leaf_of[name] = peer
        index: dict[str, int] = {}
        seen: Counter[str] = Counter()
        for host in hosts:
            if host not in leaf_of:
                raise UserInputError(f"host {host} has no link", where="topology.links")
            leaf = leaf_of[host]
            seen[leaf] += 1
            if seen[leaf] >= self._addressing.leaf_stride:
                raise UserInputError(
                    f"leaf {leaf} has {seen[leaf]} hosts or more",
                    where="addressing.leaf_stride",
                    expected=f"fewer than leaf_stride {self._addressing.leaf_stride}",
                )
            index[host] = self._tier_index[leaf] * self._addressing.leaf_stride + seen[leaf]
        return index

    def _connect(self, links: list[Link]) -> tuple[tuple[Switch, ...], tuple[Host, ...]]:
        ports: dict[str, list[Port]] = {name: [] for name in self._nodes}
        hosts: list[Host] = []
        trusted = None if self._fabric.trusted_ports == "all" else frozenset(self._fabric.trusted_ports)
        fabric_links = 0

        def add(
            end: tuple[str, str],
            peer: tuple[str, str],
            role: PortRole,
            address: IPv4Address,
            far: IPv4Address,
        ) -> None:
            is_trusted = trusted is None or ":".join(end) in trusted
            is_host = role is PortRole.LEAF_DOWN
            ports[end[0]].append(Port(end[1], role, peer[0], peer[1], is_host, address, far, is_trusted))

        # Numbers: an address is added to by making one of the sum.
        first_host = int(self._addressing.hosts.network_address)
        first_link = int(self._addressing.links.network_address)
        end_of_links = first_link + self._addressing.links.num_addresses
        for link in links:
            near, far = link.a, link.b
            if near[0] in self._host_index or self._role(near) is SwitchRole.SPINE:
                near, far = far, near
            if far[0] in self._host_index:
                index = self._host_index[far[0]]
                base = first_host + ADDRESSES_OF_A_LINK * index
                gateway, address = address_at(base + 1), address_at(base + 2)
                add(near, far, PortRole.LEAF_DOWN, gateway, address)
                hosts.append(
                    Host(far[0], far[1], near[0], near[1], index, address, gateway, self._alias_prefixes)
                )
                continue
            base = first_link + ADDRESSES_OF_A_LINK * fabric_links
            fabric_links += 1
            if base + ADDRESSES_OF_A_LINK > end_of_links:
                raise UserInputError(
                    f"{self._addressing.links} has no room for link {fabric_links}", where="addressing.links"
                )
            leaf, spine = address_at(base + 1), address_at(base + 2)
            add(near, far, PortRole.LEAF_UP, leaf, spine)
            add(far, near, PortRole.SPINE_DOWN, spine, leaf)
        switches = tuple(
            Switch(
                node.name, node.role, node.platform, node.hardware, self._tier_index[name], tuple(ports[name])
            )
            for name, node in self._nodes.items()
        )
        return switches, tuple(sorted(hosts, key=lambda host: host.index))

    def _role(self, end: tuple[str, str]) -> SwitchRole:
        return self._nodes[end[0]].role

    def _check_trusted(self) -> None:
        if self._fabric.trusted_ports == "all":
            return
        known = {f"{switch.name}:{port.name}" for switch in self.switches for port in switch.ports}
        for reference in self._fabric.trusted_ports:
            if reference not in known:
                raise UserInputError(f"{reference} is no port of the fabric", where="trusted_ports")
