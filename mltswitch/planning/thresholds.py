"""Thresholds of a plan's ports: the optimisation problem of each, solved once for all ports that share it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from mltswitch.capabilities import BytesLimit, Capabilities, Limit, Unlimited
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan.class_document import (
    BackgroundClass,
    Classes,
    ControlClass,
    NetworkControlClass,
    OtherClass,
)
from mltswitch.plan.document import ClassKind, Plan, PortProfile, QueueSettings, TrafficClass
from mltswitch.planning.memory import PortMemory
from mltswitch.planning.predict import port_problem, rounded
from mltswitch.profile import Curve, ModelProfile, queue_curves
from mltswitch.queueing import (
    Optimum,
    QueueObjective,
    QueueThresholds,
    Scenario,
    ThresholdProblem,
    optimise,
)
from mltswitch.units import frame_bytes, packets_to_bytes

Curves = tuple[Curve, Curve]
Key = tuple[object, ...]
"""What tells one problem from another."""

CALLS_EXPECTED: Final = 24
"""Calls of a loss model for one problem, about: for a progress bar."""

USUAL_BYTES: Final = frame_bytes(1500)
FEWEST_PACKETS: Final = 10
"""Least default limit: what TCP sends at once at first (RFC 6928)."""

SolveProgress = Callable[[int, int], None]
"""(calls of the loss model so far, calls that are expected)."""


def fixed_limits_packets(classes: Classes, packet_bytes: int) -> dict[str, int]:
    """Limits of the classes that are no gradients, by name; a lossless class has the operator's.

    A default is for packets of the usual size. Of jumbo frames it is fewer, or these queues, which hold next
    to nothing, would take most of a port's buffer from the gradients.
    """
    entries: dict[str, NetworkControlClass | ControlClass | BackgroundClass | OtherClass] = {
        "network-control": classes.network_control,
        "control": classes.control,
        "background": classes.background,
        **{entry.name: entry for entry in classes.others if not entry.lossless},
    }
    limits: dict[str, int] = {}
    for name, entry in entries.items():
        limits[name] = limit = entry.limit_packets
        if "limit_packets" not in entry.model_fields_set:
            fewer = ceil(limit * USUAL_BYTES / packet_bytes)
            limits[name] = min(limit, max(FEWEST_PACKETS, fewer))
    return limits


class ClassCurves:
    """Extra rounds over the loss of each gradient class, summed over its layers once."""

    def __init__(self, profile: ModelProfile, classes: tuple[TrafficClass, ...]) -> None:
        self._curves: dict[str, Curves] = {
            entry.name: queue_curves(profile, entry.layers.first, entry.layers.last)
            for entry in classes
            if entry.layers is not None
        }

    def __getitem__(self, traffic_class: str) -> Curves:
        """(unimportant, important)."""
        return self._curves[traffic_class]


def provisional_queues(
    classes: tuple[TrafficClass, ...], given: Classes, packet_bytes: int, memory: PortMemory
) -> tuple[QueueSettings, ...]:
    """Settings of all classes before thresholds are chosen: gradients have a packet below S and one above."""
    fixed = fixed_limits_packets(given, packet_bytes)
    return tuple(
        QueueSettings(
            traffic_class=entry.name,
            ecn_threshold_bytes=packet_bytes if entry.kind is ClassKind.GRADIENT else None,
            limit=_first_limit(entry.kind, memory, packets_to_bytes(fixed.get(entry.name, 2), packet_bytes)),
        )
        for entry in classes
    )


def _first_limit(kind: ClassKind, memory: PortMemory, size_bytes: int) -> Limit:
    if kind is ClassKind.LOSSLESS:
        return Unlimited()
    if kind is ClassKind.GRADIENT and memory.limit is not None:
        return memory.limit
    return memory.fixed_limit(size_bytes)


@dataclass(frozen=True, slots=True)
class PortSolver:
    """Thresholds of the port profiles of one plan."""

    plan: Plan
    curves: ClassCurves
    is_robust: bool
    """S holds a burst and the class's share of an incast, and L lies a burst above; else a packet each."""

    def problem(self, profile: PortProfile) -> ThresholdProblem:
        """What is to be chosen on these ports, and within which bounds.

        Raises:
            UserInputError: the buffer is too small for the gradient classes.
        """
        plan = self.plan
        scenarios = []
        for entry in plan.scenarios:
            port, traffic, thresholds = port_problem(
                plan,
                profile,
                load=profile.load * entry.load_factor,
                burst_packets=entry.burst_packets,
                senders=entry.senders,
            )
            scenarios.append(Scenario(entry.weight, traffic))
        fixed = tuple(
            None if entry.kind is ClassKind.GRADIENT else limits
            for entry, limits in zip(plan.classes, thresholds, strict=True)
        )
        first = next(queue for queue in profile.queues if queue.ecn_threshold_bytes is not None)
        is_bytes = isinstance(first.limit, BytesLimit)
        taken = sum(
            ceil(queue.limit.size_bytes / profile.packet_bytes)
            for queue in profile.queues
            if queue.ecn_threshold_bytes is None and isinstance(queue.limit, BytesLimit)
        )
        free = profile.buffer_bytes // profile.packet_bytes - taken
        queues = len(plan.gradient_classes)
        least = 2 * queues if is_bytes else 2
        if free < least:
            raise UserInputError(
                f"{profile.buffer_bytes} B on {profile.role} ports leave {max(0, free)} packets of "
                f"{profile.packet_bytes} B for {queues} gradient queues after {taken} packets for the other "
                "classes",
                where="ports.buffer",
                expected=f"at least {packets_to_bytes(least + taken, profile.packet_bytes)} B",
            )
        return ThresholdProblem(
            port=port,
            scenarios=tuple(scenarios),
            fixed=fixed,
            objectives=self.objectives(profile),
            buffer_packets=free,
            hops=plan.hops,
            shared_limit_packets=None
            if is_bytes
            else profile.length_bytes(first.limit) // profile.packet_bytes,
            is_ordered=plan.fabric.classes.gradients.ordered_thresholds,
        )

    def key(self, profile: PortProfile) -> Key:
        """Equal for port profiles that one solution serves."""
        return (
            profile.packet_seconds if self.plan.fabric.traffic.jitter_seconds else None,
            profile.packet_bytes,
            profile.load,
            profile.buffer_bytes,
            tuple(
                (profile.length_bytes(queue.limit), queue.limit.kind == "bytes") for queue in profile.queues
            ),
            self._delay_bounds(profile),
        )

    def _delay_bounds(self, profile: PortProfile) -> tuple[float | None, ...]:
        bounds = self.plan.fabric.delay_bounds_seconds(len(self.plan.gradient_classes))
        return tuple(None if bound is None else bound / profile.packet_seconds for bound in bounds)

    def objectives(self, profile: PortProfile) -> tuple[QueueObjective, ...]:
        """What losses of each gradient class cost, and what its thresholds hold at least."""
        plan = self.plan
        entries = plan.gradient_classes
        bursts = plan.fabric.gradient_bursts(len(entries))
        total = sum(entry.load for entry in entries) or 1.0
        senders = max(entry.senders for entry in plan.scenarios)
        made: list[QueueObjective] = []
        for entry, burst, bound in zip(entries, bursts, self._delay_bounds(profile), strict=True):
            unimportant, important = self.curves[entry.name]
            # A burst of each further sender, of which this class has its part.
            others = ceil((senders - 1) * burst * entry.load / total)
            # A bound of the delay leaves no room that would break it.
            most = burst + others if bound is None else max(1, int(bound) // 2)
            made.append(
                QueueObjective(
                    rounds_unimportant=unimportant,
                    rounds_important=important,
                    tolerances=(entry.loss_bound_unimportant or 0.0, entry.loss_bound_important or 0.0),
                    least_threshold_packets=min(most, burst + others) if self.is_robust else 1,
                    least_margin_packets=min(most, burst) if self.is_robust else 1,
                    delay_bound_packet_times=bound,
                )
            )
        return tuple(made)


def solve_ports(
    solver: PortSolver,
    profiles: tuple[PortProfile, ...],
    devices: Callable[[PortProfile], Capabilities],
    progress: SolveProgress | None = None,
) -> tuple[PortProfile, ...]:
    """The profiles with their best thresholds, in the device's steps.

    Raises:
        UserInputError: a buffer is too small, or no thresholds keep the delay bounds.
        UnsupportedPlanError: a device's thresholds cannot be so large or so small.
    """
    model = solver.plan.provenance.queueing_model
    groups: dict[Key, list[PortProfile]] = {}
    for profile in profiles:
        groups.setdefault(solver.key(profile), []).append(profile)
    solved: dict[Key, Optimum] = {}
    done = 0
    for place, (key, group) in enumerate(groups.items()):
        most = done + CALLS_EXPECTED * (len(groups) - place)

        def told(calls: int, done: int = done, most: int = most) -> None:
            if progress is not None:
                progress(done + calls, max(most, done + calls))

        # Where bursts arrive fastest they lose most: what serves there serves the others.
        hardest = max(group, key=lambda entry: entry.source_rate_ratio)
        solved[key] = optimise(solver.problem(hardest), model, progress=told)
        done += solved[key].evaluations
    margins = tuple(objective.least_margin_packets for objective in solver.objectives(profiles[0]))
    return tuple(
        with_optimum(entry, solved[solver.key(entry)], devices(entry), margins) for entry in profiles
    )


def with_optimum(
    profile: PortProfile, optimum: Optimum, device: Capabilities, margins: Sequence[int]
) -> PortProfile:
    """The profile with these thresholds, in bytes that the device can be set to, and what they cost.

    S is rounded up to the device's step, and down where fewer than `margins` packets would be left above it.

    Raises:
        UnsupportedPlanError: the device's largest threshold is smaller.
    """
    chosen = zip(optimum.thresholds, margins, strict=True)
    queues = tuple(
        queue if queue.ecn_threshold_bytes is None else _fitted(queue, *next(chosen), profile, device)
        for queue in profile.queues
    )
    return PortProfile(**dict(profile) | {"queues": queues, "extra_rounds": rounded(optimum.extra_rounds)})


def _fitted(
    queue: QueueSettings,
    limits: QueueThresholds,
    margin_packets: int,
    profile: PortProfile,
    device: Capabilities,
) -> QueueSettings:
    """S and L of a queue in the device's steps."""
    can, packet_bytes, limit = device.threshold, profile.packet_bytes, queue.limit
    if isinstance(limit, BytesLimit):
        size = min(int(limits.limit_packets) * packet_bytes, device.limit.maximum_bytes)
        limit = BytesLimit(max(1, size // device.limit.step_bytes) * device.limit.step_bytes)
    most = (
        profile.length_bytes(limit) - min(margin_packets, 1 + int(limits.limit_packets) // 2) * packet_bytes
    )
    threshold = int(limits.ecn_threshold_packets or 0) * packet_bytes
    steps = -(-threshold // can.step_bytes)
    if steps * can.step_bytes > most:
        steps = threshold // can.step_bytes
    threshold = min(max(steps * can.step_bytes, can.minimum_bytes), can.maximum_bytes)
    if threshold > profile.length_bytes(limit):
        raise UnsupportedPlanError(
            f"the least ECN threshold of {device.hardware}, {can.minimum_bytes} B, lies above the limit of "
            f"{queue.traffic_class}, {limit}",
            where=f"{profile.platform} {profile.role}",
            hint="a larger buffer or fewer gradient classes",
        )
    return queue.model_copy(update={"ecn_threshold_bytes": threshold, "limit": limit, "prediction": None})
