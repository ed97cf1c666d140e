"""Predictions for a plan under any loss model, load, burst and buffer, as the commands `loss` and `sweep`
print them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mltswitch.capabilities import BytesLimit, Limit
from mltswitch.errors import UserInputError
from mltswitch.plan.document import ClassKind, Plan, PortProfile, Prediction, QueueSettings
from mltswitch.plan.topology_document import PortRole
from mltswitch.planning.predict import predict_port, rounded
from mltswitch.queueing import SimulationSettings, kind_of
from mltswitch.sweep import Cell


@dataclass(frozen=True, slots=True)
class PortPrediction:
    """What a loss model predicts for all ports that have the same rate, thresholds and load."""

    profiles: tuple[PortProfile, ...]
    load: float
    """Load of all gradient classes together, over the port's rate."""
    burst_packets: tuple[int, ...]
    """Burst size of each gradient class."""
    model: str
    classes: Mapping[str, Prediction]


def predict_ports(
    plan: Plan,
    *,
    role: PortRole | None = None,
    load: float | None = None,
    burst_packets: int | None = None,
    model: str | None = None,
    simulation: SimulationSettings | None = None,
) -> list[PortPrediction]:
    """Predictions of all kinds of ports (or those of one role), equal ones computed once.

    Raises:
        UserInputError: the plan has no such port, or the model cannot express the problem.
        MachineError: the model is `simulate` and its extra is not installed.
    """
    made: list[PortPrediction] = []
    count = len(plan.gradient_classes)
    for group in alike(plan, role):
        first = group[0]
        classes = predict_port(
            plan, first, load=load, burst_packets=burst_packets, model=model, simulation=simulation
        )
        made.append(
            PortPrediction(
                group,
                first.load if load is None else load,
                plan.fabric.gradient_bursts(count) if burst_packets is None else (burst_packets,) * count,
                model or plan.provenance.queueing_model,
                classes,
            )
        )
    return made


def class_rows(plan: Plan, entry: PortPrediction) -> list[dict[str, Any]]:
    """One flat record for each class: its offered load, its thresholds and the model's predictions."""
    scale = entry.load / plan.fabric.traffic.load
    bursts = iter(entry.burst_packets)
    rows = []
    for queue in entry.profiles[0].queues:
        given = plan.class_by_name[queue.traffic_class]
        is_gradient = given.kind is ClassKind.GRADIENT
        rows.append(
            {
                "traffic_class": given.name,
                "class_load": rounded(given.load * (scale if is_gradient else 1.0)),
                "class_burst_packets": next(bursts) if is_gradient else 1,
                "ecn_threshold_bytes": queue.ecn_threshold_bytes,
                "limit_bytes": entry.profiles[0].length_bytes(queue.limit),
                **entry.classes[given.name].model_dump(mode="json"),
            }
        )
    return rows


@dataclass(frozen=True, slots=True)
class PlanCells:
    """Computes a sweep's cells (load, burst, buffer, model) for one plan; picklable."""

    plans: Mapping[int | None, Plan]
    """The plan for each buffer size in bytes; None: the plan as it is."""
    role: PortRole | None
    simulation: SimulationSettings

    def __call__(self, cell: Cell) -> list[dict[str, Any]]:
        """One row for each kind of port and class."""
        load, burst, buffer_bytes, model = cell
        plan = self.plans[None if buffer_bytes is None else int(buffer_bytes)]
        made = predict_ports(
            plan,
            role=self.role,
            load=None if load is None else float(load),
            burst_packets=None if burst is None else int(burst),
            model=str(model),
            simulation=self.simulation,
        )
        return [
            {
                "platform": profile.platform,
                "hardware": profile.hardware,
                "port_role": profile.role.value,
                "model": entry.model,
                "kind": kind_of(entry.model),
                "load": entry.load,
                "burst_packets": burst,
                "buffer_bytes": profile.buffer_bytes,
                **row,
            }
            for entry in made
            for profile in entry.profiles
            for row in class_rows(plan, entry)
        ]


def alike(plan: Plan, role: PortRole | None = None) -> list[tuple[PortProfile, ...]]:
    """Port profiles grouped so that a loss model predicts the same for all of a group."""
    groups: dict[tuple[object, ...], list[PortProfile]] = {}
    for profile in plan.port_profiles:
        if role is None or profile.role is role:
            key = (
                profile.rate_bps,
                profile.packet_bytes,
                profile.load,
                profile.source_rate_ratio,
                profile.buffer_bytes,
                profile.congested_queues,
                profile.pool_bytes,
                *((queue.ecn_threshold_bytes, queue.limit) for queue in profile.queues),
            )
            groups.setdefault(key, []).append(profile)
    if not groups:
        known = sorted({profile.role.value for profile in plan.port_profiles})
        raise UserInputError(f"the plan has no {role} port", expected=f"one of {', '.join(known)}")
    return [tuple(group) for group in groups.values()]


def with_buffer(plan: Plan, buffer_bytes: int) -> Plan:
    """The plan on ports with another buffer: every ECN threshold S, limit L and pool scales with it, in whole
    bytes.

    Nothing is planned anew; predictions of the old buffer are left out.

    Raises:
        UserInputError: an ECN threshold S or a limit L would be smaller than one byte.
    """
    profiles = tuple(
        _rescaled(profile, buffer_bytes / profile.buffer_bytes) for profile in plan.port_profiles
    )
    return plan.model_copy(update={"port_profiles": profiles, "end_to_end": (), "notes": (), "warnings": ()})


def scaled_buffer(plan: Plan, factor: float) -> Plan:
    """The plan with each port's buffer multiplied by a factor, scaled as by `with_buffer`."""
    profiles = tuple(_rescaled(profile, factor) for profile in plan.port_profiles)
    return plan.model_copy(update={"port_profiles": profiles})


def _rescaled(profile: PortProfile, factor: float) -> PortProfile:
    def scaled(size: int) -> int:
        if int(size * factor) < 1:
            raise UserInputError(
                f"{profile.buffer_bytes * factor:.0f} B leave {profile.role} ports thresholds below one byte",
                where="buffer",
            )
        return int(size * factor)

    def limit(given: Limit) -> Limit:
        return BytesLimit(scaled(given.size_bytes)) if isinstance(given, BytesLimit) else given

    queues = tuple(
        QueueSettings(
            traffic_class=queue.traffic_class,
            ecn_threshold_bytes=queue.ecn_threshold_bytes and scaled(queue.ecn_threshold_bytes),
            limit=limit(queue.limit),
        )
        for queue in profile.queues
    )
    return profile.model_copy(
        update={
            "buffer_bytes": scaled(profile.buffer_bytes),
            "pool_bytes": profile.pool_bytes and scaled(profile.pool_bytes),
            "crowded_bytes": profile.crowded_bytes and scaled(profile.crowded_bytes),
            "queues": queues,
            "extra_rounds": None,
        }
    )
