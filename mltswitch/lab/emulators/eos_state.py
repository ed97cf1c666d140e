"""The configuration of an emulated Arista switch: immutable, so that a refused line changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators.eos_arguments import DSCP_COUNT, TRAFFIC_CLASSES
from mltswitch.lab.emulators.eos_policies import Policies

CONTROL_CLASS: Final = TRAFFIC_CLASSES - 1
"""Bound to queue 7 for good."""
LOW_ORDER: Final = (1, 0, 2, 3, 4, 5, 6, 7)
"""Traffic class of CoS n, and of the eight code points from 8 n, as delivered."""


class Trust(StrEnum):
    """What a port was told to trust."""

    DEFAULT = "default"
    """DSCP on a routed port, CoS on a switched one."""
    COS = "cos"
    DSCP = "dscp"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Threshold:
    """`random-detect ecn`, or `random-detect drop`: exactly as configured."""

    minimum: int
    maximum: int
    unit: str
    probability: int | None = None
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """One transmit queue of a port or of a QoS profile."""

    strict: bool = True
    bandwidth: str = ""
    """Words after `bandwidth`."""
    shape: str = ""
    """Words after `shape rate`."""
    ecn_count: bool = False
    ecn: Threshold | None = None
    drop: Threshold | None = None


def _no_queues() -> Mapping[int, Queue]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Qos:
    """What a port and a QoS profile may both say."""

    trust: Trust = Trust.DEFAULT
    cos: int | None = None
    dscp: int | None = None
    shape: str = ""
    policy: str = ""
    """Of `service-policy type qos input`."""
    pfc: bool = False
    lossless: frozenset[int] = frozenset()
    queues: Mapping[int, Queue] = field(default_factory=_no_queues)
    """Queues whose mode was ever opened."""

    def with_queue(self, number: int, queue: Queue) -> "Qos":
        """The same with one queue changed."""
        return replace(self, queues=MappingProxyType({**self.queues, number: queue}))


@dataclass(frozen=True, slots=True)
class Port:
    """One Ethernet port, as delivered unless said otherwise."""

    qos: Qos = Qos()
    profile: str = ""
    channel_group: int | None = None
    flow_control: frozenset[str] = frozenset()
    """Directions, `receive` and `send`, in which pause frames count."""
    description: str = ""
    mtu_bytes: int | None = None
    switchport: bool = True
    address: IPv4Interface | None = None
    shutdown: bool = False

    @property
    def trust(self) -> Trust:
        """What the port trusts."""
        if self.qos.trust is not Trust.DEFAULT:
            return self.qos.trust
        return Trust.COS if self.switchport else Trust.DSCP


@dataclass(frozen=True, slots=True)
class Route:
    """One static route."""

    prefix: IPv4Network
    interface: str
    next_hop: IPv4Address | None
    """None: Null0, or the interface alone."""
    distance: int = 1

    def __str__(self) -> str:
        hop = "" if self.next_hop is None else str(self.next_hop)
        distance = str(self.distance) if self.distance != 1 else ""
        return " ".join(filter(None, ("ip route", str(self.prefix), self.interface, hop, distance)))


@dataclass(frozen=True, slots=True)
class EosConfiguration:
    """Everything that `write memory` saves."""

    ports: Mapping[str, Port]
    """`Ethernet1/1` → port."""
    profiles: Mapping[str, Qos] = field(default_factory=lambda: MappingProxyType({}))
    dscp_classes: tuple[int, ...] = tuple(LOW_ORDER[dscp >> 3] for dscp in range(DSCP_COUNT))
    dscp_precedence: tuple[int, ...] = (0,) * DSCP_COUNT
    cos_classes: tuple[int, ...] = LOW_ORDER
    class_queues: tuple[int, ...] = tuple(range(TRAFFIC_CLASSES))
    routes: tuple[Route, ...] = ()
    policies: Policies = field(default_factory=Policies)
    flags: frozenset[str] = frozenset()
    """Settings of the whole switch that are on or off, as the line that switches them on."""


def default_configuration(port_count: int) -> EosConfiguration:
    """A switch as delivered, with ports Ethernet1/1 to Ethernet`port_count`/1."""
    return EosConfiguration(
        MappingProxyType({f"Ethernet{number}/1": Port() for number in range(1, port_count + 1)})
    )
