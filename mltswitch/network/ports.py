"""A port and its line: what waits, what is judged, what is sent next, and what is on the way.

A packet is judged when it arrives, also where it finds the line idle, as in `queueing.simulation`; and a
transmission that ends at the moment of an arrival has ended. Lines transmit one packet after the other and
keep their order, so only the first packet on a line has an event.
"""

from mltswitch.network.heap import set_event
from mltswitch.network.records import (
    ANSWERS,
    BITS_PICOSECONDS,
    DATA,
    NEVER,
    NONE,
    PORT_EVENTS,
    Record,
    entry_at,
    flow_at,
    heap_at,
    packet_at,
    place_at,
    pool_at,
    port_at,
    queue_at,
    wide,
)
from mltswitch.queueing.jit import jit
from mltswitch.queueing.verdict import (
    DROP_LIMIT,
    DROP_UNIMPORTANT,
    MARK,
    NO_THRESHOLD,
    has_room,
    verdict,
)


@jit
def new_packet(world: Record) -> int:
    """The index of a packet that nobody uses."""
    index = int(world.free)
    world.free = packet_at(world.packets, index).next
    world.alive += 1
    world.peak_alive = max(world.peak_alive, world.alive)
    return index


@jit
def free_packet(world: Record, index: int) -> None:
    """The packet has reached its end, or is lost."""
    packet_at(world.packets, index).next = world.free
    world.free = index
    world.alive -= 1


@jit
def transmit(world: Record, port: Record, index: int) -> None:
    """Begin to send a packet over an idle line."""
    packet = packet_at(world.packets, index)
    free = world.now + packet.size * BITS_PICOSECONDS // port.bps
    port.free = free
    packet.arrival = free + port.delay
    packet.next = NONE
    port.sent_packets += 1
    port.sent_bytes += packet.size
    world.hop_count += 1
    if port.first == NONE:
        port.first = index
    else:
        packet_at(world.packets, port.last).next = index
    port.last = index


@jit
def arm(world: Record, number: int, port: Record) -> None:
    """Set the port's event: the first packet reaches the end of the line, or the line becomes free."""
    time = NEVER
    if port.first != NONE:
        time = packet_at(world.packets, port.first).arrival
    if port.armed:
        time = min(time, port.free)
    if time == NEVER:
        return
    heap = heap_at(world.heaps, PORT_EVENTS)
    place = place_at(heap.places, number).place
    if place == NONE or entry_at(heap.entries, place).time != time:
        set_event(world, heap, number, time)


@jit
def offer(world: Record, number: int, index: int) -> None:
    """A packet arrives at a switch's port."""
    port = port_at(world.ports, number)
    if port.armed and port.free <= world.now:
        send_next(world, number, port)
        arm(world, number, port)
    packet = packet_at(world.packets, index)
    queue = queue_at(world.queues, number * world.classes + packet.queue)
    pool = pool_at(world.pools, port.pool)
    column = packet.capable if packet.kind == DATA else ANSWERS
    queue.offered[column] += 1
    fate = DROP_LIMIT
    if has_room(queue.bytes, packet.size, queue.alpha, pool.used, pool.size, port.free > world.now):
        # Acknowledgements are not ECN-capable, and a switch that marks at K by itself would drop them there.
        threshold = queue.threshold if packet.kind == DATA else NO_THRESHOLD
        fate = verdict(queue.bytes, queue.bytes, packet.capable != 0, threshold, queue.limit)
    if fate in (DROP_LIMIT, DROP_UNIMPORTANT):
        queue.dropped[column] += 1
        queue.dropped_bytes += packet.size
        if packet.kind == DATA:
            flow_at(world.flows, packet.flow).dropped_packets += 1
        free_packet(world, index)
        return
    if fate == MARK:
        queue.marked += 1
        if packet.marked == 0:
            packet.marked = 1
            flow_at(world.flows, packet.flow).marked_packets += 1
    enqueue(world, number, index)


@jit
def enqueue(world: Record, number: int, index: int) -> None:
    """Send a packet at once where the line is idle, else let it wait in the queue of its class."""
    port = port_at(world.ports, number)
    if port.waiting == 0 and port.free <= world.now and not port.armed:
        transmit(world, port, index)
        arm(world, number, port)
        return
    packet = packet_at(world.packets, index)
    queue = queue_at(world.queues, number * world.classes + packet.queue)
    packet.next = NONE
    if queue.head == NONE:
        queue.head = index
    else:
        packet_at(world.packets, queue.tail).next = index
    queue.tail = index
    queue.bytes += packet.size
    queue.peak = max(queue.peak, queue.bytes)
    pool = pool_at(world.pools, port.pool)
    pool.used += packet.size
    pool.peak = max(pool.peak, pool.used)
    port.waiting += 1
    if not port.armed:
        port.armed = 1
        arm(world, number, port)


@jit
def _next_queue(world: Record, number: int, port: Record) -> int:
    """The class that sends now: one whose guaranteed share is due, else the first that has a packet."""
    first = number * world.classes
    if port.guaranteed:
        for place in range(world.classes):
            queue = queue_at(world.queues, first + place)
            is_waiting = queue.share > 0 and queue.head != NONE
            if is_waiting and queue.credit >= packet_at(world.packets, queue.head).size:
                return place
    for place in range(world.classes):
        if queue_at(world.queues, first + place).head != NONE:
            return place
    return NONE


@jit
def _spend(world: Record, number: int, place: int, size: int) -> None:
    """Queues with a guaranteed share that wait earn it of every byte sent, and pay for their own."""
    for other in range(world.classes):
        queue = queue_at(world.queues, number * world.classes + other)
        if queue.share > 0:
            if queue.head == NONE and other != place:
                queue.credit = 0.0
                continue
            queue.credit += queue.share * size
            if other == place:
                queue.credit = max(0.0, queue.credit - size)


@jit
def take(world: Record, number: int, port: Record) -> int:
    """Remove the packet that is sent next from its queue; at least one waits."""
    place = _next_queue(world, number, port)
    queue = queue_at(world.queues, number * world.classes + place)
    index = wide(queue.head)
    packet = packet_at(world.packets, index)
    if port.guaranteed:
        _spend(world, number, place, wide(packet.size))
    queue.head = packet.next
    queue.bytes -= packet.size
    pool_at(world.pools, port.pool).used -= packet.size
    port.waiting -= 1
    return index


@jit
def send_next(world: Record, number: int, port: Record) -> None:
    """The line of a switch's port is free: the next packet goes."""
    transmit(world, port, take(world, number, port))
    port.armed = 1 if port.waiting > 0 else 0
