"""One device's capabilities: every figure with its source, everything unproven named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mltswitch.capabilities.bandwidth import BandwidthCapability
from mltswitch.capabilities.ports import PortGroup, PortNumbering


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdCapability:
    """The values that an ECN/RED threshold can have."""

    step_bytes: int
    """The device works in multiples of so many bytes; a finer threshold is rounded up."""
    minimum_bytes: int
    maximum_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCapability:
    """How the device limits a queue's length, and in which steps."""

    kind: Literal["bytes", "alpha", "none"]
    source: str
    step_bytes: int = 1
    maximum_bytes: int = 2**31 - 1
    alpha_exponents: tuple[int, ...] = ()
    pool_bytes: int | None = None
    """Bytes of the buffer pool whose free part alpha multiplies; None: unknown, or no alpha."""


class Unverified(NamedTuple):
    """A statement that the sources leave open, and nobody has tested on this hardware."""

    id: str
    """Stable identifier of the statement, such as `onyx.red-per-packet`."""
    sentence: str


def unverified(platform: str, sentences: Mapping[str, str]) -> tuple[Unverified, ...]:
    """The open items of a platform, from a mapping: last part of an ID → its sentence."""
    return tuple(Unverified(f"{platform}.{name}", sentence) for name, sentence in sentences.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one hardware model can do under one switch OS."""

    platform: str
    """Switch OS: the name of the target."""
    hardware: str
    description: str
    queues: tuple[int, ...]
    """Hardware numbers of the strict queues that a plan may use, the first served first."""
    reserved_queues: tuple[tuple[int, str], ...] = ()
    """Queues that a plan must not use, as (queue, why)."""
    lossless_queues: tuple[int, ...] = ()
    """Queues that lossless classes may have, the first class first; empty: the device has none for them."""
    creates_queues: bool = False
    """Whether the device creates a queue for each class; else all `queues` exist, background on the last."""
    threshold: ThresholdCapability
    limit: LimitCapability
    averaging: str
    """How the queue length is averaged before it is compared with the threshold."""
    averaging_packets: int = 0
    """Packets after which the average has followed a step of the queue length up to the last sixteenth."""
    marks_at: Literal["enqueue", "dequeue"]
    port_numbering: PortNumbering
    ports: tuple[PortGroup, ...] = ()
    """Ports of the box, main ones first; empty: no source is known, or the ports are a machine's."""
    can_shape: bool = False
    """Whether a port can be held to a rate below its link's."""
    minimum_bandwidth: BandwidthCapability | None = None
    """The bandwidth that a queue can be guaranteed against strict queues above it; None: nothing."""
    guarantees_last_alone: bool = False
    """Whether only background, the last queue, can have a minimum."""
    maximum_bandwidth: BandwidthCapability | None = None
    """The bandwidth to which a queue can be limited; None: it cannot be."""
    rewrites_code_points: str | None = None
    """Source for rewriting code points that a port may not use, as packets arrive; None: not configured."""
    remaps_host_control: bool = False
    """Whether CS6 and CS7 can be sent to background on the ports of hosts alone."""
    segment_routing: str | None = None
    """Source for SRv6 endpoints and IPv6 static routes as a plan needs them; None: cannot be configured."""
    packet_spraying: str | None = None
    """Source for equal-cost routing packet by packet; None: cannot be configured."""
    source_routing: str | None = None
    """Source for mltswitch's own source route (mltswitch/wire/source_route.py); None: it cannot be read."""
    unverified: tuple[Unverified, ...] = ()

    @property
    def demotes_host_control(self) -> bool:
        """Whether CS6 and CS7 from hosts are background, by this map or because they are rewritten."""
        return self.remaps_host_control or self.rewrites_code_points is not None

    def can_guarantee(self, *, is_last: bool) -> bool:
        """Whether background (`is_last`), or a class above it, can be guaranteed a share of a port."""
        return self.minimum_bandwidth is not None and (is_last or not self.guarantees_last_alone)

    def queues_beside(self, lossless: int) -> tuple[int, ...]:
        """The queues that are left for other classes beside this number of lossless classes."""
        return tuple(queue for queue in self.queues if queue not in self.lossless_queues[:lossless])

    @property
    def spray_modes(self) -> tuple[str, ...]:
        """Modes of `spraying` that the device can do; `entropy` asks nothing of it."""
        possible = {
            "alias": True,
            "srv6": self.segment_routing,
            "packet": self.packet_spraying,
            "p4": self.source_routing,
            "entropy": True,
        }
        return tuple(mode for mode, source in possible.items() if source)
