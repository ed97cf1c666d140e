"""What Linux makes of a port's queues: tbf over prio over red, replayed for given arrivals.

The loss models know thresholds on the instantaneous queue behind a plain line. Linux differs in three ways,
and each can be switched on here by itself, on the very packets that were sent:

- red tests S against an average. The `tc` tool sets a weight of 1/2 for the newest sample at best.
- Below a shaper the average survives an empty queue: tbf looks at the queue before it takes a packet, so red
  is not asked for one, and does not learn that it is empty, until a class below transmits.
- The shaper's bucket: after a pause as many packets as it holds leave at once.

Time is counted in packet times, lengths in packets of one size.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from mltswitch.measure.schedule import Schedule
from mltswitch.queueing import QueueThresholds

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class PortModel:
    """Which of Linux's ways the replay follows; without any it is the port of the loss models."""

    average_weight: float = 1.0
    average_survives_idle: bool = False
    bucket_packets: float = 1.0
    """A bucket of one packet is a line: the next may leave one packet time later."""


PLAIN = PortModel()
"""The port that the loss models describe."""
AVERAGING = PortModel(average_weight=0.5)
SURVIVING = PortModel(average_weight=0.5, average_survives_idle=True)


@dataclass(slots=True)
class _Band:
    threshold: float
    limit: float
    waiting: deque[float] = field(default_factory=deque)
    average: float = 0.0
    is_idle: bool = True
    lost: list[int] = field(default_factory=lambda: [0, 0])
    offered: list[int] = field(default_factory=lambda: [0, 0])
    delays: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Shaper:
    bucket_packets: float
    tokens: float
    updated: float = 0.0

    def ready_at(self) -> float:
        """When the next packet may leave."""
        return self.updated + max(0.0, 1.0 - self.tokens)

    def take(self, now: float) -> None:
        """One packet leaves."""
        self.tokens = min(self.bucket_packets, self.tokens + now - self.updated) - 1.0
        self.updated = now


@dataclass(frozen=True, slots=True)
class Replayed:
    """One class: (unimportant, important) loss and the median wait."""

    loss: tuple[float, float]
    p50_packet_times: float


def replay(
    schedule: Schedule, thresholds: Sequence[QueueThresholds], packet_seconds: float, model: PortModel
) -> list[Replayed]:
    """Send the schedule through the port; one result per class."""
    bands = [_band(entry) for entry in thresholds]
    shaper = _Shaper(model.bucket_packets, model.bucket_packets)
    arrivals = zip(
        (schedule.time_seconds / packet_seconds).tolist(),
        schedule.class_index.tolist(),
        schedule.is_important.tolist(),
        strict=True,
    )
    for now, position, is_important in arrivals:
        _transmit(bands, shaper, now, model)
        band = bands[position]
        band.offered[is_important] += 1
        if _accepts(band, is_important=is_important, model=model):
            band.waiting.append(now)
            _transmit(bands, shaper, now, model)
        else:
            band.lost[is_important] += 1
    _transmit(bands, shaper, inf, model)
    return [_result(band) for band in bands]


def _band(thresholds: QueueThresholds) -> _Band:
    threshold = thresholds.ecn_threshold_packets
    return _Band(inf if threshold is None else threshold, thresholds.limit_packets)


def _accepts(band: _Band, *, is_important: bool, model: PortModel) -> bool:
    """red_enqueue: the average first, then S, then the limit of the queue inside."""
    length = len(band.waiting)
    if band.is_idle:  # any pause is long at the 10 Gbit/s that red is told
        band.average = 0.0
        band.is_idle = False
    else:
        band.average += model.average_weight * (length - band.average)
    if band.average >= band.threshold - TOLERANCE and not is_important:
        return False
    return length + 1 <= band.limit + TOLERANCE


def _transmit(bands: Sequence[_Band], shaper: _Shaper, now: float, model: PortModel) -> None:
    """Everything that leaves up to `now`."""
    while True:
        served = next((number for number, band in enumerate(bands) if band.waiting), None)
        if served is None:
            return
        leaves = max(shaper.ready_at(), bands[served].waiting[0])
        if leaves > now + TOLERANCE:
            return
        shaper.take(leaves)
        band = bands[served]
        band.delays.append(leaves - band.waiting.popleft())
        for above in bands[:served]:  # prio asks them first
            above.is_idle = True
        if not model.average_survives_idle and not band.waiting:
            band.is_idle = True


def _result(band: _Band) -> Replayed:
    unimportant, important = (
        lost / offered if offered else 0.0 for lost, offered in zip(band.lost, band.offered, strict=True)
    )
    return Replayed((unimportant, important), float(np.median(band.delays)) if band.delays else 0.0)
