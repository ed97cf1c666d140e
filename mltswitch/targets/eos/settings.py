"""The QoS settings of an EOS switch, and what they mean as state.

The maps are the switch's, the same for all its ports: a packet gets a traffic class from its DSCP where the
port on which it arrives trusts DSCP, and the traffic class names the queue on the port on which it leaves. An
untrusted port gives all packets the traffic class of its own CoS or DSCP; both have to lead to background.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mltswitch.capabilities import Unlimited
from mltswitch.targets.eos.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.state import PortState, QueueState
from mltswitch.wire.tos import DSCP_COUNT

TRUSTED: Final = "dscp"
UNTRUSTED: Final = "none"
_LOW_ORDER: Final = (1, 0, *range(2, TRAFFIC_CLASSES))
"""Traffic class of CoS n, and of the eight code points from 8 n: 0 and 1 are swapped (EOS manual)."""


def port_cos_for(traffic_class: int) -> int:
    """CoS that leads to a traffic class by the default map."""
    return _LOW_ORDER.index(traffic_class)


@dataclass(frozen=True, slots=True)
class Detection:
    """`random-detect ecn` of one queue, as printed."""

    minimum: int
    maximum: int
    unit: str
    probability: int = 100
    weight: int = 0

    @property
    def threshold_bytes(self) -> int | None:
        """S, where this is a threshold as plans have it."""
        planned = (self.maximum, "bytes", 100, 0)
        return self.minimum if (self.minimum, self.unit, self.probability, self.weight) == planned else None

    def __str__(self) -> str:
        return (
            f"random-detect ecn minimum-threshold {self.minimum} {self.unit} "
            f"maximum-threshold {self.maximum} {self.unit} "
            f"max-mark-probability {self.probability} weight {self.weight}"
        )


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One queue of one port."""

    strict: bool = True
    detection: Detection | None = None
    others: tuple[str, ...] = ()
    """What else stands there and changes what the queue does."""


@dataclass(frozen=True, slots=True)
class PortSettings:
    """One port; as delivered unless said otherwise, but for trust, which depends on `switchport`."""

    trust: str = "cos"
    """dscp, cos or none."""
    cos: int = 0
    """Of packets that the port does not trust."""
    dscp: int = 0
    queues: tuple[QueueSettings, ...] = (QueueSettings(),) * TRAFFIC_CLASSES
    others: tuple[str, ...] = ()
    """What else stands there and changes what becomes of packets."""


@dataclass(frozen=True, slots=True)
class Maps:
    """The maps of the whole switch."""

    dscp: tuple[int, ...] = tuple(_LOW_ORDER[dscp >> 3] for dscp in range(DSCP_COUNT))
    """DSCP → traffic class."""
    precedence: tuple[int, ...] = (0,) * DSCP_COUNT
    """DSCP → drop precedence."""
    cos: tuple[int, ...] = _LOW_ORDER
    """CoS → traffic class."""
    queue: tuple[int, ...] = tuple(range(TRAFFIC_CLASSES))
    """Traffic class → queue."""

    def dscps_of(self, queue: int) -> tuple[int, ...]:
        """Code points that lead to a queue."""
        return tuple(
            dscp for dscp, traffic_class in enumerate(self.dscp) if self.queue[traffic_class] == queue
        )


def port_state(name: str, port: PortSettings, maps: Maps, queues: Sequence[int]) -> PortState:
    """What the settings mean for `queues`; what no plan asks for is in `unexpected`, in EOS's words."""
    unexpected: list[str] = []
    states: list[QueueState] = []
    if port.trust == TRUSTED:
        unexpected += [
            f"qos map dscp {dscp} to traffic-class {maps.dscp[dscp]} drop-precedence {precedence}"
            for dscp, precedence in enumerate(maps.precedence)
            if precedence
        ]
    elif port.trust == UNTRUSTED:
        unexpected += _untrusted_faults(port, maps, queues[-1])
    else:
        unexpected.append(f"qos trust {port.trust}")
    unexpected += port.others
    for queue in queues:
        entry = port.queues[queue]
        threshold = None if entry.detection is None else entry.detection.threshold_bytes
        if not entry.strict:
            unexpected.append(f"queue {queue} no priority")
        if entry.detection is not None and threshold is None:
            unexpected.append(f"queue {queue} {entry.detection}")
        unexpected += [f"queue {queue} {line}" for line in entry.others]
        states.append(QueueState(queue, maps.dscps_of(queue), threshold, Unlimited()))
    if not port.queues[TRAFFIC_CLASSES - 1].strict:
        # On some chips round robin in one queue makes it round robin in all below it.
        unexpected.append(f"queue {TRAFFIC_CLASSES - 1} no priority")
    return PortState(name, port.trust == TRUSTED, None, tuple(states), tuple(unexpected))


def _untrusted_faults(port: PortSettings, maps: Maps, background: int) -> list[str]:
    faults: list[str] = []
    queue = maps.queue[maps.cos[port.cos]]
    if queue != background or port.cos != port_cos_for(background):
        faults.append(f"qos cos {port.cos}, which leads to queue {queue}")
    if port.dscp not in maps.dscps_of(background)[:1]:
        faults.append(f"qos dscp {port.dscp}, which leads to queue {maps.queue[maps.dscp[port.dscp]]}")
    return faults
