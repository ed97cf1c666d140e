"""What both ends of a flow do to send: make packets, take turns at the line, set timers, draw at random."""

import numpy as np

from mltswitch.network.chance import draw
from mltswitch.network.heap import remove_event, set_event
from mltswitch.network.ports import arm, enqueue, new_packet
from mltswitch.network.records import (
    BITS_PICOSECONDS,
    DATA,
    FLOW_EVENTS,
    NONE,
    Record,
    entry_at,
    flow_at,
    heap_at,
    hop_at,
    number_of,
    packet_at,
    place_at,
    port_at,
    queue_at,
    ring_at,
    settings_at,
    task_at,
    wide,
    word_at,
)
from mltswitch.queueing.jit import jit

_ONE = np.uint64(1)


@jit
def has_bit(world: Record, first: int, number: int) -> bool:
    """Whether a packet's bit is set, in the words that begin at `first`."""
    word = word_at(world.words, first + (number >> 6)).bits
    return bool((word >> np.uint64(number & 63)) & _ONE)


@jit
def set_bit(world: Record, first: int, number: int, value: bool) -> None:
    """Set or clear a packet's bit."""
    word = word_at(world.words, first + (number >> 6))
    bit = _ONE << np.uint64(number & 63)
    if value:
        word.bits = word.bits | bit
    else:
        word.bits = word.bits & ~bit


@jit
def packet_bytes(flow: Record, settings: Record, number: int) -> int:
    """Bytes of a packet on the line; the last one of a flow is shorter."""
    rest = flow.size_bytes - number * settings.payload
    return int(min(rest, settings.payload) + settings.header)


@jit
def make_data(world: Record, flow_number: int, flow: Record, number: int, capable: bool) -> int:
    """A packet of a flow, counted as sent."""
    index = new_packet(world)
    packet = packet_at(world.packets, index)
    size = packet_bytes(flow, settings_at(world.settings, flow.settings), number)
    packet.sent = world.now
    packet.flow = flow_number
    packet.number = number
    packet.size = size
    packet.kind = DATA
    packet.queue = flow.queue
    packet.capable = 1 if capable else 0
    packet.marked = 0
    packet.hop = flow.path
    if flow.paths > 1:
        packet.hop += flow.stride * int(draw(world) * flow.paths)
    queue_at(world.queues, flow.source * world.classes + flow.queue).offered[packet.capable] += 1
    flow.sent_packets += 1
    flow.sent_bytes += size
    world.made_bytes += size
    if number < flow.highest:
        flow.resent_packets += 1
    else:
        flow.highest = number + 1
    return index


@jit
def send_signal(
    world: Record, flow: Record, index: int, kind: int, size: int, queue: int, towards_source: bool
) -> None:
    """Send a packet without data, from either end of a flow; it may be one that has just come."""
    packet = packet_at(world.packets, index)
    packet.kind = kind
    packet.size = size
    packet.queue = queue
    packet.capable = 0
    packet.hop = flow.back if towards_source else flow.path
    ways = flow.backs if towards_source else flow.paths
    if ways > 1:
        stride = flow.back_stride if towards_source else flow.stride
        packet.hop += stride * int(draw(world) * ways)
    world.made_bytes += size
    enqueue(world, wide(flow.destination if towards_source else flow.source), index)


@jit
def want_line(world: Record, number: int, flow: Record) -> None:
    """The flow may send: it takes its turn among those of its class at its host."""
    if flow.listed:
        return
    flow.listed = 1
    ring = ring_at(world.rings, flow.source * world.classes + flow.queue)
    if ring.last == NONE:
        flow.ring = number
    else:
        last = flow_at(world.flows, ring.last)
        flow.ring = last.ring
        last.ring = number
    ring.last = number
    port = port_at(world.ports, flow.source)
    if not port.armed:
        port.armed = 1
        port.free = max(port.free, world.now)
        arm(world, wide(flow.source), port)


@jit
def set_timer(world: Record, number: int, flow: Record, deadline: int) -> None:
    """Wake the flow at this time at the latest.

    A timer that is put off, as each acknowledgement does, costs nothing: its event comes at the old time, and
    finds the later deadline.
    """
    flow.deadline = deadline
    heap = heap_at(world.heaps, FLOW_EVENTS)
    place = place_at(heap.places, number).place
    if place == NONE or entry_at(heap.entries, place).time > deadline:
        set_event(world, heap, number, deadline)


@jit
def clear_timer(world: Record, number: int) -> None:
    """The flow waits for no time."""
    remove_event(heap_at(world.heaps, FLOW_EVENTS), number)


@jit
def _one_way(world: Record, number: int, hop: int, size: int) -> int:
    """Picoseconds from one end to the other over empty lines, from this port on."""
    time = 0
    while number != NONE:
        port = port_at(world.ports, number)
        time += port.delay + size * BITS_PICOSECONDS // port.bps
        number = wide(hop_at(world.hops, hop).port)
        hop += 1
    return time


@jit
def round_trip(world: Record, flow: Record) -> int:
    """Picoseconds from the start of a full packet to the end of its answer, where nothing waits."""
    settings = settings_at(world.settings, flow.settings)
    there = _one_way(world, wide(flow.source), wide(flow.path), settings.payload + settings.header)
    return there + _one_way(world, wide(flow.destination), wide(flow.back), settings.answer_bytes)


@jit
def first_window(world: Record, flow: Record) -> int:
    """Packets of the initial window: what the line sends in a round trip, if no parameter says it."""
    settings = settings_at(world.settings, flow.settings)
    if settings.initial_window > 0:
        return int(settings.initial_window)
    packet = (settings.payload + settings.header) * BITS_PICOSECONDS // port_at(world.ports, flow.source).bps
    return int((round_trip(world, flow) + packet - 1) // packet)


@jit
def finish(world: Record, flow: Record) -> None:
    """The receiver has all it needs."""
    flow.finish = world.now
    world.finished += 1
    end_task(world, number_of(world, flow))


@jit
def end_task(world: Record, number: int) -> None:
    """A flow or a step has ended: the event loop tells those that wait for it."""
    task_at(world.tasks, number).waits = world.ended
    world.ended = number
