"""Bursts that take time to arrive, told as bursts that come at once.

A burst of b packets from a link r times as fast as the port arrives over (b - 1) / r packet times, and
meanwhile the port sends. As long as the port is busy, the queue is that of bursts at once, less what has not
arrived yet: on average over time this is exact, b (b - 1) / 2r for each burst. What a packet meets when it
arrives is shorter by nearly the part of its own burst that the port sends while it arrives; so thresholds act
as if they were higher by that part. The factor is fitted to the simulator (docs/model.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from mltswitch.queueing.arrivals import Batch, Trace, mean_burst_packets
from mltswitch.queueing.problem import QueueThresholds, QueueTraffic

SENT_MEANWHILE: Final = 0.8
"""Between 1/2 (a burst's middle packet counts) and 1 (its last)."""


def source_rate_ratio(offered: QueueTraffic) -> float:
    """Rate of the senders' links over that of the port; infinite where bursts come at once."""
    arrivals = offered.arrivals
    return arrivals.source_rate_ratio if isinstance(arrivals, Batch | Trace) else inf


def raised_thresholds(
    traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueueThresholds, ...]:
    """Thresholds that act on bursts at once as the given ones on bursts that take time."""
    raised: list[QueueThresholds] = []
    above = 0.0
    for offered, limits in zip(traffic, thresholds, strict=True):
        # The port serves this class only while nothing above it waits.
        served = min(1.0, max(0.0, 1.0 - above) / source_rate_ratio(offered))
        packets = SENT_MEANWHILE * served * (mean_burst_packets(offered.arrivals) - 1)
        raised.append(_raised(limits, round(packets)))
        above += offered.load
    return tuple(raised)


def not_arrived_packets(offered: QueueTraffic, carried: float) -> float:
    """Packets of bursts under way that have not arrived yet, over time; `carried` are the packets let in."""
    burst = mean_burst_packets(offered.arrivals)
    return carried * (burst - 1) / (2 * source_rate_ratio(offered))


def _raised(limits: QueueThresholds, packets: int) -> QueueThresholds:
    threshold = limits.ecn_threshold_packets
    return replace(
        limits,
        ecn_threshold_packets=threshold + packets if threshold else threshold,
        limit_packets=limits.limit_packets + packets if limits.limit_packets else limits.limit_packets,
    )
