"""The network of a plan with real images in it: which node is what, where it is managed, what is cabled."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from mltswitch.errors import UserInputError, every
from mltswitch.export.images import Image
from mltswitch.plan import NO_ADDRESS, Host, Plan, Port, Switch

LINK_PREFIX_BITS: Final = 30
FIRST_NODE: Final = 11
"""Place of the first node in the management network; the tools take addresses before it for themselves."""


@dataclass(frozen=True, slots=True)
class SwitchNode:
    """One switch of the plan, which an image stands for."""

    switch: Switch
    image: Image
    address: IPv4Address
    """In the management network."""

    @property
    def name(self) -> str:
        """As in the fabric."""
        return self.switch.name


@dataclass(frozen=True, slots=True)
class HostNode:
    """One machine of the plan, with its ports as eth1, eth2, …: eth0 leads to the management network."""

    name: str
    ports: tuple[Host, ...]
    address: IPv4Address

    def interface(self, port: Host) -> str:
        """What the port is called in the lab."""
        return f"eth{self.ports.index(port) + 1}"


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a cable."""

    node: str
    port: str
    """As the plan has it, or the host's interface in the lab."""
    address: str
    """With its prefix length; empty where the plan gives none."""


@dataclass(frozen=True, slots=True)
class LabNetwork:
    """Nodes and cables, in the plan's order."""

    name: str
    management: IPv4Network
    switches: tuple[SwitchNode, ...]
    hosts: tuple[HostNode, ...]
    links: tuple[tuple[LinkEnd, LinkEnd], ...]
    prefixes: tuple[IPv4Network, ...]
    """Where hosts and their aliases are: what a host reaches by its leaf."""


def lab_network(plan: Plan, images: Mapping[str, Image], management: IPv4Network) -> LabNetwork:
    """The plan's network with these images in it; raises UserInputError naming what no image stands for."""
    topology = plan.topology
    machines: dict[str, list[Host]] = {}
    for host in topology.hosts:
        machines.setdefault(host.machine, []).append(host)
    room = management.num_addresses - 2 - FIRST_NODE
    if len(topology.switches) + len(machines) > room:
        raise UserInputError(
            f"{management} has room for {max(room, 0)} nodes",
            where="--management",
            expected=f"one for {len(topology.switches)} switches and {len(machines)} hosts",
        )
    addresses = iter(range(int(management.network_address) + FIRST_NODE, int(management.broadcast_address)))
    chosen = every(_chooser(switch, images) for switch in topology.switches)
    switches = tuple(
        SwitchNode(switch, image, IPv4Address(next(addresses)))
        for switch, image in zip(topology.switches, chosen, strict=True)
    )
    hosts = tuple(
        HostNode(name, tuple(ports), IPv4Address(next(addresses))) for name, ports in machines.items()
    )
    prefixes = dict.fromkeys(prefix for host in topology.hosts for _, prefix in host.alias_prefixes)
    if plan.fabric.addressing.hosts is not None:
        prefixes[plan.fabric.addressing.hosts] = None
    return LabNetwork(
        plan.fabric.name, management, switches, hosts, tuple(_links(switches, hosts)), tuple(prefixes)
    )


def _chooser(switch: Switch, images: Mapping[str, Image]) -> Callable[[], Image]:
    def choose() -> Image:
        if switch.platform not in images:
            raise UserInputError(
                f"no image is known that stands for platform {switch.platform}",
                where=switch.name,
                expected=f"a switch of {', '.join(images)}",
                hint="plan a fabric without it, or with one of these in its place",
            )
        for port in switch.ports:
            if port.lag:
                raise UserInputError(
                    f"its port {port.name} is in link aggregation group {port.lag}, which no image has",
                    where=switch.name,
                    hint="plan a fabric whose links are no such groups",
                )
        return images[switch.platform]

    return choose


def _links(
    switches: tuple[SwitchNode, ...], hosts: tuple[HostNode, ...]
) -> Iterator[tuple[LinkEnd, LinkEnd]]:
    """Each cable once, a lower switch's end first, or that of the leaf of a host."""
    behind = {(port.leaf, port.leaf_port): (node, port) for node in hosts for port in node.ports}
    done: set[tuple[str, str]] = set()
    for node in switches:
        for port in node.switch.ports:
            if (node.name, port.name) in done:
                continue
            here = LinkEnd(node.name, port.name, _with_prefix(port.address, port))
            if port.peer_is_host:
                machine, host = behind[node.name, port.name]
                far = LinkEnd(machine.name, machine.interface(host), _with_prefix(host.address, port))
            else:
                done.add((port.peer, port.peer_port))
                far = LinkEnd(port.peer, port.peer_port, _with_prefix(port.peer_address, port))
            yield here, far


def _with_prefix(address: IPv4Address, port: Port) -> str:
    """An address by the fabric's rule; empty where the file gives it, for then nobody knows its prefix."""
    is_ruled = NO_ADDRESS not in (port.address, port.peer_address)
    is_one_link = int(port.address) ^ int(port.peer_address) < 1 << (32 - LINK_PREFIX_BITS)
    return f"{address}/{LINK_PREFIX_BITS}" if is_ruled and is_one_link else ""
