"""NDP (Handley et al., SIGCOMM 2017, section 3.2): the receiver pulls, and hears of each packet trimmed.

A sender begins with a window at line rate. The receiver acknowledges each packet that has come whole (ACK),
and refuses each that has lost its payload (NACK); for both it owes the sender a pull. A host sends its pulls
no faster than full packets would arrive on its line, one for each of its flows in turn. A pull carries how
many there were, so that a later one makes up for one that is lost; for each the sender sends a refused
packet, or else a new one. After RTO without news whatever is not answered counts as lost, and is sent again
without pulls; where nothing is on its way, the sender asks for the last pull anew.

Choices of ours: headers that a switch has no room for are dropped, not returned to their sender; senders
draw the path of each packet instead of permuting all paths; the receiver knows the flow's length and first
window from its packets, and owes no pull for which there is nothing to send. RTO doubles until there is
news.

Of a flow, `window` counts packets that may have left, `window_end` those of the first window; `duplicates`
counts refused packets, whose bits are the third bitmap, behind those that have arrived and those
acknowledged; `reduced_until` is the last pull that the sender has heard. At the receiver `acked` counts
pulls owed and sent, `received` those sent, `marks` headers; `recover` is the next flow that its host pulls,
if `state` is WAITING.
"""

from mltswitch.network.heap import remove_event, set_event
from mltswitch.network.ports import free_packet, new_packet
from mltswitch.network.records import (
    ACK,
    BITS_PICOSECONDS,
    NACK,
    NONE,
    PORT_EVENTS,
    PROBE,
    PULL,
    TRIMMED,
    Record,
    flow_at,
    heap_at,
    packet_at,
    place_at,
    port_at,
    settings_at,
    wide,
)
from mltswitch.network.sending import (
    clear_timer,
    finish,
    first_window,
    has_bit,
    make_data,
    send_signal,
    set_bit,
    set_timer,
    want_line,
)
from mltswitch.network.units import PICOSECONDS
from mltswitch.queueing.jit import jit

IDLE, WAITING = range(2)
"""Whether the receiver's host has a pull to send for this flow."""
LARGEST_RTO = PICOSECONDS


@jit
def _bitmap(flow: Record, which: int) -> int:
    """Where the bits of packets acknowledged (1) or refused (2) begin."""
    return int(flow.bits + which * ((flow.packets + 63) >> 6))


@jit
def begin(world: Record, number: int, flow: Record) -> None:
    """Start a flow with a window at line rate."""
    flow.window_end = min(first_window(world, flow), wide(flow.packets))
    flow.window = flow.window_end
    flow.rto = settings_at(world.settings, flow.settings).least_rto
    want_line(world, number, flow)


@jit
def may_send(flow: Record) -> bool:
    """Whether a pull, or the first window, lets a packet go."""
    return bool(flow.sent_packets < flow.window and (flow.duplicates > 0 or flow.next < flow.packets))


@jit
def next_packet(world: Record, number: int, flow: Record) -> int:
    """The line is free for a refused packet, or else for the next new one."""
    sent = wide(flow.next)
    if flow.duplicates > 0:
        sent = wide(flow.first)
        while not has_bit(world, _bitmap(flow, 2), sent):
            sent += 1
        _refuse(world, flow, sent, False)
    else:
        flow.next = sent + 1
    set_timer(world, number, flow, world.now + flow.rto)
    return make_data(world, number, flow, sent, False)


@jit
def _refuse(world: Record, flow: Record, packet: int, value: bool) -> None:
    """A packet is to be sent again, or is not any more."""
    if has_bit(world, _bitmap(flow, 2), packet) != value:
        set_bit(world, _bitmap(flow, 2), packet, value)
        flow.duplicates += 1 if value else -1


@jit
def receive(world: Record, number: int, flow: Record, index: int) -> None:
    """A packet, its header or a probe reaches the receiver, and becomes the answer."""
    packet = packet_at(world.packets, index)
    world.delivered_bytes += packet.size
    kind = ACK
    if packet.kind == PROBE:
        kind = PULL
        if flow.acked == flow.received:
            flow.acked += 1
            flow.received += 1
        packet.number = flow.received
    elif packet.kind == TRIMMED:
        kind = NACK
        flow.marks += 1
    elif not has_bit(world, flow.bits, wide(packet.number)):
        set_bit(world, flow.bits, wide(packet.number), True)
        flow.arrived += 1
        if flow.arrived == flow.packets:
            finish(world, flow)
    if flow.arrived == flow.packets:
        flow.acked = flow.received  # no pull is needed any more
    elif kind != PULL and flow.acked < flow.packets - flow.window_end + flow.marks:
        flow.acked += 1
        _want_pull(world, number, flow)
    size = settings_at(world.settings, flow.settings).answer_bytes
    send_signal(world, flow, index, kind, size, wide(flow.back_queue), True)


@jit
def _want_pull(world: Record, number: int, flow: Record) -> None:
    """The flow takes its turn among those that its receiver's host pulls."""
    host = wide(flow.destination)
    port = port_at(world.ports, host)
    if flow.state == IDLE:
        flow.state = WAITING
        if port.pulls == NONE:
            flow.recover = number
        else:
            last = flow_at(world.flows, port.pulls)
            flow.recover = last.recover
            last.recover = number
        port.pulls = number
    heap = heap_at(world.heaps, PORT_EVENTS)
    if place_at(heap.places, world.port_count + host).place == NONE:
        set_event(world, heap, world.port_count + host, max(world.now, port.pulled))


@jit
def pull(world: Record, host: int) -> None:
    """A host may send the next of its pulls."""
    port = port_at(world.ports, host)
    heap = heap_at(world.heaps, PORT_EVENTS)
    is_sent = False
    while port.pulls != NONE and not is_sent:
        last = flow_at(world.flows, port.pulls)
        number = wide(last.recover)
        flow = flow_at(world.flows, number)
        if flow.acked > flow.received:
            flow.received += 1
            _signal(world, number, flow, PULL, wide(flow.received))
            settings = settings_at(world.settings, flow.settings)
            port.pulled = world.now + (settings.payload + settings.header) * BITS_PICOSECONDS // port.bps
            is_sent = True
        if flow.acked > flow.received:
            port.pulls = number
            continue
        flow.state = IDLE
        if port.pulls == number:
            port.pulls = NONE
        else:
            last.recover = flow.recover
    if port.pulls == NONE:
        remove_event(heap, world.port_count + host)
    else:
        set_event(world, heap, world.port_count + host, port.pulled)


@jit
def _signal(world: Record, number: int, flow: Record, kind: int, count: int) -> None:
    index = new_packet(world)
    packet = packet_at(world.packets, index)
    packet.flow = number
    packet.number = count
    packet.sent = world.now
    packet.marked = 0
    size = settings_at(world.settings, flow.settings).answer_bytes
    send_signal(world, flow, index, kind, size, wide(flow.back_queue), kind == PULL)


@jit
def answered(world: Record, number: int, flow: Record, index: int) -> None:
    """An acknowledgement, a refusal or a pull reaches the sender."""
    packet = packet_at(world.packets, index)
    kind, which = packet.kind, wide(packet.number)
    world.delivered_bytes += packet.size
    free_packet(world, index)
    if flow.closed:
        return
    flow.rto = settings_at(world.settings, flow.settings).least_rto
    if kind == PULL:
        if which > flow.reduced_until:
            flow.window += which - flow.reduced_until
            flow.reduced_until = which
    elif kind == NACK:
        if not has_bit(world, _bitmap(flow, 1), which):
            _refuse(world, flow, which, True)
    else:
        set_bit(world, _bitmap(flow, 1), which, True)
        _refuse(world, flow, which, False)
        first = wide(flow.first)
        while first < flow.packets and has_bit(world, _bitmap(flow, 1), first):
            first += 1
        flow.first = first
        if first == flow.packets:
            flow.closed = 1
            clear_timer(world, number)
            return
    set_timer(world, number, flow, world.now + flow.rto)
    if may_send(flow):
        want_line(world, number, flow)


@jit
def fires(world: Record, number: int, flow: Record) -> None:
    """Nothing was heard for RTO."""
    if flow.closed:
        return
    lost = 0
    for packet in range(wide(flow.first), wide(flow.next)):
        if not has_bit(world, _bitmap(flow, 1), packet) and not has_bit(world, _bitmap(flow, 2), packet):
            _refuse(world, flow, packet, True)
            lost += 1
    flow.window += lost
    if lost > 0:
        want_line(world, number, flow)
    elif not may_send(flow):
        _signal(world, number, flow, PROBE, 0)
    flow.rto = max(flow.rto, min(2 * flow.rto, LARGEST_RTO))
    set_timer(world, number, flow, world.now + flow.rto)
