"""A port, what its queues are offered and their thresholds: the numbers that every loss model takes.

Time is counted in packet times (the transmission time of one packet on the port), lengths in packets, and a
load is packets per packet time. All packets of a port have one size. Queues stand highest priority first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

from mltswitch.errors import UserInputError
from mltswitch.queueing.arrivals import Arrivals, Poisson, check_arrivals

Importance = Literal["packet", "burst"]
"""Whether each packet by itself, or each burst as a whole (it has one ECN field), is important."""
Service = Literal["fixed", "exponential"]


@dataclass(frozen=True, slots=True)
class Port:
    """One output port."""

    count_in_service: bool = False
    """Thresholds see the packet in transmission as part of its queue; else waiting packets only."""
    buffer_packets: float | None = None
    """Packets that all queues together may hold waiting; None: the limits alone bound them."""
    weights: tuple[float, ...] | None = None
    """Per queue: 0 is strict priority; queues with a weight share by deficit round robin what the strict ones
    leave. None: all strict."""
    service: Service = "fixed"
    """Packets of one size, or of exponentially distributed size with mean 1 (for M/M/1/K)."""


@dataclass(frozen=True, slots=True)
class QueueTraffic:
    """What one queue is offered."""

    load: float
    """Packets per packet time, that is bits over the port's rate."""
    unimportant_share: float = 0.0
    """Share of the packets that are Not-ECT."""
    arrivals: Arrivals = field(default_factory=Poisson)
    importance: Importance = "packet"


@dataclass(frozen=True, slots=True)
class QueueThresholds:
    """Thresholds of one queue, tested against its waiting packets before a packet joins."""

    ecn_threshold_packets: float | None
    """S: from here on unimportant packets are dropped and important ones marked; None: neither."""
    limit_packets: float
    """L: from here on everything is dropped."""
    ecn_maximum_packets: float | None = None
    """RED: up to here the probability rises from 0 to `mark_probability`, beyond it is 1; None: a step."""
    mark_probability: float = 1.0
    average_weight: float = 1.0
    """EWMA weight of the newest sample, taken at each arrival; 1 is the instantaneous length."""
    alpha: float | None = None
    """Dynamic limit: a packet joins only while the queue is below alpha · (free shared buffer), beside L."""

    @property
    def is_step(self) -> bool:
        """Plain thresholds on the instantaneous queue: all that the analytic models know."""
        return (
            self.ecn_maximum_packets in (None, self.ecn_threshold_packets)
            and self.mark_probability == 1
            and self.average_weight == 1
            and self.alpha is None
        )


@dataclass(frozen=True, slots=True)
class QueuePrediction:
    """What a model says of one queue; None where it says nothing.

    Delays run from a packet's arrival to the start of its transmission, in packet times, over the packets
    that were let in.
    """

    loss_unimportant: float
    loss_important: float
    mean_delay_packet_times: float | None = None
    p50_delay_packet_times: float | None = None
    p99_delay_packet_times: float | None = None
    p999_delay_packet_times: float | None = None
    mean_queue_packets: float | None = None
    """Waiting packets, over time."""
    mark_share: float | None = None
    """Share of the important packets that were let in that carry a CE mark."""
    queue_probabilities: tuple[float, ...] | None = None
    """Share of time with 0, 1, … L packets waiting."""
    loss_unimportant_error: float | None = None
    """Half width of the 95 % confidence interval; simulated figures only."""
    loss_important_error: float | None = None


def check_problem(port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]) -> None:
    """Refuse what no model can mean.

    Raises:
        UserInputError: names the field, `queues[2].unimportant_share` say.
    """
    if not traffic:
        raise UserInputError("no queue is given", where="queues", expected="at least one")
    if len(traffic) != len(thresholds):
        raise UserInputError(
            f"{len(traffic)} queues have traffic, {len(thresholds)} have thresholds", where="queues"
        )
    if port.buffer_packets is not None:
        _check("buffer_packets", port.buffer_packets, 0, inf, above=True)
    if port.weights is not None:
        if len(port.weights) != len(traffic):
            raise UserInputError(f"{len(port.weights)} weights for {len(traffic)} queues", where="weights")
        for index, weight in enumerate(port.weights):
            _check(f"weights[{index}]", weight, 0, inf)
    for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True)):
        _check_queue(f"queues[{index}]", offered, limits)


def _check_queue(where: str, offered: QueueTraffic, limits: QueueThresholds) -> None:
    _check(f"{where}.load", offered.load, 0, inf)
    _check(f"{where}.unimportant_share", offered.unimportant_share, 0, 1)
    check_arrivals(offered.arrivals, where)
    _check(f"{where}.limit_packets", limits.limit_packets, 0, inf)
    threshold = limits.ecn_threshold_packets
    if threshold is not None:
        _check(f"{where}.ecn_threshold_packets", threshold, 0, inf)
        if limits.limit_packets < threshold:
            raise UserInputError(
                f"L = {limits.limit_packets:g} lies below S = {threshold:g}",
                where=f"{where}.limit_packets",
                expected=f"at least {threshold:g}",
            )
        if limits.ecn_maximum_packets is not None and not limits.ecn_maximum_packets >= threshold:
            raise UserInputError(
                f"{limits.ecn_maximum_packets:g} lies below S = {threshold:g}",
                where=f"{where}.ecn_maximum_packets",
                expected=f"at least {threshold:g}",
            )
    _check(f"{where}.mark_probability", limits.mark_probability, 0, 1, above=True)
    _check(f"{where}.average_weight", limits.average_weight, 0, 1, above=True)
    if limits.alpha is not None:
        _check(f"{where}.alpha", limits.alpha, 0, inf, above=True)


def _check(where: str, value: float, least: float, most: float, *, above: bool = False) -> None:
    within = isfinite(value) and least <= value <= most and not (above and value == least)
    if not within:
        bounds = f"above {least:g}" if above else f"at least {least:g}"
        if isfinite(most):
            bounds += f" and at most {most:g}"
        raise UserInputError(f"{value:g} is out of range", where=where, expected=f"a number {bounds}")


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The same settings give the same figures; the same seed gives two thresholds the same arrivals."""

    packets: int = 4_000_000
    """Offered packets of all queues together that are counted, after the warm-up."""
    seed: int = 1
    replications: int = 16
    """Independent runs that the packets are divided into; the confidence intervals come from their spread."""
    warmup_share: float = 0.1
    """Packets sent before counting begins, as a share of those counted, in each replication."""
