"""Chooses the thresholds of a plan's ports by solving one optimisation problem for all ports that share
it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
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
from mltswitch.plan.document import (
    PLANNED_LOAD,
    ClassKind,
    Plan,
    PortProfile,
    QueueSettings,
    ScenarioPrediction,
    TrafficClass,
)
from mltswitch.plan.fabric import CapabilityLookup, Fabric, ScenarioEntry
from mltswitch.planning.memory import PortMemory
from mltswitch.planning.notes import port_names
from mltswitch.planning.predict import port_problem, rounded
from mltswitch.profile import Curve, ModelProfile, queue_curves
from mltswitch.queueing import (
    Optimum,
    QueueObjective,
    QueueThresholds,
    Scenario,
    ThresholdProblem,
    kind_of,
    optimise,
)
from mltswitch.units import format_ratio, format_seconds, frame_bytes, packets_to_bytes

Curves = tuple[Curve, Curve]
Key = tuple[object, ...]
"""Identifies an optimisation problem: ports with equal keys share one solution."""

CALLS_EXPECTED: Final = 44
"""About how many calls of a loss model one problem takes, for a progress bar."""

USUAL_BYTES: Final = frame_bytes(1500)
FEWEST_PACKETS: Final = 10
"""The least default limit in packets: TCP's initial window (RFC 6928)."""

INCAST_SENDERS: Final = 4
"""How many senders' bursts meet in the default incast scenario, on fabrics with enough hosts."""
BELOW: Final = ScenarioEntry(load_factor=0.75, weight=0.15)
ABOVE: Final = ScenarioEntry(load_factor=1.15, weight=0.1)
INCAST_WEIGHT: Final = 0.15
BUSY_WEIGHT: Final = 0.15
"""Weight of the scenario with the planned load while all ports of a switch are congested."""

SolveProgress = Callable[[int, int], None]
"""Called with the calls of the loss model so far and the number that is expected."""


def planned_scenarios(
    fabric: Fabric, most_senders: int, *, shares_memory: bool
) -> tuple[ScenarioPrediction, ...]:
    """The scenarios to plan for: the planned load first, then the fabric's or the default ones; weights sum
    to 1.

    Args:
        fabric: the fabric, whose `traffic` may list scenarios.
        most_senders: the most hosts that can send to one port at once.
        shares_memory: whether a switch's ports share packet memory; then all ports busy is a scenario, too.
    """
    traffic = fabric.traffic
    most_senders = max(1, most_senders)
    entries = list(traffic.scenarios)
    if not entries:
        entries = [BELOW, ABOVE]
        if traffic.arrivals == "bursts" and most_senders > 1:
            senders = min(INCAST_SENDERS, most_senders)
            entries.append(ScenarioEntry(senders=senders, weight=INCAST_WEIGHT))
    entries = [entry.model_copy(update={"senders": min(entry.senders, most_senders)}) for entry in entries]
    planned = ScenarioEntry(weight=traffic.planned_weight)
    total = planned.weight + sum(entry.weight for entry in entries) + BUSY_WEIGHT * shares_memory
    busy = ScenarioPrediction(
        name="all ports busy", load_factor=1.0, all_ports_busy=True, weight=BUSY_WEIGHT / total
    )
    made = tuple(
        ScenarioPrediction(
            name=PLANNED_LOAD.name if entry is planned else _scenario_name(entry),
            load_factor=entry.load_factor,
            senders=entry.senders,
            burst_packets=entry.burst_packets,
            weight=entry.weight / total,
        )
        for entry in (planned, *entries)
    )
    return (*made, busy) if shares_memory else made


def _scenario_name(entry: ScenarioEntry) -> str:
    parts = [f"{entry.load_factor:g} times the load"] if entry.load_factor != 1 else []
    parts += [f"{entry.senders} senders at once"] if entry.senders > 1 else []
    parts += [f"bursts of {entry.burst_packets}"] if entry.burst_packets is not None else []
    return ", ".join(parts) or "the load again"


def fixed_limits_packets(classes: Classes, packet_bytes: int) -> dict[str, int]:
    """Limits in packets of the classes without gradients, by name; a lossless class has the operator's and is
    left out.

    A default is for packets of the usual size. For jumbo frames there are fewer, or these queues, which hold
    next to nothing, would take most of a port's buffer from the gradients.
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
    """Extra training rounds as functions of each gradient class's loss, summed over its layers once."""

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
    classes: tuple[TrafficClass, ...], fabric: Fabric, packet_bytes: int, rate_bps: int, memory: PortMemory
) -> tuple[QueueSettings, ...]:
    """Queue settings of all classes before thresholds are chosen: a gradient queue holds one packet below its
    ECN threshold, and one above."""
    fixed = fixed_limits_packets(fabric.classes, packet_bytes)
    gradients = [entry.name for entry in classes if entry.kind is ClassKind.GRADIENT]
    seconds = map(rounded, fabric.delay_bounds_seconds(len(gradients), rate_bps))
    bounds = dict(zip(gradients, seconds, strict=True))
    return tuple(
        QueueSettings(
            traffic_class=entry.name,
            ecn_threshold_bytes=packet_bytes if entry.kind is ClassKind.GRADIENT else None,
            limit=_first_limit(entry.kind, memory, packets_to_bytes(fixed.get(entry.name, 2), packet_bytes)),
            delay_bound_seconds=bounds.get(entry.name),
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
    """Finds the thresholds of all port profiles of one plan."""

    plan: Plan
    curves: ClassCurves
    is_robust: bool
    """Whether the ECN threshold S must hold a burst and the class's share of an incast, and the limit L
    lie a burst above S; else one packet each.
    """

    def problem(self, profile: PortProfile) -> ThresholdProblem:
        """The optimisation problem of these ports: what is chosen, and within which bounds.

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
            limit = None
            if entry.all_ports_busy and profile.crowded_bytes is not None:
                limit = profile.crowded_bytes // profile.packet_bytes
            scenarios.append(Scenario(entry.weight, traffic, limit))
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
            is_cap_firm=plan.fabric.classes.gradients.delay_bound_seconds is not None,
        )

    def key(self, profile: PortProfile) -> Key:
        """A key that is equal for port profiles with the same optimisation problem."""
        return (
            profile.packet_seconds if self.plan.fabric.traffic.jitter_seconds else None,
            profile.packet_bytes,
            profile.load,
            profile.buffer_bytes,
            profile.crowded_bytes,
            tuple(
                (profile.length_bytes(queue.limit), queue.limit.kind == "bytes") for queue in profile.queues
            ),
            self._delay_bounds(profile),
        )

    def _delay_bounds(self, profile: PortProfile) -> tuple[float, ...]:
        bounds = self.plan.fabric.delay_bounds_seconds(len(self.plan.gradient_classes), profile.rate_bps)
        return tuple(bound / profile.packet_seconds for bound in bounds)

    def objectives(self, profile: PortProfile) -> tuple[QueueObjective, ...]:
        """For each gradient class, what its losses cost and the least that its thresholds must hold."""
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
            # A bound that the fabric gives leaves no room that would break it; a burst breaks the default.
            is_given = plan.fabric.classes.gradients.delay_bound_seconds is not None
            most = max(1, int(bound) // 2) if is_given else burst + others
            cap = max(1, int(bound)) if is_given else max(burst, int(bound))
            made.append(
                QueueObjective(
                    rounds_unimportant=unimportant,
                    rounds_important=important,
                    tolerances=(entry.loss_bound_unimportant or 0.0, entry.loss_bound_important or 0.0),
                    least_threshold_packets=min(most, cap, burst + others) if self.is_robust else 1,
                    least_margin_packets=min(most, burst) if self.is_robust else 1,
                    most_threshold_packets=cap,
                    delay_bound_packet_times=bound if is_given else None,
                )
            )
        return tuple(made)

    def solve(
        self, capabilities: CapabilityLookup, progress: SolveProgress | None = None
    ) -> tuple[tuple[PortProfile, ...], tuple[str, ...]]:
        """The port profiles with their best thresholds, in steps that the devices allow, and notes on delay
        bounds.

        Raises:
            UserInputError: a buffer is too small, or no thresholds keep the delay bounds.
            UnsupportedPlanError: a device's thresholds cannot be so large or so small.
        """
        model, profiles = self.plan.provenance.queueing_model, self.plan.port_profiles
        groups: dict[Key, list[PortProfile]] = {}
        for profile in profiles:
            groups.setdefault(self.key(profile), []).append(profile)
        solved: dict[Key, Optimum] = {}
        done = 0
        for place, (key, group) in enumerate(groups.items()):
            most = done + CALLS_EXPECTED * (len(groups) - place)

            def told(calls: int, done: int = done, most: int = most) -> None:
                if progress is not None:
                    progress(done + calls, max(most, done + calls))

            # Where bursts arrive fastest they lose most: what serves there serves the others.
            hardest = max(group, key=lambda entry: entry.source_rate_ratio)
            solved[key] = optimise(self.problem(hardest), model, progress=told)
            done += solved[key].evaluations
        found = [(entry, solved[self.key(entry)]) for entry in profiles]
        made = tuple(self.with_optimum(entry, optimum, capabilities) for entry, optimum in found)
        return made, tuple(_bound_notes(self.plan, found))

    def with_optimum(
        self, profile: PortProfile, optimum: Optimum, capabilities: CapabilityLookup
    ) -> PortProfile:
        """The profile with these optimal thresholds, rounded to bytes that the device can be set to, and
        their cost.

        The ECN threshold S is rounded up to the device's step, and down where too few packets would be
        left above it or it would lie above its bound.

        Raises:
            UnsupportedPlanError: the device's largest threshold is smaller.
        """
        device = capabilities(profile.platform, profile.hardware)
        chosen = zip(optimum.thresholds, self.objectives(profile), strict=True)
        queues = tuple(
            queue if queue.ecn_threshold_bytes is None else _fitted(queue, *next(chosen), profile, device)
            for queue in profile.queues
        )
        return PortProfile(
            **dict(profile) | {"queues": queues, "extra_rounds": rounded(optimum.extra_rounds)}
        )


def _bound_notes(plan: Plan, solved: Sequence[tuple[PortProfile, Optimum]]) -> Iterator[str]:
    """What the delay bounds cost, and what came before them, a sentence each."""
    given, kind = plan.fabric.classes.gradients.delay_bound_seconds, kind_of(plan.provenance.queueing_model)
    held = [(profile, found) for profile, found in solved if found.loss_of_caps]
    if held:
        planned, worst = (
            " and ".join(
                f"{format_ratio(max(own[when][place] for _, found in held for own in found.loss_of_caps))} "
                f"of the {which}"
                for place, which in enumerate(("unimportant", "important"))
            )
            for when in (0, 1)
        )
        yield (
            f"{port_names(plan, (profile for profile, _ in held))}: delay bounds hold S below what memory "
            f"allows; for that a port loses up to {planned} packets of a class more at the planned load, "
            f"{worst} in the worst scenario ({kind})"
        )
    if most := max(found.stretch for _, found in solved) - 1:
        yield (
            f"{port_names(plan, (profile for profile, found in solved if found.stretch > 1))}: the loss "
            "tolerance at the planned load won over the default delay bounds: S is up to "
            f"{most + 1} times what a port sends in them (a bound that the fabric gives is kept)"
        )
    bursts = plan.fabric.gradient_bursts(len(plan.gradient_classes))
    won = "the burst, as the bound is the default," if given is None else "the bound, as the fabric gives it,"
    for entry, burst in zip(plan.gradient_classes, bursts, strict=True):
        short = [
            (queue.delay_bound_seconds, profile)
            for profile, _ in solved
            for queue in profile.queues
            if queue.traffic_class == entry.name
            and queue.delay_bound_seconds is not None
            and burst * profile.packet_seconds > max(queue.delay_bound_seconds, profile.packet_seconds)
        ]
        if short:
            bound = format_seconds(min(bound for bound, _ in short))
            yield (
                f"{port_names(plan, (profile for _, profile in short))}: one burst of {entry.name}, {burst} "
                f"packets, takes longer than its delay bound of {bound}: {won} won"
            )


def _fitted(
    queue: QueueSettings,
    limits: QueueThresholds,
    objective: QueueObjective,
    profile: PortProfile,
    device: Capabilities,
) -> QueueSettings:
    """S and L of a queue in the device's steps."""
    can, packet_bytes, limit = device.threshold, profile.packet_bytes, queue.limit
    if isinstance(limit, BytesLimit):
        size = min(int(limits.limit_packets) * packet_bytes, device.limit.maximum_bytes)
        limit = BytesLimit(max(1, size // device.limit.step_bytes) * device.limit.step_bytes)
    room = profile.length_bytes(limit, is_crowded=True)
    most = room - min(objective.least_margin_packets, 1 + room // packet_bytes // 2) * packet_bytes
    threshold = int(limits.ecn_threshold_packets or 0) * packet_bytes
    cap = (objective.most_threshold_packets or inf) * packet_bytes
    steps, fewer = -(-threshold // can.step_bytes), threshold // can.step_bytes
    is_late = steps * can.step_bytes > cap >= threshold
    holds_burst = fewer * can.step_bytes >= objective.least_threshold_packets * packet_bytes
    if steps * can.step_bytes > most or (is_late and holds_burst):
        steps = fewer
    threshold = min(max(steps * can.step_bytes, can.minimum_bytes), can.maximum_bytes)
    if threshold > profile.length_bytes(limit):
        raise UnsupportedPlanError(
            f"the least ECN threshold of {device.hardware}, {can.minimum_bytes} B, lies above the limit of "
            f"{queue.traffic_class}, {limit}",
            where=f"{profile.platform} {profile.role}",
            hint="a larger buffer or fewer gradient classes",
        )
    return queue.model_copy(update={"ecn_threshold_bytes": threshold, "limit": limit, "prediction": None})
