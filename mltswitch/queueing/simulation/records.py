"""Builds the engine's arrays from a problem: its sources, its rules, and the random streams that drive
them."""

from collections.abc import Sequence
from math import ceil, floor, inf
from typing import Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.queueing.arrivals import Arrivals, Batch, Incast, Poisson, Trace, mean_burst_packets
from mltswitch.queueing.problem import Port, QueueThresholds, QueueTraffic
from mltswitch.queueing.simulation.arrays import (
    FIXED,
    GEOMETRIC,
    IDLE,
    INCAST,
    PORT,
    RULE,
    SIZE,
    SOURCE,
    STREAM,
    TABLE,
    Records,
)

MAXIMUM_PENDING_STARTS: Final = 10_000_000
"""The most senders of one queue that may wait for their jitter to pass, over all rounds that overlap."""


def build_sources(traffic: Sequence[QueueTraffic]) -> tuple[Records, Records]:
    """The `SOURCE` record of each queue, and the table of `SIZE` records that they refer to."""
    sources = np.zeros(len(traffic), SOURCE)
    table: list[tuple[int, float]] = []
    for index, offered in enumerate(traffic):
        pattern = offered.arrivals
        source = sources[index]
        source["kind"] = _kind(pattern)
        source["start_gap"] = _start_gap(offered)
        source["train_packets"] = _train_packets(pattern)
        source["packet_gap"] = 0 if isinstance(pattern, Poisson) else 1 / pattern.source_rate_ratio
        source["burst_packets"] = np.iinfo(np.int64).max
        source["unimportant_share"] = offered.unimportant_share
        source["tag_per_burst"] = offered.importance == "burst"
        if isinstance(pattern, Incast):
            source["burst_packets"] = pattern.burst_packets
            source["senders"] = pattern.senders
            source["jitter"] = pattern.jitter_packet_times
        if isinstance(pattern, Trace):
            source["table_first"] = len(table)
            table += zip(pattern.sizes_packets, np.cumsum(pattern.probabilities), strict=True)
            source["table_last"] = len(table) - 1
    return sources, np.array(table, SIZE)


def random_streams(seed: int, replication: int, queues: int) -> Records:
    """A generator per queue for arrivals, one per queue for RED's lottery, one for service times.

    A queue's stream depends on nothing but the seed, the replication and its place, so that two sets of
    thresholds meet the same arrivals.
    """
    keys = [(replication, queue, purpose) for purpose in (0, 1) for queue in range(queues)]
    keys.append((replication, 0, 2))
    words = [np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)[0] for key in keys]
    return np.array([(word,) for word in words], STREAM)


def pending_capacity(traffic: Sequence[QueueTraffic]) -> int:
    """How many starts of senders may be pending at once: those of all rounds that overlap by their jitter.

    Raises:
        UserInputError: the jitter spans more rounds than memory holds.
    """
    most = 1
    for index, offered in enumerate(traffic):
        pattern = offered.arrivals
        if isinstance(pattern, Incast) and offered.load > 0:
            rounds = floor(pattern.jitter_packet_times / _start_gap(offered)) + 2
            if pattern.senders * rounds > MAXIMUM_PENDING_STARTS:
                raise UserInputError(
                    f"the jitter spans {rounds - 1} rounds of {pattern.senders} senders",
                    where=f"queues[{index}].jitter_packet_times",
                    expected=f"at most {MAXIMUM_PENDING_STARTS} senders at a time",
                )
            most = max(most, pattern.senders * rounds)
    return most


def largest_train(traffic: Sequence[QueueTraffic]) -> int:
    """Packets of the largest train to expect; a geometric one is larger with probability e^-64."""
    return max(_largest(offered.arrivals) for offered in traffic)


def _largest(pattern: Arrivals) -> int:
    match pattern:
        case Trace():
            return max(pattern.sizes_packets)
        case Batch(distribution="geometric"):
            return ceil(64 * pattern.burst_packets)
        case _:
            return int(_train_packets(pattern))


def _kind(pattern: Arrivals) -> int:
    match pattern:
        case Incast():
            return INCAST
        case Trace():
            return TABLE
        case Batch(distribution="geometric"):
            return GEOMETRIC
        case _:
            return FIXED


def _start_gap(offered: QueueTraffic) -> float:
    if offered.load == 0:
        return inf
    if isinstance(offered.arrivals, Incast):
        return offered.arrivals.senders * offered.arrivals.round_packets / offered.load
    return mean_burst_packets(offered.arrivals) / offered.load


def _train_packets(pattern: Arrivals) -> float:
    return float(pattern.round_packets) if isinstance(pattern, Incast) else mean_burst_packets(pattern)


def build_rules(port: Port, thresholds: Sequence[QueueThresholds]) -> Records:
    """The `RULE` record of each queue.

    Raises:
        UserInputError: a queue has a dynamic limit, but the port no shared buffer.
    """
    for index, limits in enumerate(thresholds):
        if limits.alpha is not None and port.buffer_packets is None:
            raise UserInputError(
                "a dynamic limit needs a shared buffer",
                where=f"queues[{index}].alpha",
                expected="buffer_packets of the port beside it",
            )
    rules = np.zeros(len(thresholds), RULE)
    for rule, limits, quantum in zip(rules, thresholds, _quanta(port, len(thresholds)), strict=True):
        rule["threshold"] = _or_infinite(limits.ecn_threshold_packets)
        rule["maximum"] = _ramp_end(limits)
        rule["mark_probability"] = limits.mark_probability
        rule["average_weight"] = limits.average_weight
        rule["limit"] = limits.limit_packets
        rule["alpha"] = _or_infinite(limits.alpha)
        rule["quantum"] = quantum
    return rules


def build_port(port: Port) -> Records:
    """The record of an idle port, as the only element of its array."""
    record = np.zeros(1, PORT)
    record["buffer"] = _or_infinite(port.buffer_packets)
    record["count_in_service"] = port.count_in_service
    record["exponential_service"] = port.service == "exponential"
    record["serving"] = IDLE
    return record


def ring_places(
    port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds], packets: int
) -> int:
    """Size of each queue's ring: a power of two above the most packets that can wait.

    More places than packets are sent would be of no use: warm-up and count both end with a whole train.
    """
    most = max(limits.limit_packets for limits in thresholds)
    most = min(most, _or_infinite(port.buffer_packets), packets + 2 * largest_train(traffic))
    return 1 << max(ceil(most), 1).bit_length()


def _quanta(port: Port, queues: int) -> list[float]:
    """The least weight is worth one packet a round: deficit round robin wants every queue to send in each."""
    weights = port.weights or (0.0,) * queues
    least = min((weight for weight in weights if weight > 0), default=1.0)
    return [weight / least for weight in weights]


def _or_infinite(value: float | None) -> float:
    return inf if value is None else float(value)


def _ramp_end(limits: QueueThresholds) -> float:
    """Minus infinity where the step at S leaves no room for a lottery."""
    threshold, maximum = limits.ecn_threshold_packets, limits.ecn_maximum_packets
    if threshold is None or maximum is None or maximum <= threshold:
        return -inf
    return maximum
