"""Checks where a plan's thresholds cannot do what they should, and how far the load may move before they
fail."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Final

from mltswitch.plan.document import Plan, PortProfile, QueueSettings, ScenarioPrediction, TrafficClass
from mltswitch.planning.evaluate import scaled_buffer
from mltswitch.planning.notes import port_names
from mltswitch.planning.predict import Losses, path_losses
from mltswitch.profile import Curve
from mltswitch.queueing import SimulationSettings, kind_of
from mltswitch.units import format_bytes, format_ratio

FARTHEST: Final = 2.0
"""The largest load that is tried, as a multiple of the planned load."""
BISECTIONS: Final = 4
"""Halvings of the interval between the planned load and 0 or FARTHEST: to 6 % of the planned load."""
LARGER_BUFFERS: Final = (1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
"""Multiples of the buffer that are tried to find what a class would need."""
SIMULATION: Final = SimulationSettings(packets=400_000, replications=8)
"""Settings of the short simulations for a plan whose own loss model is the simulation."""

FirstBroken = Callable[..., str | None]
"""From (plan, load factor, burst), a text that says which loss exceeds its tolerance there; None: none
does."""
Concern = Callable[[PortProfile, QueueSettings], str]
"""Says why one queue's thresholds are doubtful; empty where they are not."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check of a plan has found, a sentence for each finding."""

    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    unmet: tuple[str, ...] = ()
    """Gradient classes beyond their tolerance at the planned load, and what they would need."""


def loss_bound(curve: Curve) -> float | None:
    """Loss ratio up to which training takes no extra round; None where the first loss costs some."""
    points = zip(curve.loss_ratios, curve.extra_rounds, strict=True)
    for (ratio, _), (_, next_rounds) in pairwise(points):
        if next_rounds > 0:
            return ratio or None
    return 1.0


def lint(plan: Plan, progress: Callable[[int, int], None] | None = None) -> Findings:
    """Checks a plan whose ports have predictions, under its own loss model.

    Args:
        plan: the plan, with its predictions.
        progress: called after each load, buffer and burst tried, with their number and the expected total.
    """
    concerns = (_never_reached, _below_a_burst(plan), _unsegmented(plan))
    warnings = tuple(text for concern in concerns for text in _by_queue(plan, concern))
    bounded = [
        entry
        for entry in plan.gradient_classes
        if entry.loss_bound_unimportant is not None or entry.loss_bound_important is not None
    ]
    if not bounded:
        return Findings((), warnings)
    broken = list(_broken(plan, bounded, _losses(plan)))
    largest = max(plan.fabric.gradient_bursts(len(plan.gradient_classes)), default=1)
    most = BISECTIONS + (len(LARGER_BUFFERS) + largest.bit_length() if broken else 1)
    tried = count(1)

    def first_broken(of: Plan, load_factor: float = 1.0, burst_packets: int | None = None) -> str | None:
        found = _first_broken(of, bounded, load_factor, burst_packets)
        if progress is not None:
            progress(min(next(tried), most), most)
        return found

    if not broken:
        return Findings((_operating_point(plan, first_broken),), warnings)
    needed = _needed(plan, first_broken)
    return Findings((), warnings, tuple(f"{text}; {needed}" for text in broken))


def _tightest(plan: Plan) -> Plan:
    """The plan with one port of each role, that of the least buffer: it often fails first."""
    by_buffer = sorted(plan.port_profiles, key=lambda profile: profile.buffer_bytes, reverse=True)
    return plan.model_copy(update={"port_profiles": tuple({p.role: p for p in by_buffer}.values())})


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


def _never_reached(profile: PortProfile, queue: QueueSettings) -> str:
    """A queue that comes to rest below its S never marks: ever, or while all ports of the switch are busy."""
    threshold, limit = queue.ecn_threshold_bytes or 0, queue.limit
    for is_crowded, when in ((False, ""), (True, "while all ports of the switch are busy, ")):
        most = profile.length_bytes(limit, is_crowded=is_crowded)
        if threshold >= most:
            return (
                f"S of {queue.traffic_class}, {format_bytes(threshold)}, lies above what the queue can fill, "
                f"{when}{format_bytes(most)} ({limit}), so nothing is marked and importance does not count"
            )
    return ""


def _below_a_burst(plan: Plan) -> Concern:
    names = [entry.name for entry in plan.gradient_classes]
    bursts = dict(zip(names, plan.fabric.gradient_bursts(len(names)), strict=True))

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


def _broken(plan: Plan, bounded: list[TrafficClass], losses: Losses) -> Iterator[str]:
    kind = kind_of(plan.provenance.queueing_model)
    for entry in bounded:
        bounds = (entry.loss_bound_unimportant, entry.loss_bound_important)
        for what, loss, bound in zip(("unimportant", "important"), losses[entry.name], bounds, strict=True):
            if bound is not None and loss > bound:
                yield (
                    f"{entry.name} loses {format_ratio(loss)} of its {what} packets from end to end "
                    f"({kind}), more than its tolerance of {format_ratio(bound)}"
                )


def _losses(plan: Plan, load_factor: float = 1.0, burst_packets: int | None = None) -> Losses:
    scenario = ScenarioPrediction(name="", load_factor=load_factor, burst_packets=burst_packets, weight=1.0)
    return path_losses(plan, scenario, SIMULATION)


def _first_broken(
    plan: Plan, bounded: list[TrafficClass], load_factor: float = 1.0, burst_packets: int | None = None
) -> str | None:
    """What is beyond its tolerance there, on any port; None: nothing. Few ports are asked before all."""
    for ports in (_tightest(plan), plan):
        losses = _losses(ports, load_factor, burst_packets)
        found = next(_broken(ports, bounded, losses), None)
        if found is not None:
            return found
    return None


def _edge(
    plan: Plan, first_broken: FirstBroken, holds: float, fails: float
) -> tuple[float, float, str | None]:
    """(load that holds, load that fails, what fails there or None), between two such loads."""
    first: str | None = None
    for _ in range(BISECTIONS):
        middle = (holds + fails) / 2
        there = first_broken(plan, middle)
        if there is None:
            holds = middle
        else:
            fails, first = middle, there
    return holds, fails, first


def _operating_point(plan: Plan, first_broken: FirstBroken) -> str:
    """The least load, of all ports together, at which a class exceeds its tolerance."""
    planned = plan.fabric.traffic.load
    first = first_broken(plan, FARTHEST)
    if first is None:
        kind = kind_of(plan.provenance.queueing_model)
        return f"no class exceeds its tolerance up to {FARTHEST:g} times the planned load ({kind})"
    _, fails, nearer = _edge(plan, first_broken, 1.0, FARTHEST)
    return (
        f"the plan holds below gradient load {fails * planned:.3g} ({fails:.3g} times the planned "
        f"{planned:g}): there {nearer or first}"
    )


def _needed(plan: Plan, first_broken: FirstBroken) -> str:
    """Where most is lost, and what would keep every class within its tolerance, each alone."""
    worst = max(plan.port_profiles, key=_lost)
    ways: list[str] = []
    for factor in LARGER_BUFFERS:
        if first_broken(scaled_buffer(plan, factor)) is None:
            most = format_bytes(int(factor * worst.buffer_bytes))
            fewer = ", or fewer busy_ports in memory" if worst.congested_queues > 1 else ""
            ways.append(f"{factor:g} times the buffer ({most} a port there{fewer})")
            break
    burst = max(plan.fabric.gradient_bursts(len(plan.gradient_classes)), default=1)
    while burst > 1:
        burst //= 2
        if first_broken(plan, burst_packets=burst) is None:
            ways.append(f"bursts of {burst} packet{'s' if burst > 1 else ''}")
            break
    low, *_ = _edge(plan, first_broken, 0.0, 1.0)
    if low:
        ways.append(f"a gradient load of {low * plan.fabric.traffic.load:.2g}")
    place = f"{worst.platform} {worst.hardware} {worst.role} ports lose most"
    if not ways:
        return f"{place}; no buffer, burst or load that was tried helps"
    return f"{place}; it would hold with {', or '.join(ways)}"


def _lost(profile: PortProfile) -> float:
    """Losses of all queues of a port, added up."""
    said = [queue.prediction for queue in profile.queues if queue.ecn_threshold_bytes is not None]
    return sum(own.loss_unimportant + own.loss_important for own in said if own is not None)
