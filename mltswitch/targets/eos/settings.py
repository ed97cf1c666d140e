"""The QoS settings of an EOS switch, and what they mean as state.

The maps are the switch's, the same for all its ports: a packet gets a traffic class from its DSCP where the
port on which it arrives trusts DSCP, and the traffic class names the queue on the port on which it leaves. An
untrusted port gives all packets the traffic class of its own CoS or DSCP; both have to lead to background. A
policy map on a port's entrance comes before either.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mltswitch.capabilities import Bandwidth, Unlimited
from mltswitch.targets.eos.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.eos.policy import CLASSES, OwnPolicies
from mltswitch.targets.remap import code_points
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
    minimum: Bandwidth | None = None
    """`bandwidth guaranteed`."""
    maximum: Bandwidth | None = None
    """`shape rate`."""
    counts: bool = False
    """`random-detect ecn count`: marked packets are counted."""
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
    policy: str = ""
    """Name in `service-policy type qos input`."""
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

    def queue_of_dscps(self) -> tuple[int, ...]:
        """DSCP → queue."""
        return tuple(self.queue[traffic_class] for traffic_class in self.dscp)


def port_state(
    name: str,
    port: PortSettings,
    maps: Maps,
    policies: OwnPolicies,
    background_dscp: int,
    queues: Sequence[int],
    lossless: Collection[int] = (),
) -> PortState:
    """What the settings mean for `queues`; what no plan asks for is in `unexpected`, in EOS's words.

    Of the queues in `lossless` the code points alone count.
    """
    entrance = policies.entrance(port.policy)
    unexpected: list[str] = []
    states: list[QueueState] = []
    queue_of = maps.queue_of_dscps()
    if port.trust == TRUSTED:
        unexpected += [
            f"qos map dscp {dscp} to traffic-class {maps.dscp[dscp]} drop-precedence {precedence}"
            for dscp, precedence in enumerate(maps.precedence)
            if precedence
        ]
    elif port.trust == UNTRUSTED:
        unexpected += _untrusted_faults(port, maps, queue_of, queues[-1])
    else:
        unexpected.append(f"qos trust {port.trust}")
    policy = f"service-policy type qos input {port.policy}"
    if entrance is not None:
        entrance = replace(entrance, queue=maps.queue[entrance.queue])
        queue_of = tuple(entrance.applied(queue_of))
        unexpected += (f"{policy}, which {fault}" for fault in entrance.faults(queues[-1], background_dscp))
    elif port.policy:
        unexpected.append(policy + (", whose lines are not the plan's" if port.policy in CLASSES else ""))
    unexpected += port.others
    dscps = code_points(queue_of)
    for queue in queues:
        if queue in lossless:
            states.append(QueueState(queue, dscps.get(queue, ()), None, Unlimited(), is_lossless=True))
            continue
        entry = port.queues[queue]
        threshold = None if entry.detection is None else entry.detection.threshold_bytes
        states.append(
            QueueState(queue, dscps.get(queue, ()), threshold, Unlimited(), entry.minimum, entry.maximum)
        )
        unexpected += _queue_faults(queue, entry)
    if not port.queues[TRAFFIC_CLASSES - 1].strict:
        # On some chips round robin in one queue makes it round robin in all below it.
        unexpected.append(f"queue {TRAFFIC_CLASSES - 1} no priority")
    rewritten = entrance.rewritten if entrance else ()
    return PortState(name, port.trust == TRUSTED, None, tuple(states), tuple(unexpected), rewritten)


def _queue_faults(queue: int, entry: QueueSettings) -> list[str]:
    faults: list[str] = []
    if not entry.strict:
        faults.append(f"queue {queue} no priority")
    if entry.detection is not None:
        if entry.detection.threshold_bytes is None:
            faults.append(f"queue {queue} {entry.detection}")
        elif not entry.counts:
            faults.append(f"queue {queue} no random-detect ecn count")
    return [*faults, *(f"queue {queue} {line}" for line in entry.others)]


def _untrusted_faults(port: PortSettings, maps: Maps, queue_of: Sequence[int], background: int) -> list[str]:
    faults: list[str] = []
    queue = maps.queue[maps.cos[port.cos]]
    if queue != background or port.cos != port_cos_for(background):
        faults.append(f"qos cos {port.cos}, which leads to queue {queue}")
    if background not in queue_of or port.dscp != queue_of.index(background):
        faults.append(f"qos dscp {port.dscp}, which leads to queue {queue_of[port.dscp]}")
    return faults
