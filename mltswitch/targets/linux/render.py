"""State in the language of `tc -batch` and `ip -batch`."""

from collections.abc import Iterable
from math import ceil
from typing import Final

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.linux.tree import Tree, filter_order, trees
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.targets.template import render_template
from mltswitch.units import BITS_PER_BYTE, ETHERNET_HEADER_BYTES

QDISC_FILE: Final = "qdiscs.tc"
ROUTE_FILE: Final = "routes.ip"
ROUTE_PROTOCOL: Final = 173
"""Marks a route as ours; no entry of iproute2's rt_protos has it."""

LARGEST_FRAME_BYTES: Final = 9216 + ETHERNET_HEADER_BYTES
"""The shaper drops every packet above its burst, so that no burst may be smaller."""
SHAPER_SLACK_SECONDS: Final = 100e-6
"""How late a timer may wake the shaper without loss of rate."""


def render_files(state: SwitchState) -> dict[str, str]:
    """The two batch files, each complete in itself; raises UnsupportedPlanError for a limit not in bytes."""
    for port in state.ports:
        for queue in port.queues:
            if not isinstance(queue.limit, BytesLimit):
                raise UnsupportedPlanError(
                    f"limit {queue.limit} is not in bytes", where=f"port {port.name}, queue {queue.queue}"
                )
    ports = {name: port_text(name, tree) for name, tree in trees(state).items()}
    routes = [route_text(route) for route in state.routes]
    return {
        QDISC_FILE: render_template("linux/qdiscs.tc.j2", ports=ports),
        ROUTE_FILE: render_template("linux/routes.ip.j2", routes=routes, protocol=ROUTE_PROTOCOL),
    }


def port_text(name: str, tree: Tree) -> str:
    """Lines for `tc -batch` that build one port, whatever stood there before."""
    return render_template(
        "linux/port.tc.j2",
        name=name,
        tree=tree,
        filters=sorted(tree.filters, key=filter_order),
        shaper_burst_bytes=shaper_burst_bytes(tree.shaped_bps or 0),
    )


def shaper_burst_bytes(rate_bps: int) -> int:
    """Bytes that the shaper may send at once: one frame, or what a late timer has to make up for."""
    return max(LARGEST_FRAME_BYTES, ceil(rate_bps / BITS_PER_BYTE * SHAPER_SLACK_SECONDS))


def route_text(route: RouteState) -> str:
    """A route as `ip route` takes it; a next hop of 0.0.0.0 is a network on the link itself."""
    via = "" if route.next_hop.is_unspecified else f" via {route.next_hop}"
    return f"{route.prefix}{via} dev {route.port} proto {ROUTE_PROTOCOL}"


def route_lines(action: str, routes: Iterable[RouteState]) -> list[str]:
    """Lines for `ip -batch`; `action` is add, replace or del."""
    return [f"route {action} {route_text(route)}" for route in routes]
