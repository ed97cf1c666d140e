"""The QoS settings of one Onyx port, and what they mean as state.

A packet gets a switch-priority from its DSCP where the port on which it arrives trusts layer 3; on the port
on which it leaves, the switch-priority is bound to a traffic class, the queue. An untrusted port gives all
packets the port's own switch-priority (`qos trust port`): trust L2, the default, would believe the priority
in a VLAN tag. A trusted port gives it to what has no DSCP, ARP for one. So it has to be 0, background, on
both.

Each port has its own map from DSCP: ports of hosts may lead CS6 and CS7 elsewhere than those of switches.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from mltswitch.capabilities import Unlimited
from mltswitch.targets.onyx.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.state import PortState, QueueState
from mltswitch.units import KIBIBYTE
from mltswitch.wire.tos import DSCP_COUNT

TRUSTED: Final = "L3"
UNTRUSTED: Final = "port"
PLANNED_CONTROL: Final = "both"
ABSOLUTE: Final = "absolute"
STRICT: Final = "strict"
NOT_OURS: Final = "set by somebody else, not ours to remove"


@dataclass(frozen=True, slots=True)
class CongestionControl:
    """RED/ECN of one traffic class."""

    control: str
    """red, ecn or both."""
    threshold_mode: str
    """absolute (KB) or relative (%)."""
    minimum: int
    maximum: int

    @property
    def threshold_bytes(self) -> int | None:
        """S, where this is a threshold as plans have it."""
        planned = (PLANNED_CONTROL, ABSOLUTE, self.maximum)
        if (self.control, self.threshold_mode, self.minimum) != planned:
            return None
        return self.minimum * KIBIBYTE

    def __str__(self) -> str:
        mode = self.threshold_mode
        return (
            f"congestion-control {self.control} minimum-{mode} {self.minimum} maximum-{mode} {self.maximum}"
        )


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One traffic class: scheduling in the words of `dcb ets`, bandwidths, and RED/ECN."""

    scheduling: str = "wrr"
    bandwidths: tuple[str, ...] = ()
    """Field and value as shown, of a guarantee or a cap that somebody set; no plan sets one."""
    congestion_control: CongestionControl | None = None

    @property
    def is_strict(self) -> bool:
        """Whether it is served in strict priority."""
        return self.scheduling == STRICT


@dataclass(frozen=True, slots=True)
class PortSettings:
    """One port; as delivered unless said otherwise (Onyx user manual, Quality of Service)."""

    trust: str = "L2"
    default_priority: int = 0
    """Switch-priority of what has no trusted field."""
    shaper_mbps: str = ""
    """Greatest rate of the whole port, as shown; empty: the link's own."""
    rewrites_dscp: bool = False
    switch_priorities: tuple[int, ...] = tuple(dscp >> 3 for dscp in range(DSCP_COUNT))
    """DSCP → switch-priority."""
    bindings: tuple[int, ...] = tuple(range(TRAFFIC_CLASSES))
    """Switch-priority → traffic class."""
    queues: tuple[QueueSettings, ...] = (QueueSettings(),) * TRAFFIC_CLASSES

    def dscps_of(self, traffic_class: int) -> tuple[int, ...]:
        """Code points that lead to a traffic class."""
        return tuple(
            dscp
            for dscp, priority in enumerate(self.switch_priorities)
            if self.bindings[priority] == traffic_class
        )


def port_state(
    name: str, settings: PortSettings, queues: Sequence[int], lossless: Collection[int] = ()
) -> PortState:
    """What the settings mean for `queues`; what no plan asks for is in `unexpected`, in Onyx's words.

    Of the queues in `lossless` the code points alone count.
    """
    unexpected: list[str] = []
    if settings.trust not in {TRUSTED, UNTRUSTED}:
        unexpected.append(f"qos trust {settings.trust}")
    if settings.default_priority != 0:
        unexpected.append(f"default switch-priority {settings.default_priority}")
    if settings.shaper_mbps:
        unexpected.append(f"bandwidth shape {settings.shaper_mbps} Mbps")
    if settings.rewrites_dscp:
        unexpected.append("qos rewrite dscp")
    states: list[QueueState] = []
    for queue in queues:
        if queue in lossless:
            states.append(QueueState(queue, settings.dscps_of(queue), None, Unlimited(), is_lossless=True))
            continue
        entry = settings.queues[queue]
        if not entry.is_strict:
            unexpected.append(f"traffic-class {queue} dcb ets {entry.scheduling}")
        unexpected += (f"traffic-class {queue} {shown} ({NOT_OURS})" for shown in entry.bandwidths)
        control = entry.congestion_control
        threshold = None if control is None else control.threshold_bytes
        if control is not None and threshold is None:
            unexpected.append(f"traffic-class {queue} {control}")
        states.append(QueueState(queue, settings.dscps_of(queue), threshold, Unlimited()))
    return PortState(name, settings.trust == TRUSTED, None, tuple(states), tuple(unexpected))
