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
    """What was fitted: the file, and measured figures about it."""

    kind: Literal["capture", "counters"]
    duration_seconds: Positive
    packets: Count
    """Number of IP packets in the capture, or of packets that were counted."""
    size_bytes: Count
    other_frames: Count = 0
    """Number of frames without IP, which belong to no class."""
    reordered_packets: Count = 0
    """Number of packets that stood behind a later one and were sorted."""
    tick_seconds: Positive | None = None
    """Resolution of the capture's clock; None: the source is no capture."""
    wraps: Count = 0
    """Number of times that 32-bit counters began again from 0."""


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
    """Probability that exponential gaps are as far away by chance; in long captures the smallest difference
    shows."""
    fixed_size_distance: Share
    """Kolmogorov-Smirnov distance of the burst sizes to one fixed size."""
    geometric_size_distance: Share
    """Kolmogorov-Smirnov distance of the burst sizes to the geometric distribution of their mean."""
    sizes: Literal["fixed", "geometric", "other"]
    """The distribution of burst sizes, fixed or geometric, that is nearer, or `other` where neither is
    near."""


class ClassTraffic(StrictDocument):
    """The traffic that one class is offered."""

    name: str
    kind: Literal["measured", "estimated"] = "measured"
    """Whether bursts were measured in a capture or estimated from counters."""
    dscp: tuple[Annotated[int, Field(ge=0, le=63)], ...] = ()
    """DSCPs seen in the class's packets."""
    packets: Count
    size_bytes: Count
    load: NotNegative
    """Offered load: bits over the port's rate."""
    unimportant_share: Share | None
    """Share of the packets that are Not-ECT; None: unknown, since counters do not tell it."""
    importance: Literal["packet", "burst"]
    importance_correlation: Number | None = None
    """Correlation of neighbours' importance in a burst: 1 if bursts are alike, 0 if packets are drawn alone;
    None: unseen."""
    bursts: Count | None = None
    """Number of bursts; None: they were estimated from counters."""
    gap_seconds: NotNegative | None = None
    """The largest spacing within a burst; 0: the spacings show no bursts; None: estimated from counters."""
    sizes_packets: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    """Burst sizes in full-size packets; at most 64, with the measured mean."""
    probabilities: tuple[Share, ...] = Field(min_length=1)
    mean_burst_packets: Annotated[Number, Field(ge=1)]
    geometric_mean_packets: Annotated[Number, Field(ge=1)] | None = None
    """For traffic from counters, the mean burst if sizes were geometric, not fixed; None: from a capture."""
    source_rate_ratio: RateRatio | None = None
    """Rate within a burst over that of the port; None: bursts come at once, or were not seen."""
    dispersion: tuple[DispersionPoint, ...] = ()
    index_of_dispersion: NotNegative | None = None
    """Index of dispersion (variance over mean) of packet counts over long windows; None: unknown."""
    independent_index: NotNegative | None = None
    """Index of dispersion that bursts of these sizes would have if they came independently; None: unknown."""
    fit: Fit | None = None
    """How well bursts at exponential gaps fit; None: there were too few bursts, or only counters."""
    verdict: str


class Traffic(StrictDocument):
    """The traffic of one port, class by class."""

    schema_version: Literal["mltswitch/traffic/v1"] = Field(alias="schema")
    source: Source
    rate_bps: Annotated[int, Field(gt=0)]
    packet_bytes: Annotated[int, Field(gt=0)]
    """The size of a full-size packet as a queue counts it, in which burst sizes and thresholds are
    counted."""
    classes: tuple[ClassTraffic, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()
    """What a reader of the figures should know, a sentence each."""
