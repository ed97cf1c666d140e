"""Which transport hears of an event. A new transport is one module, and a line in each function here.

A transport knows: `begin` (the flow starts), `may_send` and `next_packet` (the host's line is free),
`receive` (a packet reaches the receiver), `answered` (one reaches the sender), `fires` (its timer does).
"""

from mltswitch.network.records import DATA, PROBE, TRIMMED, Record, packet_at, settings_at
from mltswitch.network.transports import mlt, ndp, pfabric, tcp
from mltswitch.network.transports.parameters import MLT, NDP, PFABRIC
from mltswitch.queueing.jit import jit


@jit
def begin(world: Record, number: int, flow: Record) -> None:
    """Start a flow by the rules of its transport."""
    transport = settings_at(world.settings, flow.settings).transport
    if transport == MLT:
        mlt.begin(world, number, flow)
    elif transport == PFABRIC:
        pfabric.begin(world, number, flow)
    elif transport == NDP:
        ndp.begin(world, number, flow)
    else:
        tcp.begin(world, number, flow)


@jit
def may_send(world: Record, flow: Record, time: int) -> bool:
    """Whether a flow has a packet that may leave at this time."""
    if flow.closed:
        return False
    transport = settings_at(world.settings, flow.settings).transport
    if transport == MLT:
        return mlt.may_send(world, flow, time)
    if transport == PFABRIC:
        return pfabric.may_send(flow)
    if transport == NDP:
        return ndp.may_send(flow)
    return tcp.may_send(flow)


@jit
def next_packet(world: Record, number: int, flow: Record) -> int:
    """The packet that leaves now."""
    transport = settings_at(world.settings, flow.settings).transport
    if transport == MLT:
        return mlt.next_packet(world, number, flow)
    if transport == PFABRIC:
        return pfabric.next_packet(world, number, flow)
    if transport == NDP:
        return ndp.next_packet(world, number, flow)
    return tcp.next_packet(world, number, flow)


@jit
def leaves_ring(world: Record, number: int, flow: Record) -> None:
    """The flow takes no turns at its host's line until it asks for one."""
    if settings_at(world.settings, flow.settings).transport == MLT:
        mlt.leaves_ring(world, number, flow)


@jit
def arrives(world: Record, number: int, flow: Record, index: int) -> None:
    """A packet reaches the host at its path's end."""
    kind = packet_at(world.packets, index).kind
    transport = settings_at(world.settings, flow.settings).transport
    if kind in (DATA, PROBE, TRIMMED):
        if transport == MLT:
            mlt.receive(world, flow, index)
        elif transport == PFABRIC:
            pfabric.receive(world, flow, index)
        elif transport == NDP:
            ndp.receive(world, number, flow, index)
        else:
            tcp.receive(world, flow, index)
    elif transport == MLT:
        mlt.answered(world, number, flow, index)
    elif transport == PFABRIC:
        pfabric.answered(world, number, flow, index)
    elif transport == NDP:
        ndp.answered(world, number, flow, index)
    else:
        tcp.answered(world, number, flow, index)


@jit
def fires(world: Record, number: int, flow: Record) -> None:
    """The flow's timer fires."""
    transport = settings_at(world.settings, flow.settings).transport
    if transport == MLT:
        mlt.fires(world, number, flow)
    elif transport == PFABRIC:
        pfabric.fires(world, number, flow)
    elif transport == NDP:
        ndp.fires(world, number, flow)
    else:
        tcp.fires(world, number, flow)
