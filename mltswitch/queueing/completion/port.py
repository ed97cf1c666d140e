"""Solves a port class by class from the highest down, then the balance with the classes below.

For class i let T_i be the time from the start of one of its packets (or of any lower one: nothing is
preempted) to the moment when no higher packet waits, and E_i the same from the arrival of a higher burst at
an idle port. Then

    T_i+1 = first passage of class i from one waiting packet to none,
    E_i+1 = first passage of class i after its own burst, or after E_i,

exactly: whenever class i gets its turn, the higher classes are empty, and what comes next does not depend
on the past. Lower classes touch class i in one way only: when it and all above it are empty, a lower packet
may be in transmission. How often that is, their throughput tells; it is found by iteration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from mltswitch.queueing.completion.admission import Admission, ClassQueue, Offer, admission_of
from mltswitch.queueing.completion.balance import HIGH, OWN, VACATION, mix, settled
from mltswitch.queueing.completion.durations import BusySlot, Duration, Slot
from mltswitch.queueing.completion.passage import Start, Visits, passages, visits
from mltswitch.queueing.completion.rational import ComplexArray, FloatArray, circle, fit
from mltswitch.queueing.completion.state import Losses, QueueState, Stay, losses, queue_state

ENDLESS: Final = 1e12
"""Mean packet times between two turns after which a class counts as starved."""
ORIGIN: Final = np.zeros(1, dtype=complex)
REMEMBERED: Final = 512
"""How many classes' solutions are cached: a search that changes one class need not solve those above it
again."""


@dataclass(frozen=True, slots=True)
class Level:
    """One class with the durations and results that it takes from the classes above."""

    queue: ClassQueue
    admission: Admission
    turn: Duration
    high: Duration | None
    rate_above: float
    visits: Visits
    lost: FloatArray
    """Important packets dropped per excursion, by kind of excursion, relative to `visits.unit`."""


def solve_port(queues: Sequence[ClassQueue]) -> list[QueueState | None]:
    """The state of every queue, highest priority first; None: the queue is starved, hardly ever served."""
    levels = _levels(tuple(queues))
    states = [
        queue_state(level.admission, stay, rate=level.queue.rate, turn=level.turn, high=level.high)
        for level, stay in zip(levels, _balanced(levels), strict=True)
    ]
    return [*states, *[None] * (len(queues) - len(levels))]


def port_losses(queues: Sequence[ClassQueue]) -> list[Losses | None]:
    """Only the losses of every queue, in less time than `solve_port`; None: the queue is starved."""
    levels = _levels(tuple(queues))
    found = [losses(level.admission, stay) for level, stay in zip(levels, _balanced(levels), strict=True)]
    return [*found, *[None] * (len(queues) - len(levels))]


def _balanced(levels: Sequence[Level]) -> list[Stay]:
    """One cycle of each class, when all classes carry what they do."""

    def carried_share(index: int, carried_below: float) -> float:
        return losses(levels[index].admission, _stay(levels[index], carried_below)).carried

    below = settled([level.queue.load for level in levels], carried_share)
    return [_stay(level, carried) for level, carried in zip(levels, below, strict=True)]


def _levels(queues: tuple[ClassQueue, ...]) -> list[Level]:
    """From the highest class down, as far as any is ever served."""
    levels: list[Level] = []
    for count in range(1, len(queues) + 1):
        rate_below = sum(queue.rate for queue in queues[count:])
        level = _level(queues[:count], sum(queue.rate for queue in queues))
        if level is None:
            break
        levels.append(level)
        if not rate_below:
            break
    return levels


@lru_cache(maxsize=REMEMBERED)
def _level(queues: tuple[ClassQueue, ...], total_rate: float) -> Level | None:
    """The last of these classes, below the others; None when it is starved."""
    *above, queue = queues
    turn: Duration = Slot()
    high: Duration | None = None
    if above:
        durations = _durations(tuple(above), total_rate)
        if durations is None or not durations[0].mean < ENDLESS:
            return None
        turn, high = durations
    return _solved(queue, turn, high, sum(entry.rate for entry in above))


@lru_cache(maxsize=REMEMBERED)
def _durations(queues: tuple[ClassQueue, ...], total_rate: float) -> tuple[Duration, Duration] | None:
    """T and E below these classes; None where the last of them is starved."""
    level = _level(queues, total_rate)
    if level is None:
        return None
    return _durations_below(level, total_rate - sum(entry.rate for entry in queues))


def _solved(queue: ClassQueue, turn: Duration, high: Duration | None, rate_above: float) -> Level:
    admission = admission_of(queue)
    durations = [turn] if high is None else [turn, high]
    counts = [duration.counts(queue.rate, ORIGIN, admission.most_bursts).real for duration in durations]
    admission.trim(np.maximum(counts[0][0], counts[-1][0]))
    counts = [np.maximum(row[:, : admission.most_bursts + 1], 0) for row in counts]
    offers = [admission.offer(row, np.maximum(1.0, row.sum(axis=1))) for row in counts]
    empty = admission.landing(0)
    starts = [Start(empty, offers[0]), Start(admission.rest_of_burst(), offers[0])]
    if high is not None:
        starts.append(Start(empty, offers[1]))
    found = visits(admission, offers[0], starts)
    lost = _lost(queue, admission, durations, offers, starts, found)
    return Level(queue, admission, turn, high, rate_above, found, lost)


def _lost(
    queue: ClassQueue,
    admission: Admission,
    durations: Sequence[Duration],
    offers: Sequence[Offer],
    starts: Sequence[Start],
    found: Visits,
) -> FloatArray:
    """Important packets dropped in an excursion: in its first duration, and after each turn."""
    after_turn = np.concatenate([found.turns[:, 1:], np.zeros((len(starts), 1))], axis=1)
    kinds = [start.waiting for start in starts]
    mean = queue.load * durations[0].mean
    dropped = admission.lost_important(np.array([*after_turn, *kinds[:HIGH]]), offers[0], mean)
    lost, first = dropped[: len(starts)], list(dropped[len(starts) :])
    first[OWN] += admission.lost_at_idle
    if len(starts) > HIGH:
        high_mean = queue.load * durations[1].mean
        first += list(admission.lost_important(kinds[HIGH][None], offers[1], high_mean))
    return np.asarray(lost + found.unit * np.array(first))


def _durations_below(level: Level, rate_below: float) -> tuple[Duration, Duration]:
    """T and E of the class below."""
    queue, admission = level.queue, level.admission
    points = circle(rate_below)
    offer = _offer_at(level.turn, level, points)
    emptied = passages(admission, offer)
    next_turn = emptied[:, 1] if admission.limit else offer.total
    rest = admission.rest_of_burst()
    after_own = np.einsum("w,sw->s", rest[:-1], emptied[:, 1:]) + rest[-1] * emptied[:, -1] * offer.total
    total = level.rate_above + queue.rate
    next_high = queue.rate / total * after_own
    if level.high is not None:
        next_high = next_high + level.rate_above / total * _after(level.high, level, points, emptied)
    slot = np.exp(points)
    busy_turn, busy_high = fit(points, [next_turn * slot, next_high * slot])
    mean_turn, mean_high = _means(level)
    return BusySlot(mean_turn, busy_turn), BusySlot(mean_high, busy_high)


def _offer_at(duration: Duration, level: Level, points: ComplexArray) -> Offer:
    counts = duration.counts(level.queue.rate, points, level.admission.most_bursts)
    return level.admission.offer(counts, duration.transform(points))


def _after(duration: Duration, level: Level, points: ComplexArray, emptied: ComplexArray) -> ComplexArray:
    """Transform of a duration that finds the queue empty, and of emptying what came meanwhile."""
    admission, threshold = level.admission, level.admission.threshold
    offer = _offer_at(duration, level, points)
    width = min(threshold + 1, offer.packets.shape[1])
    below = np.einsum("sm,sm->s", offer.packets[:, :width], emptied[:, :width])
    crossing = admission.crossing_values(offer, emptied[:, threshold:])[:, threshold]
    return np.asarray(below + crossing)


def _means(level: Level) -> tuple[float, float]:
    """Mean of T and E of the class below: the first duration and a turn for each visit."""
    unit = level.visits.unit
    if not unit:
        return float("inf"), float("inf")
    with np.errstate(over="ignore"):  # a class that hardly ever gets a turn: infinity says so
        turns = level.turn.mean * (level.visits.turns.sum(axis=1) / unit)
    vacation, own = level.turn.mean + turns[VACATION], level.turn.mean + turns[OWN]
    if level.high is None:
        return float(vacation), float(own)
    high = level.high.mean + turns[HIGH]
    total = level.rate_above + level.queue.rate
    return float(vacation), float((level.queue.rate * own + level.rate_above * high) / total)


def _stay(level: Level, carried_below: float) -> Stay:
    """One cycle of the class on average, when the classes below carry so much."""
    found = level.visits
    mixed = mix(
        found.turns,
        unit=found.unit,
        turn=level.turn,
        high=level.high,
        rate=level.queue.rate,
        rate_above=level.rate_above,
        carried_below=carried_below,
    )
    excursions = mixed.weights * found.unit
    starts = excursions[VACATION] * level.admission.landing(0)
    starts = starts + excursions[OWN] * level.admission.rest_of_burst()
    if level.high is not None:
        starts = starts + excursions[HIGH] * level.admission.landing(0)
    return Stay(
        turns=mixed.weights @ found.turns,
        starts=starts,
        idle_time=mixed.idle_time,
        busy_time=mixed.busy_time,
        high_time=float(excursions[HIGH] * level.high.mean) if level.high is not None else 0.0,
        served_at_once=mixed.idle_time * level.queue.rate,
        dropped_important=float(mixed.weights @ level.lost),
    )
