"""Where a plan's thresholds cannot do what they should, and how far the load may move before they fail."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final

from mltswitch.capabilities import AlphaLimit, BytesLimit
from mltswitch.plan.document import Plan, PortProfile, QueueSettings, TrafficClass
from mltswitch.plan.topology_document import PortRole
from mltswitch.planning.evaluate import alike
from mltswitch.planning.notes import port_names
from mltswitch.planning.predict import predict_port
from mltswitch.profile import Curve
from mltswitch.queueing import SimulationSettings, kind_of
from mltswitch.units import format_bytes, format_ratio

MOST_PREDICTIONS: Final = 20
"""Of one port each; what a plan may wait for."""
FARTHEST: Final = 2.0
"""Times the planned load; nobody asks what lies beyond."""
BISECTIONS: Final = 6
"""Halvings of the interval between the planned load and 0 or FARTHEST: to 3 % of the planned load."""
SIMULATION: Final = SimulationSettings(packets=400_000, replications=8)
"""Short, for a plan whose own model is the simulation."""

Losses = dict[str, tuple[float, float]]
"""Gradient class → end-to-end loss of unimportant and of important packets."""
Concern = Callable[[PortProfile, QueueSettings], str]
"""Why one queue's thresholds are doubtful; empty where they are not."""


@dataclass(frozen=True, slots=True)
class Findings:
    """A sentence each."""

    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def loss_bound(curve: Curve) -> float | None:
    """Loss ratio up to which training takes no extra round; None where the first loss costs some."""
    points = zip(curve.loss_ratios, curve.extra_rounds, strict=True)
    for (ratio, _), (_, next_rounds) in pairwise(points):
        if next_rounds > 0:
            return ratio or None
    return 1.0


def lint(plan: Plan) -> Findings:
    """What to doubt in a plan whose ports have predictions, under its own loss model."""
    warnings = [
        *_by_queue(plan, _never_full),
        *_by_queue(plan, _below_a_burst(plan)),
        *_by_queue(plan, _unsegmented(plan)),
    ]
    bounded = [entry for entry in plan.gradient_classes if _has_bound(entry)]
    if not bounded:
        return Findings((), tuple(warnings))
    losses = _worst_path(plan, 1.0)
    broken = list(_broken(plan, bounded, losses))
    warnings += [f"{text}: training may need extra rounds" for text in broken]
    operating_point = _operating_point(plan, bounded, is_broken=bool(broken))
    return Findings(() if broken else (operating_point,), (*warnings, *([operating_point] if broken else [])))


def _by_queue(plan: Plan, concern: Concern) -> Iterator[str]:
    """One sentence for each class and reason, naming all ports that share it."""
    for entry in plan.gradient_classes:
        found: dict[str, list[PortProfile]] = {}
        for profile in plan.port_profiles:
            for queue in profile.queues:
                if queue.traffic_class == entry.name and (text := concern(profile, queue)):
                    found.setdefault(text, []).append(profile)
        for text, profiles in found.items():
            yield f"{port_names(plan, profiles)}: {text}"


def _never_full(profile: PortProfile, queue: QueueSettings) -> str:
    """A queue that comes to rest below its S never marks."""
    threshold, pool = queue.ecn_threshold_bytes or 0, profile.pool_bytes
    if isinstance(queue.limit, AlphaLimit):
        most = pool and queue.limit.resting_bytes(pool)
        what = f"{queue.limit} of a pool of {format_bytes(pool or 0)}"
    elif isinstance(queue.limit, BytesLimit):
        most, what = pool, "the whole shared pool"
    else:
        most, what = profile.buffer_bytes, "the port's buffer"
    if most is None or threshold < most:
        return ""
    return (
        f"S of {queue.traffic_class}, {format_bytes(threshold)}, lies above what the queue can fill: {what} "
        f"holds it at {format_bytes(most)}, so nothing is marked and importance does not count"
    )


def _below_a_burst(plan: Plan) -> Concern:
    count = len(plan.gradient_classes)
    names = [entry.name for entry in plan.gradient_classes]
    bursts = dict(zip(names, plan.fabric.gradient_bursts(count), strict=True))

    def concern(profile: PortProfile, queue: QueueSettings) -> str:
        burst = bursts[queue.traffic_class]
        threshold = (queue.ecn_threshold_bytes or 0) / profile.packet_bytes
        if burst == 1 or threshold >= burst:
            return ""
        return (
            f"S of {queue.traffic_class}, {threshold:.4g} packets, lies below one burst of {burst}: where it "
            "comes at once, unimportant packets are lost even in an empty queue"
        )

    return concern


def _unsegmented(plan: Plan) -> Concern:
    """Virtual ports pass a segmentation-offload burst whole, and a queue tests it once."""

    def concern(profile: PortProfile, queue: QueueSettings) -> str:
        burst_bytes = plan.paths.burst_packets * profile.packet_bytes
        threshold = queue.ecn_threshold_bytes or 0
        if not profile.shaped or plan.paths.burst_packets == 1 or burst_bytes <= threshold:
            return ""
        return (
            f"one segmentation-offload burst, {format_bytes(burst_bytes)}, is larger than S of "
            f"{queue.traffic_class}, {format_bytes(threshold)}: a virtual port passes it unsegmented and "
            "tests it once, so the queue overshoots S by a multiple"
        )

    return concern


def _has_bound(entry: TrafficClass) -> bool:
    return entry.loss_bound_unimportant is not None or entry.loss_bound_important is not None


def _broken(plan: Plan, bounded: list[TrafficClass], losses: Losses) -> Iterator[str]:
    kind = kind_of(plan.provenance.queueing_model)
    for entry in bounded:
        bounds = (entry.loss_bound_unimportant, entry.loss_bound_important)
        for what, loss, bound in zip(("unimportant", "important"), losses[entry.name], bounds, strict=True):
            if bound is not None and loss > bound:
                yield (
                    f"{entry.name} loses {format_ratio(loss)} of its {what} packets from end to end "
                    f"({kind}), more than its bound of {format_ratio(bound)}"
                )


def _operating_point(plan: Plan, bounded: list[TrafficClass], *, is_broken: bool) -> str:
    """Bisects the load, all ports together, for the least at which a class exceeds its bound."""
    planned = plan.fabric.traffic.load
    steps = min(BISECTIONS, MOST_PREDICTIONS // len(_distinct(plan)) - 1)
    holds, fails = (0.0, 1.0) if is_broken else (1.0, FARTHEST)
    first = next(_broken(plan, bounded, _worst_path(plan, fails)), None)
    if first is None:
        kind = kind_of(plan.provenance.queueing_model)
        return f"no class exceeds its loss bound up to {FARTHEST:g} times the planned load ({kind})"
    for _ in range(steps):
        middle = (holds + fails) / 2
        there = next(_broken(plan, bounded, _worst_path(plan, middle)), None)
        if there is None:
            holds = middle
        else:
            fails, first = middle, there
    end = f"{fails * planned:.3g} ({fails:.3g} times the planned {planned:g})"
    if holds == 0.0:
        return f"the plan holds at no load that was tried, down to {end}"
    return f"the plan holds below gradient load {end}: there {first}"


def _distinct(plan: Plan) -> list[tuple[PortProfile, ...]]:
    """Ports whose losses differ; where there are too many, those with the most load."""
    by_load = sorted(alike(plan), key=lambda group: group[0].load, reverse=True)
    return by_load[: MOST_PREDICTIONS // 2]


def _worst_path(plan: Plan, scale: float) -> Losses:
    """End-to-end losses with all gradient loads scaled: 1 - Π(1 - r) over one worst port of each role."""
    worst: dict[str, dict[PortRole, tuple[float, float]]] = {}
    for group in _distinct(plan):
        first = group[0]
        if scale == 1.0 and all(queue.prediction is not None for queue in first.queues):
            figures = {queue.traffic_class: queue.prediction for queue in first.queues if queue.prediction}
        else:
            figures = predict_port(plan, first, load=first.load * scale, simulation=SIMULATION)
        for role in {profile.role for profile in group}:
            for name, figure in figures.items():
                seen = worst.setdefault(name, {}).get(role, (0.0, 0.0))
                losses = (max(seen[0], figure.loss_unimportant), max(seen[1], figure.loss_important))
                worst[name][role] = losses
    return {
        name: (
            1 - prod(1 - loss for loss, _ in by_role.values()),
            1 - prod(1 - loss for _, loss in by_role.values()),
        )
        for name, by_role in worst.items()
    }
