"""SRv6 addresses and routes of a fabric, from one /32: where a segment list leads (RFC 8986).

The 16 bits after the /32 say what an address is: a spine's locator (1, 2, …), the hosts of a leaf
(0x2001, …), or the links between leaves and spines (0x3000). A sender names a spine's segment and then the
host; the spine ends the segment and routes to the leaf. Leaves end none.
"""

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from typing import Final

from mltswitch.plan.elements import Host, Port, Switch
from mltswitch.plan.topology_document import Addressing, PortRole, SwitchRole

LOCATOR_BITS: Final = 48
LINK_BITS: Final = 64
FIRST_PATH_ADDRESS: Final = 0x101
"""Offset in a host's /64 block of its first per-path address; one for each spine follows that of its link."""
_FIRST_SPINE: Final = 0x0001
_FIRST_LEAF: Final = 0x2001
_LINKS: Final = 0x3000


@dataclass(frozen=True, slots=True)
class SegmentRoute:
    """One static IPv6 route of the plan."""

    prefix: IPv6Network
    next_hop: IPv6Address
    port: str


@dataclass(frozen=True, slots=True)
class Segments:
    """The rules that divide one block of addresses into SRv6 locators and addresses of hosts and paths."""

    block: IPv6Network
    addressing: Addressing

    def locator(self, spine_index: int) -> IPv6Network:
        """The SRv6 locator of the spine with this index; the prefix itself is its segment."""
        return self._part(_FIRST_SPINE + spine_index)

    def hosts(self, leaf_index: int) -> IPv6Network:
        """The prefix of all hosts of the leaf with this index."""
        return self._part(_FIRST_LEAF + leaf_index)

    def host_address(self, host: Host) -> IPv6Address:
        """The IPv6 address of a host: the second address of its link."""
        return self._host_link(host.index).network_address + 2

    def path_address(self, host: Host, spine_index: int) -> IPv6Address:
        """The IPv6 address of a host by which packets reach it through this spine."""
        return self._host_link(host.index).network_address + FIRST_PATH_ADDRESS + spine_index

    def port_addresses(self, port: Port) -> tuple[IPv6Address, IPv6Address]:
        """The addresses of a switch port and of its peer; on a link the leaf has the first."""
        if port.peer_is_host:
            link = self._host_link(port.number)
        else:
            base = int(self._part(_LINKS).network_address) + (port.number << (128 - LINK_BITS))
            link = IPv6Network((base, LINK_BITS))
        own, peer = (2, 1) if port.role is PortRole.SPINE_DOWN else (1, 2)
        return link.network_address + own, link.network_address + peer

    def own_locator(self, switch: Switch) -> IPv6Network | None:
        """The SRv6 locator of a switch; None: the switch ends no segment."""
        return self.locator(switch.index) if switch.role is SwitchRole.SPINE else None

    def routes(self, switch: Switch, tier_index: dict[str, int]) -> tuple[SegmentRoute, ...]:
        """The static IPv6 routes of a switch: a leaf reaches every spine's segment, a spine the hosts of
        every leaf."""
        reach = self.locator if switch.role is SwitchRole.LEAF else self.hosts
        return tuple(
            SegmentRoute(reach(tier_index[port.peer]), self.port_addresses(port)[1], port.interface)
            for port in switch.links
            if not port.peer_is_host
        )

    def _host_link(self, host_index: int) -> IPv6Network:
        leaf, place = divmod(host_index, self.addressing.leaf_stride)
        base = int(self.hosts(leaf).network_address) + (place << (128 - LINK_BITS))
        return IPv6Network((base, LINK_BITS))

    def _part(self, number: int) -> IPv6Network:
        return IPv6Network((int(self.block.network_address) + (number << (128 - LOCATOR_BITS)), LOCATOR_BITS))
