"""Runs the simulation replication by replication and computes means, confidence intervals and percentiles."""

from collections.abc import Sequence
from math import atan, ceil, cos, isfinite, pi, sin, sqrt
from typing import Final, NamedTuple

import numpy as np

from mltswitch.errors import MachineError, UserInputError
from mltswitch.queueing.problem import (
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
)
from mltswitch.queueing.simulation.arrays import (
    COUNTER,
    DELAY_BINS,
    DELAY_OCTAVES,
    DELAY_STEPS,
    IMPORTANT,
    QUEUE,
    TRAIN,
    UNIMPORTANT,
    Floats,
    Integers,
    Records,
)
from mltswitch.queueing.simulation.records import (
    build_port,
    build_rules,
    build_sources,
    pending_capacity,
    random_streams,
    ring_places,
)

MAXIMUM_LENGTHS: Final = 1 << 16
"""The most queue lengths whose probabilities are reported one by one."""
CONFIDENCE: Final = 0.95


class _Tally(NamedTuple):
    counters: Records
    delays: Integers
    """Packets per delay bin, without those that found the line idle."""
    length_time: Floats
    """Time with 0, 1, 2 … packets waiting."""


def simulate(
    port: Port,
    traffic: Sequence[QueueTraffic],
    thresholds: Sequence[QueueThresholds],
    settings: SimulationSettings,
) -> tuple[QueuePrediction, ...]:
    """Simulate the port packet by packet.

    Losses count the packets offered after the warm-up; delays the packets whose transmission began after it,
    so a queue that is never served has none. A loss of packets that were never offered is 0 without an error.

    Raises:
        UserInputError: a setting is out of range, or a dynamic limit has no shared buffer.
        MachineError: numba is missing.
    """
    _check(settings)
    try:
        offered, dropped, tally = replicate(port, traffic, thresholds, settings)
    except SystemError as error:
        # What an interrupt within compiled code comes out as.
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    return tuple(
        _summary(queue, thresholds[queue], offered[:, queue], dropped[:, queue], tally)
        for queue in range(len(traffic))
    )


def _check(settings: SimulationSettings) -> None:
    for name, least in (("packets", 1), ("seed", 0), ("replications", 1)):
        value = getattr(settings, name)
        if value < least:
            raise UserInputError(
                f"{value} is out of range", where=f"simulation.{name}", expected=f"at least {least}"
            )
    if not (isfinite(settings.warmup_share) and settings.warmup_share >= 0):
        raise UserInputError(
            f"{settings.warmup_share:g} is out of range",
            where="simulation.warmup_share",
            expected="a number at least 0",
        )


def replicate(
    port: Port,
    traffic: Sequence[QueueTraffic],
    thresholds: Sequence[QueueThresholds],
    settings: SimulationSettings,
) -> tuple[Integers, Integers, _Tally]:
    """The packets offered and dropped by replication, queue and importance, and the tally over all
    replications."""
    try:
        from mltswitch.queueing.simulation import engine
    except ImportError as error:
        raise MachineError(
            "the simulator needs numba", where="model simulate", hint="`pip install 'mltswitch[sim]'`"
        ) from error

    count = len(traffic)
    counted = ceil(settings.packets / settings.replications)
    warmup = ceil(counted * settings.warmup_share)
    (sources, sizes), rules = build_sources(traffic), build_rules(port, thresholds)
    pending = np.empty((count, pending_capacity(traffic)))
    rings = np.empty((count, ring_places(port, traffic, thresholds, warmup + counted)))
    tally, ignored = (_tally(count, rings.shape[1]) for _ in range(2))
    offered = np.zeros((settings.replications, count, 2), np.int64)
    dropped = np.zeros_like(offered)
    if np.isinf(sources["start_gap"]).all():
        return offered, dropped, tally
    for replication in range(settings.replications):
        streams = random_streams(settings.seed, replication, count)
        queues, line, events = np.zeros(count, QUEUE), build_port(port)[0], np.zeros(count)
        trains = np.empty((count, 4), TRAIN)
        offered[replication] -= tally.counters["offered"]
        dropped[replication] -= tally.counters["dropped"]
        engine.prepare(sources, queues, events, pending, streams)
        for packets, goal in ((warmup, ignored), (counted, tally)):
            trains = engine.run(
                sources, sizes, rules, queues, line, events, trains, pending, rings, streams, *goal, packets
            )
        offered[replication] += tally.counters["offered"]
        dropped[replication] += tally.counters["dropped"]
    return offered, dropped, tally


def _tally(queues: int, lengths: int) -> _Tally:
    return _Tally(
        counters=np.zeros(queues, COUNTER),
        delays=np.zeros((queues, (DELAY_OCTAVES + 2) * DELAY_BINS), np.int64),
        length_time=np.zeros((queues, lengths)),
    )


def _summary(
    queue: int, thresholds: QueueThresholds, offered: Integers, dropped: Integers, tally: _Tally
) -> QueuePrediction:
    losses = dropped.sum(axis=0) / np.maximum(offered.sum(axis=0), 1)
    let_in = int(offered[:, IMPORTANT].sum() - dropped[:, IMPORTANT].sum())
    started = int(tally.counters["started"][queue])
    length_time = tally.length_time[queue]
    observed = float(length_time.sum())
    shares = length_time / observed if observed else np.eye(1, len(length_time))[0]
    lengths = min(ceil(thresholds.limit_packets) + 1, len(shares), MAXIMUM_LENGTHS)
    lengths = max(lengths, int(np.flatnonzero(shares)[-1]) + 1)
    return QueuePrediction(
        loss_unimportant=float(losses[UNIMPORTANT]),
        loss_important=float(losses[IMPORTANT]),
        mean_delay_packet_times=float(tally.counters["delay_sum"][queue]) / started if started else None,
        p50_delay_packet_times=_delay(0.5, queue, tally),
        p99_delay_packet_times=_delay(0.99, queue, tally),
        p999_delay_packet_times=_delay(0.999, queue, tally),
        mean_queue_packets=float(shares @ np.arange(len(shares))),
        mark_share=int(tally.counters["marked"][queue]) / let_in if let_in else None,
        queue_probabilities=tuple(shares[:lengths].tolist()),
        loss_unimportant_error=ratio_half_width(dropped[:, UNIMPORTANT], offered[:, UNIMPORTANT]),
        loss_important_error=ratio_half_width(dropped[:, IMPORTANT], offered[:, IMPORTANT]),
    )


def _delay(share: float, queue: int, tally: _Tally) -> float | None:
    if not tally.counters["started"][queue]:
        return None
    return percentile(share, int(tally.counters["immediate"][queue]), tally.delays[queue])


def ratio_half_width(events: Integers, trials: Integers) -> float | None:
    """Half width of the 95 % confidence interval of sum(events) / sum(trials), one row a replication.

    Replications are independent, packets within one are not: the interval comes from the spread between them
    (Student's t of the ratio estimator). Without a single event that spread says nothing; the interval is
    then [0, 3 / trials], the rule of three.

    Returns:
        The half width; None without trials, or where events of a single replication have no spread.
    """
    total = int(trials.sum())
    if total == 0:
        return None
    if events.sum() == 0:
        return min(1.0, 3 / total)
    count = len(events)
    if count < 2:
        return None
    residuals = events - events.sum() / total * trials
    error = sqrt(float(np.sum(residuals**2)) / (count - 1) / count) / (total / count)
    return student_quantile(count - 1) * error


def student_quantile(degrees: int) -> float:
    """Student's t that is exceeded in absolute value with probability 1 - CONFIDENCE, by bisection."""
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _student_within(middle, degrees) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _student_within(value: float, degrees: int) -> float:
    """P(|t| <= value): the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = atan(value / sqrt(degrees))
    is_odd = degrees % 2 == 1
    term = cos(angle) if is_odd else 1.0
    total = 0.0
    for step in range(2 if is_odd else 1, degrees, 2):
        total += term
        term *= cos(angle) ** 2 * step / (step + 1)
    if is_odd:
        return (angle + sin(angle) * total) * 2 / pi
    return sin(angle) * total


def percentile(share: float, immediate: int, histogram: Integers) -> float:
    """The delay, in packet times, that this share of the packets does not exceed, interpolated within its
    bin.

    Args:
        share: for example 0.99.
        immediate: number of packets without any delay.
        histogram: number of other packets in each `engine.delay_bin`.
    """
    rank = share * (immediate + int(histogram.sum())) - immediate
    if rank <= 0:
        return 0.0
    cumulative = np.cumsum(histogram)
    index = int(np.searchsorted(cumulative, rank))
    within = 1 - (cumulative[index] - rank) / histogram[index]
    octave = max(0, index // DELAY_BINS - 1)
    width = 2.0**octave / DELAY_STEPS
    return float((index - octave * DELAY_BINS + within) * width)
