"""State in the language of `tc -batch` and `ip -batch`."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from math import ceil
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import network_text
from mltswitch.targets.linux.layout import SHAPER, layout_of, paths, place
from mltswitch.targets.linux.tree import Tree, filter_order, rest_of_share, shares_of, trees
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import (
    QueueState,
    RouteState,
    SegmentRouteState,
    SegmentRouting,
    SwitchState,
    every_dscp_but,
)
from mltswitch.targets.template import render_template
from mltswitch.units import BITS_PER_BYTE, ETHERNET_HEADER_BYTES

QDISC_FILE: Final = "qdiscs.tc"
ROUTE_FILE: Final = "routes.ip"
ROUTE_PROTOCOL: Final = 173
"""Marks a route as ours; no entry of iproute2's rt_protos has it."""

FORWARDING: Final = "sysctl -q -w net.ipv6.conf.all.forwarding=1"
"""For SRv6. It stays on when a plan no longer needs it: others may, by then."""

LARGEST_FRAME_BYTES: Final = 9216 + ETHERNET_HEADER_BYTES
"""tbf drops every packet above its burst, so that no burst may be smaller."""
SHAPER_SLACK_SECONDS: Final = 100e-6
"""How late a timer may wake tbf without loss of rate."""
QUANTUM_BYTES: Final = 300
"""Of drr for each percent: 5 % is about one frame of 1,500 bytes a round."""
LEAST_BANDS: Final = 2
"""prio refuses fewer (linux net/sched/sch_prio.c, prio_tune)."""
LARGEST_SHARE: Final = 99
"""Percents of a port that drr can give the last queues together."""
CLSACT_LINES: Final = 2
"""First lines of a port: clsact, and what stood in it goes."""
PORT_MARK: Final = "@"
"""Stands for a port's name in text that is the same for several; no name of ours has it."""
ANY_PORT: Final = f" dev {PORT_MARK} "
"""How each line names its port."""


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`qdiscs.tc` and `routes.ip`."""
    del capabilities
    return render_files(state)


def render_files(state: SwitchState) -> dict[str, str]:
    """The two batch files, each complete in itself; raises UnsupportedPlanError for what tc has no words."""
    check_expressible(state)
    segments = state.segment_routing
    return {
        QDISC_FILE: render_template("linux/qdiscs.tc.j2", ports=_port_texts(state)),
        ROUTE_FILE: render_template(
            "linux/routes.ip.j2",
            routes=[route_text(route) for route in state.routes],
            protocol=ROUTE_PROTOCOL,
            segment_routes=[] if segments is None else segment_texts(segments),
        ),
    }


@remembering_last
def check_expressible(state: SwitchState) -> None:
    """Refuse what no filter and no qdisc can do; raises UnsupportedPlanError naming port and queue."""
    for port in {id(port.queues): port for port in state.ports}.values():
        queues = port.queues
        layout = layout_of(queues)
        for place_of, queue in enumerate(queues):
            problem = _problem(queue, has_share=place_of >= layout.count - layout.shares)
            if problem:
                raise UnsupportedPlanError(problem, where=f"port {port.name}, queue {queue.queue}")
        if len(queues) < LEAST_BANDS:
            raise UnsupportedPlanError(
                f"prio needs {LEAST_BANDS} bands or more", where=f"port {port.name}: classes"
            )
        if port.shaped_bps is not None and port.shaped_bps % BITS_PER_BYTE:
            raise UnsupportedPlanError(
                f"tc shapes to whole bytes per second, not to {port.shaped_bps} bit/s",
                where=f"port {port.name}: ports.rate",
                expected=f"a multiple of {BITS_PER_BYTE} bit/s",
            )
        if [queue.queue for queue in queues] != list(range(1, len(queues) + 1)):
            raise UnsupportedPlanError("queues are not numbered 1, 2, …", where=f"port {port.name}")
        if layout.ahead is not None and layout.ahead >= layout.count - layout.shares:
            raise UnsupportedPlanError(
                "no queue is left that could share with the last ones", where=f"port {port.name}"
            )
        if sum(shares_of(queues)) > LARGEST_SHARE:
            raise UnsupportedPlanError("the guarantees leave nothing to share", where=f"port {port.name}")
    _check_trust(state)
    segments = state.segment_routing
    if segments is not None and not segments.routes:
        raise UnsupportedPlanError(
            "SRv6 needs a route, on whose port a segment stands", where="segment routing"
        )


def _problem(queue: QueueState, *, has_share: bool) -> str:
    if queue.minimum is None and has_share:
        return "stands below a queue with a guarantee, and has none"
    if queue.maximum is not None and has_share:
        return "a queue with a guarantee cannot be held to a rate"
    return ""


def _check_trust(state: SwitchState) -> None:
    """Egress believes what ingress leaves."""
    everything = every_dscp_but(state.background_dscp)
    for port in state.ports:
        if port.trusted is (port.rewritten == everything):
            raise UnsupportedPlanError(
                "a port that is not trusted rewrites all code points, and no other does",
                where=f"port {port.name}",
            )


def _port_texts(state: SwitchState) -> dict[str, str]:
    """Port → its lines; ports of one kind share their tree, and all but the name."""
    ports = trees(state)
    kinds = {id(tree): tree for tree in ports.values()}
    pieces = {key: port_pieces(tree) for key, tree in kinds.items()}
    return {name: named(pieces[id(tree)], name) for name, tree in ports.items()}


def port_text(name: str, tree: Tree) -> str:
    """Lines for `tc -batch` that build one port, whatever stood there before."""
    return named(port_pieces(tree), name)


def named(pieces: Sequence[str], name: str) -> str:
    """The lines of `port_pieces` with a port's name."""
    return f" dev {name} ".join(pieces)


def port_pieces(tree: Tree) -> list[str]:
    """`port_body`, cut where the name of a port belongs."""
    return port_body(tree).split(ANY_PORT)


@lru_cache(maxsize=64)
def port_body(tree: Tree) -> str:
    """The same for any port."""
    rest = rest_of_share(tree.layout)
    return render_template(
        "linux/port.tc.j2",
        name=PORT_MARK,
        tree=tree,
        top="root" if tree.shaped_bps is None else f"parent {SHAPER}1",
        bands=list(zip(tree.bands, band_places(tree), strict=True)),
        marks=tree.rewriting.marks,
        first_filters=[entry for entry in tree.filters if entry == rest],
        filters=sorted((entry for entry in tree.filters if entry != rest), key=filter_order),
        burst_bytes=shaper_burst_bytes,
        quantum_bytes=QUANTUM_BYTES,
    )


def band_places(tree: Tree) -> list[str]:
    """Where each queue hangs, in order."""
    return [place(way[-1]) for way in paths(tree.layout)]


def shaper_burst_bytes(rate_bps: int) -> int:
    """Bytes that tbf may send at once: one frame, or what a late timer has to make up for."""
    return max(LARGEST_FRAME_BYTES, ceil(rate_bps / BITS_PER_BYTE * SHAPER_SLACK_SECONDS))


def route_text(route: RouteState | SegmentRouteState) -> str:
    """A route as `ip route` takes it; an unspecified next hop is a network on the link itself."""
    if isinstance(route, RouteState) and route.discards:
        return f"blackhole {network_text(route.prefix)} proto {ROUTE_PROTOCOL}"
    prefix = network_text(route.prefix) if isinstance(route, RouteState) else str(route.prefix)
    return f"{prefix}{_way_text(route.next_hop, route.port)}"


@lru_cache(maxsize=1024)
def _way_text(next_hop: IPv4Address | IPv6Address, port: str) -> str:
    """What follows a route's prefix: a switch has few next hops, each in many routes."""
    via = "" if next_hop.is_unspecified else f" via {next_hop}"
    return f"{via} dev {port} proto {ROUTE_PROTOCOL}"


def route_lines(action: str, routes: Iterable[RouteState | SegmentRouteState]) -> list[str]:
    """Lines for `ip -batch`; `action` is add, replace or del."""
    return [f"route {action} {route_text(route)}" for route in routes]


def segment_texts(segments: SegmentRouting) -> list[str]:
    """Routes to other switches' segments and hosts, then the switch's own segment (RFC 8986, End).

    The kernel wants some port for the segment; it looks where to send the packet afterwards.
    """
    texts = [route_text(route) for route in segments.routes]
    if segments.segment is not None:
        texts.append(segment_text(segments.segment, segments.routes[0].port))
    return texts


def segment_text(segment: IPv6Address, port: str) -> str:
    """The switch's own segment as `ip route` takes it."""
    return f"{segment}/128 encap seg6local action End dev {port} proto {ROUTE_PROTOCOL}"
