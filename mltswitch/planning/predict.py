"""What a loss model says of one port's thresholds; the one place that turns packet times into seconds."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import Final

from mltswitch.capabilities import AlphaLimit, BytesLimit
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan.document import ClassKind, Plan, PortProfile, Prediction, QueueSettings, TrafficClass
from mltswitch.plan.fabric import Traffic
from mltswitch.queueing import (
    Arrivals,
    Batch,
    Incast,
    Poisson,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    predict,
)

REMEMBERED_PORTS: Final = 128
"""Kinds of port whose figures are kept: platforms times roles of a large fabric, planned and rounded."""
SIGNIFICANT_DIGITS = 6
"""Digits kept of a prediction: few enough that every machine writes the same bytes."""

PortProblem = tuple[Port, tuple[QueueTraffic, ...], tuple[QueueThresholds, ...]]
"""What `mltswitch.queueing.predict` takes."""


def rounded(value: float) -> float:
    """A figure as it is written into a plan."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def class_loads(classes: Sequence[TrafficClass], planned_load: float, load: float) -> list[float]:
    """Offered load of each class on a port whose gradients offer `load`, not `planned_load`."""
    return [
        entry.load * load / planned_load if entry.kind is ClassKind.GRADIENT else entry.load
        for entry in classes
    ]


def gradient_arrivals(traffic: Traffic, burst_packets: int, packet_seconds: float) -> Arrivals:
    """How the packets of a gradient class come to a port."""
    ratio = traffic.source_rate_ratio
    if traffic.arrivals == "incast" and traffic.senders and traffic.round_packets:
        jitter = (traffic.jitter_seconds or 0.0) / packet_seconds
        return Incast(traffic.senders, traffic.round_packets, jitter, burst_packets, ratio)
    if burst_packets == 1:
        return Poisson()
    return Batch(burst_packets, "geometric" if traffic.arrivals == "geometric" else "fixed", ratio)


def class_traffic(
    plan: Plan, *, load: float, packet_seconds: float, burst_packets: int | None = None
) -> tuple[QueueTraffic, ...]:
    """What each class of the plan offers a port; all but gradients are single packets at random."""
    return offered_traffic(
        plan.classes,
        plan.fabric.traffic,
        plan.unimportant_share,
        load=load,
        packet_seconds=packet_seconds,
        bursts=[burst_packets] * len(plan.gradient_classes)
        if burst_packets is not None
        else plan.fabric.gradient_bursts(len(plan.gradient_classes)),
    )


def offered_traffic(
    classes: Sequence[TrafficClass],
    traffic: Traffic,
    unimportant_share: float,
    *,
    load: float,
    packet_seconds: float,
    bursts: Sequence[int],
) -> tuple[QueueTraffic, ...]:
    """The same before there is a plan; `bursts` has one size for each gradient class."""
    remaining = iter(bursts)
    offered: list[QueueTraffic] = []
    for entry, class_load in zip(classes, class_loads(classes, traffic.load, load), strict=True):
        if entry.kind is not ClassKind.GRADIENT:
            offered.append(QueueTraffic(class_load, unimportant_share))
            continue
        burst = next(remaining)
        arrivals = gradient_arrivals(traffic, burst, packet_seconds)
        offered.append(QueueTraffic(class_load, unimportant_share, arrivals, traffic.importance_of(burst)))
    return tuple(offered)


def port_problem(
    plan: Plan,
    profile: PortProfile,
    *,
    load: float | None = None,
    burst_packets: int | None = None,
    model: str | None = None,
) -> PortProblem:
    """The port as a loss model takes it, all classes, highest priority first.

    A queue bounded by an alpha has both the alpha and, as its L, the length at which it rests when it alone
    is congested: the dynamic limit never lets it grow beyond.

    Args:
        plan: classes and traffic.
        profile: thresholds, rate and buffer.
        load: of all gradients together; by default the profile's.
        burst_packets: of all gradient classes; by default the fabric's.
        model: that it is for; by default the plan's.

    Raises:
        UserInputError: the fabric tags bursts of random size, which this model does not know.
        UnsupportedPlanError: a queue's limit has no length.
    """
    traffic = class_traffic(
        plan,
        load=profile.load if load is None else load,
        packet_seconds=profile.packet_seconds,
        burst_packets=burst_packets,
    )
    if (model or plan.provenance.queueing_model) == "completion":
        _refuse_random_bursts_of_one_importance(traffic)
    held_bytes = profile.pool_bytes or (profile.buffer_bytes if profile.buffer == "shared" else None)
    port = Port(buffer_packets=None if held_bytes is None else held_bytes / profile.packet_bytes)
    return port, traffic, tuple(_thresholds(queue, profile) for queue in profile.queues)


def _refuse_random_bursts_of_one_importance(traffic: Sequence[QueueTraffic]) -> None:
    """The model refuses them too, but by the number of a queue, which no fabric file has."""
    for offered in traffic:
        arrivals = offered.arrivals
        is_random = isinstance(arrivals, Batch) and arrivals.distribution == "geometric"
        if is_random and offered.importance == "burst":
            raise UserInputError(
                "the loss model completion does not know importance by burst with arrivals: geometric",
                where="traffic.importance",
                expected="packet",
                hint="the model simulate knows it",
            )


def predict_port(
    plan: Plan,
    profile: PortProfile,
    *,
    load: float | None = None,
    burst_packets: int | None = None,
    model: str | None = None,
    simulation: SimulationSettings | None = None,
) -> dict[str, Prediction]:
    """Class → prediction, at the profile's load and the plan's own loss model or at others.

    Raises:
        UserInputError: a number is impossible, or the model cannot express the traffic.
        UnsupportedPlanError: a queue's limit has no length.
    """
    figures = _figures(plan, profile, load, burst_packets, model, simulation)
    return {
        queue.traffic_class: _prediction(figure, profile)
        for queue, figure in zip(profile.queues, figures, strict=True)
    }


def predict_port_losses(plan: Plan, profile: PortProfile) -> dict[str, tuple[float, float]]:
    """Class → (loss of unimportant packets, of important ones), as `predict_port` has them, and no more."""
    figures = _figures(plan, profile)
    return {
        queue.traffic_class: (rounded(figure.loss_unimportant), rounded(figure.loss_important))
        for queue, figure in zip(profile.queues, figures, strict=True)
    }


def _figures(
    plan: Plan,
    profile: PortProfile,
    load: float | None = None,
    burst_packets: int | None = None,
    model: str | None = None,
    simulation: SimulationSettings | None = None,
) -> tuple[QueuePrediction, ...]:
    """What the model says, queue by queue."""
    model = model or plan.provenance.queueing_model
    port, traffic, thresholds = port_problem(
        plan, profile, load=load, burst_packets=burst_packets, model=model
    )
    if model != "simulate":
        # What the other models know of a shared buffer is what one congested queue may fill of it.
        if port.buffer_packets is not None:
            port = replace(port, buffer_packets=None)
        thresholds = tuple(
            entry if entry.alpha is None else replace(entry, alpha=None) for entry in thresholds
        )
    return _remembered(port, traffic, thresholds, model, simulation)


@lru_cache(maxsize=REMEMBERED_PORTS)
def _remembered(
    port: Port,
    traffic: tuple[QueueTraffic, ...],
    thresholds: tuple[QueueThresholds, ...],
    model: str,
    simulation: SimulationSettings | None,
) -> tuple[QueuePrediction, ...]:
    """The same port has the same figures: many switches of a fabric ask for the few kinds that it has."""
    return predict(port, traffic, thresholds, model=model, simulation=simulation)


def _prediction(figure: QueuePrediction, profile: PortProfile) -> Prediction:
    seconds, size = profile.packet_seconds, profile.packet_bytes
    return Prediction(
        loss_unimportant=rounded(figure.loss_unimportant),
        loss_important=rounded(figure.loss_important),
        mean_delay_seconds=_scaled(figure.mean_delay_packet_times, seconds),
        p50_delay_seconds=_scaled(figure.p50_delay_packet_times, seconds),
        p99_delay_seconds=_scaled(figure.p99_delay_packet_times, seconds),
        p999_delay_seconds=_scaled(figure.p999_delay_packet_times, seconds),
        mean_queue_bytes=_scaled(figure.mean_queue_packets, size),
        mark_share=_scaled(figure.mark_share, 1),
        loss_unimportant_error=_scaled(figure.loss_unimportant_error, 1),
        loss_important_error=_scaled(figure.loss_important_error, 1),
    )


def _scaled(value: float | None, unit: float) -> float | None:
    """An infinite delay (nothing is ever served) is none that a document could hold."""
    return None if value is None or not isfinite(value) else rounded(value * unit)


def _thresholds(queue: QueueSettings, profile: PortProfile) -> QueueThresholds:
    threshold = queue.ecn_threshold_bytes
    limit_bytes, alpha = _limit(queue, profile)
    return QueueThresholds(
        None if threshold is None else threshold / profile.packet_bytes,
        max(limit_bytes, threshold or 0) / profile.packet_bytes,
        alpha=alpha,
    )


def _limit(queue: QueueSettings, profile: PortProfile) -> tuple[int, float | None]:
    """(greatest length in bytes, alpha)."""
    limit = queue.limit
    if isinstance(limit, BytesLimit):
        return limit.size_bytes, None
    if isinstance(limit, AlphaLimit):
        if profile.pool_bytes is None:
            raise UnsupportedPlanError(
                f"limit {limit} of {queue.traffic_class} has no length: the pool's size is not known",
                where=f"{profile.platform} {profile.role}",
            )
        return limit.resting_bytes(profile.pool_bytes), 2.0**limit.exponent
    return profile.buffer_bytes, None
