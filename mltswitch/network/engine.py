"""The event loop, compiled: starts of tasks, ports and timers, in order of time and then of their making.

A task is a flow, or a step: what a host computes, in a time that is known. It starts at its time, or when all
tasks that it waits for have ended.
"""

from mltswitch.network.chance import draw
from mltswitch.network.heap import remove_event, set_event
from mltswitch.network.ports import free_packet, offer, send_next, take, transmit
from mltswitch.network.records import (
    ADVANCED,
    BITS_PICOSECONDS,
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
    follower_at,
    heap_at,
    hop_at,
    packet_at,
    port_at,
    ring_at,
    settings_at,
    start_at,
    step_at,
    task_at,
    wide,
)
from mltswitch.network.sending import end_task, want_line
from mltswitch.network.transports import dispatch, ndp, pfabric
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
        if settings_at(world.settings, last.settings).shortest_first:
            ring.last = pfabric.before_shortest(world, wide(ring.last))
            last = flow_at(world.flows, ring.last)
        number = wide(last.ring)
        flow = flow_at(world.flows, number)
        index = NONE
        is_moved = False
        if dispatch.may_send(world, flow, world.now):
            index = dispatch.next_packet(world, number, flow)
            size = packet_at(world.packets, index).size
            is_moved = world.classes * flow.source + flow.queue != place
            free = world.now + size * BITS_PICOSECONDS // port.bps
            if not is_moved and dispatch.may_send(world, flow, free):
                ring.last = number
                transmit(world, port, index)
                return True
        flow.listed = 0
        if ring.last == number:
            ring.last = NONE
        else:
            last.ring = flow.ring
        dispatch.leaves_ring(world, number, flow)
        if index != NONE:
            if is_moved and dispatch.may_send(world, flow, world.now):
                want_line(world, number, flow)
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
    if number >= world.port_count:
        ndp.pull(world, number - world.port_count)
        return
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
def _begin(world: Record, number: int) -> None:
    """Start a flow or a step; a step of no time ends at once."""
    if number < world.flow_count:
        flow = flow_at(world.flows, number)
        flow.start = world.now
        dispatch.begin(world, number, flow)
        return
    step = step_at(world.steps, number - world.flow_count)
    if step.duration > 0:
        set_event(world, heap_at(world.heaps, FLOW_EVENTS), number, world.now + step.duration)
    else:
        _end_step(world, number)


@jit
def _end_step(world: Record, number: int) -> None:
    step_at(world.steps, number - world.flow_count).finish = world.now
    end_task(world, number)


@jit
def _tell_followers(world: Record) -> None:
    """Start what has waited for the tasks that have ended, and for no other."""
    while world.ended != NONE:
        task = task_at(world.tasks, world.ended)
        end = wide(task_at(world.tasks, world.ended + 1).followers)
        world.ended = task.waits
        for place in range(wide(task.followers), end):
            number = wide(follower_at(world.followers, place).task)
            follower = task_at(world.tasks, number)
            follower.waits -= 1
            if follower.waits == 0:
                _begin(world, number)


@jit
def _task_event(world: Record, number: int) -> None:
    heap = heap_at(world.heaps, FLOW_EVENTS)
    if number >= world.flow_count:
        remove_event(heap, number)
        _end_step(world, number)
        return
    flow = flow_at(world.flows, number)
    if flow.deadline > world.now:
        set_event(world, heap, number, flow.deadline)
    else:
        remove_event(heap, number)
        dispatch.fires(world, number, flow)


@jit
def run(world: Record, until: int, events: int) -> int:
    """Go on until a time (picoseconds), for so many events at the most.

    Returns:
        ADVANCED, GROW (more places for packets are needed, then call again) or ENDED.
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
            number = wide(start_at(world.starts, world.next_start).task)
            world.next_start += 1
            _begin(world, number)
        elif timer_time < port_time or (
            timer_time == port_time and entry_at(timers.entries, 0).order < entry_at(ports.entries, 0).order
        ):
            _task_event(world, int(entry_at(timers.entries, 0).id))
        else:
            _port_event(world, int(entry_at(ports.entries, 0).id))
        if world.ended != NONE:
            _tell_followers(world)
    return ADVANCED
