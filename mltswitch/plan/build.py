"""From a model profile and a fabric to a Plan: the compiler's middle."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from mltswitch import __version__
from mltswitch.capabilities import BytesLimit, Capabilities
from mltswitch.documents import sha256
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan.classes import gradient_class_count, traffic_classes
from mltswitch.plan.document import (
    PLAN_SCHEMA,
    ClassKind,
    LayerRange,
    PathPrediction,
    Paths,
    Plan,
    PortProfile,
    Provenance,
    QueueSettings,
    TrafficClass,
)
from mltswitch.plan.fabric import Fabric, PortNames, PortRole, SwitchGroup
from mltswitch.plan.notes import plan_notes
from mltswitch.plan.predict import class_loads, predict_port, rounded
from mltswitch.plan.topology import Topology
from mltswitch.profile import ModelProfile, profile_sha256, queue_curves
from mltswitch.queueing import (
    MODELS,
    GradientQueue,
    Optimum,
    least_buffer_packets,
    optimise,
    utilisations,
)
from mltswitch.units import bytes_to_packets, frame_bytes, packets_to_bytes

CapabilityLookup = Callable[[str, str | None], Capabilities]
"""(platform, hardware or None for its default) → capabilities; raises UserInputError for unknown ones."""

ALIAS_RULE = "address = alias prefix of the spine + host index"


def build_plan(
    profile: ModelProfile, fabric: Fabric, capabilities: CapabilityLookup, model: str = "paper"
) -> Plan:
    """The plan of one model on one fabric; the same input gives the same plan.

    Raises:
        UserInputError: a value of the fabric does not fit, or the model is unknown.
        UnsupportedPlanError: a device has too few queues.
    """
    if model not in MODELS:
        raise UserInputError(f"unknown loss model {model!r}", expected=f"one of {', '.join(MODELS)}")
    resolved = resolve_fabric(fabric, capabilities)
    topology = Topology(resolved)
    _check_ports(topology, capabilities)
    free_queues = [
        (switch.name, len(capabilities(switch.platform, switch.hardware).queues), str(switch.hardware))
        for switch in topology.switches
    ]
    count = gradient_class_count(resolved, free_queues, len(profile.layers))
    classes = traffic_classes(profile, resolved, count)
    roles = {
        (switch.platform, str(switch.hardware), port.role)
        for switch in topology.switches
        for port in switch.ports
    }
    hops = 3 if any(role is PortRole.LEAF_UP for _, _, role in roles) else 1
    solver = _PortSolver(profile, resolved, classes, capabilities, hops)
    draft = Plan(
        schema=PLAN_SCHEMA,
        provenance=Provenance(
            tool_version=__version__,
            queueing_model=model,
            profile_name=profile.name,
            profile_sha256=profile_sha256(profile),
            fabric_sha256=sha256(fabric),
            sensitivity=profile.sensitivity.provenance,
        ),
        unimportant_share=profile.sensitivity.unimportant_share,
        classes=classes,
        port_profiles=tuple(solver.solve(*key) for key in sorted(roles)),
        end_to_end=(),
        hops=hops,
        paths=Paths(
            mode=resolved.spraying.mode, rule=ALIAS_RULE, burst_packets=resolved.traffic.burst_packets
        ),
        fabric=resolved,
    )
    profiles = tuple(_with_predictions(draft, entry) for entry in draft.port_profiles)
    return draft.model_copy(
        update={
            "port_profiles": profiles,
            "end_to_end": _end_to_end(profile, classes, profiles),
            "notes": tuple(plan_notes(draft)),
        }
    )


def _check_ports(topology: Topology, capabilities: CapabilityLookup) -> None:
    for switch in topology.switches:
        device = capabilities(switch.platform, switch.hardware)
        if device.port_count is not None and len(switch.ports) > device.port_count:
            raise UnsupportedPlanError(
                f"the fabric gives it {len(switch.ports)} ports, {device.hardware} has {device.port_count}",
                where=f"{switch.name}: topology",
            )


def resolve_fabric(fabric: Fabric, capabilities: CapabilityLookup) -> Fabric:
    """The fabric with every default of its devices written out, so that the plan needs nothing else."""
    topology = fabric.topology
    switches = tuple(
        entry.model_copy(update={"hardware": capabilities(entry.platform, entry.hardware).hardware})
        for entry in topology.switches
    )
    shape = topology.leaf_spine
    if shape is not None:
        spines, leaves = (_resolve_group(group, capabilities) for group in (shape.spines, shape.leaves))
        shape = shape.model_copy(update={"spines": spines, "leaves": leaves})
    resolved = topology.model_copy(update={"switches": switches, "leaf_spine": shape})
    return fabric.model_copy(update={"topology": resolved})


def _resolve_group(group: SwitchGroup, capabilities: CapabilityLookup) -> SwitchGroup:
    device = capabilities(group.platform, group.hardware)
    numbering = device.port_numbering
    names = group.port_names or PortNames(
        pattern=numbering.pattern, first=numbering.first, step=numbering.step
    )
    return group.model_copy(update={"hardware": device.hardware, "port_names": names})


@dataclass(frozen=True, slots=True)
class _PortSetting:
    """What decides a port's thresholds; ports that have it in common share one solution."""

    load: float
    buffer_packets: int


class _PortSolver:
    """Thresholds per (platform, hardware, role), each distinct problem solved once."""

    def __init__(
        self,
        profile: ModelProfile,
        fabric: Fabric,
        classes: tuple[TrafficClass, ...],
        capabilities: CapabilityLookup,
        hops: int,
    ) -> None:
        self._profile = profile
        self._fabric = fabric
        self._classes = classes
        self._capabilities = capabilities
        self._hops = hops
        self._packet_bytes = frame_bytes(fabric.ports.mtu_bytes)
        self._solved: dict[_PortSetting, Optimum] = {}

    def solve(self, platform: str, hardware: str, role: PortRole) -> PortProfile:
        """The port profile without predictions."""
        ports = self._fabric.ports
        override = ports.overrides.get(role)
        rate_bps = (override and override.rate_bps) or ports.rate_bps
        buffer_bytes = (override and override.buffer_bytes) or ports.buffer_bytes
        load = (override and override.load) or self._fabric.traffic.load
        pool_bytes = self._capabilities(platform, hardware).limit.pool_bytes
        if pool_bytes is not None and buffer_bytes > pool_bytes:
            raise UnsupportedPlanError(
                f"{buffer_bytes} B for one port is more than the whole pool of {hardware}, {pool_bytes} B",
                where=f"ports.buffer: {role} ports",
            )
        setting = _PortSetting(load, self._gradient_buffer_packets(buffer_bytes, role))
        if setting not in self._solved:
            self._solved[setting] = self._optimum(setting)
        optimum = self._solved[setting]
        return PortProfile(
            platform=platform,
            hardware=hardware,
            role=role,
            rate_bps=rate_bps,
            shaped=ports.shaped and self._capabilities(platform, hardware).can_shape,
            packet_bytes=self._packet_bytes,
            buffer_bytes=buffer_bytes,
            load=load,
            queues=self._queues(optimum),
            extra_rounds=rounded(optimum.extra_rounds),
            optimum="global" if optimum.is_global else "refined",
        )

    def _fixed_limits(self) -> dict[ClassKind, int]:
        classes = self._fabric.classes
        return {
            ClassKind.NETWORK_CONTROL: classes.network_control.limit_packets,
            ClassKind.CONTROL: classes.control.limit_packets,
            ClassKind.BACKGROUND: classes.background.limit_packets,
        }

    def _gradient_buffer_packets(self, buffer_bytes: int, role: PortRole) -> int:
        fixed = sum(self._fixed_limits().values())
        free = bytes_to_packets(buffer_bytes, self._packet_bytes) - fixed
        gradients = sum(entry.kind is ClassKind.GRADIENT for entry in self._classes)
        least = least_buffer_packets(gradients)
        if free < least:
            raise UserInputError(
                f"{buffer_bytes} B on {role} ports leave {max(free, 0)} packets of {self._packet_bytes} B "
                f"for {gradients} gradient queues after {fixed} packets for the other classes",
                where="ports.buffer",
                expected=f"at least {packets_to_bytes(least + fixed, self._packet_bytes)} B",
            )
        return free

    def _optimum(self, setting: _PortSetting) -> Optimum:
        rho = utilisations(class_loads(self._classes, self._fabric.traffic.load, setting.load))
        queues = [
            self._queue(entry.layers, float(utilisation))
            for entry, utilisation in zip(self._classes, rho, strict=True)
            if entry.layers is not None
        ]
        return optimise(queues, setting.buffer_packets, self._hops)

    def _queue(self, layers: LayerRange, utilisation: float) -> GradientQueue:
        unimportant, important = queue_curves(self._profile, layers.first, layers.last)
        return GradientQueue(
            utilisation=utilisation,
            unimportant_share=self._profile.sensitivity.unimportant_share,
            byte_share=layers.size_bytes / self._profile.total_bytes,
            rounds_unimportant=unimportant,
            rounds_important=important,
        )

    def _queues(self, optimum: Optimum) -> tuple[QueueSettings, ...]:
        fixed = self._fixed_limits()
        gradients = zip(optimum.ecn_thresholds_packets, optimum.limits_packets, strict=True)
        settings: list[QueueSettings] = []
        for entry in self._classes:
            threshold = None
            if entry.kind is ClassKind.GRADIENT:
                threshold, limit = next(gradients)
            else:
                limit = fixed[entry.kind]
            settings.append(
                QueueSettings(
                    traffic_class=entry.name,
                    ecn_threshold_bytes=threshold and packets_to_bytes(threshold, self._packet_bytes),
                    limit=BytesLimit(packets_to_bytes(limit, self._packet_bytes)),
                )
            )
        return tuple(settings)


def _with_predictions(plan: Plan, profile: PortProfile) -> PortProfile:
    predictions = predict_port(plan, profile)
    queues = tuple(
        queue.model_copy(update={"prediction": predictions[queue.traffic_class]}) for queue in profile.queues
    )
    return profile.model_copy(update={"queues": queues})


def _end_to_end(
    profile: ModelProfile, classes: tuple[TrafficClass, ...], port_profiles: tuple[PortProfile, ...]
) -> tuple[PathPrediction, ...]:
    """Loss over one port of each role, on the worst platform: 1 - Π(1 - r)."""
    predictions: list[PathPrediction] = []
    for entry in classes:
        if entry.layers is None:
            continue
        unimportant = _path_loss(port_profiles, entry.name, "loss_unimportant")
        important = _path_loss(port_profiles, entry.name, "loss_important")
        curves = queue_curves(profile, entry.layers.first, entry.layers.last)
        rounds = float(curves[0](unimportant)) + float(curves[1](important))
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
