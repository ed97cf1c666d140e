"""Ends that are played outside of the compiled engine, which carries their packets and knows nothing of them.

The engine returns when such a flow starts or a packet reaches such an end: WORLD's `begun` and `arrived` are
the first of lists, through the flows' and the packets' `next`. A packet's content is kept outside, by index.
"""

from mltswitch.network.ports import enqueue, free_packet, new_packet
from mltswitch.network.records import ACK, DATA, Record, flow_at, packet_at, queue_at, wide
from mltswitch.network.sending import finish
from mltswitch.queueing.jit import jit


@jit
def begin(world: Record, number: int, flow: Record) -> None:
    """A flow starts."""
    flow.next = world.begun
    world.begun = number


@jit
def arrives(world: Record, index: int) -> None:
    """A packet reaches an end of a flow, either one."""
    packet = packet_at(world.packets, index)
    world.delivered_bytes += packet.size
    packet.next = world.arrived
    world.arrived = index


@jit
def send(
    world: Record, number: int, kind: int, size: int, queue: int, capable: int, path: int, repeated: int
) -> int:
    """Send a packet from the host of either end; returns its index.

    Args:
        world: The state, in whose table of packets there is a free place.
        number: The flow's.
        kind: DATA or PROBE from the flow's source, ACK from its destination.
        size: On the line, in bytes.
        queue: The class.
        capable: Whether it is ECN-capable, hence important.
        path: By number, of the flow's in that direction.
        repeated: Whether this data was sent before.
    """
    flow = flow_at(world.flows, number)
    index = new_packet(world)
    packet = packet_at(world.packets, index)
    packet.sent = world.now
    packet.flow = number
    packet.number = 0
    packet.size = size
    packet.kind = kind
    packet.queue = queue
    packet.capable = capable
    packet.marked = 0
    is_forth = kind != ACK
    # A fault that was noticed since the connection was opened may have left fewer ways.
    if is_forth:
        packet.hop = flow.path + flow.stride * (path % flow.paths)
    else:
        packet.hop = flow.back + flow.back_stride * (path % flow.backs)
    host = wide(flow.source if is_forth else flow.destination)
    world.made_bytes += size
    if kind == DATA:
        queue_at(world.queues, host * world.classes + queue).offered[capable] += 1
        flow.sent_packets += 1
        flow.sent_bytes += size
        flow.resent_packets += repeated
    enqueue(world, host, index)
    return index


@jit
def complete(world: Record, number: int) -> None:
    """A flow's receiver has what it needs."""
    finish(world, flow_at(world.flows, number))


@jit
def take(world: Record) -> int:
    """Remove the first packet that has arrived; returns its index, whose record is still whole."""
    index = int(world.arrived)
    world.arrived = packet_at(world.packets, index).next
    free_packet(world, index)
    return index
