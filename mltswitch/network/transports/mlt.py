"""MLT by the law that its paper prints (section 4.2), with TIMELY's gradient rule where it prints none.

A sender begins at line rate and sends every packet once; then it asks what is missing, and sends that,
until the receiver says stop. The receiver needs all important packets, and all but a share of the others;
it asks for no more than that. It acknowledges every tenth packet, and the round trip of those decides about
the rate: below T_low it grows by a step, above T_high it shrinks by beta · (1 - T_high / round trip), and
between them TIMELY's gradient decides (Mittal et al., SIGCOMM 2015, algorithm 1). Probe, bitmap and stop
travel in the control class and overtake data, so a bitmap also asks for what still waits in a queue; with
`probes_wait` the probe goes in the class of its flow, behind the data on its path.

The rate belongs to a flow, or with `rates: pair` to all flows between two hosts; it lies in the record of the
flow that `pair` names. Flows for which that rate has no room wait in a list, first classes first, which
begins at `first` and ends at `reduced_until` of that record; its first flow has a timer.

Of a flow, `recover` and `received` count what the receiver still needs, of important packets and of others;
`duplicates` is the round, `window_end` how many others may stay away, `acked` the packets since the last
acknowledgement; `due` is when the rate lets the next packet go; `srtt` is the last round trip, `rttvar` the
least, `alpha` their smoothed difference, and `marks` counts increases in a row. From `acked` on, these are
the pair's.
"""

from mltswitch.network.chance import tag_of
from mltswitch.network.ports import free_packet, new_packet
from mltswitch.network.records import (
    ACK,
    BITS_PICOSECONDS,
    DATA,
    MISSING,
    NONE,
    PROBE,
    STOP,
    Record,
    flow_at,
    packet_at,
    port_at,
    settings_at,
    wide,
)
from mltswitch.network.sending import (
    clear_timer,
    finish,
    has_bit,
    make_data,
    packet_bytes,
    send_signal,
    set_bit,
    set_timer,
    want_line,
)
from mltswitch.queueing.jit import jit

SENDING, ASKING = range(2)
"""What the sender does: sends packets, or waits for the answer to its probe."""
WAITING = 2
"""In `listed`: the flow waits for its pair's rate."""
LARGEST_BITMAP_BYTES = 9000
"""Of one packet; a longer bitmap would take several, which come together."""


@jit
def _is_important(world: Record, number: int, flow: Record, packet: int) -> bool:
    return bool(tag_of(world, number, packet) >= settings_at(world.settings, flow.settings).unimportant)


@jit
def _sender_bits(flow: Record) -> int:
    """Where the bits of what is to be sent begin, behind those of what has arrived."""
    return int(flow.bits + ((flow.packets + 63) >> 6))


@jit
def begin(world: Record, number: int, flow: Record) -> None:
    """Start a flow: count what its receiver needs, and send at the first rate."""
    settings = settings_at(world.settings, flow.settings)
    others = 0
    for packet in range(wide(flow.packets)):
        set_bit(world, _sender_bits(flow), packet, True)
        if not _is_important(world, number, flow, packet):
            others += 1
    flow.received = others
    flow.recover = flow.packets - others
    flow.window_end = int(others * settings.loss_bound)
    pair = flow_at(world.flows, flow.pair)
    if pair.rate == 0:
        pair.rate = settings.line_rate_share * port_at(world.ports, flow.source).bps
        pair.due = world.now
        pair.first = NONE
    flow.rto = settings.least_rto
    want_line(world, number, flow)


@jit
def may_send(world: Record, flow: Record, time: int) -> bool:
    """Whether a packet may leave at this time."""
    return _has_packets(flow) and flow_at(world.flows, flow.pair).due <= time


@jit
def _has_packets(flow: Record) -> bool:
    return bool(flow.state == SENDING and flow.next < flow.packets)


@jit
def next_packet(world: Record, number: int, flow: Record) -> int:
    """The line is free for the flow's next packet."""
    sent = wide(flow.next)
    _seek(world, flow, sent + 1)
    settings = settings_at(world.settings, flow.settings)
    bits = packet_bytes(flow, settings, sent) * BITS_PICOSECONDS
    free = world.now + bits // port_at(world.ports, flow.source).bps
    pair = flow_at(world.flows, flow.pair)
    pair.due = max(pair.due, world.now) + int(bits / pair.rate)
    _wake_first(world, pair)
    if flow.next >= flow.packets:
        flow.state = ASKING
        set_timer(world, number, flow, free)
    return make_data(world, number, flow, sent, _is_important(world, number, flow, sent))


@jit
def leaves_ring(world: Record, number: int, flow: Record) -> None:
    """The flow takes no more turns at the line; where only the rate forbids it, it waits for that."""
    if flow.closed or not _has_packets(flow):
        return
    pair = flow_at(world.flows, flow.pair)
    flow.listed = WAITING
    before, following = NONE, wide(pair.first)
    if following != NONE and flow_at(world.flows, pair.reduced_until).queue < flow.queue:
        before, following = wide(pair.reduced_until), NONE
    while following != NONE and flow_at(world.flows, following).queue < flow.queue:
        before, following = following, wide(flow_at(world.flows, following).ring)
    flow.ring = following
    if following == NONE:
        pair.reduced_until = number
    if before == NONE:
        pair.first = number
        set_timer(world, number, flow, pair.due)
    else:
        flow_at(world.flows, before).ring = number


@jit
def _wake_first(world: Record, pair: Record) -> None:
    """The first flow that waits goes on when the rate allows; what is done waits no more."""
    while pair.first != NONE:
        first = flow_at(world.flows, pair.first)
        if not first.closed:
            set_timer(world, wide(pair.first), first, max(pair.due, world.now))
            return
        pair.first = first.ring


@jit
def _takes_turn(world: Record, number: int, flow: Record) -> None:
    """The timer of a flow that waited: it goes to the line, and those behind it wait for its packet."""
    pair = flow_at(world.flows, flow.pair)
    if flow.listed != WAITING or pair.first != number:
        return
    if pair.due > world.now:
        set_timer(world, number, flow, pair.due)
        return
    pair.first = flow.ring
    flow.listed = 0
    want_line(world, number, flow)


@jit
def _seek(world: Record, flow: Record, start: int) -> None:
    """The next packet is the first from `start` on that is to be sent."""
    bits = _sender_bits(flow)
    packet = start
    while packet < flow.packets and not has_bit(world, bits, packet):
        packet += 1
    flow.next = packet


@jit
def fires(world: Record, number: int, flow: Record) -> None:
    """The rate lets the next packet go; or it is time to ask, or to ask again."""
    if flow.closed:
        return
    if flow.state == SENDING:
        _takes_turn(world, number, flow)
        return
    index = new_packet(world)
    packet = packet_at(world.packets, index)
    packet.flow = number
    packet.number = flow.duplicates
    packet.sent = world.now
    packet.marked = 0
    settings = settings_at(world.settings, flow.settings)
    queue = wide(flow.queue if settings.probes_wait else flow.back_queue)
    send_signal(world, flow, index, PROBE, settings.answer_bytes, queue, False)
    set_timer(world, number, flow, world.now + flow.rto)


@jit
def receive(world: Record, flow: Record, index: int) -> None:
    """Data or a probe reaches the receiver."""
    packet = packet_at(world.packets, index)
    world.delivered_bytes += packet.size
    if packet.kind == DATA:
        _receive_data(world, flow, index)
    elif packet.number != flow.duplicates:
        free_packet(world, index)  # of a round that is over
    elif flow.finish != NONE:
        _answer(world, flow, index, STOP)
    else:
        _ask_for_missing(world, wide(packet.flow), flow)
        _answer(world, flow, index, MISSING)


@jit
def _answer(world: Record, flow: Record, index: int, kind: int) -> None:
    size = settings_at(world.settings, flow.settings).answer_bytes
    if kind == MISSING:
        size = min(size + (flow.packets >> 3), LARGEST_BITMAP_BYTES)
    send_signal(world, flow, index, kind, size, wide(flow.back_queue), True)


@jit
def _receive_data(world: Record, flow: Record, index: int) -> None:
    packet = packet_at(world.packets, index)
    is_new = not has_bit(world, flow.bits, wide(packet.number))
    if is_new:
        set_bit(world, flow.bits, wide(packet.number), True)
        flow.arrived += 1
        if packet.capable:
            flow.recover -= 1
        else:
            flow.received -= 1
    if flow.finish == NONE and flow.recover == 0 and flow.received <= flow.window_end:
        finish(world, flow)
        _answer(world, flow, index, STOP)
        return
    pair = flow_at(world.flows, flow.pair)
    pair.acked += 1
    if pair.acked >= settings_at(world.settings, flow.settings).packets_per_answer:
        pair.acked = 0
        _answer(world, flow, index, ACK)
    else:
        free_packet(world, index)


@jit
def _ask_for_missing(world: Record, number: int, flow: Record) -> None:
    """The bits of all important packets that are missing, and of so many others as the bound wants."""
    bits = _sender_bits(flow)
    others = flow.received - flow.window_end
    for packet in range(wide(flow.packets)):
        is_wanted = not has_bit(world, flow.bits, packet)
        if is_wanted and not _is_important(world, number, flow, packet):
            is_wanted = others > 0
            others -= 1
        set_bit(world, bits, packet, is_wanted)


@jit
def answered(world: Record, number: int, flow: Record, index: int) -> None:
    """An answer of the receiver reaches the sender."""
    packet = packet_at(world.packets, index)
    kind, of_round, round_trip = packet.kind, packet.number, world.now - packet.sent
    world.delivered_bytes += packet.size
    free_packet(world, index)
    if flow.closed:
        return
    if kind == STOP:
        flow.closed = 1
        clear_timer(world, number)
        _wake_first(world, flow_at(world.flows, flow.pair))
    elif kind == ACK:
        _adapt(world, flow_at(world.flows, flow.pair), round_trip)
    elif flow.state == ASKING and of_round == flow.duplicates:
        flow.duplicates += 1
        flow.state = SENDING
        clear_timer(world, number)
        _seek(world, flow, 0)
        if may_send(world, flow, world.now):
            want_line(world, number, flow)
        else:
            leaves_ring(world, number, flow)


@jit
def _adapt(world: Record, flow: Record, round_trip: int) -> None:
    settings = settings_at(world.settings, flow.settings)
    line = settings.line_rate_share * port_at(world.ports, flow.source).bps
    if flow.srtt == 0:
        flow.srtt = round_trip
        flow.rttvar = round_trip
    weight = settings.gradient_weight
    flow.alpha = (1 - weight) * flow.alpha + weight * (round_trip - flow.srtt)
    flow.srtt = round_trip
    flow.rttvar = min(flow.rttvar, round_trip)
    rate = flow.rate
    gradient = flow.alpha / flow.rttvar
    if round_trip < settings.low or (round_trip <= settings.high and gradient <= 0):
        flow.marks += 1
        is_fast = not settings.holds and round_trip >= settings.low and flow.marks >= settings.fast_after
        rate += settings.increase * (settings.fast_factor if is_fast else 1.0)
    elif round_trip > settings.high or not settings.holds:
        flow.marks = 0
        severity = 1 - settings.high / round_trip if round_trip > settings.high else min(gradient, 1.0)
        rate *= 1 - settings.decrease * severity
    flow.rate = min(max(rate, settings.least_rate), line)
