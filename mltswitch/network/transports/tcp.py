"""TCP with NewReno's recovery; DCTCP, PIAS and CUBIC on top of it.

Slow start and congestion avoidance by RFC 5681, fast recovery by RFC 6582 without SACK, timeouts by RFC 6298,
an acknowledgement for every packet. DCTCP (RFC 8257) estimates the share of marked bytes in every window, and
shrinks the window by half of it once a window. Round trips come from timestamps, also of packets sent again.
PIAS (Bai et al., NSDI 2015) is DCTCP whose packets go in a lower class the more bytes of the flow are before
them; one that is sent again has its class again. CUBIC (RFC 9438) lets the window grow by the time since the
last loss, and has `alpha` for W_max, `rate` for W_est, `window_end` for the start of its epoch and
`reduced_until` for K, both in microseconds; `marks` says that an epoch has begun.

Of a flow, `first` is SND.UNA and `next` SND.NXT; `window` counts packets; `received` is the receiver's first
missing packet; `acked` and `marks` are what DCTCP has counted since `window_end`.
`due` is the packet after the last one that the timer has sent again.
"""

import numpy as np

from mltswitch.network.ports import enqueue, free_packet
from mltswitch.network.records import ACK, Record, packet_at, settings_at, wide
from mltswitch.network.sending import (
    clear_timer,
    finish,
    has_bit,
    make_data,
    send_signal,
    set_bit,
    set_timer,
    want_line,
)
from mltswitch.network.units import PICOSECONDS
from mltswitch.queueing.jit import jit

OPEN, RECOVERY, PARTIAL = range(3)
"""What the sender does: sends new data, or repairs a loss that duplicate acknowledgements told of; PARTIAL:
a part of it is acknowledged."""
LARGEST_RTO = 60 * PICOSECONDS
CUBIC_TICK = PICOSECONDS // 10**5
"""Unit of CUBIC's clock: 32 bits last for six hours."""
LAST_TICK = 2**31 - 1
LEAST_WINDOW = 2.0


@jit
def begin(world: Record, number: int, flow: Record) -> None:
    """Start a flow with its initial window."""
    settings = settings_at(world.settings, flow.settings)
    flow.window = settings.initial_window
    flow.slow_start_end = np.inf
    flow.alpha = 1.0
    flow.rto = settings.least_rto
    _classify(flow, settings, 0)
    want_line(world, number, flow)


@jit
def may_send(flow: Record) -> bool:
    """Whether the window lets a packet go."""
    return bool(flow.next < flow.packets and flow.next - flow.first < flow.window)


@jit
def next_packet(world: Record, number: int, flow: Record) -> int:
    """The line is free for the flow's next packet."""
    if flow.first == flow.next:
        set_timer(world, number, flow, world.now + flow.rto)
    sent = wide(flow.next)
    flow.next = sent + 1
    return _make(world, number, flow, sent)


@jit
def _make(world: Record, number: int, flow: Record, sent: int) -> int:
    settings = settings_at(world.settings, flow.settings)
    _classify(flow, settings, sent)
    index = make_data(world, number, flow, sent, settings.gain > 0)
    _classify(flow, settings, wide(flow.next))
    return index


@jit
def _classify(flow: Record, settings: Record, packet: int) -> None:
    """PIAS, section 4.1: the class of the flow is that of its next packet."""
    if settings.demotions > 0:
        place = 0
        while place < settings.demotions and packet * settings.payload >= settings.demotion[place]:
            place += 1
        flow.queue = min(settings.first_class + place, settings.last_class)


@jit
def receive(world: Record, flow: Record, index: int) -> None:
    """A packet reaches the receiver, and becomes its own acknowledgement."""
    packet = packet_at(world.packets, index)
    world.delivered_bytes += packet.size
    if not has_bit(world, flow.bits, wide(packet.number)):
        set_bit(world, flow.bits, wide(packet.number), True)
        flow.arrived += 1
    received = wide(flow.received)
    while received < flow.packets and has_bit(world, flow.bits, received):
        received += 1
    if received == flow.packets and flow.received < received:
        finish(world, flow)
    flow.received = received
    packet.number = received
    size = settings_at(world.settings, flow.settings).answer_bytes
    send_signal(world, flow, index, ACK, size, wide(flow.back_queue), True)


@jit
def answered(world: Record, number: int, flow: Record, index: int) -> None:
    """An acknowledgement reaches the sender."""
    packet = packet_at(world.packets, index)
    upto, is_marked, round_trip = wide(packet.number), packet.marked != 0, world.now - packet.sent
    world.delivered_bytes += packet.size
    free_packet(world, index)
    if flow.closed:
        return
    settings = settings_at(world.settings, flow.settings)
    _learn(flow, settings, round_trip)
    if settings.gain > 0:
        _estimate(flow, settings, upto, is_marked)
    if upto > flow.first:
        _advance(world, number, flow, upto, is_marked)
    elif flow.next > flow.first:
        _duplicate(world, number, flow, settings)
    if not flow.closed and may_send(flow):
        want_line(world, number, flow)


@jit
def _learn(flow: Record, settings: Record, round_trip: int) -> None:
    """RFC 6298, section 2."""
    if flow.srtt == 0:
        flow.srtt = round_trip
        flow.rttvar = round_trip >> 1
    else:
        flow.rttvar += (abs(round_trip - flow.srtt) - flow.rttvar) >> 2
        flow.srtt += (round_trip - flow.srtt) >> 3
    flow.rto = max(flow.srtt + 4 * flow.rttvar, settings.least_rto)


@jit
def _estimate(flow: Record, settings: Record, upto: int, is_marked: bool) -> None:
    """RFC 8257, sections 3.3 and 3.4: the estimate once a window, the reduction once a window."""
    acked = max(0, upto - flow.first)
    flow.acked += acked
    if is_marked:
        flow.marks += acked
    if upto > flow.window_end:
        share = flow.marks / max(1, flow.acked)
        flow.alpha += settings.gain * (share - flow.alpha)
        flow.acked = 0
        flow.marks = 0
        flow.window_end = flow.next
    if is_marked and upto > flow.reduced_until and flow.state == OPEN:
        flow.window = max(LEAST_WINDOW, flow.window * (1 - flow.alpha / 2))
        flow.slow_start_end = flow.window
        flow.reduced_until = flow.next


@jit
def _advance(world: Record, number: int, flow: Record, upto: int, is_marked: bool) -> None:
    acked = upto - flow.first
    flow.first = upto
    flow.next = max(flow.next, upto)
    if upto >= flow.packets:
        flow.closed = 1
        clear_timer(world, number)
        return
    was_partial = flow.state == PARTIAL
    if flow.state != OPEN:
        if upto >= flow.recover:
            flow.state = OPEN
            flow.window = flow.slow_start_end
            flow.duplicates = 0
            was_partial = False
        else:  # a partial acknowledgement: the next hole, and the window without what has left the network
            enqueue(world, wide(flow.source), _make(world, number, flow, upto))
            flow.window = max(flow.window - acked + 1, 1.0)
            flow.state = PARTIAL
    else:
        flow.duplicates = 0
        if not is_marked:
            settings = settings_at(world.settings, flow.settings)
            if flow.window < flow.slow_start_end:
                flow.window += 1  # whatever is acknowledged: RFC 5681, section 3.1
            elif settings.cubic > 0:
                _grow_cubic(flow, settings, acked, world.now)
            else:
                flow.window += acked / flow.window
    if not was_partial:  # RFC 6582, section 3.2: the first of them alone resets the timer
        set_timer(world, number, flow, world.now + flow.rto)


@jit
def _duplicate(world: Record, number: int, flow: Record, settings: Record) -> None:
    flow.duplicates += 1
    if flow.state != OPEN:
        flow.window += 1
    elif flow.duplicates == settings.duplicates and flow.first >= flow.recover:
        flow.state = RECOVERY
        flow.recover = flow.highest
        flow.slow_start_end = _reduced(flow, settings)
        flow.window = flow.slow_start_end + settings.duplicates
        enqueue(world, wide(flow.source), _make(world, number, flow, wide(flow.first)))


@jit
def _reduced(flow: Record, settings: Record) -> float:
    """The window after a loss: RFC 5681, equation 4, or RFC 9438, sections 4.6 and 4.7."""
    if settings.cubic > 0:
        is_sooner = flow.window < flow.alpha
        flow.alpha = flow.window * ((1 + settings.beta) / 2 if is_sooner else 1.0)
        flow.marks = 0
        return float(max((flow.next - flow.first) * settings.beta, LEAST_WINDOW))
    return float(max((flow.next - flow.first) / 2, LEAST_WINDOW))


@jit
def _grow_cubic(flow: Record, settings: Record, acked: int, now: int) -> None:
    """RFC 9438, sections 4.2 to 4.5."""
    ticks = now // CUBIC_TICK
    if flow.marks == 0:
        flow.marks = 1
        flow.rate = flow.window
        flow.alpha = max(flow.alpha, flow.window)
        plateau = ticks + int(1e5 * np.cbrt((flow.alpha - flow.window) / settings.cubic))
        flow.reduced_until = min(plateau, LAST_TICK)
    friendly = 3 * (1 - settings.beta) / (1 + settings.beta)
    if flow.rate * settings.beta >= flow.slow_start_end:
        friendly = 1.0
    flow.rate += friendly * acked / flow.window
    since = (ticks - flow.reduced_until) * 1e-5
    if flow.alpha + settings.cubic * since**3 < flow.rate:
        flow.window = max(flow.window, flow.rate)
        return
    since += flow.srtt / PICOSECONDS
    target = min(max(flow.alpha + settings.cubic * since**3, flow.window), 1.5 * flow.window)
    flow.window += (target - flow.window) / flow.window * acked


@jit
def fires(world: Record, number: int, flow: Record) -> None:
    """Nothing was acknowledged for RTO: everything not acknowledged is sent again, in slow start."""
    if flow.closed or flow.first == flow.next:
        return
    settings = settings_at(world.settings, flow.settings)
    if flow.first >= flow.due:  # RFC 5681, section 3.1: constant where the same packet is lost again
        flow.slow_start_end = _reduced(flow, settings)
        flow.due = flow.first + 1
    if settings.cubic > 0:
        flow.alpha = 0.0  # RFC 9438, section 4.8: W_max is the window with which avoidance begins
    flow.window = 1.0
    flow.state = OPEN
    flow.duplicates = 0
    flow.recover = flow.highest
    flow.next = flow.first
    flow.rto = max(flow.rto, min(2 * flow.rto, LARGEST_RTO))
    flow.window_end = flow.first
    flow.acked = 0
    flow.marks = 0
    flow.reduced_until = flow.first
    _classify(flow, settings, wide(flow.next))
    want_line(world, number, flow)
