"""Tables as the reference model holds them, read from the lines that program the switch itself."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeVar

from mltswitch.errors import UserInputError

_Key = TypeVar("_Key")
_Entry = TypeVar("_Entry")


class RouteKind(StrEnum):
    """What a route does with a packet: the names of the actions."""

    FORWARD = "forward"
    FORWARD_BACK = "forward_back"
    SHARE_FLOWS = "share_flows"
    SHARE_PACKETS = "share_packets"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a prefix leads; `number` is a port or a group, and None where it leads nowhere."""

    kind: RouteKind
    number: int | None


@dataclass(frozen=True, slots=True)
class Classification:
    """A queue, and the code point that a packet has from here on; None: its own."""

    queue: int
    dscp: int | None


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Thresholds of one queue, in waiting bytes; `ecn_threshold_bytes` is None where nothing is selective."""

    ecn_threshold_bytes: int | None
    limit_bytes: int
    is_policed: bool
    frame_bytes: int
    """The longest frame that the port sends, without tag and source route."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Everything that the control plane says, but for queue depths, queue rates and the rates of policers."""

    classes: dict[tuple[int, bytes, int], Classification] = field(default_factory=dict)
    """By (port, MAC address that the packet was sent to, DSCP)."""
    ports: dict[tuple[int, bytes], int | None] = field(default_factory=dict)
    """(port, its MAC address) → the code point of whatever comes there; None: it is trusted."""
    queues: dict[tuple[int, int], QueueLimits] = field(default_factory=dict)
    """Limits by (port, queue)."""
    routes: dict[IPv4Network | IPv6Network, Route] = field(default_factory=dict)
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Ports of each group."""
    neighbours: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Port → its MAC address, and that of whoever is behind it."""

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

    def route_to(self, address: bytes) -> Route | None:
        """The entry of the longest prefix that holds the address of 4 or 16 bytes."""
        destination = IPv4Address(address) if len(address) == 4 else IPv6Address(address)
        holding = [network for network in self.routes if destination in network]
        return self.routes[max(holding, key=lambda network: network.prefixlen)] if holding else None

    def _add(self, line: str) -> None:
        left, _, right = line.partition("=>")
        _, table, action, *keys = left.split()
        values = right.split()
        match table, action:
            case "classes", "set_queue" | "set_queue_and_dscp":
                queue, *dscp = map(_number, values)
                key = _number(keys[0]), _hardware_address(keys[1]), _number(keys[2])
                _insert(self.classes, key, Classification(queue, dscp[0] if dscp else None))
            case "ports", "trust" | "distrust":
                place = _number(keys[0]), _hardware_address(keys[1])
                _insert(self.ports, place, _number(values[0]) if values else None)
            case "queues", "set_limit" | "set_threshold_and_limit":
                *threshold, limit, policed, frame_bytes = map(_number, values)
                limits = QueueLimits(threshold[0] if threshold else None, limit, bool(policed), frame_bytes)
                _insert(self.queues, (_number(keys[0]), _number(keys[1])), limits)
            case "ipv4_routes" | "ipv6_routes", _:
                route = Route(RouteKind(action), _number(values[0]) if values else None)
                _insert(self.routes, ip_network(keys[0]), route)
            case "groups", "forward":
                _insert(self.groups, _number(keys[0]), tuple(map(_number, values)))
            case "neighbours", "set_neighbour":
                own, neighbour = map(_hardware_address, values)
                _insert(self.neighbours, _number(keys[0]), (own, neighbour))
            case _:
                raise ValueError(f"no table {table} with action {action}")


def _insert(table: dict[_Key, _Entry], key: _Key, entry: _Entry) -> None:
    if key in table:
        raise ValueError("stands twice")
    table[key] = entry


def _number(text: str) -> int:
    return int(text, 0)


def _hardware_address(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
