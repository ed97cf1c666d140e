"""Predictions of a loss model for one port's thresholds; the one place that turns packet times into
seconds."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isfinite, prod
from typing import Final

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UserInputError
from mltswitch.plan.document import (
    ClassKind,
    Plan,
    PortProfile,
    Prediction,
    QueueSettings,
    ScenarioPrediction,
)
from mltswitch.plan.fabric import Traffic
from mltswitch.plan.topology_document import PortRole
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
from mltswitch.queueing.models import predict_losses

REMEMBERED_PORTS: Final = 128
"""How many kinds of port have cached predictions: platforms times roles of a large fabric, as planned and
rounded."""
LONGEST_OTHER_PACKETS: Final = 64.0
"""The longest queue, in packets, modelled for a class without gradients or limit: at small loads it fills no
more."""
SIGNIFICANT_DIGITS = 6
"""Significant digits kept of a prediction, so that every machine writes the same bytes."""

PortProblem = tuple[Port, tuple[QueueTraffic, ...], tuple[QueueThresholds, ...]]
"""The arguments of `mltswitch.queueing.predict`: port, traffic and thresholds."""


Losses = dict[str, tuple[float, float]]
"""Maps each gradient class to its end-to-end losses of unimportant and of important packets."""


def rounded(value: float) -> float:
    """A predicted figure rounded as it is written into a plan."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _arrivals(traffic: Traffic, profile: PortProfile, burst_packets: int, senders: int) -> Arrivals:
    """How the packets of a gradient class come to a port, the bursts of so many senders at once."""
    ratio = profile.source_rate_ratio
    if traffic.arrivals == "incast" and traffic.senders and traffic.round_packets:
        jitter = (traffic.jitter_seconds or 0.0) / profile.packet_seconds
        return Incast(traffic.senders, traffic.round_packets, jitter, burst_packets, ratio)
    size = burst_packets * senders
    if size == 1:
        return Poisson()
    return Batch(size, "geometric" if traffic.arrivals == "geometric" else "fixed", ratio * senders)


def _offered(
    plan: Plan, profile: PortProfile, load: float, burst_packets: int | None, senders: int
) -> Iterator[QueueTraffic]:
    """What each class of the plan offers a port; all but gradients are single packets at random."""
    count, traffic = len(plan.gradient_classes), plan.fabric.traffic
    bursts = iter(plan.fabric.gradient_bursts(count) if burst_packets is None else (burst_packets,) * count)
    for entry in plan.classes:
        if entry.kind is not ClassKind.GRADIENT:
            yield QueueTraffic(entry.load, plan.unimportant_share)
            continue
        burst = next(bursts)
        yield QueueTraffic(
            entry.load * load / traffic.load,
            plan.unimportant_share,
            _arrivals(traffic, profile, burst, senders),
            # Every sender tags its own burst.
            traffic.importance_of(burst) if senders == 1 else "packet",
        )


def port_problem(
    plan: Plan,
    profile: PortProfile,
    *,
    load: float | None = None,
    burst_packets: int | None = None,
    senders: int = 1,
    is_crowded: bool = False,
    model: str | None = None,
) -> PortProblem:
    """The port as a loss model takes it, all classes, highest priority first.

    The limit L of a queue that an alpha or nothing bounds is what the shared memory leaves it while other
    ports are congested, too (`PortProfile.length_bytes`).

    Args:
        plan: classes and traffic.
        profile: thresholds, rate and buffer.
        load: load of all gradients together; by default the profile's.
        burst_packets: burst size of all gradient classes; by default the fabric's.
        senders: how many senders' bursts come at once.
        is_crowded: whether all ports of the switch are congested.
        model: the loss model; by default the plan's.

    Raises:
        UserInputError: the fabric tags bursts of random size, which this model does not know.
    """
    load = profile.load if load is None else load
    traffic = tuple(_offered(plan, profile, load, burst_packets, senders))
    if (model or plan.provenance.queueing_model) == "completion":
        _refuse_random_bursts_of_one_importance(traffic)
    return Port(), traffic, tuple(_thresholds(queue, profile, is_crowded) for queue in profile.queues)


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
    senders: int = 1,
    model: str | None = None,
    simulation: SimulationSettings | None = None,
) -> dict[str, Prediction]:
    """Predictions by class name; by default at the profile's load and under the plan's own loss model.

    Raises:
        UserInputError: a number is impossible, or the model cannot express the traffic.
    """
    model = model or plan.provenance.queueing_model
    port, traffic, thresholds = port_problem(
        plan, profile, load=load, burst_packets=burst_packets, senders=senders, model=model
    )
    figures = _remembered(port, traffic, thresholds, model, simulation)
    return {
        queue.traffic_class: _prediction(figure, profile)
        for queue, figure in zip(profile.queues, figures, strict=True)
    }


def path_losses(
    plan: Plan, scenario: ScenarioPrediction, simulation: SimulationSettings | None = None
) -> Losses:
    """End-to-end losses of the gradient classes in one scenario: 1 - Π(1 - r) over each role's worst port.

    Args:
        plan: thresholds, traffic and loss model.
        scenario: load, burst and senders.
        simulation: settings for plans whose loss model is `simulate`.
    """
    worst: dict[str, dict[PortRole, tuple[float, float]]] = {}
    for profile in plan.port_profiles:
        model = plan.provenance.queueing_model
        problem = port_problem(
            plan,
            profile,
            load=profile.load * scenario.load_factor,
            burst_packets=scenario.burst_packets,
            senders=scenario.senders,
            is_crowded=scenario.all_ports_busy,
        )
        for queue, figure in zip(
            profile.queues, _remembered(*problem, model, simulation, losses_only=True), strict=True
        ):
            seen = worst.setdefault(queue.traffic_class, {}).get(profile.role, (0.0, 0.0))
            losses = (max(seen[0], figure.loss_unimportant), max(seen[1], figure.loss_important))
            worst[queue.traffic_class][profile.role] = losses
    return {
        entry.name: (
            1 - prod(1 - loss for loss, _ in worst[entry.name].values()),
            1 - prod(1 - loss for _, loss in worst[entry.name].values()),
        )
        for entry in plan.gradient_classes
    }


@lru_cache(maxsize=REMEMBERED_PORTS)
def _remembered(
    port: Port,
    traffic: tuple[QueueTraffic, ...],
    thresholds: tuple[QueueThresholds, ...],
    model: str,
    simulation: SimulationSettings | None,
    *,
    losses_only: bool = False,
) -> tuple[QueuePrediction, ...]:
    """The same port has the same figures: many switches of a fabric ask for the few kinds that it has."""
    if losses_only and model != "simulate":
        return predict_losses(port, traffic, thresholds, model)
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


def _thresholds(queue: QueueSettings, profile: PortProfile, is_crowded: bool) -> QueueThresholds:
    length = profile.length_bytes(queue.limit, is_crowded=is_crowded) / profile.packet_bytes
    threshold = queue.ecn_threshold_bytes
    if threshold is None:
        is_set = isinstance(queue.limit, BytesLimit)
        return QueueThresholds(None, length if is_set else min(length, LONGEST_OTHER_PACKETS))
    threshold_packets = threshold / profile.packet_bytes
    return QueueThresholds(threshold_packets, max(length, threshold_packets))
