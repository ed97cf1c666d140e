"""The configuration of an emulated FASTPATH switch: immutable values; a refused line changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final

from switchsim.icos_diffserv import QUEUES, DiffServ

PRIORITIES: Final = 8
COLOURS: Final = 4
"""Green, yellow, red TCP, and what is not TCP."""
DEFAULT_PREFERENCE: Final = 1
DEFAULT_EXPONENT: Final = 9
NULL0: Final = IPv4Address(0)
"""Stands for the next hop Null0, which drops."""


class Trust(StrEnum):
    """Which header field names the queue of a packet."""

    DOT1P = "dot1p"
    IP_DSCP = "ip-dscp"
    UNTRUSTED = "untrusted"


@dataclass(frozen=True, slots=True)
class Curve:
    """RED parameters of one queue, in percent, one value for each colour."""

    minimum: tuple[int, ...] = (40, 30, 20, 100)
    maximum: tuple[int, ...] = (100, 90, 80, 100)
    probability: tuple[int, ...] = (10, 10, 10, 10)
    ecn: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """One egress queue of one port."""

    strict: bool = False
    random_detect: bool = False
    curve: Curve = Curve()
    minimum_bandwidth: int = 0


@dataclass(frozen=True, slots=True)
class Port:
    """One Ethernet port, as delivered unless said otherwise.

    Documented: trust, the RED parameters, priority 0 in queue 1. The other defaults are ours.
    """

    trust: Trust = Trust.DOT1P
    priority_to_queue: tuple[int, ...] = (1, 0, 0, 1, 2, 2, 3, 3)
    default_priority: int = 0
    shaping_percent: int = 0
    weighting_exponent: int = DEFAULT_EXPONENT
    queues: tuple[Queue, ...] = (Queue(),) * QUEUES
    pfc: bool = False
    lossless: frozenset[int] = frozenset()
    """802.1p priorities that PFC protects."""
    policy: str = ""
    """Of `service-policy in`."""
    routing: bool = False
    address: IPv4Interface | None = None
    flow_control: bool = False
    shutdown: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """One static route."""

    prefix: IPv4Network
    next_hop: IPv4Address
    preference: int = DEFAULT_PREFERENCE

    def __str__(self) -> str:
        target = "Null0" if self.next_hop == NULL0 else str(self.next_hop)
        preference = f" {self.preference}" if self.preference != DEFAULT_PREFERENCE else ""
        return f"ip route {self.prefix.network_address} {self.prefix.netmask} {target}{preference}"


DEFAULT_DSCP_TO_QUEUE: Final = (*(1,) * 8, *(0,) * 16, *(1,) * 8, *(2,) * 16, *(3,) * 16)
"""As delivered (ours: manuals say only that it can be restored); the same for the whole switch."""


@dataclass(frozen=True, slots=True)
class IcosConfiguration:
    """Everything that `write memory` saves."""

    ports: Mapping[str, Port]
    """`0/1` → port."""
    dscp_to_queue: tuple[int, ...] = DEFAULT_DSCP_TO_QUEUE
    routes: tuple[Route, ...] = ()
    ip_routing: bool = False
    flow_control: bool = False
    diffserv: DiffServ = field(default_factory=DiffServ)


def default_configuration(names: tuple[str, ...]) -> IcosConfiguration:
    """A switch as delivered, with ports of these names."""
    return IcosConfiguration(MappingProxyType(dict.fromkeys(names, Port())))
