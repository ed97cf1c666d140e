"""The planner: turns a model profile and a fabric into a Plan."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from mltswitch.capabilities import Capabilities
from mltswitch.documents import sha256
from mltswitch.errors import UserInputError, every
from mltswitch.plan.device_checks import check_lags, check_lossless, check_ports, check_spray_mode
from mltswitch.plan.document import (
    PLAN_SCHEMA,
    PLANNED_LOAD,
    ClassKind,
    PathPrediction,
    Paths,
    Plan,
    PortProfile,
    Provenance,
    ScenarioPrediction,
    TrafficClass,
)
from mltswitch.plan.fabric import CapabilityLookup, Fabric, resolve_fabric
from mltswitch.plan.seal import sealed
from mltswitch.plan.topology import Topology
from mltswitch.plan.topology_document import PortRole
from mltswitch.plan.trust import leak
from mltswitch.planning.classes import gradient_class_count, traffic_classes
from mltswitch.planning.lint import lint, loss_bound
from mltswitch.planning.memory import DEFAULT, port_memory
from mltswitch.planning.notes import plan_notes
from mltswitch.planning.predict import Losses, path_losses, predict_port, rounded
from mltswitch.planning.thresholds import (
    ClassCurves,
    PortSolver,
    planned_scenarios,
    provisional_queues,
)
from mltswitch.profile import ModelProfile, profile_sha256
from mltswitch.queueing import MODELS, SimulationSettings
from mltswitch.queueing.models import ANALYTIC
from mltswitch.units import frame_bytes
from mltswitch.version import __version__

ALIAS_RULE = "address = alias prefix of the spine + host index"
BuildProgress = Callable[[str, int, int], None]
"""Called with the work under way, its steps done, and its steps that are expected."""
PLAN_AGAIN: Final = "change the fabric file, and plan again"


def build_plan(
    profile: ModelProfile,
    fabric: Fabric,
    capabilities: CapabilityLookup,
    model: str = MODELS[0],
    *,
    at_load: float | None = None,
    is_order_free: bool = False,
    progress: BuildProgress | None = None,
) -> Plan:
    """The plan of one model on one fabric; the same input gives the same plan.

    Args:
        profile: the model's profile.
        fabric: switches, ports and traffic.
        capabilities: looks up what the devices can do.
        model: the loss model.
        at_load: choose for this gradient load alone, without room for anything else; None: for all scenarios.
        is_order_free: whether a class of higher priority may have a larger S.
        progress: called after each step of the search and of the evaluation of its result.

    Raises:
        UserInputError: a value of the fabric does not fit, or the loss model is unknown, cannot express the
            fabric's traffic, or finds no thresholds that keep the delay bounds.
        UnsupportedPlanError: a device has too few queues, ports or steps.
    """
    if model not in ANALYTIC:
        raise UserInputError(
            f"the loss model {model!r} chooses no thresholds", expected=f"one of {', '.join(ANALYTIC)}"
        )
    resolved = _with_options(resolve_fabric(fabric, capabilities), at_load, is_order_free=is_order_free)
    fields, curves = _draft(profile, resolved, capabilities, model, is_robust=at_load is None)
    # Two packets a class may be more than the buffer has, which is told better where thresholds are chosen.
    draft = Plan.model_construct(**fields)
    solver = PortSolver(draft, curves, at_load is None)
    solved, notes = solver.solve(capabilities, progress and partial(progress, "thresholds"))
    solved_plan = Plan(**fields | {"port_profiles": solved})
    return completed(solved_plan, curves, capabilities, notes=notes, progress=progress)


def _draft(
    profile: ModelProfile, resolved: Fabric, capabilities: CapabilityLookup, model: str, *, is_robust: bool
) -> tuple[dict[str, Any], ClassCurves]:
    """All fields of a plan before its thresholds are chosen, and what losses cost each class."""
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
    classes = tuple(_bounded(entry, curves) for entry in unbounded)
    kinds = sorted(
        {
            (switch.platform, str(switch.hardware), port.role, port.rate_bps)
            for switch in topology.switches
            for port in switch.ports
        }
    )
    profiles = tuple(
        every(
            partial(
                _draft_profile, topology, resolved, classes, capabilities(platform, hardware), role, rate_bps
            )
            for platform, hardware, role, rate_bps in kinds
        )
    )
    shares_memory = any(entry.crowded_bytes is not None for entry in profiles)
    fields: dict[str, Any] = {
        "schema": PLAN_SCHEMA,
        "provenance": Provenance(
            tool_version=__version__,
            queueing_model=model,
            profile_name=profile.name,
            profile_sha256=profile_sha256(profile),
            fabric_sha256=sha256(resolved),
            sensitivity=profile.sensitivity.provenance,
        ),
        "unimportant_share": profile.sensitivity.unimportant_share,
        "classes": classes,
        "port_profiles": profiles,
        "scenarios": planned_scenarios(
            resolved, topology.senders[PortRole.LEAF_DOWN], shares_memory=shares_memory
        )
        if is_robust
        else (PLANNED_LOAD,),
        "end_to_end": (),
        "hops": topology.hops,
        "paths": Paths(
            mode=resolved.spraying.mode, rule=ALIAS_RULE, burst_packets=resolved.traffic.burst_packets
        ),
        "fabric": resolved,
    }
    return fields, curves


def _with_options(fabric: Fabric, at_load: float | None, *, is_order_free: bool) -> Fabric:
    """The fabric as the options have it, so that the plan says what it was made for."""
    if at_load is not None:
        traffic = fabric.traffic.model_copy(update={"load": at_load})
        ports = fabric.ports.model_copy(
            update={
                "overrides": {
                    role: entry.model_copy(update={"load": None})
                    for role, entry in fabric.ports.overrides.items()
                }
            }
        )
        fabric = fabric.model_copy(update={"traffic": traffic, "ports": ports})
    if is_order_free:
        gradients = fabric.classes.gradients.model_copy(update={"ordered_thresholds": False})
        classes = fabric.classes.model_copy(update={"gradients": gradients})
        fabric = fabric.model_copy(update={"classes": classes})
    return fabric


def completed(
    plan: Plan,
    curves: ClassCurves,
    capabilities: CapabilityLookup,
    simulation: SimulationSettings | None = None,
    notes: tuple[str, ...] = (),
    *,
    progress: BuildProgress | None = None,
) -> Plan:
    """The plan with its loss model's predictions for its thresholds, notes, warnings, and the plan's hash."""
    profiles = _with_predictions(plan, simulation, progress)
    reached = [_end_to_end(plan, curves, path_losses(plan, entry, simulation)) for entry in plan.scenarios]
    predicted = plan.model_copy(
        update={
            "port_profiles": profiles,
            "end_to_end": reached[0],
            "scenarios": tuple(
                entry.model_copy(update={"extra_rounds": rounded(sum(own.extra_rounds for own in paths))})
                for entry, paths in zip(plan.scenarios, reached, strict=True)
            ),
        }
    )
    doubts = lint(predicted, progress and partial(progress, "how far it holds"))
    return sealed(
        predicted.model_copy(
            update={
                "notes": (*plan_notes(predicted), *doubts.notes, *notes),
                "warnings": (*doubts.warnings, *_leaks(plan, capabilities)),
                "unmet": doubts.unmet,
            }
        )
    )


def _leaks(plan: Plan, capabilities: CapabilityLookup) -> Iterator[str]:
    for switch in plan.topology.switches:
        if text := leak(plan.classes, switch, capabilities(switch.platform, switch.hardware)):
            yield f"{switch.name}: {text}"


def predict_edited(plan: Plan, profile: ModelProfile, capabilities: CapabilityLookup) -> Plan:
    """A plan whose thresholds and limits were changed by hand, with new predictions for them.

    Raises:
        UserInputError: the profile is not the one that the plan was made for, more than S and L was
            changed, or the loss model cannot express the traffic.
    """
    check_profile(plan, profile, "--profile")
    _check_edits(plan, profile, capabilities)
    provenance = plan.provenance.model_copy(update={"is_edited": True})
    profiles = tuple(entry.model_copy(update={"extra_rounds": None}) for entry in plan.port_profiles)
    changed = plan.model_copy(update={"provenance": provenance, "port_profiles": profiles})
    return completed(changed, ClassCurves(profile, plan.classes), capabilities, SimulationSettings())


def check_profile(plan: Plan, profile: ModelProfile, where: str) -> None:
    """Raise UserInputError if this profile is not the one that the plan was made for."""
    if profile_sha256(profile) != plan.provenance.profile_sha256:
        raise UserInputError(f"{profile.name} is not the profile that the plan was made for", where=where)


def _check_edits(plan: Plan, profile: ModelProfile, capabilities: CapabilityLookup) -> None:
    """Raise UserInputError where anything but S and L is not what profile and fabric make it."""
    if plan.provenance.fabric_sha256 != sha256(plan.fabric):
        raise UserInputError("the fabric in it was changed, too", where="fabric", hint=PLAN_AGAIN)
    model = plan.provenance.queueing_model
    is_robust = len(plan.scenarios) > 1
    fields, _ = _draft(
        profile, plan.fabric, capabilities, model if model in ANALYTIC else MODELS[0], is_robust=is_robust
    )
    for name in ("classes", "unimportant_share", "hops", "paths"):
        if getattr(plan, name) != fields[name]:
            raise UserInputError("it is not what profile and fabric make it", where=name, hint=PLAN_AGAIN)
    for name in ("scenarios", "port_profiles"):
        if [_unchosen(entry) for entry in getattr(plan, name)] != [
            _unchosen(entry) for entry in fields[name]
        ]:
            raise UserInputError(
                "more than S and L was changed: the rest is not what profile and fabric make it",
                where=name,
                hint=PLAN_AGAIN,
            )


def _unchosen(entry: ScenarioPrediction | PortProfile) -> Any:
    """What nobody chooses of it: all but S, L and what a loss model says of them."""
    update: dict[str, Any] = {"extra_rounds": None}
    if isinstance(entry, PortProfile):
        update["queues"] = tuple(
            (queue.traffic_class, queue.limit.kind, queue.delay_bound_seconds) for queue in entry.queues
        )
    return dict(entry.model_copy(update=update))


def _bounded(entry: TrafficClass, curves: ClassCurves) -> TrafficClass:
    """The class with the losses up to which training takes no extra round."""
    if entry.kind is not ClassKind.GRADIENT:
        return entry
    unimportant, important = (loss_bound(curve) for curve in curves[entry.name])
    return entry.model_copy(update={"loss_bound_unimportant": unimportant, "loss_bound_important": important})


def _check_devices(topology: Topology, capabilities: CapabilityLookup, fabric: Fabric) -> None:
    hardware = {str(switch.hardware) for switch in topology.switches}
    for name in fabric.memory.keys() - hardware - {DEFAULT}:
        raise UserInputError(
            f"no switch of the fabric is {name}",
            where="memory",
            expected=f"{', '.join(sorted(hardware))}, or {DEFAULT}",
        )
    roles = {port.role for switch in topology.switches for port in switch.ports}
    for role in fabric.ports.overrides.keys() - roles:
        raise UserInputError(
            f"the fabric has no {role} ports", where="ports.overrides", expected=f"{', '.join(sorted(roles))}"
        )
    lossless = [entry.name for entry in fabric.classes.lossless]
    checks: list[Callable[[], None]] = []
    for switch in topology.switches:
        device = capabilities(switch.platform, switch.hardware)
        checks += [
            partial(check_ports, switch, device),
            partial(check_lags, switch, device),
            partial(check_spray_mode, fabric.spraying.mode, device, switch.name),
            partial(check_lossless, lossless, device, switch.name),
        ]
    every(checks)


def _draft_profile(
    topology: Topology,
    fabric: Fabric,
    classes: tuple[TrafficClass, ...],
    device: Capabilities,
    role: PortRole,
    rate_bps: int,
) -> PortProfile:
    """The port profile before its thresholds are chosen."""
    ports = fabric.ports
    override = ports.overrides.get(role)
    used = max(len(switch.ports) for switch in topology.switches if switch.hardware == device.hardware)
    memory = port_memory(fabric, device, role, used)
    packet_bytes = frame_bytes(ports.mtu_bytes)
    host_bps = [port.rate_bps for switch in topology.switches for port in switch.ports if port.peer_is_host]
    return PortProfile.model_construct(
        platform=device.platform,
        hardware=device.hardware,
        role=role,
        rate_bps=rate_bps,
        shaped=ports.shaped and device.can_shape,
        packet_bytes=packet_bytes,
        buffer_bytes=memory.buffer_bytes,
        pool_bytes=memory.pool_bytes,
        congested_queues=memory.congested_queues,
        crowded_bytes=memory.crowded_bytes,
        load=(override and override.load) or fabric.traffic.load,
        source_rate_ratio=fabric.traffic.source_rate_ratio or max(host_bps, default=rate_bps) / rate_bps,
        queues=provisional_queues(classes, fabric, packet_bytes, rate_bps, memory),
    )


def _with_predictions(
    plan: Plan, simulation: SimulationSettings | None, progress: BuildProgress | None
) -> tuple[PortProfile, ...]:
    """The port profiles with predictions; equal ports are predicted once."""
    profiles: list[PortProfile] = []
    for profile in plan.port_profiles:
        if progress is not None:
            progress("predictions", len(profiles), len(plan.port_profiles))
        known = predict_port(plan, profile, simulation=simulation)
        queues = tuple(
            queue
            if plan.class_by_name[queue.traffic_class].kind is ClassKind.LOSSLESS
            else queue.model_copy(update={"prediction": known[queue.traffic_class]})
            for queue in profile.queues
        )
        profiles.append(profile.model_copy(update={"queues": queues}))
    return tuple(profiles)


def _end_to_end(plan: Plan, curves: ClassCurves, losses: Losses) -> tuple[PathPrediction, ...]:
    """What losses from end to end cost each gradient class."""
    return tuple(
        PathPrediction(
            traffic_class=name,
            loss_unimportant=rounded(losses[name][0]),
            loss_important=rounded(losses[name][1]),
            extra_rounds=rounded(
                sum(float(cost(loss)) for cost, loss in zip(curves[name], losses[name], strict=True))
            ),
        )
        for name in (entry.name for entry in plan.gradient_classes)
    )
