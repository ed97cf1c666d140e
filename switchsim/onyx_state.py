"""The configuration of an emulated Onyx switch: immutable values, so that a refused line changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final

TRAFFIC_CLASSES: Final = 8
DSCP_COUNT: Final = 64
DEFAULT_MTU_BYTES: Final = 1500
DEFAULT_WEIGHTS: Final = (12, 13) * (TRAFFIC_CLASSES // 2)
"""Round-robin weights of a switch as delivered."""


class Trust(StrEnum):
    """Which header field names the switch-priority of a packet."""

    PORT = "port"
    L2 = "L2"
    L3 = "L3"
    BOTH = "both"


class Control(StrEnum):
    """What happens to packets above the thresholds."""

    RED = "red"
    ECN = "ecn"
    BOTH = "both"


class ThresholdMode(StrEnum):
    """Thresholds in KB, or in percent."""

    ABSOLUTE = "absolute"
    RELATIVE = "relative"


@dataclass(frozen=True, slots=True)
class CongestionControl:
    """RED/ECN of one traffic class; thresholds in KB or percent, exactly as configured."""

    control: Control
    threshold_mode: ThresholdMode
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class EgressBuffer:
    """Where the packets of one traffic class lie: `reserved` bytes, and a share (alpha) of a pool."""

    pool: str
    reserved_bytes: int
    alpha: str


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """One egress queue of one port."""

    weight: int
    strict: bool = False
    shaper_mbps: int | None = None
    """Greatest rate; None: that of the link. No source has the command, so a test sets it by hand."""
    guaranteed_mbps: int = 0
    """As `shaper_mbps`, set by hand."""
    congestion_control: CongestionControl | None = None
    buffer: EgressBuffer | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """One Ethernet port, as delivered unless said otherwise."""

    trust: Trust = Trust.L2
    default_switch_priority: int = 0
    """No source that we have names the command, so a test sets it by hand."""
    shaper_mbps: int | None = None
    dscp_to_switch_priority: tuple[int, ...] = tuple(dscp >> 3 for dscp in range(DSCP_COUNT))
    switch_priority_to_class: tuple[int, ...] = tuple(range(TRAFFIC_CLASSES))
    traffic_classes: tuple[TrafficClass, ...] = tuple(TrafficClass(weight) for weight in DEFAULT_WEIGHTS)
    rewrite_dscp: bool = False
    rewrite_pcp: bool = True
    switchport: bool = True
    address: IPv4Interface | None = None
    pfc: bool = False
    mtu_bytes: int = DEFAULT_MTU_BYTES
    shutdown: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """A shared buffer pool of the advanced buffer mode."""

    size_bytes: int
    mode: str


NULL0: Final = IPv4Address(0)
"""Stands for the next hop `null0`, which drops."""
DEFAULT_DISTANCE: Final = 1


@dataclass(frozen=True, slots=True)
class Route:
    """One static route."""

    vrf: str
    prefix: IPv4Network
    next_hop: IPv4Address
    distance: int = DEFAULT_DISTANCE

    def __str__(self) -> str:
        target = "null0" if self.next_hop == NULL0 else str(self.next_hop)
        distance = f" {self.distance}" if self.distance != DEFAULT_DISTANCE else ""
        return f"ip route vrf {self.vrf} {self.prefix} {target}{distance}"


def _empty() -> Mapping[str, Pool]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OnyxConfiguration:
    """Everything that `configuration write` saves."""

    ports: Mapping[str, Port]
    """`1/1` → port."""
    routes: tuple[Route, ...] = ()
    routing_vrfs: frozenset[str] = frozenset()
    prefix_modes: bool = True
    pfc: bool = False
    pfc_priorities: frozenset[int] = frozenset()
    advanced_buffers: bool = False
    pools: Mapping[str, Pool] = field(default_factory=_empty)
    access_lists: tuple[str, ...] = ()
    """Names of IPv4 access lists; the rules in them are none of ours."""


def default_configuration(port_count: int) -> OnyxConfiguration:
    """A switch as delivered, with ports 1/1 to 1/`port_count`."""
    return OnyxConfiguration(MappingProxyType({f"1/{number}": Port() for number in range(1, port_count + 1)}))
