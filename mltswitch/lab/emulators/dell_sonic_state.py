"""The configuration of an emulated Enterprise SONiC switch: a refused line changes nothing of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Any, Final

QUEUES: Final = 8
DSCP_COUNT: Final = 64
MAP_KINDS: Final = {
    "dscp-tc": ("dscp", "traffic-class", DSCP_COUNT),
    "dot1p-tc": ("dot1p", "traffic-class", QUEUES),
    "tc-queue": ("traffic-class", "queue", QUEUES),
    "tc-pg": ("traffic-class", "priority-group", QUEUES),
    "tc-dscp": ("traffic-class", "dscp", QUEUES),
    "pfc-priority-queue": ("pfc-priority", "queue", QUEUES),
}
"""Kind of map → (word of an entry, word of its target, number of entries)."""


def _nothing() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Green:
    """Thresholds in KB, probability in percent."""

    minimum: int
    maximum: int
    probability: int


@dataclass(frozen=True, slots=True)
class WredPolicy:
    """One wred-policy: this release configures green packets only."""

    green: Green | None = None
    ecn: str = ""
    """`none`, `green`, `all`, or nothing where no line says."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One queue of a scheduler policy; None and nothing are what no line says."""

    type: str = ""
    weight: int | None = None
    meter_type: str = ""
    rates: Mapping[str, int] = field(default_factory=_nothing)
    """cir and pir in kbit/s, cbs and pbs in bytes."""


@dataclass(frozen=True, slots=True)
class Port:
    """One Ethernet port, as delivered unless said otherwise."""

    wred: Mapping[int, str] = field(default_factory=_nothing)
    scheduler: str = ""
    maps: Mapping[str, str] = field(default_factory=_nothing)
    """Kind → name."""
    lossless: frozenset[int] = frozenset()
    """Priorities with flow control."""
    asymmetric: bool = False
    flow_control: tuple[str, ...] = ()
    """Of IEEE 802.3x: receive, send."""
    address: IPv4Interface | None = None
    description: str = ""
    service_policy: str = ""
    speed_mbps: int = 100_000
    shutdown: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One next hop of one prefix; the first four values tell it from others."""

    prefix: IPv4Network
    next_hop: IPv4Address | None
    interface: str = ""
    blackhole: bool = False
    tag: int = 0
    distance: int = 0
    """0: no line says."""

    @property
    def key(self) -> tuple[object, ...]:
        """What `no ip route` names."""
        return self.prefix, self.next_hop, self.interface, self.blackhole

    def __str__(self) -> str:
        words = ["ip route", str(self.prefix)]
        words += ["blackhole"] if self.blackhole else []
        words += [str(self.next_hop)] if self.next_hop is not None else []
        words += ["interface", self.interface] if self.interface else []
        words += ["tag", str(self.tag)] if self.tag else []
        words += [str(self.distance)] if self.distance else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class DellSonicConfiguration:
    """Everything that `write memory` saves."""

    ports: Mapping[str, Port]
    """`Eth1/1` → port."""
    wred: Mapping[str, WredPolicy] = field(default_factory=_nothing)
    schedulers: Mapping[str, Mapping[int, Scheduler]] = field(default_factory=_nothing)
    """Policy → queue → scheduler; a policy without queues does not exist. PORT_SECTION is the port's."""
    maps: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=_nothing)
    """Kind → name → entries."""
    routes: tuple[Route, ...] = ()
    flows: Mapping[tuple[str, ...], Mapping[str, str]] = field(default_factory=_nothing)
    """(`class-map`, name), (`policy-map`, name) or (`policy-map`, name, class-map) → what stands there."""


DSCP_NAMES: Final = {
    **{8 * n: f"cs{n}" for n in range(1, 8)},
    **{8 * n + 2 * m: f"af{n}{m}" for n in range(1, 5) for m in range(1, 4)},
    0: "default",
    44: "voice-admit",
    46: "ef",
}
"""How a class-map shows a code point that has a name."""
PORT_SECTION: Final = 255
"""The number that the database gives to a policy's section for the whole port."""


def default_configuration(names: tuple[str, ...]) -> DellSonicConfiguration:
    """A switch as delivered: no maps, no policies."""
    return DellSonicConfiguration(MappingProxyType(dict.fromkeys(names, Port())))
