"""What a reader should know about a plan's thresholds, as one sentence each."""

from collections.abc import Iterable, Iterator

from mltswitch.capabilities import Unlimited
from mltswitch.capabilities.hardware import packet_memory
from mltswitch.plan.document import Plan, PortProfile
from mltswitch.planning.memory import DEFAULT, described_pool_bytes
from mltswitch.units import format_bytes, format_ratio


def plan_notes(plan: Plan) -> Iterator[str]:
    """Notes on what the loss model ignores, on loads above the rate cap, and on unused code points."""
    yield from _ignored_traffic(plan)
    yield from _loads_above_cap(plan)
    unused = plan.fabric.classes.gradients.dscp[len(plan.gradient_classes) :]
    if unused:
        yield (
            f"{len(plan.gradient_classes)} gradient classes: DSCP {' '.join(map(str, unused))} of "
            "classes.gradients are not used and count as background"
        )
    yield from _guaranteed_background(plan)
    yield from _pools_as_delivered(plan)
    unknown = {
        f"{entry.platform} {entry.hardware}"
        for entry in plan.port_profiles
        if entry.crowded_bytes is None and any(isinstance(queue.limit, Unlimited) for queue in entry.queues)
    }
    if unknown:
        yield (
            f"{', '.join(sorted(unknown))}: nobody says how much packet memory the ports share, so S is not "
            "kept below what a queue gets while all of them are busy (memory in the fabric file says it)"
        )


def _pools_as_delivered(plan: Plan) -> Iterator[str]:
    """A push expects the pool of SONiC's own templates, however much of the chip the fabric describes."""
    memory = plan.fabric.memory
    for profile in {(entry.platform, entry.hardware): entry for entry in plan.port_profiles}.values():
        name = profile.hardware if profile.hardware in memory else DEFAULT
        if name not in memory or profile.pool_bytes is None:
            continue
        described = described_pool_bytes(memory[name], packet_memory(profile.hardware))
        if described > profile.pool_bytes:
            yield (
                f"{profile.platform} {profile.hardware}: counted with its pool as delivered, "
                f"{format_bytes(profile.pool_bytes)}, not the {format_bytes(described)} of memory.{name}"
            )


def _guaranteed_background(plan: Plan) -> Iterator[str]:
    """The loss models know strict priority alone."""
    for entry in plan.classes:
        if entry.guaranteed_share and entry.load:
            share = format_ratio(entry.guaranteed_share)
            yield (
                f"the loss models serve {entry.name} last: where a switch guarantees its {share} of a port, "
                "it fares better than predicted, and gradients lose up to that share of the port more"
            )


def _ignored_traffic(plan: Plan) -> Iterator[str]:
    """`simulate` follows everything; `completion` is exact only for bursts that come at once."""
    traffic, model = plan.fabric.traffic, plan.provenance.queueing_model
    largest = max(plan.fabric.gradient_bursts(len(plan.gradient_classes)), default=1)
    if model == "completion" and traffic.arrivals == "incast":
        yield (
            "the loss model 'completion' takes an incast epoch for one burst of the backlog that it leaves, "
            "at random times; `--refine simulate` plays the epochs themselves"
        )
    elif model == "completion" and largest > 1:
        yield (
            "bursts that take time to arrive are an approximation in "
            "the loss model 'completion', good to about a factor of 2; `--refine simulate` plays them exactly"
        )
    if model != "paper":  # for which packets come singly, at random
        return
    given = [f"arrivals {traffic.arrivals}"] if traffic.arrivals != "bursts" else []
    given += [
        f"{name} {value:g}"
        for name, value in (
            ("burst_packets", largest),
            ("source_rate_ratio", traffic.source_rate_ratio or 1.0),
        )
        if value != 1
    ]
    if given:
        yield f"the loss model '{model}' ignores {' and '.join(given)}"


def _loads_above_cap(plan: Plan) -> Iterator[str]:
    cap = min(
        (entry.rate_cap_share for entry in plan.gradient_classes if entry.rate_cap_share is not None),
        default=None,
    )
    if cap is None:
        return
    for load in sorted({profile.load for profile in plan.port_profiles if profile.load > cap}):
        ports = port_names(plan, (profile for profile in plan.port_profiles if profile.load == load))
        yield (
            f"{ports}: gradients are planned at load {load:g}, above the cap {cap:g} that senders should "
            "keep for background's sake"
        )


def port_names(plan: Plan, profiles: Iterable[PortProfile]) -> str:
    """A phrase that names the ports of these profiles by their roles, or `all ports`."""
    roles = sorted({profile.role for profile in profiles})
    if len(roles) == len({profile.role for profile in plan.port_profiles}):
        return "all ports"
    return f"{' and '.join(roles)} ports"
