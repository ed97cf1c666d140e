"""Arrival processes as they are written in files."""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from math import inf
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, Field

from mltswitch.documents import StrictDocument
from mltswitch.queueing import Batch, Incast, Poisson, Trace

MOST_PACKETS: Final = 1_000_000
"""The largest burst, threshold or limit in packets; a larger number is probably one of bytes."""

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
    """An object of the loss models' type `kind` made from a document's fields of the same names; it checks
    its numbers."""
    names: Any = fields(cast("Any", kind))
    return kind(**{each.name: getattr(document, each.name) for each in names})


def _or_at_once(source_rate_ratio: float | None) -> float:
    """Files have no infinity."""
    return inf if source_rate_ratio is None else source_rate_ratio


class PoissonArrivals(StrictDocument):
    """Single packets at exponential gaps."""

    kind: Literal["poisson"]

    def to_queueing(self) -> Poisson:
        """The Poisson process as the loss models take it."""
        return Poisson()


class BatchArrivals(StrictDocument):
    """Bursts at exponential gaps."""

    kind: Literal["batch"] = "batch"
    burst_packets: BurstPackets
    distribution: Literal["fixed", "geometric"] = "fixed"
    source_rate_ratio: RateRatio | None = None
    """Rate of the sender's link over that of the port; None: a burst arrives at once."""

    def to_queueing(self) -> Poisson | Batch:
        """The process as the loss models take it; bursts of one packet become the Poisson process, which all
        models know."""
        if self.burst_packets == 1:
            return Poisson()
        return replace(taken(Batch, self), source_rate_ratio=_or_at_once(self.source_rate_ratio))


class IncastArrivals(StrictDocument):
    """Rounds at regular distance in which all senders send at once."""

    kind: Literal["incast"]
    senders: WholePackets
    round_packets: WholePackets
    jitter_packet_times: Annotated[Number, Field(ge=0)] = 0.0
    burst_packets: WholePackets = 1
    source_rate_ratio: RateRatio = 1.0

    def to_queueing(self) -> Incast:
        """The incast process as the loss models take it."""
        return taken(Incast, self)


class TraceArrivals(StrictDocument):
    """Measured burst sizes at exponential gaps."""

    kind: Literal["trace"]
    sizes_packets: tuple[WholePackets, ...] = Field(min_length=1)
    probabilities: tuple[Share, ...] = Field(min_length=1)
    source_rate_ratio: RateRatio | None = None
    """Rate of the sender's link over that of the port; None: a burst arrives all at once."""
    index_of_dispersion: Annotated[Number, Field(ge=0)] | None = None

    def to_queueing(self) -> Trace:
        """The measured process as the loss models take it."""
        return replace(taken(Trace, self), source_rate_ratio=_or_at_once(self.source_rate_ratio))


ArrivalsInFile = Annotated[
    PoissonArrivals | BatchArrivals | IncastArrivals | TraceArrivals, Field(discriminator="kind")
]
