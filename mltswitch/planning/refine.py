"""A plan whose thresholds are refined by simulation, and what that changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UserInputError
from mltswitch.plan.document import Plan, PortProfile
from mltswitch.plan.fabric import Fabric
from mltswitch.plan.resolve import CapabilityLookup
from mltswitch.planning.build import completed
from mltswitch.planning.thresholds import ClassCurves, PortSolver, with_optimum
from mltswitch.profile import ModelProfile, profile_sha256
from mltswitch.queueing import Optimum, QueueThresholds, SimulationSettings, ThresholdProblem
from mltswitch.queueing.refine import EVALUATIONS, Estimate, QueueChange, Refinement, refine
from mltswitch.units import format_bytes

PlanProgress = Callable[[str, int, int], None]
"""(the ports at work, simulations done for them, simulations at most)."""


def refine_plan(
    plan: Plan,
    profile: ModelProfile,
    capabilities: CapabilityLookup,
    settings: SimulationSettings | None = None,
    *,
    evaluations: int = EVALUATIONS,
    progress: PlanProgress | None = None,
) -> Plan:
    """The plan with thresholds that the simulator prefers; all its figures are simulated from here on.

    Ports that share a problem share its refinement. The plan's loss model becomes `simulate`, and a note for
    each group of ports says what changed. Where S had to rise from class to class it still has to. The same
    plan and settings give the same result.

    Args:
        plan: of any loss model.
        profile: the one that the plan was made for.
        capabilities: what the devices can do.
        settings: of each simulation.
        evaluations: simulations of each search at most.
        progress: told after each simulation.

    Raises:
        UserInputError: another profile, or traffic that the simulator cannot express.
        MachineError: the simulator's extra is missing.
    """
    if profile_sha256(profile) != plan.provenance.profile_sha256:
        raise UserInputError(f"{profile.name} is not the profile that the plan was made for", where="profile")
    given = settings or SimulationSettings()
    curves = ClassCurves(profile, plan.classes)
    groups = _groups(plan, PortSolver(plan, curves), capabilities)
    refined: dict[object, PortProfile] = {}
    notes: list[str] = []
    for group in groups:
        outcome = refine(
            group.problem,
            group.start,
            given,
            evaluations=evaluations,
            progress=_reported(progress, group.name),
        )
        notes.append(_note(plan, group, outcome, given))
        for entry in group.profiles:
            refined[entry.key] = with_optimum(entry, outcome.optimum, group.problem)
    simulated = plan.model_copy(
        update={
            "provenance": plan.provenance.model_copy(update={"queueing_model": "simulate"}),
            "fabric": _with_order(plan),
            "port_profiles": tuple(refined[entry.key] for entry in plan.port_profiles),
        }
    )
    made = completed(simulated, curves, simulation=given)
    return made.model_copy(update={"notes": (*made.notes, *notes)})


def _with_order(plan: Plan) -> Fabric:
    """With the order of S written out: its default follows the loss model, which is another from here on."""
    fabric = plan.fabric
    is_ordered = fabric.classes.gradients.is_ordered(plan.provenance.queueing_model)
    gradients = fabric.classes.gradients.model_copy(update={"ordered_thresholds": is_ordered})
    return fabric.model_copy(update={"classes": fabric.classes.model_copy(update={"gradients": gradients})})


@dataclass(frozen=True, slots=True)
class _Group:
    """Port profiles with one problem and one starting point."""

    problem: ThresholdProblem
    start: Optimum
    profiles: list[PortProfile] = field(default_factory=list)

    @property
    def name(self) -> str:
        return ", ".join(f"{entry.platform} {entry.role}" for entry in self.profiles)


def _groups(plan: Plan, solver: PortSolver, capabilities: CapabilityLookup) -> list[_Group]:
    groups: dict[tuple[ThresholdProblem, Optimum], _Group] = {}
    for profile in plan.port_profiles:
        problem = solver.problem(profile, capabilities(profile.platform, profile.hardware))
        start = _start(profile)
        groups.setdefault((problem, start), _Group(problem, start)).profiles.append(profile)
    return list(groups.values())


def _start(profile: PortProfile) -> Optimum:
    """The thresholds that the plan has."""
    thresholds = tuple(
        QueueThresholds(
            queue.ecn_threshold_bytes / profile.packet_bytes,
            queue.limit.size_bytes / profile.packet_bytes,
        )
        for queue in profile.queues
        if queue.ecn_threshold_bytes is not None and isinstance(queue.limit, BytesLimit)
    )
    return Optimum(thresholds, profile.extra_rounds or 0.0, 0.0, 0.0, profile.method or "thresholds as given")


def _reported(progress: PlanProgress | None, name: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, most: progress(name, done, most)


def _note(plan: Plan, group: _Group, outcome: Refinement, settings: SimulationSettings) -> str:
    how = f"{outcome.simulations} simulations of {settings.packets:,} packets at most, seed {settings.seed}"
    found = f"{group.name}: thresholds of the loss model '{plan.provenance.queueing_model}'"
    if not outcome.has_changed:
        rounds = _text(outcome.rounds_before)
        return f"{found} stay; {how}, found nothing better than {rounds} extra rounds (simulated)"
    changes = _changes(plan, outcome.queues, group.profiles[0].packet_bytes)
    return (
        f"{found} refined by {how}: {changes}; in all {_text(outcome.rounds_before)} → "
        f"{_text(outcome.rounds_after)} extra rounds (simulated)"
    )


def _changes(plan: Plan, queues: Sequence[QueueChange], packet_bytes: int) -> str:
    return ", ".join(
        f"{entry.name} {_lengths(change, packet_bytes)} ({_text(change.rounds_before)} → "
        f"{_text(change.rounds_after)})"
        for entry, change in zip(plan.gradient_classes, queues, strict=True)
        if change.before != change.after
    )


def _lengths(change: QueueChange, packet_bytes: int) -> str:
    parts: list[str] = []
    for name, before, after in (
        ("S", change.before.ecn_threshold_packets, change.after.ecn_threshold_packets),
        ("L", change.before.limit_packets, change.after.limit_packets),
    ):
        if before != after:
            old, new = (format_bytes(int((length or 0) * packet_bytes)) for length in (before, after))
            parts.append(f"{name} {old} → {new}")
    return " ".join(parts)


def _text(figure: Estimate) -> str:
    return f"{figure.value:.3g} ± {figure.error:.2g}"
