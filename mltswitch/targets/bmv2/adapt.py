"""A rounded plan as our P4 program can hold it: ports by number, with all that a router has to know."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mltswitch.capabilities import BitRate
from mltswitch.capabilities.meter_rate import rate_kept
from mltswitch.plan import Plan, Switch, attached_hosts, owned_blocks, underlay
from mltswitch.targets.base import Quantised
from mltswitch.targets.bmv2.capabilities import BACKGROUND_QUEUE
from mltswitch.targets.bmv2.ports import numbered, port_name
from mltswitch.targets.state import PortState, QueueState, RouteState, every_dscp_but
from mltswitch.units import BITS_PER_BYTE, format_bps
from mltswitch.wire.hardware_address import hardware_address
from mltswitch.wire.tos import DSCP_COUNT


def as_programmed(quantised: Quantised, plan: Plan, switch: Switch) -> Quantised:
    """The state with the routes to hosts and neighbours, and with what BMv2 does not do left out."""
    names = {name: port_name(number) for name, number in numbered(p.name for p in switch.ports).items()}
    routes = tuple(
        RouteState(route.prefix, route.next_hop, "" if route.discards else names[route.port])
        for route in (
            *quantised.state.routes,
            *attached_hosts(switch),
            *underlay(plan.fabric.addressing, plan.topology, switch),
            *owned_blocks(plan.fabric.addressing, plan.topology, switch),
        )
    )
    addresses = {port.name: hardware_address(port.address) for port in switch.ports}
    prefixes = [route.prefix for route in routes]
    state = replace(
        quantised.state,
        ports=_ports(quantised.state.ports, names, addresses, plan, quantised.state.background_dscp),
        routes=routes,
        packet_spraying=quantised.state.packet_spraying and len(set(prefixes)) < len(prefixes),
    )
    if not any(port.rewritten for port in state.ports):
        state = replace(state, background_dscp=0)
    shortfalls = quantised.shortfalls
    if plan.fabric.ports.shaped:
        shortfalls += (
            f"BMv2 shapes no port: whoever makes its links holds them to "
            f"{format_bps(plan.fabric.ports.rate_bps)}, so that packets wait in BMv2",
        )
    roundings = tuple(entry._replace(port=names[entry.port]) for entry in quantised.roundings)
    return replace(quantised, state=state, roundings=roundings, shortfalls=shortfalls)


def _ports(
    ports: Sequence[PortState],
    names: Mapping[str, str],
    addresses: Mapping[str, str],
    plan: Plan,
    background: int,
) -> tuple[PortState, ...]:
    """What is not trusted is background, and a rate is one that can be read again."""
    return tuple(
        replace(
            port,
            name=names[port.name],
            shaped_bps=None,
            queues=tuple(_queue(queue, port.trusted) for queue in port.queues),
            rewritten=port.rewritten if port.trusted else every_dscp_but(background),
            hardware_address=addresses[port.name],
            mtu_bytes=plan.fabric.ports.mtu_bytes,
        )
        for port in ports
    )


def _queue(queue: QueueState, trusted: bool) -> QueueState:
    dscps = queue.dscps
    if not trusted:
        dscps = tuple(range(DSCP_COUNT)) if queue.queue == BACKGROUND_QUEUE else ()
    maximum = queue.maximum
    if isinstance(maximum, BitRate):
        maximum = BitRate(rate_kept(maximum.bps // BITS_PER_BYTE) * BITS_PER_BYTE)
    return replace(queue, dscps=dscps, maximum=maximum)
