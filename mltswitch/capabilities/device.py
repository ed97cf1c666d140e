"""One device's capabilities: every figure with its source, everything unproven named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mltswitch.capabilities.bandwidth import BandwidthCapability
from mltswitch.capabilities.ports import PortGroup, PortNumbering


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdCapability:
    """What an ECN/RED threshold may be."""

    step_bytes: int
    """The device works in multiples of this; a finer threshold is rounded up."""
    minimum_bytes: int
    maximum_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCapability:
    """What bounds a queue, and in which steps."""

    kind: Literal["bytes", "alpha", "none"]
    source: str
    step_bytes: int = 1
    maximum_bytes: int = 2**31 - 1
    alpha_exponents: tuple[int, ...] = ()
    pool_bytes: int | None = None
    """Size of the pool whose free part alpha multiplies."""


class Unverified(NamedTuple):
    """What the sources leave open, and nobody has tested on this hardware."""

    id: str
    """Stable: `onyx.red-per-packet`."""
    sentence: str


def unverified(platform: str, sentences: Mapping[str, str]) -> tuple[Unverified, ...]:
    """Items of a platform, from the last part of an ID → its sentence."""
    return tuple(Unverified(f"{platform}.{name}", sentence) for name, sentence in sentences.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one hardware model can do under one switch OS."""

    platform: str
    """Switch OS: the name of the target."""
    hardware: str
    description: str
    queues: tuple[int, ...]
    """Hardware numbers of the strict queues that a plan may use, served first first."""
    reserved_queues: tuple[tuple[int, str], ...] = ()
    """(queue, why it is not ours)."""
    lossless_queues: tuple[int, ...] = ()
    """Queues that lossless classes may have, the first class first; empty: it cannot leave one alone."""
    creates_queues: bool = False
    """The device has as many of `queues` as a plan has classes; else all, and background takes the last."""
    threshold: ThresholdCapability
    limit: LimitCapability
    averaging: str
    """How the queue length is averaged before it is compared with the threshold."""
    averaging_packets: int = 0
    """Arrivals after which the average has followed a step of the queue length, but for a sixteenth of it."""
    marks_at: Literal["enqueue", "dequeue"]
    port_numbering: PortNumbering
    ports: tuple[PortGroup, ...] = ()
    """Ports of the box, those first for which it is bought; (): no source is known, or a machine's ports."""
    can_shape: bool = False
    """Whether a port can be held to a rate below its link's."""
    minimum_bandwidth: BandwidthCapability | None = None
    """What a queue can be guaranteed against strict queues above it; None: nothing."""
    guarantees_last_alone: bool = False
    """Whether only background, the last queue, can have a minimum."""
    maximum_bandwidth: BandwidthCapability | None = None
    """To what a queue can be held; None: to nothing."""
    rewrites_code_points: str | None = None
    """Source for rewriting code points that a port may not use, as packets arrive; None: not configured."""
    remaps_host_control: bool = False
    """Whether CS6 and CS7 can be sent to background on the ports of hosts alone."""
    segment_routing: str | None = None
    """Source for SRv6 endpoints and IPv6 static routes as a plan needs them; None: cannot be configured."""
    packet_spraying: str | None = None
    """Source for equal-cost routing packet by packet; None: cannot be configured."""
    source_routing: str | None = None
    """Source for our own source route (mltswitch/wire/source_route.py); None: the switch cannot read it."""
    unverified: tuple[Unverified, ...] = ()

    @property
    def demotes_host_control(self) -> bool:
        """Whether CS6 and CS7 from hosts are background, by this map or because they are rewritten."""
        return self.remaps_host_control or self.rewrites_code_points is not None

    def can_guarantee(self, *, is_last: bool) -> bool:
        """Whether background, or a class above it, can be guaranteed a share of a port."""
        return self.minimum_bandwidth is not None and (is_last or not self.guarantees_last_alone)

    def queues_beside(self, lossless: int) -> tuple[int, ...]:
        """`queues` without those that so many lossless classes take."""
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
