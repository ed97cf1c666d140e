"""The engine's parts one at a time, and small problems."""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from mltswitch.queueing import QueueThresholds, QueueTraffic, SimulationSettings
from mltswitch.queueing.simulation import engine
from mltswitch.queueing.simulation.arrays import QUEUE, TRAIN
from mltswitch.queueing.simulation.records import build_sources, pending_capacity, random_streams

ENDLESS = QueueThresholds(None, 4000)
"""Drops nothing at the loads of these tests."""


class Arrival(NamedTuple):
    time: float
    packets: int
    tag: int


def arrivals(offered: QueueTraffic, seed: int = 1) -> Iterator[Arrival]:
    """What one queue is offered, event by event, without a port."""
    (sources, sizes), streams = build_sources([offered]), random_streams(seed, 0, 1)
    queues, trains, due = np.zeros(1, QUEUE), np.empty((1, 4), TRAIN), np.zeros(1)
    pending = np.empty((1, pending_capacity([offered])))
    engine.prepare(sources, queues, due, pending, streams)
    while True:
        time = float(due[0])
        if queues[0]["train_count"] == trains.shape[1]:
            trains = engine.with_room(trains, queues)
        packets, tag, due[0] = engine.arrive(sources[0], sizes, queues[0], trains, pending, streams[0], 0)
        yield Arrival(time, packets, tag)


def settings(packets: int = 400_000, seed: int = 1, replications: int = 16) -> SimulationSettings:
    return SimulationSettings(packets=packets, seed=seed, replications=replications)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean of independent values and four standard errors."""
    return float(np.mean(values)), 4 * float(np.std(values, ddof=1)) / sqrt(len(values))
