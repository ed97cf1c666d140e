"""The compiled event loop of the simulation.

All compiled code stands in this one file: numba's cache on disk notices a change only in the file of the
function that was compiled, not in those that it calls.

The line never idles while a packet waits, so nothing happens between two arrivals but transmissions one after
the other: the loop takes the next arrival, lets the line catch up with it, and decides about its packets.
"""

from collections.abc import Callable
from math import inf, log
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np

from mltswitch.queueing.simulation.arrays import (
    DELAY_BINS,
    DELAY_OCTAVES,
    DELAY_STEPS,
    GEOMETRIC,
    IDLE,
    IMPORTANT,
    INCAST,
    TABLE,
    TRAIN,
    UNIMPORTANT,
    Floats,
    Integers,
    Record,
    Records,
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def jit(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function at its first call, and cache the machine code on disk where a folder can be written.

    Where no folder can (a read-only installation of a user without a home), every process compiles anew.
    """
    try:
        compiled = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        compiled = numba.njit(error_model="numpy")(function)
    return cast("Callable[Parameters, Result]", compiled)


FORWARD, MARK, DROP_UNIMPORTANT, DROP_LIMIT = range(4)
"""The verdicts about a packet as numbers, in the order of `decision.Decision`."""

TIE = 1e-6
"""A transmission that ends within this many packet times of an arrival ends before it. A sender as fast as
the port leaves its packets exactly one packet time apart, and rounding must not decide."""

UNTAGGED = -1
"""Tag of a burst whose packets draw their importance one by one."""

_WORD_STEP = np.uint64(0x9E3779B97F4A7C15)
_WORD_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_WORD_MIX_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@jit
def draw(stream: Record) -> float:
    """A random number uniform in [0, 1) (SplitMix64: one word of state)."""
    word = stream.word + _WORD_STEP
    stream.word = word
    word = (word ^ (word >> _30)) * _WORD_MIX_1
    word = (word ^ (word >> _27)) * _WORD_MIX_2
    return np.int64((word ^ (word >> _31)) >> _11) * 2.0**-53


@jit
def draw_exponential(stream: Record) -> float:
    """A random number from the exponential distribution with mean 1."""
    return -log(1.0 - draw(stream))


@jit
def verdict(length: float, average: float, is_important: bool, threshold: float, limit: float) -> int:
    """The decision of `decision.decide` as a number, with S compared with the average and L with the
    length."""
    if length >= limit:
        return DROP_LIMIT
    if average < threshold:
        return FORWARD
    return MARK if is_important else DROP_UNIMPORTANT


@jit
def delay_bin(delay: float) -> int:
    """The histogram bin of a delay: 1/16 packet time wide up to 128 packet times, then 1,024 bins per
    octave."""
    steps = int(delay * DELAY_STEPS)
    octave = 0
    while (steps >> octave) >= 2 * DELAY_BINS and octave < DELAY_OCTAVES:
        octave += 1
    return octave * DELAY_BINS + min(steps >> octave, 2 * DELAY_BINS - 1)


@jit
def train_size(source: Record, sizes: Records, stream: Record) -> int:
    """Number of packets of the train that starts now."""
    if source.kind == GEOMETRIC and source.train_packets > 1:
        return 1 + int(log(1.0 - draw(stream)) / log(1.0 - 1.0 / source.train_packets))
    if source.kind == TABLE:
        share = draw(stream)
        entry = source.table_first
        while entry < source.table_last and sizes[entry].cumulative <= share:
            entry += 1
        return int(sizes[entry].packets)
    return int(source.train_packets)


@jit
def begin_round(source: Record, queue: Record, pending: Floats, stream: Record, index: int) -> None:
    """Insert the starts of an incast round's senders into the sorted pending starts."""
    capacity = pending.shape[1]
    rest = 1.0
    for senders_left in range(source.senders, 0, -1):
        # Rising uniform numbers, one by one: the least of n is 1 - U^(1/n), the next one lies in the rest.
        rest *= draw(stream) ** (1.0 / senders_left)
        start = queue.epoch + source.jitter * (1.0 - rest)
        place = queue.pending_head + queue.pending_count
        while place > queue.pending_head and pending[index, (place - 1) % capacity] > start:
            pending[index, place % capacity] = pending[index, (place - 1) % capacity]
            place -= 1
        pending[index, place % capacity] = start
        queue.pending_count += 1
    queue.epoch += source.start_gap


@jit
def schedule_start(source: Record, queue: Record, pending: Floats, stream: Record, index: int) -> None:
    """Find when the queue's next train starts."""
    if source.kind != INCAST:
        queue.start += source.start_gap * draw_exponential(stream)
        return
    while queue.pending_count == 0 or pending[index, queue.pending_head] >= queue.epoch:
        begin_round(source, queue, pending, stream, index)
    queue.start = pending[index, queue.pending_head]
    queue.pending_head = (queue.pending_head + 1) % pending.shape[1]
    queue.pending_count -= 1


@jit
def prepare(sources: Records, queues: Records, events: Floats, pending: Floats, streams: Records) -> None:
    """Set the first arrival of every queue at the beginning of a replication."""
    for index in range(len(queues)):
        source, queue, stream = sources[index], queues[index], streams[index]
        events[index] = inf
        if source.start_gap < inf:
            if source.kind == INCAST:
                queue.epoch = source.start_gap * draw(stream)
            schedule_start(source, queue, pending, stream, index)
            events[index] = queue.start


@jit
def with_room(trains: Records, queues: Records) -> Records:
    """The rings of trains under way, enlarged to twice their size."""
    count, capacity = trains.shape
    larger = np.empty((count, 2 * capacity), TRAIN)
    for index in range(count):
        for place in range(queues[index].train_count):
            larger[index, place] = trains[index, (queues[index].train_head + place) % capacity]
        queues[index].train_head = 0
    return larger


@jit
def next_weighted(rules: Records, queues: Records, turn: int) -> int:
    """The queue whose packet goes next by deficit round robin; at least one weighted queue must hold
    packets."""
    while queues[turn].waiting == 0 or queues[turn].deficit < 1 - TIE:
        if queues[turn].waiting == 0:
            queues[turn].deficit = 0
        turn = (turn + 1) % len(queues)
        queues[turn].deficit += rules[turn].quantum
    queues[turn].deficit -= 1
    return turn


@jit
def sample_average(weight: float, queue: Record, length: int, now: float, is_idle: bool) -> float:
    """Exponentially weighted average of the queue length, as Linux's red and Floyd and Jacobson's paper keep
    it.

    An arrival at an idle queue takes no sample; the average decays by one factor per packet time instead.
    """
    if is_idle:
        queue.average *= (1 - weight) ** (now - queue.updated)
    else:
        queue.average += weight * (length - queue.average)
    queue.updated = now
    return float(queue.average)


@jit
def judge(rule: Record, queue: Record, port: Record, index: int, is_important: bool, lottery: Record) -> int:
    """Decide whether one arriving packet is forwarded, marked or dropped."""
    length = queue.waiting
    is_own_in_service = port.serving == index
    is_idle = length == 0 and not is_own_in_service
    if port.count_in_service and is_own_in_service:
        length += 1
    average = float(length)
    if rule.average_weight < 1:
        average = sample_average(rule.average_weight, queue, length, port.now, is_idle)
    if port.serving != IDLE and port.total + 1 > port.buffer:
        return DROP_LIMIT
    if length >= rule.alpha * (port.buffer - port.total):
        return DROP_LIMIT
    fate = verdict(length, average, is_important, rule.threshold, rule.limit)
    if average < rule.maximum and (fate in (MARK, DROP_UNIMPORTANT)):
        slope = rule.mark_probability / (rule.maximum - rule.threshold)
        if draw(lottery) >= slope * (average - rule.threshold):
            return FORWARD
    return fate


@jit
def next_queue(rules: Records, queues: Records, port: Record) -> int:
    """The queue that transmits next; at least one must hold packets."""
    first = port.first
    while first < len(queues) and (queues[first].waiting == 0 or rules[first].quantum > 0):
        first += 1
    port.first = first
    if first < len(queues):
        return int(first)
    port.turn = next_weighted(rules, queues, port.turn)
    return int(port.turn)


@jit
def service_time(port: Record, stream: Record) -> float:
    """Duration of the next transmission in packet times."""
    return draw_exponential(stream) if port.exponential_service else 1.0


@jit
def catch_up(
    rules: Records,
    queues: Records,
    port: Record,
    rings: Floats,
    service: Record,
    counters: Records,
    delays: Integers,
    lengths: Floats,
) -> None:
    """Carry out all transmissions of the line up to the present time."""
    places = rings.shape[1] - 1  # a power of two less one
    while port.serving != IDLE and port.end <= port.now + TIE:
        end = port.end
        queues[port.serving].updated = end
        if port.total == 0:
            port.serving = IDLE
            return
        index = next_queue(rules, queues, port)
        queue, counter = queues[index], counters[index]
        lengths[index, queue.waiting] += end - queue.changed
        queue.changed = end
        delay = end - rings[index, queue.head]
        queue.head = (queue.head + 1) & places
        queue.waiting -= 1
        counter.started += 1
        counter.delay_sum += delay
        delays[index, delay_bin(delay)] += 1
        port.total -= 1
        port.serving = index
        port.end = end + service_time(port, service)


@jit
def arrive(
    source: Record,
    sizes: Records,
    queue: Record,
    trains: Records,
    pending: Floats,
    stream: Record,
    index: int,
) -> tuple[int, int, float]:
    """Take a queue's next arrival from its trains under way.

    All trains of a queue have one packet gap, so the one that sent last sends again last: a ring keeps their
    order.

    Returns:
        How many packets come at once, their tag, and when the queue's next arrival is due.
    """
    places = trains.shape[1] - 1  # a power of two less one
    if queue.train_count > 0 and trains[index, queue.train_head].time <= queue.start:
        train = trains[index, queue.train_head]
        time, packets, burst, tag = train.time, train.packets, train.burst, train.tag
        queue.train_head = (queue.train_head + 1) & places
        queue.train_count -= 1
    else:
        time, packets, burst, tag = queue.start, train_size(source, sizes, stream), 0, UNTAGGED
        schedule_start(source, queue, pending, stream, index)
    if burst == 0:
        burst = min(packets, source.burst_packets)
        if source.tag_per_burst:
            is_important = draw(stream) >= source.unimportant_share
            tag = IMPORTANT if is_important else UNIMPORTANT
    count = burst if source.packet_gap == 0 else 1
    if packets > count:
        train = trains[index, (queue.train_head + queue.train_count) & places]
        train.time = time + source.packet_gap
        train.packets = packets - count
        train.burst = burst - count
        train.tag = tag
        queue.train_count += 1
    due = queue.start
    if queue.train_count > 0:
        due = min(due, trains[index, queue.train_head].time)
    return count, tag, due


@jit
def earliest(events: Floats) -> int:
    """The queue whose arrival comes next."""
    # Selected, not branched upon: no processor can guess whose turn it is.
    first, time = 0, events[0]
    for index in range(1, len(events)):
        due = events[index]
        is_earlier = due < time
        first = index if is_earlier else first
        time = due if is_earlier else time
    return first


@jit
def run(
    sources: Records,
    sizes: Records,
    rules: Records,
    queues: Records,
    port: Record,
    events: Floats,
    trains: Records,
    pending: Floats,
    rings: Floats,
    streams: Records,
    counters: Records,
    delays: Integers,
    lengths: Floats,
    packets: int,
) -> Records:
    """Offer this many packets to the port, and the rest of the last burst; a further call goes on from there.

    Returns:
        The rings of trains, which may have grown.
    """
    places = rings.shape[1] - 1
    service = streams[len(streams) - 1]
    offered = 0
    while offered < packets:
        index = earliest(events)
        now = events[index]
        port.now = now
        catch_up(rules, queues, port, rings, service, counters, delays, lengths)

        source, rule, queue, counter = sources[index], rules[index], queues[index], counters[index]
        stream, lottery = streams[index], streams[len(queues) + index]
        if queue.train_count == trains.shape[1]:
            trains = with_room(trains, queues)
        count, tag, events[index] = arrive(source, sizes, queue, trains, pending, stream, index)
        offered += count
        lengths[index, queue.waiting] += now - queue.changed
        queue.changed = now
        for _ in range(count):
            kind = tag
            if tag == UNTAGGED:
                is_important = draw(stream) >= source.unimportant_share
                kind = IMPORTANT if is_important else UNIMPORTANT
            counter.offered[kind] += 1
            fate = judge(rule, queue, port, index, kind == IMPORTANT, lottery)
            if fate in (DROP_UNIMPORTANT, DROP_LIMIT):
                counter.dropped[kind] += 1
                continue
            if fate == MARK:
                counter.marked += 1
            if port.serving == IDLE:
                counter.started += 1
                counter.immediate += 1
                port.serving = index
                port.end = now + service_time(port, service)
                continue
            rings[index, (queue.head + queue.waiting) & places] = now
            queue.waiting += 1
            port.total += 1
            port.first = min(port.first, index)

    for index in range(len(queues)):
        queue = queues[index]
        lengths[index, queue.waiting] += port.now - queue.changed
        queue.changed = port.now
    return trains
