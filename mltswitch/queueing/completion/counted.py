"""The port whose thresholds count the packet in transmission as part of its queue.

While a class is served, its thresholds act one packet lower; while others are served, they act as they
stand. So each turn falls into two parts, its transmission and the busy period of the classes above, and the
chain is solved with plain matrices: slower than `port`, and as exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mltswitch.queueing.completion.admission import Admission, ClassQueue, admission_of
from mltswitch.queueing.completion.balance import HIGH, OWN, VACATION, mix, settled
from mltswitch.queueing.completion.durations import BusySlot, Duration, Slot, poisson
from mltswitch.queueing.completion.port import ENDLESS
from mltswitch.queueing.completion.rational import ComplexArray, FloatArray, circle, fit
from mltswitch.queueing.completion.state import Losses, QueueState
from mltswitch.queueing.completion.tables import Array

ORIGIN = np.zeros(1, dtype=complex)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Where the queue goes from each length, weighted by exp(-s T); one matrix for each s."""

    served: Array
    """Own transmission: thresholds one lower."""
    busy: Array
    """The busy period of higher classes behind it."""
    vacation: Array
    """A lower packet's transmission and the busy period behind it."""
    high: Array | None
    """A higher burst's busy period at an idle port."""


@dataclass(frozen=True, slots=True)
class _Level:
    queue: ClassQueue
    plain: Admission
    lowered: Admission
    turn: Duration
    high: Duration | None
    rate_above: float
    kernels: _Kernels
    """At s = 0."""


def solve_counted_port(queues: Sequence[ClassQueue]) -> list[QueueState | None]:
    """The state of every queue, highest priority first; None: the queue is starved."""
    if not queues:
        return []
    levels: list[_Level] = []
    turn: Duration = Slot()
    high: Duration | None = None
    for index, queue in enumerate(queues):
        level = _level(queue, turn, high, sum(above.rate for above in queues[:index]))
        levels.append(level)
        rate_below = sum(below.rate for below in queues[index + 1 :])
        if not rate_below:
            break
        turn, high = _durations_below(level, rate_below)
        if not turn.mean < ENDLESS:
            break

    def carried_share(index: int, carried_below: float) -> float:
        return _balance(levels[index], carried_below).losses.carried

    below = settled([level.queue.load for level in levels], carried_share)
    states = [_balance(level, carried) for level, carried in zip(levels, below, strict=True)]
    return [*states, *[None] * (len(queues) - len(levels))]


def _level(queue: ClassQueue, turn: Duration, high: Duration | None, rate_above: float) -> _Level:
    lower = replace(queue, threshold=max(0, queue.threshold - 1), limit=max(0, queue.limit - 1))
    plain, lowered = admission_of(queue), admission_of(lower)
    for admission in (plain, lowered):
        admission.trim(np.ones(plain.most_bursts + 1))
    draft = _Level(queue, plain, lowered, turn, high, rate_above, _Kernels(ORIGIN, ORIGIN, ORIGIN, None))
    return replace(draft, kernels=_kernels(draft, ORIGIN))


def _kernels(level: _Level, points: ComplexArray) -> _Kernels:
    rate, plain = level.queue.rate, level.plain
    most = max(plain.most_bursts, level.lowered.most_bursts)
    slot = np.exp(-points)
    served = np.repeat(poisson(rate, most)[None], len(points), axis=0) * slot[:, None]
    if isinstance(level.turn, BusySlot):
        busy = _matrix(plain, level.turn.busy_counts(rate, points, most), level.turn.busy.at(points))
    else:
        busy = np.repeat(np.eye(plain.limit + 1, dtype=complex)[None], len(points), axis=0)
    high = None
    if level.high is not None:
        high = _matrix(plain, level.high.counts(rate, points, most), level.high.transform(points))
    turn = level.turn
    return _Kernels(
        served=_padded(_matrix(level.lowered, served, slot), plain.limit, slot),
        busy=busy,
        vacation=_matrix(plain, turn.counts(rate, points, most), turn.transform(points)),
        high=high,
    )


def _matrix(admission: Admission, counts: Array, total: Array) -> Array:
    """[s, from, to] of an admission while bursts arrive with these weights."""
    offer = admission.offer(counts[:, : admission.most_bursts + 1], total)
    threshold, limit = admission.threshold, admission.limit
    matrix = np.zeros((len(total), limit + 1, limit + 1), dtype=complex)
    joined = admission.above(offer)
    for length in range(threshold, limit + 1):
        room = limit - length
        matrix[:, length, length : limit + 1] = joined[:, : room + 1]
        matrix[:, length, limit] = total - joined[:, :room].sum(axis=1)
    for length in range(threshold):
        reach = min(threshold - length, offer.packets.shape[1] - 1)
        matrix[:, length, length : length + reach + 1] = offer.packets[:, : reach + 1]
    if threshold:
        for place in range(admission.room + 1):
            worth = np.zeros((len(total), admission.room + 1), dtype=complex)
            worth[:, place] = 1
            crossing = admission.crossing_values(offer, worth)
            matrix[:, :threshold, threshold + place] += crossing[:, threshold:0:-1]
    return matrix


def _padded(matrix: Array, limit: int, total: Array) -> Array:
    """The same with one length more, from which nothing joins; it is never met in transmission."""
    padded = np.zeros((len(matrix), limit + 1, limit + 1), dtype=complex)
    size = matrix.shape[1]
    padded[:, :size, :size] = matrix
    if size <= limit:
        padded[:, limit, limit] = total
    return padded


def _rest_of_burst(level: _Level) -> FloatArray:
    """Waiting after a burst has met an idle port: its first packet is in transmission and counts."""
    rest = np.zeros(level.queue.limit + 1)
    lowered = level.lowered.rest_of_burst()
    rest[: len(lowered)] = lowered
    return rest


def _durations_below(level: _Level, rate_below: float) -> tuple[Duration, Duration]:
    points = circle(rate_below)
    kernels = _kernels(level, points)
    emptied = _emptied(kernels)
    slot = np.exp(points)
    turn = np.einsum("sw,sw->s", kernels.vacation[:, 0], emptied)
    own = np.einsum(
        "w,swx,sxy,sy->s", _rest_of_burst(level), kernels.served, kernels.busy, emptied, optimize=True
    )
    total = level.rate_above + level.queue.rate
    high = level.queue.rate / total * own
    if kernels.high is not None:
        high = high + level.rate_above / total * np.einsum("sw,sw->s", kernels.high[:, 0], emptied)
    busy_turn, busy_high = fit(points, [turn * slot, high * slot])
    mean_turn, mean_high = _means(level)
    return BusySlot(mean_turn, busy_turn), BusySlot(mean_high, busy_high)


def _emptied(kernels: _Kernels) -> ComplexArray:
    """Transform of the time from w waiting, at the start of a turn, to none."""
    # A turn at w begins with w - 1 waiting.
    turn = kernels.served[:, :-1] @ kernels.busy
    size = turn.shape[1]
    emptied = np.ones((len(turn), size + 1), dtype=complex)
    if size:
        inner = np.eye(size) - turn[:, :, 1:]
        emptied[:, 1:] = np.linalg.solve(inner, turn[:, :, :1])[:, :, 0]
    return emptied


def _turns(level: _Level) -> FloatArray:
    """Expected turns at 0 … L in an excursion of each kind: vacation, own burst, higher burst."""
    kernels = level.kernels
    firsts = [kernels.vacation[0, 0], _rest_of_burst(level) @ kernels.served[0] @ kernels.busy[0]]
    if kernels.high is not None:
        firsts.append(kernels.high[0, 0])
    turn = (kernels.served[0, :-1] @ kernels.busy[0]).real
    ended = np.array(firsts).real
    turns = np.zeros_like(ended)
    if len(turn):
        turns[:, 1:] = np.linalg.solve((np.eye(len(turn)) - turn[:, 1:]).T, ended[:, 1:].T).T
    return turns


def _means(level: _Level) -> tuple[float, float]:
    first = level.turn.mean
    spent = first * _turns(level).sum(axis=1)
    total = level.rate_above + level.queue.rate
    high = level.queue.rate / total * (first + spent[1])
    if level.high is not None:
        high += level.rate_above / total * (level.high.mean + spent[2])
    return float(first + spent[0]), float(high)


def _balance(level: _Level, carried_below: float) -> QueueState:
    """As in `port`, with the time split into own transmissions and the rest."""
    turns = _turns(level)
    mixed = mix(
        turns,
        unit=1.0,
        turn=level.turn,
        high=level.high,
        rate=level.queue.rate,
        rate_above=level.rate_above,
        carried_below=carried_below,
    )
    return _state(level, mixed.weights, mixed.weights @ turns, mixed.idle_time, mixed.busy_time)


def _state(
    level: _Level, weights: FloatArray, turns: FloatArray, idle_time: float, busy_time: float
) -> QueueState:
    queue, kernels, plain = level.queue, level.kernels, level.plain
    served_at_once = idle_time * queue.rate
    started = weights[OWN] * _rest_of_burst(level)
    started[:-1] += turns[1:]
    after_slot = (started @ kernels.served[0]).real
    others = weights[VACATION] + (weights[HIGH] if len(weights) > HIGH else 0.0)
    waiting = after_slot.copy()
    waiting[0] += others
    ended = turns.copy()
    ended[0] = weights.sum()
    # The rest of a burst at an idle port joins before the slot begins, by the lowered thresholds.
    in_slot = _raised(np.eye(len(turns))[0] * weights[OWN] + np.append(turns[1:], 0.0), after_slot)
    elsewhere = _raised(waiting, ended)
    lengths = np.arange(plain.limit)
    important = queue.important_share
    joins_in_slot = np.where(lengths < level.lowered.threshold, 1.0, important)
    joins = np.where(lengths < plain.threshold, 1.0, important)
    seen_in_slot, seen = in_slot / joins_in_slot, elsewhere / joins
    marked = seen_in_slot[level.lowered.threshold :].sum() + seen[plain.threshold :].sum()
    offered = queue.load * (idle_time + busy_time)
    carried = served_at_once + float(in_slot.sum() + elsewhere.sum())
    full = max(0.0, offered - served_at_once - float(seen_in_slot.sum() + seen.sum()))
    slot_time = float(started.sum())
    time = level.lowered.time_at_lengths(
        (started - after_slot)[: level.lowered.limit + 1], slot_time, queue.rate
    )
    other_time = plain.time_at_lengths(waiting - ended, busy_time - slot_time, queue.rate)
    other_time[: len(time)] += time
    other_time[0] += idle_time
    probabilities = other_time / other_time.sum()
    carried_share = carried / offered
    mean_queue = float(probabilities @ np.arange(len(probabilities)))
    high_time = weights[HIGH] * level.high.mean if level.high is not None else 0.0
    shares = Losses(
        unimportant=float((marked + full) / offered),
        important=full / offered,
        carried=carried_share,
        marked=float(marked / (offered - full)),
    )
    return QueueState(
        losses=shares,
        queue_probabilities=probabilities,
        joined=(in_slot + elsewhere) / carried,
        at_once=served_at_once / carried,
        mean_delay=mean_queue / (queue.load * carried_share),
        turn=level.turn,
        high=level.high,
        high_share=float(high_time / busy_time),
    )


def _raised(starts: FloatArray, ends: FloatArray) -> FloatArray:
    """Packets that raised the queue from 0, 1, … L - 1: stays that began at or below, and ended above."""
    return np.asarray(np.maximum((starts - ends).cumsum()[:-1], 0.0))
