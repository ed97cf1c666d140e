"""What a plan asks for and a device cannot do, where the rest of the plan is worth having all the same."""

from collections.abc import Iterator

from mltswitch.capabilities import Capabilities
from mltswitch.plan import ClassKind, Plan, Switch
from mltswitch.units import format_ratio


def shortfalls_of(plan: Plan, switch: Switch, capabilities: Capabilities) -> Iterator[str]:
    """What nothing of the state can say on this device; who leans on it has to know."""
    background, control = (
        next((entry for entry in plan.classes if entry.kind is kind), None)
        for kind in (ClassKind.BACKGROUND, ClassKind.CONTROL)
    )
    if background and background.guaranteed_share is not None and capabilities.minimum_bandwidth is None:
        yield (
            f"{background.name} is not guaranteed its {format_ratio(background.guaranteed_share)} of a port: "
            "only the senders' rate cap keeps gradients from starving it"
        )
    if control and control.rate_cap_share is not None and capabilities.maximum_bandwidth is None:
        yield (
            f"{control.name} is not held to {format_ratio(control.rate_cap_share)} of a port: a host that "
            "sends more of it starves the gradients"
        )
    if not capabilities.remaps_host_control and any(port.peer_is_host for port in switch.ports):
        yield "CS6 and CS7 from hosts are believed: one DSCP map serves all ports"
