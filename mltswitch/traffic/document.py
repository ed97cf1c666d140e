"""The traffic document: what a capture or counters say of each class, for other commands to read."""

from typing import Annotated, Final, Literal

from pydantic import Field

from mltswitch.documents import StrictDocument
from mltswitch.traffic.arrivals import Number, RateRatio, Share

TRAFFIC_SCHEMA: Final[Literal["mltswitch/traffic/v1"]] = "mltswitch/traffic/v1"

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]


class Source(StrictDocument):
    """What was fitted; these figures are measured."""

    kind: Literal["capture", "counters"]
    duration_seconds: Positive
    packets: Count
    """IP packets, or packets counted."""
    size_bytes: Count
    other_frames: Count = 0
    """Frames without IP; they belong to no class."""
    reordered_packets: Count = 0
    """Packets that stood behind a later one; they were sorted."""
    tick_seconds: Positive | None = None
    """What the capture's clock counts in."""
    wraps: Count = 0
    """32-bit counters that began anew."""


class DispersionPoint(StrictDocument):
    """Variance over mean of the packets in windows of one length; 1 for Poisson packets."""

    window_seconds: Positive
    index: NotNegative
    windows: Count


class Fit(StrictDocument):
    """How far the measured traffic is from bursts at exponential gaps."""

    gap_distance: Share
    """Kolmogorov-Smirnov distance of the distances between bursts' starts to the exponential distribution."""
    gap_p_value: Share
    """Of exponential gaps being as far away by chance; in long captures the smallest difference shows."""
    fixed_size_distance: Share
    """Kolmogorov-Smirnov distance of the burst sizes to one fixed size."""
    geometric_size_distance: Share
    """And to the geometric distribution of their mean."""
    sizes: Literal["fixed", "geometric", "other"]
    """The nearer of the two, where it is near."""


class ClassTraffic(StrictDocument):
    """What one class is offered."""

    name: str
    kind: Literal["measured", "estimated"] = "measured"
    """How bursts are known: seen in a capture, or estimated from counters."""
    dscp: tuple[Annotated[int, Field(ge=0, le=63)], ...] = ()
    """Code points seen."""
    packets: Count
    size_bytes: Count
    load: NotNegative
    """Bits over the port's rate."""
    unimportant_share: Share | None
    """Share of the packets that are Not-ECT; None: counters do not tell."""
    importance: Literal["packet", "burst"]
    importance_correlation: Number | None = None
    """Of neighbours in a burst: 1 where bursts are alike, 0 where packets are drawn alone; None: unseen."""
    bursts: Count | None = None
    """None: estimated from counters."""
    gap_seconds: NotNegative | None = None
    """The largest spacing within a burst; 0: the spacings show no bursts; None: from counters."""
    sizes_packets: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    """Burst sizes in full-size packets; at most 64, with the measured mean."""
    probabilities: tuple[Share, ...] = Field(min_length=1)
    mean_burst_packets: Annotated[Number, Field(ge=1)]
    geometric_mean_packets: Annotated[Number, Field(ge=1)] | None = None
    """From counters: the mean burst, if sizes were geometric instead of fixed."""
    source_rate_ratio: RateRatio | None = None
    """Rate within a burst over that of the port; None: at once, or unseen."""
    dispersion: tuple[DispersionPoint, ...] = ()
    index_of_dispersion: NotNegative | None = None
    """Over long windows."""
    independent_index: NotNegative | None = None
    """Index of dispersion that bursts of these sizes would have if they came independently."""
    fit: Fit | None = None
    """None: too few bursts, or counters."""
    verdict: str


class Traffic(StrictDocument):
    """The traffic of one port, class by class."""

    schema_version: Literal["mltswitch/traffic/v1"] = Field(alias="schema")
    source: Source
    rate_bps: Annotated[int, Field(gt=0)]
    packet_bytes: Annotated[int, Field(gt=0)]
    """A full-size packet as a queue counts it: what burst sizes and thresholds are counted in."""
    classes: tuple[ClassTraffic, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()
    """What a reader of the figures should know, a sentence each."""
