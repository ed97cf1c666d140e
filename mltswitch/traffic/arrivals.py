"""Arrival processes as they stand in files."""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from math import inf
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, Field

from mltswitch.documents import StrictDocument
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
Model = TypeVar("Model")
RateRatio = Annotated[Number, Field(gt=0, le=MOST_PACKETS)]


def taken(kind: Callable[..., Model], document: BaseModel) -> Model:
    """What the loss models take, from the fields of the same names; its own numbers it checks itself."""
    names: Any = fields(cast("Any", kind))
    return kind(**{each.name: getattr(document, each.name) for each in names})


def _or_at_once(source_rate_ratio: float | None) -> float:
    """Files have no infinity."""
    return inf if source_rate_ratio is None else source_rate_ratio


class PoissonArrivals(StrictDocument):
    """Single packets at exponential gaps."""

    kind: Literal["poisson"]

    def to_queueing(self) -> Poisson:
        """The process that the loss models take."""
        return Poisson()


class BatchArrivals(StrictDocument):
    """Bursts at exponential gaps."""

    kind: Literal["batch"] = "batch"
    burst_packets: BurstPackets
    distribution: Literal["fixed", "geometric"] = "fixed"
    source_rate_ratio: RateRatio | None = None
    """Rate of the sender's link over that of the port; None: a burst arrives at once."""

    def to_queueing(self) -> Poisson | Batch:
        """Bursts of one packet are the Poisson process, which every model knows."""
        if self.burst_packets == 1:
            return Poisson()
        return replace(taken(Batch, self), source_rate_ratio=_or_at_once(self.source_rate_ratio))


class IncastArrivals(StrictDocument):
    """All senders at once, at regular distance."""

    kind: Literal["incast"]
    senders: WholePackets
    round_packets: WholePackets
    jitter_packet_times: Annotated[Number, Field(ge=0)] = 0.0
    burst_packets: WholePackets = 1
    source_rate_ratio: RateRatio = 1.0

    def to_queueing(self) -> Incast:
        """The process that the loss models take."""
        return taken(Incast, self)


class TraceArrivals(StrictDocument):
    """Measured burst sizes at exponential gaps."""

    kind: Literal["trace"]
    sizes_packets: tuple[WholePackets, ...] = Field(min_length=1)
    probabilities: tuple[Share, ...] = Field(min_length=1)
    source_rate_ratio: RateRatio | None = None
    """None: a burst arrives at once."""
    index_of_dispersion: Annotated[Number, Field(ge=0)] | None = None

    def to_queueing(self) -> Trace:
        """The process that the loss models take."""
        return replace(taken(Trace, self), source_rate_ratio=_or_at_once(self.source_rate_ratio))


ArrivalsInFile = Annotated[
    PoissonArrivals | BatchArrivals | IncastArrivals | TraceArrivals, Field(discriminator="kind")
]
