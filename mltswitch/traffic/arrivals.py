"""Arrival processes as they stand in files."""

import re
from math import inf
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mltswitch.queueing import Batch, Incast, Poisson, Trace

MOST_PACKETS: Final = 1_000_000
"""Of a burst, a threshold or a limit; what is larger is a mistyped number of bytes."""

_EXPONENT: Final = re.compile(r"[-+]?\d+[eE][-+]?\d+")


def _number(value: Any) -> Any:
    """JSON's `1e-05` is text to YAML 1.1, which wants a point in it; other text is no number, nor is true."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")  # noqa: TRY004  (pydantic reads ValueError)
    if isinstance(value, int) and abs(value) > 10**18:
        raise ValueError("must be a number that a network could have")
    return value


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]
Packets = Annotated[Number, Field(ge=0, le=MOST_PACKETS)]
BurstPackets = Annotated[Number, Field(ge=1, le=MOST_PACKETS)]
WholePackets = Annotated[int, Field(strict=True, ge=1, le=MOST_PACKETS)]
RateRatio = Annotated[Number, Field(gt=0, le=MOST_PACKETS)]


class FileModel(BaseModel):
    """Base of what stands in a file: unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PoissonArrivals(FileModel):
    """Single packets at exponential gaps."""

    kind: Literal["poisson"]

    def to_queueing(self) -> Poisson:
        """The process that the loss models take."""
        return Poisson()


class BatchArrivals(FileModel):
    """Bursts at exponential gaps."""

    kind: Literal["batch"]
    burst_packets: BurstPackets
    distribution: Literal["fixed", "geometric"] = "fixed"
    source_rate_ratio: RateRatio | None = None
    """Rate of the sender's link over that of the port; None: a burst arrives at once."""

    def to_queueing(self) -> Poisson | Batch:
        """The process that the loss models take."""
        return batch(self.burst_packets, self.distribution, self.source_rate_ratio)


class IncastArrivals(FileModel):
    """All senders at once, at regular distance."""

    kind: Literal["incast"]
    senders: WholePackets
    round_packets: WholePackets
    jitter_packet_times: Annotated[Number, Field(ge=0)] = 0.0
    burst_packets: WholePackets = 1
    source_rate_ratio: RateRatio = 1.0

    def to_queueing(self) -> Incast:
        """The process that the loss models take."""
        return Incast(
            senders=self.senders,
            round_packets=self.round_packets,
            jitter_packet_times=self.jitter_packet_times,
            burst_packets=self.burst_packets,
            source_rate_ratio=self.source_rate_ratio,
        )


class TraceArrivals(FileModel):
    """Measured burst sizes at exponential gaps."""

    kind: Literal["trace"]
    sizes_packets: tuple[WholePackets, ...] = Field(min_length=1)
    probabilities: tuple[Share, ...] = Field(min_length=1)
    source_rate_ratio: RateRatio | None = None
    """None: a burst arrives at once."""
    index_of_dispersion: Annotated[Number, Field(ge=0)] | None = None

    def to_queueing(self) -> Trace:
        """The process that the loss models take."""
        return Trace(
            sizes_packets=self.sizes_packets,
            probabilities=self.probabilities,
            source_rate_ratio=at_once_if_none(self.source_rate_ratio),
            index_of_dispersion=self.index_of_dispersion,
        )


ArrivalsInFile = Annotated[
    PoissonArrivals | BatchArrivals | IncastArrivals | TraceArrivals, Field(discriminator="kind")
]


def batch(
    burst_packets: float, distribution: Literal["fixed", "geometric"], source_rate_ratio: float | None
) -> Poisson | Batch:
    """Bursts of one packet are the Poisson process, which every model knows."""
    if burst_packets == 1:
        return Poisson()
    return Batch(burst_packets, distribution, at_once_if_none(source_rate_ratio))


def at_once_if_none(source_rate_ratio: float | None) -> float:
    """Files have no infinity."""
    return inf if source_rate_ratio is None else source_rate_ratio
