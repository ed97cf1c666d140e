"""pFabric (Alizadeh et al., SIGCOMM 2013, section 4.2): switches decide, senders hardly do.

A flow begins with the window that fills its line for a round trip. Every packet carries how many packets of
its flow are not acknowledged, as its rank, and every packet is acknowledged by itself. Only the timer, of a
fixed time, says that packets are lost: all that are not acknowledged are sent again, in slow start; after
some timeouts in a row the sender probes with small packets until one is answered. A host gives its line to
the shortest flow first. As in the authors' ns-2 code the window ends at the packets of a switch's queue
(twice the first window), and the timer runs since the lowest number not acknowledged has changed. That
answers have rank 0 is our choice.

Of a flow, `received` counts the packets that are acknowledged, `duplicates` those on their way, `acked`
timeouts in a row; `window_end` is the largest window. The sender's bits are the packets acknowledged.
"""

import numpy as np

from mltswitch.network.ports import free_packet, new_packet
from mltswitch.network.records import ACK, DATA, NONE, PROBE, Record, flow_at, packet_at, settings_at, wide
from mltswitch.network.sending import (
    clear_timer,
    finish,
    first_window,
    has_bit,
    make_data,
    round_trip,
    send_signal,
    set_bit,
    set_timer,
    want_line,
)
from mltswitch.queueing.jit import jit

SENDING, PROBING = range(2)
LEAST_THRESHOLD = 2.0


@jit
def _acknowledged(flow: Record) -> int:
    """Where the sender's bits begin."""
    return int(flow.bits + ((flow.packets + 63) >> 6))


@jit
def _rank(flow: Record) -> int:
    return int(flow.packets - flow.received)


@jit
def before_shortest(world: Record, last: int) -> int:
    """Of a ring of flows, the one before the flow with the fewest packets left, whose turn is the next."""
    best = place = last
    fewest = 1 << 40
    while True:
        following = wide(flow_at(world.flows, place).ring)
        left = _rank(flow_at(world.flows, following))
        if left < fewest:
            best, fewest = place, left
        place = following
        if place == last:
            return best


@jit
def begin(world: Record, number: int, flow: Record) -> None:
    """Start a flow at line rate."""
    settings = settings_at(world.settings, flow.settings)
    flow.window = first_window(world, flow)
    flow.window_end = 2 * int(flow.window)
    flow.slow_start_end = np.inf
    flow.rto = max(settings.least_rto, int(settings.rto_round_trips * round_trip(world, flow)))
    want_line(world, number, flow)


@jit
def may_send(flow: Record) -> bool:
    """Whether the window lets a packet go."""
    return bool(flow.state == SENDING and flow.next < flow.packets and flow.duplicates < flow.window)


@jit
def next_packet(world: Record, number: int, flow: Record) -> int:
    """The line is free for the flow's next packet."""
    if flow.duplicates == 0:
        set_timer(world, number, flow, world.now + flow.rto)
    flow.duplicates += 1
    sent = wide(flow.next)
    _seek(world, flow, sent + 1)
    index = make_data(world, number, flow, sent, False)
    packet_at(world.packets, index).rank = _rank(flow)
    return index


@jit
def _seek(world: Record, flow: Record, start: int) -> None:
    """The next packet is the first from `start` on that is not acknowledged."""
    packet = start
    while packet < flow.packets and has_bit(world, _acknowledged(flow), packet):
        packet += 1
    flow.next = packet


@jit
def receive(world: Record, flow: Record, index: int) -> None:
    """Data or a probe reaches the receiver, and becomes its own acknowledgement."""
    packet = packet_at(world.packets, index)
    world.delivered_bytes += packet.size
    if packet.kind == DATA and not has_bit(world, flow.bits, wide(packet.number)):
        set_bit(world, flow.bits, wide(packet.number), True)
        flow.arrived += 1
        if flow.arrived == flow.packets:
            finish(world, flow)
    packet.rank = 0
    size = settings_at(world.settings, flow.settings).answer_bytes
    send_signal(world, flow, index, ACK, size, wide(flow.back_queue), True)


@jit
def answered(world: Record, number: int, flow: Record, index: int) -> None:
    """An acknowledgement of one packet, or of a probe (NONE), reaches the sender."""
    packet = packet_at(world.packets, index)
    acknowledged = wide(packet.number)
    world.delivered_bytes += packet.size
    free_packet(world, index)
    if flow.closed:
        return
    flow.acked = 0
    flow.state = SENDING
    if acknowledged != NONE and not has_bit(world, _acknowledged(flow), acknowledged):
        set_bit(world, _acknowledged(flow), acknowledged, True)
        flow.received += 1
        flow.duplicates = max(flow.duplicates - 1, 0)
        flow.window += 1.0 if flow.window < flow.slow_start_end else 1.0 / flow.window
        flow.window = min(flow.window, float(flow.window_end))
        if flow.received == flow.packets:
            flow.closed = 1
            clear_timer(world, number)
            return
    first = wide(flow.first)
    while has_bit(world, _acknowledged(flow), first):
        first += 1
    if first > flow.first:
        flow.first = first
        set_timer(world, number, flow, world.now + flow.rto)
    _seek(world, flow, wide(flow.next))
    if may_send(flow):
        want_line(world, number, flow)


@jit
def fires(world: Record, number: int, flow: Record) -> None:
    """The lowest packet was not acknowledged for RTO."""
    if flow.closed:
        return
    if flow.state == SENDING:
        if flow.duplicates == 0 and flow.next < flow.packets:
            # The flow waits for its host's line; or a late answer has counted as that of a packet since lost.
            set_timer(world, number, flow, world.now + flow.rto)
            return
        flow.acked += 1
        flow.slow_start_end = max(flow.window / 2, LEAST_THRESHOLD)
        flow.window = 1.0
        flow.duplicates = 0
        flow.next = flow.first
        if flow.acked >= settings_at(world.settings, flow.settings).probe_after:
            flow.state = PROBING
        else:
            want_line(world, number, flow)
    if flow.state == PROBING:
        index = new_packet(world)
        packet = packet_at(world.packets, index)
        packet.flow = number
        packet.number = NONE
        packet.sent = world.now
        packet.marked = 0
        packet.rank = _rank(flow)
        size = settings_at(world.settings, flow.settings).answer_bytes
        send_signal(world, flow, index, PROBE, size, wide(flow.queue), False)
    set_timer(world, number, flow, world.now + flow.rto)
