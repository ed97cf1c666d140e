"""What a loss model says of one port's thresholds."""

from collections.abc import Sequence

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan.document import ClassKind, Plan, PortProfile, Prediction, QueueSettings, TrafficClass
from mltswitch.queueing import QueueLoad, QueueThresholds, predict

SIGNIFICANT_DIGITS = 6
"""Digits kept of a prediction: few enough that every machine writes the same bytes."""


def rounded(value: float) -> float:
    """A figure as it is written into a plan."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def class_loads(classes: Sequence[TrafficClass], planned_load: float, load: float) -> list[float]:
    """Offered load of each class on a port whose gradients offer `load`, not `planned_load`."""
    return [
        entry.load * load / planned_load if entry.kind is ClassKind.GRADIENT else entry.load
        for entry in classes
    ]


def predict_port(plan: Plan, profile: PortProfile, *, load: float | None = None) -> dict[str, Prediction]:
    """Class → prediction when the gradients offer the profile's load, or another one."""
    loads = class_loads(plan.classes, plan.fabric.traffic.load, profile.load if load is None else load)
    losses = predict(
        [QueueLoad(offered, plan.unimportant_share) for offered in loads],
        [_thresholds(queue, profile) for queue in profile.queues],
    )
    return {
        queue.traffic_class: Prediction(
            loss_unimportant=rounded(loss.unimportant), loss_important=rounded(loss.important)
        )
        for queue, loss in zip(profile.queues, losses, strict=True)
    }


def _thresholds(queue: QueueSettings, profile: PortProfile) -> QueueThresholds:
    if not isinstance(queue.limit, BytesLimit):
        raise UnsupportedPlanError(
            f"limit {queue.limit} of {queue.traffic_class} has no length in packets",
            where=f"{profile.platform} {profile.role}",
        )
    threshold = queue.ecn_threshold_bytes
    return QueueThresholds(
        None if threshold is None else threshold / profile.packet_bytes,
        queue.limit.size_bytes / profile.packet_bytes,
    )
