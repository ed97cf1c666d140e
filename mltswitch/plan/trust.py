"""Which DSCPs the packets of an untrusted port may not carry, and which ports cannot rewrite them."""

from collections.abc import Sequence
from itertools import groupby

from mltswitch.capabilities import Capabilities
from mltswitch.plan.document import ClassKind, TrafficClass
from mltswitch.plan.elements import Port, Switch
from mltswitch.wire.tos import every_dscp_but


def background_dscp(classes: Sequence[TrafficClass]) -> int:
    """The DSCP that switches write into packets that may not be of another class."""
    return min(classes[-1].dscp, default=0)


def forbidden_dscps(classes: Sequence[TrafficClass], port: Port) -> tuple[int, ...]:
    """Code points that packets arriving at a port may not keep: a later switch would believe them."""
    if not port.trusted:
        return every_dscp_but(background_dscp(classes))
    if not port.peer_is_host:
        return ()
    control = (entry for entry in classes if entry.kind is ClassKind.NETWORK_CONTROL)
    return tuple(sorted(dscp for entry in control for dscp in entry.dscp))


def leak(classes: Sequence[TrafficClass], switch: Switch, device: Capabilities) -> str:
    """A sentence that names the ports by which forbidden code points reach other switches; empty: there is no
    such port."""
    if device.rewrites_code_points or all(port.peer_is_host for port in switch.ports):
        return ""
    ports = [(port.name, bool(forbidden_dscps(classes, port))) for port in switch.ports]
    if not any(leaks for _, leaks in ports):
        return ""
    return (
        f"packets that come by {_runs(ports)} keep code points that they may not use, and the switches "
        f"behind believe them: {device.platform} is not known to rewrite DSCPs port by port"
    )


def _runs(ports: Sequence[tuple[str, bool]]) -> str:
    """Ports that leak, as runs of neighbours."""
    runs = [[name for name, _ in run] for leaks, run in groupby(ports, lambda port: port[1]) if leaks]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
