"""Refines a plan's thresholds by simulation, and notes what that changed."""

from collections.abc import Callable
from functools import partial

from mltswitch.plan.document import Plan, PortProfile
from mltswitch.plan.fabric import CapabilityLookup
from mltswitch.planning.build import check_profile, completed
from mltswitch.planning.thresholds import ClassCurves, Key, PortSolver
from mltswitch.profile import ModelProfile
from mltswitch.queueing import QueueThresholds, SimulationSettings
from mltswitch.queueing.refine import Estimate, Refinement, refine
from mltswitch.units import format_bytes

PlanProgress = Callable[[str, int, int], None]
"""Called with a name of the ports at work, the simulations done for them, and the simulations expected."""


def refine_plan(
    plan: Plan,
    profile: ModelProfile,
    capabilities: CapabilityLookup,
    settings: SimulationSettings | None = None,
    *,
    progress: PlanProgress | None = None,
) -> Plan:
    """The plan with thresholds that the simulator prefers; all its figures are simulated from here on.

    Ports that share a problem share its refinement. The plan's loss model becomes `simulate`, and a note for
    each group of ports says what changed. The same plan and settings give the same result.

    Args:
        plan: a plan made with any loss model.
        profile: the model profile that the plan was made for.
        capabilities: what the devices can do.
        settings: settings of each simulation.
        progress: called after each simulation.

    Raises:
        UserInputError: the profile is another one, or the simulator cannot express the traffic.
        MachineError: the simulator's extra is missing.
    """
    check_profile(plan, profile, "profile")
    given = settings or SimulationSettings()
    curves = ClassCurves(profile, plan.classes)
    solver = PortSolver(plan, curves, is_robust=len(plan.scenarios) > 1)
    groups: dict[tuple[Key, tuple[QueueThresholds, ...]], list[PortProfile]] = {}
    for entry in plan.port_profiles:
        groups.setdefault((solver.key(entry), _start(entry)), []).append(entry)
    refined: dict[object, PortProfile] = {}
    notes: list[str] = []
    for (_, start), members in groups.items():
        name = ", ".join(f"{entry.platform} {entry.role}" for entry in members)
        outcome = refine(
            solver.problem(members[0]), start, given, progress=progress and partial(progress, name)
        )
        notes.append(_note(plan, name, outcome, given, members[0].packet_bytes))
        for entry in members:
            refined[entry.key] = solver.with_optimum(entry, outcome.optimum, capabilities)
    simulated = plan.model_copy(
        update={
            "provenance": plan.provenance.model_copy(update={"queueing_model": "simulate"}),
            "port_profiles": tuple(refined[entry.key] for entry in plan.port_profiles),
        }
    )
    return completed(simulated, curves, capabilities, given, tuple(notes))


def _start(profile: PortProfile) -> tuple[QueueThresholds, ...]:
    """The thresholds that the plan has, in whole packets."""
    return tuple(
        QueueThresholds(
            float(max(1, queue.ecn_threshold_bytes // profile.packet_bytes)),
            float(profile.length_bytes(queue.limit) // profile.packet_bytes),
        )
        for queue in profile.queues
        if queue.ecn_threshold_bytes is not None
    )


def _note(plan: Plan, name: str, outcome: Refinement, settings: SimulationSettings, packet_bytes: int) -> str:
    count = outcome.optimum.evaluations
    how = f"{count} simulations of {settings.packets:,} packets at most, seed {settings.seed}"
    before = f"{name}: thresholds of the loss model '{plan.provenance.queueing_model}'"
    if not outcome.has_changed:
        rounds = _text(outcome.rounds_before)
        return f"{before} stay; {how}, found nothing better than {rounds} extra rounds (simulated)"
    changes = ", ".join(
        f"{entry.name} {_lengths(old, new, packet_bytes)}"
        for entry, old, new in zip(
            plan.gradient_classes, outcome.before, outcome.optimum.thresholds, strict=True
        )
        if old != new
    )
    return (
        f"{before} refined by {how}: {changes}; in all {_text(outcome.rounds_before)} → "
        f"{_text(outcome.rounds_after)} extra rounds (simulated)"
    )


def _lengths(old: QueueThresholds, new: QueueThresholds, packet_bytes: int) -> str:
    parts: list[str] = []
    for name, before, after in (
        ("S", old.ecn_threshold_packets, new.ecn_threshold_packets),
        ("L", old.limit_packets, new.limit_packets),
    ):
        if before != after:
            sizes = (format_bytes(int((length or 0) * packet_bytes)) for length in (before, after))
            parts.append(f"{name} {' → '.join(sizes)}")
    return " ".join(parts)


def _text(figure: Estimate) -> str:
    return f"{figure.value:.3g} ± {figure.error:.2g}"
