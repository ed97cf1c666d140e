"""What a plan's spray mode asks of one switch beside the alias routes."""

from mltswitch.plan import Plan, Segments, Switch
from mltswitch.targets.state import SegmentRouteState, SegmentRouting


def segment_routing(plan: Plan, switch: Switch) -> SegmentRouting | None:
    """Locator and routes, where the plan sprays by segment lists."""
    block = plan.fabric.addressing.segments
    if block is None:
        return None
    rules = Segments(block, plan.fabric.addressing)
    return SegmentRouting(
        rules.own_locator(switch),
        tuple(
            SegmentRouteState(route.prefix, route.next_hop, route.port)
            for route in rules.routes(switch, plan.topology.tier_index)
        ),
    )
