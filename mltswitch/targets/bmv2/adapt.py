"""A rounded plan as mltswitch's P4 program can hold it: ports by number, with all that routing needs."""

from dataclasses import replace

from mltswitch.capabilities import BitRate
from mltswitch.capabilities.meter_rate import rate_kept
from mltswitch.plan import Plan, Switch, attached_hosts, owned_blocks, underlay
from mltswitch.targets.base import FittedState
from mltswitch.targets.bmv2.capabilities import BACKGROUND_QUEUE
from mltswitch.targets.bmv2.ports import numbered, port_name
from mltswitch.targets.state import QueueState, RouteState, every_dscp_but
from mltswitch.units import BITS_PER_BYTE, format_bps
from mltswitch.wire.hardware_address import hardware_address
from mltswitch.wire.tos import DSCP_COUNT


def as_programmed(fitted: FittedState, plan: Plan, switch: Switch) -> FittedState:
    """The state with the routes to hosts and neighbours added, and with what BMv2 cannot do left out."""
    names = {name: port_name(number) for name, number in numbered(p.name for p in switch.ports).items()}
    addresses = {port.name: hardware_address(port.address) for port in switch.ports}
    former, addressing = fitted.state, plan.fabric.addressing
    routes = tuple(
        RouteState(route.prefix, route.next_hop, "" if route.discards else names[route.port])
        for route in (
            *former.routes,
            *attached_hosts(switch),
            *underlay(addressing, plan.topology, switch),
            *owned_blocks(addressing, plan.topology, switch),
        )
    )
    ports = tuple(
        replace(
            port,
            name=names[port.name],
            shaped_bps=None,
            queues=tuple(_queue(queue, port.trusted) for queue in port.queues),
            rewritten=port.rewritten if port.trusted else every_dscp_but(former.background_dscp),
            hardware_address=addresses[port.name],
            mtu_bytes=plan.fabric.ports.mtu_bytes,
        )
        for port in former.ports
    )
    state = replace(
        former,
        ports=ports,
        routes=routes,
        packet_spraying=former.packet_spraying and len({route.prefix for route in routes}) < len(routes),
        background_dscp=former.background_dscp if any(port.rewritten for port in ports) else 0,
    )
    unsupported = fitted.unsupported
    if plan.fabric.ports.shaped:
        unsupported += (
            f"BMv2 shapes no port: whoever makes its links holds them to "
            f"{format_bps(plan.fabric.ports.rate_bps)}, so that packets wait in BMv2",
        )
    roundings = tuple(entry._replace(port=names[entry.port]) for entry in fitted.roundings)
    return replace(fitted, state=state, roundings=roundings, unsupported=unsupported)


def _queue(queue: QueueState, trusted: bool) -> QueueState:
    """What is not trusted is background, and a rate is one that can be read again."""
    dscps, maximum = queue.dscps, queue.maximum
    if not trusted:
        dscps = tuple(range(DSCP_COUNT)) if queue.queue == BACKGROUND_QUEUE else ()
    if isinstance(maximum, BitRate):
        maximum = BitRate(rate_kept(maximum.bps // BITS_PER_BYTE) * BITS_PER_BYTE)
    return replace(queue, dscps=dscps, maximum=maximum)
