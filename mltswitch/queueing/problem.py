"""The input of every loss model: a port, the traffic of its queues, and their thresholds.

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
    """One output port of a switch."""

    count_in_service: bool = False
    """Whether thresholds count the packet in transmission as part of its queue; else only waiting packets."""
    buffer_packets: float | None = None
    """Packets that all queues together may hold waiting; None: the limits alone bound them."""
    weights: tuple[float, ...] | None = None
    """Weight of each queue, 0 for strict priority; weighted queues share what the strict ones leave by
    deficit round robin. None: all queues are strict."""
    service: Service = "fixed"
    """Whether packets have one size, or exponentially distributed sizes with mean 1 (for M/M/1/K)."""


@dataclass(frozen=True, slots=True)
class QueueTraffic:
    """The traffic that one queue is offered."""

    load: float
    """Offered load in packets per packet time, that is bits over the port's rate."""
    unimportant_share: float = 0.0
    """Share of the queue's packets that are unimportant, that is Not-ECT."""
    arrivals: Arrivals = field(default_factory=Poisson)
    importance: Importance = "packet"


@dataclass(frozen=True, slots=True)
class QueueThresholds:
    """Thresholds of one queue, tested against its waiting packets before a packet joins."""

    ecn_threshold_packets: float | None
    """ECN threshold S: from this queue length on unimportant packets are dropped and important ones
    marked; None: neither.
    """
    limit_packets: float
    """Limit L: from this queue length on every packet is dropped."""
    ecn_maximum_packets: float | None = None
    """RED's maximum: from the ECN threshold S to this length the probability rises from 0 to
    `mark_probability`, beyond it is 1; None: a step at S.
    """
    mark_probability: float = 1.0
    average_weight: float = 1.0
    """Weight of the newest sample in the averaged queue length, sampled at each arrival; 1: no averaging."""
    alpha: float | None = None
    """Dynamic limit beside the limit L: a packet joins only while the queue is below alpha times the free
    shared buffer; None: none.
    """

    @property
    def is_step(self) -> bool:
        """Whether these are plain thresholds on the instantaneous queue, which is all that the analytic
        models support."""
        return (
            self.ecn_maximum_packets in (None, self.ecn_threshold_packets)
            and self.mark_probability == 1
            and self.average_weight == 1
            and self.alpha is None
        )


@dataclass(frozen=True, slots=True)
class QueuePrediction:
    """What a loss model predicts for one queue; None where it predicts nothing.

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
    """Mean number of waiting packets over time; None: not predicted."""
    mark_share: float | None = None
    """Share of the admitted important packets that carry a CE mark; None: not predicted."""
    queue_probabilities: tuple[float, ...] | None = None
    """Share of time with 0, 1, … L packets waiting; None: not predicted."""
    loss_unimportant_error: float | None = None
    """Half width of the 95 % confidence interval of the unimportant packets' loss; None: not simulated."""
    loss_important_error: float | None = None


def check_problem(port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]) -> None:
    """Checks that a port, its traffic and its thresholds make sense under some model.

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
    """Settings of a simulation; the same ones give the same figures, and the same seed the same arrivals."""

    packets: int = 4_000_000
    """Offered packets of all queues together that are counted, after the warm-up."""
    seed: int = 1
    replications: int = 16
    """Independent runs that the packets are divided into; their spread gives the confidence intervals."""
    warmup_share: float = 0.1
    """Packets sent before counting begins, in each replication, as a share of those counted."""
