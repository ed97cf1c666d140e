"""From a model profile and a fabric to a Plan: the compiler's middle."""

from math import prod
from typing import Any

from mltswitch import __version__
from mltswitch.capabilities import Capabilities
from mltswitch.documents import sha256
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan.device_checks import check_lossless, check_spray_mode
from mltswitch.plan.document import (
    PLAN_SCHEMA,
    ClassKind,
    PathPrediction,
    Paths,
    Plan,
    PortProfile,
    Prediction,
    Provenance,
    TrafficClass,
)
from mltswitch.plan.fabric import Fabric
from mltswitch.plan.port_numbers import check_ports
from mltswitch.plan.resolve import CapabilityLookup, resolve_fabric
from mltswitch.plan.topology import Topology
from mltswitch.plan.topology_document import PortRole
from mltswitch.planning.classes import gradient_class_count, traffic_classes
from mltswitch.planning.lint import lint, loss_bound
from mltswitch.planning.notes import plan_notes
from mltswitch.planning.predict import predict_port, rounded
from mltswitch.planning.thresholds import ClassCurves, PortSolver, provisional_queues
from mltswitch.profile import ModelProfile, profile_sha256
from mltswitch.queueing import MODELS, SimulationSettings
from mltswitch.units import frame_bytes

ALIAS_RULE = "address = alias prefix of the spine + host index"


def build_plan(
    profile: ModelProfile,
    fabric: Fabric,
    capabilities: CapabilityLookup,
    model: str = MODELS[0],
    *,
    simulation: SimulationSettings | None = None,
) -> Plan:
    """The plan of one model on one fabric; the same input gives the same plan.

    Args:
        profile: of the model.
        fabric: switches, ports and traffic.
        capabilities: what the devices can do.
        model: the loss model.
        simulation: for the loss model `simulate` alone.

    Raises:
        UserInputError: a value of the fabric does not fit, or the loss model is unknown, cannot express the
            fabric's traffic, or finds no thresholds that keep the delay bounds.
        UnsupportedPlanError: a device has too few queues.
    """
    if model not in MODELS:
        raise UserInputError(f"unknown loss model {model!r}", expected=f"one of {', '.join(MODELS)}")
    resolved = resolve_fabric(fabric, capabilities)
    topology = Topology(resolved)
    _check_devices(topology, capabilities, resolved)
    free_queues = [
        (switch.name, len(device.queues_beside(len(resolved.classes.lossless))), device.hardware)
        for switch in topology.switches
        for device in [capabilities(switch.platform, switch.hardware)]
    ]
    count = gradient_class_count(resolved, free_queues, len(profile.layers))
    unbounded = traffic_classes(profile, resolved, count)
    curves = ClassCurves(profile, unbounded)
    classes = _with_bounds(unbounded, curves)
    roles = sorted(
        {
            (switch.platform, str(switch.hardware), port.role, port.rate_bps)
            for switch in topology.switches
            for port in switch.ports
        }
    )
    fields: dict[str, Any] = {
        "schema": PLAN_SCHEMA,
        "provenance": Provenance(
            tool_version=__version__,
            queueing_model=model,
            profile_name=profile.name,
            profile_sha256=profile_sha256(profile),
            fabric_sha256=sha256(fabric),
            sensitivity=profile.sensitivity.provenance,
        ),
        "unimportant_share": profile.sensitivity.unimportant_share,
        "classes": classes,
        "port_profiles": tuple(
            _draft_profile(resolved, classes, capabilities(platform, hardware), role, rate_bps)
            for platform, hardware, role, rate_bps in roles
        ),
        "end_to_end": (),
        "hops": topology.hops,
        "paths": Paths(
            mode=resolved.spraying.mode, rule=ALIAS_RULE, burst_packets=resolved.traffic.burst_packets
        ),
        "fabric": resolved,
    }
    # Thresholds that are still to be chosen keep no constraint, so the draft is not checked; the plan is.
    draft = Plan.model_construct(**fields)
    solver = PortSolver(draft, curves, simulation)
    solved = tuple(
        solver.solve(entry, capabilities(entry.platform, entry.hardware)) for entry in draft.port_profiles
    )
    return completed(Plan(**fields | {"port_profiles": solved}), curves, simulation)


def completed(plan: Plan, curves: ClassCurves, simulation: SimulationSettings | None = None) -> Plan:
    """The plan with what its loss model predicts of its thresholds, notes and warnings."""
    profiles = _with_predictions(plan, simulation)
    predicted = plan.model_copy(
        update={"port_profiles": profiles, "end_to_end": _end_to_end(curves, plan.classes, profiles)}
    )
    doubts = lint(predicted)
    return predicted.model_copy(
        update={"notes": (*plan_notes(predicted), *doubts.notes), "warnings": doubts.warnings}
    )


def _with_bounds(classes: tuple[TrafficClass, ...], curves: ClassCurves) -> tuple[TrafficClass, ...]:
    """The classes with the losses up to which training takes no extra round."""
    bounded: list[TrafficClass] = []
    for entry in classes:
        if entry.kind is ClassKind.GRADIENT:
            unimportant, important = (loss_bound(curve) for curve in curves[entry.name])
            entry = entry.model_copy(  # noqa: PLW2901  (the same class, with its bounds)
                update={"loss_bound_unimportant": unimportant, "loss_bound_important": important}
            )
        bounded.append(entry)
    return tuple(bounded)


def _check_devices(topology: Topology, capabilities: CapabilityLookup, fabric: Fabric) -> None:
    lossless = [entry.name for entry in fabric.classes.lossless]
    for switch in topology.switches:
        device = capabilities(switch.platform, switch.hardware)
        check_ports(switch, device)
        check_spray_mode(fabric.spraying.mode, device, switch.name)
        check_lossless(lossless, device, switch.name)


def _draft_profile(
    fabric: Fabric, classes: tuple[TrafficClass, ...], device: Capabilities, role: PortRole, rate_bps: int
) -> PortProfile:
    """The port profile before its thresholds are chosen."""
    ports = fabric.ports
    override = ports.overrides.get(role)
    buffer_bytes = (override and override.buffer_bytes) or ports.buffer_bytes
    pool_bytes = device.limit.pool_bytes
    if pool_bytes is not None and buffer_bytes > pool_bytes:
        raise UnsupportedPlanError(
            f"{buffer_bytes} B for one port is more than the whole pool of {device.hardware}, {pool_bytes} B",
            where=f"ports.buffer: {role} ports",
        )
    packet_bytes = frame_bytes(ports.mtu_bytes)
    queues = provisional_queues(classes, fabric.classes, packet_bytes)
    return PortProfile.model_construct(
        platform=device.platform,
        hardware=device.hardware,
        role=role,
        rate_bps=rate_bps,
        shaped=ports.shaped and device.can_shape,
        packet_bytes=packet_bytes,
        buffer_bytes=buffer_bytes,
        pool_bytes=pool_bytes if device.limit.kind == "alpha" else None,
        load=(override and override.load) or fabric.traffic.load,
        queues=queues,
    )


def _with_predictions(plan: Plan, simulation: SimulationSettings | None) -> tuple[PortProfile, ...]:
    """The port profiles with predictions; alike ones are predicted once."""
    known: dict[object, dict[str, Prediction]] = {}
    profiles: list[PortProfile] = []
    for profile in plan.port_profiles:
        key = (profile.rate_bps, profile.load, profile.pool_bytes, profile.buffer, profile.queues)
        if key not in known:
            known[key] = predict_port(plan, profile, simulation=simulation)
        queues = tuple(
            queue
            if plan.class_by_name[queue.traffic_class].kind is ClassKind.LOSSLESS
            else queue.model_copy(update={"prediction": known[key][queue.traffic_class]})
            for queue in profile.queues
        )
        profiles.append(profile.model_copy(update={"queues": queues}))
    return tuple(profiles)


def _end_to_end(
    curves: ClassCurves, classes: tuple[TrafficClass, ...], port_profiles: tuple[PortProfile, ...]
) -> tuple[PathPrediction, ...]:
    """Loss over one port of each role, on the worst platform: 1 - Π(1 - r)."""
    predictions: list[PathPrediction] = []
    for entry in classes:
        if entry.kind is not ClassKind.GRADIENT:
            continue
        unimportant = _path_loss(port_profiles, entry.name, "loss_unimportant")
        important = _path_loss(port_profiles, entry.name, "loss_important")
        costs = curves[entry.name]
        rounds = float(costs[0](unimportant)) + float(costs[1](important))
        predictions.append(
            PathPrediction(
                traffic_class=entry.name,
                loss_unimportant=rounded(unimportant),
                loss_important=rounded(important),
                extra_rounds=rounded(rounds),
            )
        )
    return tuple(predictions)


def _path_loss(port_profiles: tuple[PortProfile, ...], traffic_class: str, field: str) -> float:
    worst: dict[PortRole, float] = {}
    for profile in port_profiles:
        for queue in profile.queues:
            if queue.traffic_class == traffic_class and queue.prediction is not None:
                loss: float = getattr(queue.prediction, field)
                worst[profile.role] = max(worst.get(profile.role, 0.0), loss)
    return 1.0 - prod(1.0 - loss for loss in worst.values())
