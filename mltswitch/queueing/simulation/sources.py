"""From arrival processes to the engine's arrays, and the random streams that drive them."""

from collections.abc import Sequence
from math import ceil, floor, inf
from typing import Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.queueing.arrivals import Arrivals, Batch, Incast, Poisson, Trace, mean_burst_packets
from mltswitch.queueing.problem import QueueTraffic
from mltswitch.queueing.simulation.arrays import (
    FIXED,
    GEOMETRIC,
    INCAST,
    SIZE,
    SOURCE,
    STREAM,
    TABLE,
    Records,
)

MAXIMUM_PENDING_STARTS: Final = 10_000_000
"""Senders of one queue that may wait for their jitter to pass, over all rounds that overlap."""


def build_sources(traffic: Sequence[QueueTraffic]) -> tuple[Records, Records]:
    """Records of `SOURCE`, one a queue, and the table of `SIZE` that they refer to."""
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
    """Starts of senders that may be known ahead: those of all rounds that overlap by their jitter.

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
