"""What a plan asks for and a device cannot do, where the rest of the plan is worth having all the same."""

from collections.abc import Iterator

from mltswitch.capabilities import Capabilities
from mltswitch.plan import ClassKind, Plan, Switch
from mltswitch.units import format_ratio


def shortfalls_of(plan: Plan, switch: Switch, capabilities: Capabilities) -> Iterator[str]:
    """What nothing of the state can say on this device; who leans on it has to know."""
    for entry in plan.classes:
        is_last = entry.kind is ClassKind.BACKGROUND
        if entry.guaranteed_share is not None and not capabilities.can_guarantee(is_last=is_last):
            yield (
                f"{entry.name} is not guaranteed its {format_ratio(entry.guaranteed_share)} of a port: "
                "only the senders' rate cap keeps gradients from starving it"
            )
        cap = entry.rate_cap_share if entry.kind is ClassKind.CONTROL else None
        if cap is not None and capabilities.maximum_bandwidth is None:
            yield (
                f"{entry.name} is not held to {format_ratio(cap)} of a port: a host that "
                "sends more of it starves the gradients"
            )
        if entry.kind is ClassKind.LOSSLESS:
            yield (
                f"{entry.name} keeps the scheduling, PFC and buffers that the switch has for its queue: "
                "mltswitch neither sets nor checks them"
            )
    if not capabilities.demotes_host_control and any(port.peer_is_host for port in switch.ports):
        yield "CS6 and CS7 from hosts are believed: one DSCP map serves all ports"
