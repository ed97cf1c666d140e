"""Which transport hears of an event. A new transport is one module, and a line in each function here.

A transport knows: `begin` (the flow starts), `may_send` and `next_packet` (the host's line is free),
`receive` (a packet reaches the receiver), `answered` (one reaches the sender), `fires` (its timer does).
"""

from mltswitch.network.records import DATA, PROBE, Record, packet_at, settings_at
from mltswitch.network.transports import external, mlt, tcp
from mltswitch.network.transports.parameters import COMPILED, MLT
from mltswitch.queueing.jit import jit


@jit
def begin(world: Record, number: int, flow: Record) -> None:
    """Start a flow by the rules of its transport."""
    if settings_at(world.settings, flow.settings).transport == MLT:
        mlt.begin(world, number, flow)
    elif settings_at(world.settings, flow.settings).transport == COMPILED:
        external.begin(world, number, flow)
    else:
        tcp.begin(world, number, flow)


@jit
def may_send(world: Record, flow: Record, time: int) -> bool:
    """Whether a flow has a packet that may leave at this time."""
    if flow.closed:
        return False
    if settings_at(world.settings, flow.settings).transport == MLT:
        return mlt.may_send(flow, time)
    return tcp.may_send(flow)


@jit
def next_packet(world: Record, number: int, flow: Record) -> int:
    """The packet that leaves now."""
    if settings_at(world.settings, flow.settings).transport == MLT:
        return mlt.next_packet(world, number, flow)
    return tcp.next_packet(world, number, flow)


@jit
def arrives(world: Record, number: int, flow: Record, index: int) -> None:
    """A packet reaches the host at its path's end."""
    if settings_at(world.settings, flow.settings).transport == COMPILED:
        external.arrives(world, index)
        return
    kind = packet_at(world.packets, index).kind
    is_mlt = settings_at(world.settings, flow.settings).transport == MLT
    if kind in (DATA, PROBE):
        if is_mlt:
            mlt.receive(world, flow, index)
        else:
            tcp.receive(world, flow, index)
    elif is_mlt:
        mlt.answered(world, number, flow, index)
    else:
        tcp.answered(world, number, flow, index)


@jit
def fires(world: Record, number: int, flow: Record) -> None:
    """The flow's timer fires."""
    if settings_at(world.settings, flow.settings).transport == MLT:
        mlt.fires(world, number, flow)
    else:
        tcp.fires(world, number, flow)
