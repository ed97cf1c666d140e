"""What a plan's spray mode asks of one switch beside the alias routes."""

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan import Plan, Segments, Switch
from mltswitch.targets.state import SegmentRouteState, SegmentRouting


def segment_routing(plan: Plan, switch: Switch, capabilities: Capabilities) -> SegmentRouting | None:
    """Locator and routes, where the plan sprays by segment lists; raises UnsupportedPlanError."""
    block = plan.fabric.addressing.segments
    if block is None:
        return None
    if capabilities.segment_routing is None:
        raise UnsupportedPlanError(
            f"no SRv6 can be configured on {capabilities.hardware} under {capabilities.platform}",
            where=f"{switch.name}: spraying.mode",
            expected="alias",
        )
    rules = Segments(block, plan.fabric.addressing)
    return SegmentRouting(
        rules.own_locator(switch),
        tuple(
            SegmentRouteState(route.prefix, route.next_hop, route.port)
            for route in rules.routes(switch, plan.topology.tier_index)
        ),
    )


def packet_spraying(plan: Plan, switch: str, capabilities: Capabilities) -> bool:
    """Whether the switch is to choose paths packet by packet; raises UnsupportedPlanError."""
    if plan.paths.mode != "packet":
        return False
    if capabilities.packet_spraying is None:
        raise UnsupportedPlanError(
            f"{capabilities.hardware} under {capabilities.platform} cannot choose among equal-cost routes "
            "packet by packet",
            where=f"{switch}: spraying.mode",
            expected="alias",
        )
    return True
