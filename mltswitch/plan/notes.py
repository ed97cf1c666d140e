"""What a plan's reader should know of its thresholds, in a sentence each."""

from collections.abc import Iterable, Iterator

from mltswitch.capabilities import BytesLimit
from mltswitch.plan.document import Plan, PortProfile, QueueSettings


def plan_notes(plan: Plan) -> Iterator[str]:
    """What the model ignores, loads above the cap, classes that never mark, optima that are refined."""
    yield from _ignored_traffic(plan)
    yield from _loads_above_cap(plan)
    yield from _classes_without_marks(plan)
    unused = plan.fabric.classes.gradients.dscp[len(plan.gradient_classes) :]
    if unused:
        yield (
            f"{len(plan.gradient_classes)} gradient classes: DSCP {' '.join(map(str, unused))} of "
            "classes.gradients are not used and count as background"
        )
    refined = [profile for profile in plan.port_profiles if profile.optimum == "refined"]
    if refined:
        yield (
            f"{_ports(plan, refined)}: thresholds are the best of a grid, refined; not every combination "
            "was compared"
        )


def _ignored_traffic(plan: Plan) -> Iterator[str]:
    traffic = plan.fabric.traffic
    given = [
        f"{name} {value:g}"
        for name, value in (
            ("burst_packets", traffic.burst_packets),
            ("source_rate_ratio", traffic.source_rate_ratio),
        )
        if value != 1
    ]
    if given:
        yield f"the loss model '{plan.provenance.queueing_model}' ignores {' and '.join(given)}"


def _loads_above_cap(plan: Plan) -> Iterator[str]:
    cap = min(
        (entry.rate_cap_share for entry in plan.gradient_classes if entry.rate_cap_share is not None),
        default=None,
    )
    if cap is None:
        return
    for load in sorted({profile.load for profile in plan.port_profiles if profile.load > cap}):
        ports = _ports(plan, (profile for profile in plan.port_profiles if profile.load == load))
        yield (
            f"{ports}: gradients are planned at load {load:g}, above the cap {cap:g} that senders should "
            "keep for background's sake"
        )


def _classes_without_marks(plan: Plan) -> Iterator[str]:
    for entry in plan.gradient_classes:
        unmarked = [
            profile
            for profile in plan.port_profiles
            if any(queue.traffic_class == entry.name and _never_marks(queue) for queue in profile.queues)
        ]
        if unmarked:
            yield f"{_ports(plan, unmarked)}: {entry.name} has S = L, nothing is marked"


def _never_marks(queue: QueueSettings) -> bool:
    return isinstance(queue.limit, BytesLimit) and queue.limit.size_bytes == queue.ecn_threshold_bytes


def _ports(plan: Plan, profiles: Iterable[PortProfile]) -> str:
    """Ports of one role share their setting on all platforms, so the roles name them."""
    roles = sorted({profile.role for profile in profiles})
    if len(roles) == len({profile.role for profile in plan.port_profiles}):
        return "all ports"
    return f"{' and '.join(roles)} ports"
