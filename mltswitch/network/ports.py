"""A port and its line: what waits, what is judged, what is sent next, and what is on the way.

A packet is judged when it arrives, also where it finds the line idle, as in `queueing.simulation`; and a
transmission that ends at the moment of an arrival has ended. Lines transmit one packet after the other and
keep their order, so only the first packet on a line has an event.

What a port does beyond that is its `discipline`. BY_RANK is pFabric's (Alizadeh et al., SIGCOMM 2013,
section 4.1): a full port drops the waiting packet of the highest rank, the latest of several; it sends the
earliest packet of the flow that has the packet of the lowest rank. TRIM is NDP's (Handley et al., SIGCOMM
2017, section 3.1): where the queue of data is full, the arriving packet or, as often, the last one in the
queue loses its payload, and goes on with answers and pulls, of which ten leave for one packet of data.
"""

from mltswitch.network.chance import draw
from mltswitch.network.fabric import BY_RANK, MARK_BY_PORT, TRIM
from mltswitch.network.heap import set_event
from mltswitch.network.records import (
    ANSWERS,
    BITS_PICOSECONDS,
    DATA,
    NEVER,
    NONE,
    PORT_EVENTS,
    TRIMMED,
    Record,
    entry_at,
    flow_at,
    heap_at,
    packet_at,
    place_at,
    pool_at,
    port_at,
    queue_at,
    settings_at,
    wide,
)
from mltswitch.queueing.jit import jit
from mltswitch.queueing.verdict import (
    DROP_LIMIT,
    DROP_UNIMPORTANT,
    FORWARD,
    MARK,
    NO_THRESHOLD,
    has_room,
    verdict,
)

HEADERS_PER_PACKET = 10
"""Of a port that trims, where both wait."""


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
    if port.discipline == BY_RANK:
        if _push_out(world, port, queue, pool, packet):
            fate = FORWARD
    elif has_room(queue.bytes, packet.size, queue.alpha, pool.used, pool.size, port.free > world.now):
        # Acknowledgements are not ECN-capable, and a switch that marks at K by itself would drop them there.
        threshold = queue.threshold if packet.kind == DATA else NO_THRESHOLD
        average = pool.used if port.discipline == MARK_BY_PORT else queue.bytes
        fate = verdict(queue.bytes, average, packet.capable != 0, threshold, queue.limit)
    if fate in (DROP_LIMIT, DROP_UNIMPORTANT):
        if port.discipline == TRIM and packet.kind == DATA:
            _trim(world, number, port, queue, index)
        else:
            _drop(world, queue, index)
        return
    if fate == MARK:
        queue.marked += 1
        if packet.marked == 0:
            packet.marked = 1
            flow_at(world.flows, packet.flow).marked_packets += 1
    enqueue(world, number, index)


@jit
def _drop(world: Record, queue: Record, index: int) -> None:
    packet = packet_at(world.packets, index)
    queue.dropped[packet.capable if packet.kind == DATA else ANSWERS] += 1
    queue.dropped_bytes += packet.size
    if packet.kind == DATA:
        flow_at(world.flows, packet.flow).dropped_packets += 1
    free_packet(world, index)


@jit
def _remove(world: Record, port: Record, queue: Record, before: int, index: int) -> None:
    """Take a packet out of a queue, behind another one or (NONE) at its head."""
    packet = packet_at(world.packets, index)
    if before == NONE:
        queue.head = packet.next
    else:
        packet_at(world.packets, before).next = packet.next
    if queue.tail == index:
        queue.tail = before
    queue.bytes -= packet.size
    pool_at(world.pools, port.pool).used -= packet.size
    port.waiting -= 1


@jit
def _push_out(world: Record, port: Record, queue: Record, pool: Record, packet: Record) -> bool:
    """Drop waiting packets of higher ranks than this one's until it has room; whether it has."""
    while port.free > world.now and pool.used + packet.size > pool.size:
        worst = before_worst = before = NONE
        rank = wide(packet.rank) + 1
        index = wide(queue.head)
        while index != NONE:
            waiting = packet_at(world.packets, index)
            if waiting.rank >= rank:
                worst, before_worst, rank = index, before, wide(waiting.rank)
            before = index
            index = wide(waiting.next)
        if worst == NONE:
            return False
        _remove(world, port, queue, before_worst, worst)
        _drop(world, queue, worst)
    return True


@jit
def _take_lowest(world: Record, port: Record, queue: Record) -> int:
    """Remove the earliest packet of the flow that has the packet of the lowest rank."""
    flow = NONE
    rank = 1 << 40
    index = wide(queue.head)
    while index != NONE:
        waiting = packet_at(world.packets, index)
        if waiting.rank < rank:
            rank, flow = wide(waiting.rank), wide(waiting.flow)
        index = wide(waiting.next)
    before = NONE
    index = wide(queue.head)
    while packet_at(world.packets, index).flow != flow:
        before = index
        index = wide(packet_at(world.packets, index).next)
    _remove(world, port, queue, before, index)
    return index


@jit
def _trim(world: Record, number: int, port: Record, queue: Record, index: int) -> None:
    """A packet of data finds its queue full: it, or the last one there, goes on as a header."""
    if queue.head != NONE and draw(world) < 0.5:
        arriving, index, before = index, wide(queue.tail), NONE
        place = wide(queue.head)
        while place != index:
            before = place
            place = wide(packet_at(world.packets, place).next)
        _remove(world, port, queue, before, index)
        enqueue(world, number, arriving)
    packet = packet_at(world.packets, index)
    flow = flow_at(world.flows, packet.flow)
    size = min(wide(packet.size), settings_at(world.settings, flow.settings).answer_bytes)
    queue.dropped[packet.capable] += 1
    queue.dropped_bytes += packet.size - size
    flow.dropped_packets += 1
    packet.kind = TRIMMED
    packet.size = size
    packet.queue = flow.back_queue
    headers = queue_at(world.queues, number * world.classes + packet.queue)
    pool = pool_at(world.pools, port.pool)
    headers.offered[ANSWERS] += 1
    if has_room(headers.bytes, size, headers.alpha, pool.used, pool.size, True):
        enqueue(world, number, index)
    else:
        _drop(world, headers, index)


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
    if port.discipline == TRIM:
        headers, data = queue_at(world.queues, first), queue_at(world.queues, first + 1)
        if headers.head != NONE and (data.head == NONE or headers.credit < HEADERS_PER_PACKET):
            headers.credit += 1
            return 0
        headers.credit = 0.0
        return 1
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
    if port.discipline == BY_RANK:
        return _take_lowest(world, port, queue_at(world.queues, number * world.classes))
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
