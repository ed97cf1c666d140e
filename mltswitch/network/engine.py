"""The event loop, compiled: starts of flows, ports and timers, in order of time and then of their making."""

from mltswitch.network.heap import remove_event, set_event
from mltswitch.network.ports import free_packet, offer, send_next, take, transmit
from mltswitch.network.records import (
    ADVANCED,
    BITS_PICOSECONDS,
    CALLED,
    ENDED,
    FLOW_EVENTS,
    GROW,
    NEVER,
    NONE,
    PORT_EVENTS,
    SPARE_PACKETS,
    Record,
    entry_at,
    flow_at,
    heap_at,
    hop_at,
    packet_at,
    port_at,
    ring_at,
    start_at,
    wide,
)
from mltswitch.network.sending import draw
from mltswitch.network.transports import dispatch
from mltswitch.queueing.jit import jit


@jit
def _pull(world: Record, number: int, port: Record) -> None:
    """The line of a host is free: what waits goes first, then the flows of each class in turn."""
    if port.waiting > 0:
        transmit(world, port, take(world, number, port))
    else:
        for place in range(world.classes):
            if _pull_class(world, number * world.classes + place, port):
                break
    port.armed = 1 if port.waiting > 0 or _has_flows(world, number) else 0


@jit
def _has_flows(world: Record, number: int) -> bool:
    for place in range(world.classes):
        if ring_at(world.rings, number * world.classes + place).last != NONE:
            return True
    return False


@jit
def _pull_class(world: Record, place: int, port: Record) -> bool:
    """Send a packet of the next flow of one class that has one; whether there was any."""
    ring = ring_at(world.rings, place)
    while ring.last != NONE:
        last = flow_at(world.flows, ring.last)
        number = wide(last.ring)
        flow = flow_at(world.flows, number)
        index = NONE
        if dispatch.may_send(world, flow, world.now):
            index = dispatch.next_packet(world, number, flow)
            size = packet_at(world.packets, index).size
            if dispatch.may_send(world, flow, world.now + size * BITS_PICOSECONDS // port.bps):
                ring.last = number
                transmit(world, port, index)
                return True
        flow.listed = 0
        if ring.last == number:
            ring.last = NONE
        else:
            last.ring = flow.ring
        if index != NONE:
            transmit(world, port, index)
            return True
    return False


@jit
def _reaches_end(world: Record, port: Record) -> None:
    """The first packet on a line comes to its end."""
    index = wide(port.first)
    packet = packet_at(world.packets, index)
    port.first = packet.next
    if port.loss > 0 and draw(world) < port.loss:
        port.lost_packets += 1
        port.lost_bytes += packet.size
        free_packet(world, index)
        return
    following = wide(hop_at(world.hops, packet.hop).port)
    if following == NONE:
        number = wide(packet.flow)
        dispatch.arrives(world, number, flow_at(world.flows, number), index)
    else:
        packet.hop += 1
        offer(world, following, index)


@jit
def _port_event(world: Record, number: int) -> None:
    port = port_at(world.ports, number)
    if port.first != NONE and packet_at(world.packets, port.first).arrival <= world.now:
        _reaches_end(world, port)
    if port.armed and port.free <= world.now:
        if number < world.hosts:
            _pull(world, number, port)
        else:
            send_next(world, number, port)
    time = NEVER
    if port.first != NONE:
        time = packet_at(world.packets, port.first).arrival
    if port.armed:
        time = min(time, port.free)
    heap = heap_at(world.heaps, PORT_EVENTS)
    if time == NEVER:
        remove_event(heap, number)
    else:
        set_event(world, heap, number, time)


@jit
def _flow_event(world: Record, number: int) -> None:
    flow = flow_at(world.flows, number)
    heap = heap_at(world.heaps, FLOW_EVENTS)
    if flow.deadline > world.now:
        set_event(world, heap, number, flow.deadline)
    else:
        remove_event(heap, number)
        dispatch.fires(world, number, flow)


@jit
def run(world: Record, until: int, events: int) -> int:
    """Go on until a time (picoseconds), for so many events at the most.

    Returns:
        ADVANCED, GROW (more places for packets are needed, then call again), ENDED or CALLED.
    """
    ports, timers = heap_at(world.heaps, PORT_EVENTS), heap_at(world.heaps, FLOW_EVENTS)
    last = world.events + events
    while world.events < last:
        if world.alive + SPARE_PACKETS > world.packet_places:
            return GROW
        port_time = timer_time = start_time = NEVER
        if ports.count > 0:
            port_time = entry_at(ports.entries, 0).time
        if timers.count > 0:
            timer_time = entry_at(timers.entries, 0).time
        if world.next_start < world.start_count:
            start_time = start_at(world.starts, world.next_start).time
        time = min(port_time, timer_time, start_time)
        if time == NEVER:
            return ENDED
        if time > until:
            return ADVANCED
        world.events += 1
        world.now = time
        if start_time == time:
            number = wide(start_at(world.starts, world.next_start).flow)
            world.next_start += 1
            dispatch.begin(world, number, flow_at(world.flows, number))
        elif timer_time < port_time or (
            timer_time == port_time and entry_at(timers.entries, 0).order < entry_at(ports.entries, 0).order
        ):
            _flow_event(world, int(entry_at(timers.entries, 0).id))
        else:
            _port_event(world, int(entry_at(ports.entries, 0).id))
        if world.begun != NONE or world.arrived != NONE:
            return CALLED
    return ADVANCED
