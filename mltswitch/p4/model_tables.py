"""Tables as the reference model holds them, read from the lines that program the switch itself."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeVar

from mltswitch.errors import UserInputError

_Key = TypeVar("_Key")
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class NextHop:
    """Where a packet goes: the port that it leaves by, and the MAC address behind it."""

    port: int
    neighbour: bytes


@dataclass(frozen=True, slots=True)
class Share:
    """Several next hops for one prefix: the members 0 to `members - 1` of a group."""

    group: int
    members: int


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Thresholds of one queue, in waiting bytes; `ecn_threshold_bytes` is None where nothing is selective."""

    ecn_threshold_bytes: int | None
    limit_bytes: int
    is_policed: bool


@dataclass(frozen=True, slots=True)
class Tables:
    """Everything that the control plane says, but for queue depths, queue rates and the rates of policers."""

    map_of_port: dict[int, int] = field(default_factory=dict)
    """DSCP map of each trusted port."""
    queue_of_dscp: dict[tuple[int, int], int] = field(default_factory=dict)
    """Queue by (map, DSCP)."""
    queues: dict[tuple[int, int], QueueLimits] = field(default_factory=dict)
    """Limits by (port, queue)."""
    routes: dict[IPv4Network | IPv6Network, NextHop | Share] = field(default_factory=dict)
    members: dict[tuple[int, int], NextHop] = field(default_factory=dict)
    """Next hops by (group, member)."""
    neighbours: dict[int, bytes] = field(default_factory=dict)
    """MAC address behind each port, for packets that name the port themselves."""
    spraying: set[int] = field(default_factory=set)
    """Holds 0 where next hops are shared packet by packet."""

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> "Tables":
        """The tables that `table_add` lines make; other lines (meters, queue depths) change no table.

        Raises UserInputError for a line of an unknown table or action, or a key that stands twice.
        """
        tables = cls()
        for line in lines:
            if line.split()[:1] == ["table_add"]:
                try:
                    tables._add(line)
                except (LookupError, ValueError) as error:
                    raise UserInputError(f"cannot be read: {error}", where=line) from None
        return tables

    def route_to(self, address: bytes) -> NextHop | Share | None:
        """The entry of the longest prefix that holds the address of 4 or 16 bytes."""
        destination = IPv4Address(address) if len(address) == 4 else IPv6Address(address)
        holding = [network for network in self.routes if destination in network]
        return self.routes[max(holding, key=lambda network: network.prefixlen)] if holding else None

    def _add(self, line: str) -> None:
        left, _, right = line.partition("=>")
        _, table, action, *keys = left.split()
        values = right.split()
        number = [int(key, 0) for key in keys] if table not in ("ipv4_routes", "ipv6_routes") else []
        match table, action:
            case "trusted_ports", "trust":
                _insert(self.map_of_port, number[0], int(values[0], 0))
            case "dscp_queues", "set_queue":
                _insert(self.queue_of_dscp, (number[0], number[1]), int(values[0], 0))
            case "queues", "set_limit" | "set_threshold_and_limit":
                *threshold, limit, is_policed = (int(value, 0) for value in values)
                limits = QueueLimits(threshold[0] if threshold else None, limit, bool(is_policed))
                _insert(self.queues, (number[0], number[1]), limits)
            case "ipv4_routes" | "ipv6_routes", "forward":
                _insert(self.routes, ip_network(keys[0]), _next_hop(values))
            case "ipv4_routes" | "ipv6_routes", "share":
                group, members = (int(value, 0) for value in values)
                if not members:
                    raise ValueError("no members")
                _insert(self.routes, ip_network(keys[0]), Share(group, members))
            case "members_of", "forward":
                _insert(self.members, (number[0], number[1]), _next_hop(values))
            case "neighbours", "set_neighbour":
                _insert(self.neighbours, number[0], _hardware_address(values[0]))
            case "spraying", "spray_packets":
                if number[0] in self.spraying:
                    raise ValueError("stands twice")
                self.spraying.add(number[0])
            case _:
                raise ValueError(f"no table {table} with action {action}")


def _insert(table: dict[_Key, _Entry], key: _Key, entry: _Entry) -> None:
    if key in table:
        raise ValueError("stands twice")
    table[key] = entry


def _next_hop(values: list[str]) -> NextHop:
    return NextHop(int(values[0], 0), _hardware_address(values[1]))


def _hardware_address(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
