"""A fabric document expanded into switches, ports, hosts and addresses.

A path is named by the highest switch that it crosses: its spine, or its core where it leaves the pod. Of
parallel links between two switches each is a path of its own, unless they are one link aggregation group: the
first has the switch's name, the next ones `spine1.2`, `spine1.3`, ….
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from ipaddress import IPV4LENGTH, IPv4Address, IPv4Network
from itertools import count
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.plan.addresses import address_at, block_at, prefix_at
from mltswitch.plan.cabling import (
    TIERS,
    Cabling,
    End,
    Link,
    check_complete,
    check_names,
    collect,
    find_pods,
    upward_links,
)
from mltswitch.plan.elements import (
    ADDRESSES_OF_A_LINK,
    NO_ADDRESS,
    Host,
    PathName,
    Port,
    Route,
    Switch,
    discard_route,
)
from mltswitch.plan.fabric import Fabric
from mltswitch.plan.topology_document import HostAddress, PortRole, SwitchRole

_ROLES: Final[dict[tuple[str, str], tuple[PortRole, PortRole]]] = {
    ("host", SwitchRole.LEAF): (PortRole.LEAF_DOWN, PortRole.LEAF_DOWN),
    (SwitchRole.LEAF, SwitchRole.SPINE): (PortRole.LEAF_UP, PortRole.SPINE_DOWN),
    (SwitchRole.SPINE, SwitchRole.CORE): (PortRole.SPINE_UP, PortRole.CORE_DOWN),
}
"""(lower, upper) tier → roles of their ports."""


class Topology:
    """Switches, hosts and routes of one fabric, in a fixed order."""

    def __init__(self, fabric: Fabric) -> None:
        """Expand the document; raises UserInputError naming the link, switch or prefix that does not fit."""
        self._fabric = fabric
        self._addressing = fabric.addressing
        self._trusted = None if fabric.trusted_ports == "all" else dict.fromkeys(fabric.trusted_ports)
        cabling = collect(fabric.topology)
        self._nodes = {node.name: node for node in cabling.nodes}
        check_names([*(node.name for node in cabling.nodes), *cabling.hosts])
        self._tiers: dict[str, str] = {name: node.role for name, node in self._nodes.items()}
        self._tiers |= dict.fromkeys(cabling.hosts, TIERS[0])
        links = upward_links(cabling.links, self._tiers)
        counts = {tier: count() for tier in TIERS}
        self.tier_index = {name: next(counts[node.role]) for name, node in self._nodes.items()}
        """Switch → 0-based place within its tier."""
        self.pods = find_pods(cabling.nodes, links)
        """Leaf or spine → number of its pod."""
        self._joined = self._join(links)
        check_complete(cabling.nodes, self._joined, self.pods)
        self._via = {pod: self._choose_spines(pod) for pod in sorted(set(self.pods.values()))}
        self.paths = self._name_paths()
        """All paths, those of `addressing.alias` in its order."""
        self._alias = self._alias_prefixes()
        self._check_room()
        self.switches, self.hosts = self._connect(cabling, links)
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

    @property
    def hops(self) -> int:
        """Queues on the longest path."""
        if len(self._via) > 1:
            return 5
        return 3 if any(role is SwitchRole.SPINE for role in self._tiers.values()) else 1

    @cached_property
    def senders(self) -> dict[PortRole, int]:
        """For each port role the most host ports that can send through one such port; for ports to a host,
        those of other hosts."""
        total = len(self.hosts)
        on_leaf = Counter(host.leaf for host in self.hosts)
        in_pod = Counter(self.pods[host.leaf] for host in self.hosts)
        machines = Counter(host.machine for host in self.hosts)
        return {
            PortRole.LEAF_DOWN: total - min(machines.values(), default=0),
            PortRole.LEAF_UP: max(on_leaf.values(), default=0),
            PortRole.SPINE_DOWN: total - min(on_leaf.values(), default=0),
            PortRole.SPINE_UP: max(in_pod.values(), default=0),
            PortRole.CORE_DOWN: total - min(in_pod.values(), default=0),
        }

    def paths_between(self, source: Host, destination: Host) -> tuple[PathName, ...]:
        """The paths from one leaf to another: by the spines of one pod, or by the cores."""
        pod = self.pods[source.leaf]
        wanted = pod if pod == self.pods[destination.leaf] else None
        return tuple(path for path in self.paths if self.pods.get(path.top) == wanted)

    def walk(self, source: Host, destination: Host, path: PathName) -> tuple[tuple[str, Port], ...]:
        """Each switch on a path with the port by which it sends; for a link aggregation group, its first
        port."""
        last = (destination.leaf, self.switch(destination.leaf).port(destination.leaf_port))
        if source.leaf == destination.leaf:
            return (last,)
        up, down = (self._spine(self.pods[host.leaf], path) for host in (source, destination))
        hops = [(source.leaf, self._link(source.leaf, up, path)[0])]
        if up != down:
            hops.append((up, self._link(up, path.top, path)[0]))
            hops.append((path.top, self._link(down, path.top, path)[1]))
        hops.append((down, self._link(destination.leaf, down, path)[1]))
        return (*hops, last)

    def routes(self, switch_name: str) -> tuple[Route, ...]:
        """Alias routes of one switch, expanded on demand: the path rule, not a list of host pairs."""
        switch = self.switch(switch_name)
        if not self._alias or self._fabric.qos_only:
            return ()
        if switch.role is SwitchRole.LEAF:
            return tuple(self._leaf_routes(switch))
        return tuple(self._upper_routes(switch))

    def _leaf_routes(self, leaf: Switch) -> Iterator[Route]:
        pod = self.pods[leaf.name]
        paths = [path for path in self.paths if self._spine(pod, path)]
        for path in paths:
            port, _ = self._link(leaf.name, self._spine(pod, path), path)
            yield Route(self._alias[path.name], port.peer_address, port.interface)
        prefixes = [int(self._alias[path.name].network_address) for path in paths]
        for port in leaf.ports:
            if port.peer_is_host:
                for prefix in prefixes:
                    alias = prefix_at(prefix + port.number, IPV4LENGTH)
                    yield Route(alias, port.peer_address, port.name)
        # What nobody has must not follow the way up: the switch there would send it down again.
        stride = self._addressing.leaf_stride
        for prefix in prefixes:
            yield discard_route(prefix + self.tier_index[leaf.name] * stride, stride)

    def _upper_routes(self, switch: Switch) -> Iterator[Route]:
        """A prefix for each leaf below, and the way to the core for the rest."""
        stride = self._addressing.leaf_stride
        is_core, pod = switch.role is SwitchRole.CORE, self.pods.get(switch.name, -1)
        for path in self.paths:
            if switch.name != (path.top if is_core else self._spine(pod, path)):
                continue
            first = int(self._alias[path.name].network_address)
            for leaf in self._leaves:
                if is_core:
                    _, port = self._link(self._spine(self.pods[leaf], path), path.top, path)
                elif self.pods[leaf] == pod:
                    _, port = self._link(leaf, switch.name, path)
                else:
                    continue
                prefix = block_at(first + self.tier_index[leaf] * stride, stride)
                yield Route(prefix, port.peer_address, port.interface)
            if path.top != switch.name:
                port, _ = self._link(switch.name, path.top, path)
                yield Route(self._alias[path.name], port.peer_address, port.interface)

    @cached_property
    def _leaves(self) -> tuple[str, ...]:
        return tuple(name for name, node in self._nodes.items() if node.role is SwitchRole.LEAF)

    @property
    def _indices(self) -> int:
        """Indices that hosts may have."""
        return len(self._leaves) * self._addressing.leaf_stride

    def _spine(self, pod: int, path: PathName) -> str:
        """The spine by which a path enters and leaves a pod; "": it does not."""
        return self._via.get(pod, {}).get(path.top, "")

    def _link(self, lower: str, upper: str, path: PathName) -> tuple[Port, Port]:
        """Both ports of the link that a path takes between two switches."""
        ends = self._joined[lower, upper]
        return self._ports[ends[path.link % len(ends)]]

    def _choose_spines(self, pod: int) -> dict[str, str]:
        """Top of a path → the pod's spine that it crosses: itself, or the one that is cabled to the core.

        Of several spines that are cabled to one core, cores take turns.
        """
        spines = [
            name
            for name, other in self.pods.items()
            if other == pod and self._tiers[name] == SwitchRole.SPINE
        ]
        via = {spine: spine for spine in spines}
        for name, node in self._nodes.items():
            if node.role is SwitchRole.CORE:
                cabled = [spine for spine in spines if (spine, name) in self._joined]
                via[name] = cabled[self.tier_index[name] % len(cabled)]
        return via

    def _join(self, links: list[Link]) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """(lower, upper) switch → lower ends of their links, one for each link aggregation group."""
        joined: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        for low, high, _ in links:
            if self._tiers[low.node] != TIERS[0]:
                joined.setdefault((low.node, high.node), {})[low.interface] = None
        return {pair: list(ends) for pair, ends in joined.items()}

    def _name_paths(self) -> tuple[PathName, ...]:
        most: Counter[str] = Counter()
        for (_, upper), ends in self._joined.items():
            most[upper] = max(most[upper], len(ends))
        for via in self._via.values():
            for top, spine in via.items():
                most[top] = max(most[top], most[spine])
        tops = [name for name, tier in self._tiers.items() if tier in TIERS[2:]]
        paths = [
            PathName(top if link == 0 else f"{top}.{link + 1}", top, link)
            for top in sorted(tops, key=lambda name: TIERS.index(self._tiers[name]))
            for link in range(most[top])
        ]
        check_names([*self._tiers, *(path.name for path in paths if path.link)])
        if isinstance(self._addressing.alias, dict):
            order = {name: place for place, name in enumerate(self._addressing.alias)}
            paths.sort(key=lambda path: order.get(path.name, len(order)))
        if self._fabric.spraying.mode == "srv6" and any(path.link or len(self._via) > 1 for path in paths):
            raise UserInputError(
                "srv6 has one segment for each spine",
                where="spraying.mode",
                expected="two tiers, and of parallel links a link aggregation group",
            )
        return tuple(paths)

    def _alias_prefixes(self) -> dict[str, IPv4Network]:
        """Path → its prefix, listed or as a part of the one block; {} where there is none."""
        given, names = self._addressing.alias, [path.name for path in self.paths]
        if given is None:
            return {}
        if isinstance(given, dict):
            for name in given.keys() - set(names):
                raise UserInputError(
                    f"{name!r} is no spine, core or parallel link of the topology",
                    where="addressing.alias",
                    expected=f"one of {', '.join(names) or 'no spine exists'}",
                )
            for name in names:
                if name not in given:
                    raise UserInputError(f"path {name} has no alias prefix", where="addressing.alias")
            return given
        bits = (self._indices - 1).bit_length()
        if given.num_addresses < len(names) << bits:
            raise UserInputError(
                f"{given} holds {given.num_addresses} addresses, {len(names)} paths need "
                f"{len(names) << bits}",
                where="addressing.alias",
            )
        first = int(given.network_address)
        return {
            name: prefix_at(first + (place << bits), IPV4LENGTH - bits) for place, name in enumerate(names)
        }

    def _check_room(self) -> None:
        prefixes = [(f"addressing.alias.{name}", prefix, 1) for name, prefix in self._alias.items()]
        if self._addressing.hosts is not None:
            prefixes.append(("addressing.hosts", self._addressing.hosts, ADDRESSES_OF_A_LINK))
        for where, prefix, addresses_each in prefixes:
            if prefix.num_addresses < self._indices * addresses_each:
                raise UserInputError(
                    f"{prefix} holds {prefix.num_addresses} addresses, {len(self._leaves)} leaves with "
                    f"leaf_stride {self._addressing.leaf_stride} need {self._indices * addresses_each}",
                    where=where,
                )

    def _connect(self, cabling: Cabling, links: list[Link]) -> tuple[tuple[Switch, ...], tuple[Host, ...]]:
        ports: dict[str, list[Port]] = {name: [] for name in self._nodes}
        self._ports: dict[tuple[str, str], tuple[Port, Port]] = {}
        hosts = self._number_hosts(cabling, links)
        numbers = count()
        for link in links:
            low, high, _ = link
            low_role, high_role = _ROLES[self._tiers[low.node], self._tiers[high.node]]
            if low_role is high_role:
                host = hosts[low.node, low.port]
                down = self._port(high, high_role, low, link, host.index, (host.gateway, host.address))
                ports[high.node].append(down._replace(peer=host.name, peer_is_host=True, vlan=host.vlan))
                continue
            if low.interface in self._ports:
                known = self._ports[low.interface][0]
                number, ends = known.number, (known.address, known.peer_address)
            else:
                number = next(numbers)
                ends = self._link_addresses(number)
            below = self._port(low, low_role, high, link, number, ends)
            above = self._port(high, high_role, low, link, number, ends[::-1])
            ports[low.node].append(below)
            ports[high.node].append(above)
            self._ports.setdefault(low.interface, (below, above))
        switches = tuple(
            Switch(
                node.name, node.role, node.platform, node.hardware, self.tier_index[name], tuple(ports[name])
            )
            for name, node in self._nodes.items()
        )
        return switches, tuple(sorted(hosts.values(), key=lambda host: host.index))

    def _port(
        self,
        end: End,
        role: PortRole,
        peer: End,
        link: Link,
        number: int,
        addresses: tuple[IPv4Address, IPv4Address],
    ) -> Port:
        """The port at one end of a link, as of a link between switches; its own address comes first."""
        is_trusted = self._trusted is None or str(end) in self._trusted
        return Port(
            end.port, role, peer.node, peer.port, False, *addresses, is_trusted,
            link.rate_bps or self._rates[role], number, end.breakout, end.lag,
        )  # fmt: skip

    @cached_property
    def _rates(self) -> dict[PortRole, int]:
        ports = self._fabric.ports
        own = {role: entry.rate_bps for role, entry in ports.overrides.items()}
        return {role: own.get(role) or ports.rate_bps for role in PortRole}

    def _link_addresses(self, number: int) -> tuple[IPv4Address, IPv4Address]:
        """(lower, upper) switch's address of a link between two switches."""
        if self._addressing.links is None:
            if self._fabric.qos_only:
                return NO_ADDRESS, NO_ADDRESS
            raise UserInputError("is missing", where="addressing.links", expected="a prefix for links")
        offset = ADDRESSES_OF_A_LINK * number
        if offset >= 1 << (IPV4LENGTH - self._addressing.links.prefixlen):
            raise UserInputError(
                f"{self._addressing.links} has no room for link {number + 1}", where="addressing.links"
            )
        base = int(self._addressing.links.network_address) + offset
        return address_at(base + 1), address_at(base + 2)

    def _number_hosts(self, cabling: Cabling, links: list[Link]) -> dict[tuple[str, str], Host]:
        """(host, interface) → the host's port; places on a leaf are counted in the order of the hosts."""
        of_machine: dict[str, list[Link]] = {name: [] for name in cabling.hosts}
        for link in links:
            if link.a.node in of_machine:
                of_machine[link.a.node].append(link)
        aliases = {
            pod: tuple(
                (path.name, self._alias[path.name])
                for path in self.paths
                if path.name in self._alias and self._spine(pod, path)
            )
            for pod in self._via
        }
        stride, seen, rule = self._addressing.leaf_stride, Counter[str](), HostAddress()
        hosts: dict[tuple[str, str], Host] = {}
        for machine, cables in of_machine.items():
            if not cables:
                raise UserInputError(f"host {machine} has no link", where="topology.links")
            for (_, interface, *_), (leaf, leaf_port, *_), _ in cables:
                seen[leaf] += 1
                if seen[leaf] >= stride and (self._alias or self._addressing.hosts is not None):
                    raise UserInputError(
                        f"leaf {leaf} has {seen[leaf]} hosts or more",
                        where="addressing.leaf_stride",
                        expected=f"fewer than leaf_stride {stride}",
                    )
                index = self.tier_index[leaf] * stride + seen[leaf]
                name = machine if len(cables) == 1 else f"{machine}.{interface}"
                entry = cabling.entries.get(machine)
                given = entry.address_of(interface) if entry else rule
                address, gateway = self._host_addresses(name, given, index)
                hosts[machine, interface] = Host(
                    name, interface, leaf, leaf_port, index, address, gateway, aliases[self.pods[leaf]],
                    machine, given.address is not None, given.vlan,
                )  # fmt: skip
        self._check_hosts(list(hosts.values()))
        return hosts

    def _host_addresses(self, name: str, given: HostAddress, index: int) -> tuple[IPv4Address, IPv4Address]:
        """(host's, leaf's) address of the link of one host's port."""
        block, is_ours = self._addressing.hosts, not self._fabric.qos_only
        if is_ours and given.vlan is not None:
            raise UserInputError(f"vlan {given.vlan} needs qos_only: true", where=f"topology.hosts: {name}")
        if given.address is not None:
            if is_ours and given.gateway is None:
                raise UserInputError("an address, but no gateway", where=f"topology.hosts: {name}")
            return given.address.ip, given.gateway or NO_ADDRESS
        if block is None:
            if is_ours:
                raise UserInputError(
                    f"host {name} has no address",
                    where="addressing.hosts",
                    expected="a prefix for hosts, or an address of each host",
                )
            return NO_ADDRESS, NO_ADDRESS
        base = int(block.network_address) + ADDRESSES_OF_A_LINK * index
        return address_at(base + 2), address_at(base + 1)

    def _check_hosts(self, hosts: list[Host]) -> None:
        """Names are given once, and addresses that the file gives are no others'."""
        check_names([*self._nodes, *(host.name for host in hosts)])
        reserved = (self._addressing.hosts, self._addressing.links, *self._alias.values())
        given = [host for host in hosts if host.is_explicit]
        twice = Counter(host.address for host in given)
        for host in given:
            where = f"topology.hosts: {host.name}"
            if twice[host.address] > 1:
                raise UserInputError(f"{host.address} is given twice", where=where)
            for prefix in reserved:
                if prefix is not None and host.address in prefix:
                    raise UserInputError(
                        f"{host.address} lies in {prefix}, whose addresses follow a rule", where=where
                    )

    def _check_trusted(self) -> None:
        known = {f"{switch.name}:{port.name}" for switch in self.switches for port in switch.ports}
        for reference in self._trusted or ():
            if reference not in known:
                raise UserInputError(f"{reference} is no port of the fabric", where="trusted_ports")
