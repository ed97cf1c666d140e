"""Reduces a class to what its queue can tell apart: integer thresholds, and bursts at once no longer than
fill it.

Two things keep the work bounded. A burst longer than what surely fills the queue loses the rest for certain:
it is cut, and the loss is put back afterwards. And of a very long queue only the parts next to the thresholds
matter: below saturation it hardly ever gets there, above it stays there; only within about 1 % of saturation
does a shortened queue lose more than the long one.

Bursts that take time to arrive are told as bursts that come at once. A burst of b packets from a link r
times as fast as the port arrives over (b - 1) / r packet times, and meanwhile the port sends. As long as the
port is busy, the queue is that of bursts at once, less what has not arrived yet: on average over time this is
exact, b (b - 1) / 2r for each burst. What a packet meets when it arrives is shorter by nearly the part
of its own burst that the port sends while it arrives; so thresholds act as if they were higher by that part.
The factor is fitted to the simulator (docs/model.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log
from typing import Final

import numpy as np

from mltswitch.queueing.arrivals import (
    Arrivals,
    Batch,
    Incast,
    Poisson,
    Trace,
    backlog_burst,
    mean_burst_packets,
)
from mltswitch.queueing.completion.admission import ClassQueue, filling_packets
from mltswitch.queueing.completion.tables import chosen
from mltswitch.queueing.problem import QueueThresholds, QueueTraffic

SENT_MEANWHILE: Final = 0.8
"""The part of a burst already sent that raises thresholds, between 1/2 (as for its middle packet) and 1 (its
last)."""


def source_rate_ratio(offered: QueueTraffic) -> float:
    """Rate of the senders' links over that of the port; infinite where bursts come at once."""
    arrivals = offered.arrivals
    return arrivals.source_rate_ratio if isinstance(arrivals, Batch | Trace) else inf


def raised_thresholds(
    traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueueThresholds, ...]:
    """Thresholds that act on bursts arriving at once as the given ones act on bursts that take time to
    arrive."""
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
    """Mean number of packets over time that belong to bursts under way and have not arrived; `carried` is the
    admitted load."""
    burst = mean_burst_packets(offered.arrivals)
    return carried * (burst - 1) / (2 * source_rate_ratio(offered))


def _raised(limits: QueueThresholds, packets: int) -> QueueThresholds:
    threshold = limits.ecn_threshold_packets
    return replace(
        limits,
        ecn_threshold_packets=threshold + packets if threshold else threshold,
        limit_packets=limits.limit_packets + packets if limits.limit_packets else limits.limit_packets,
    )


LONGEST_PART: Final = 1024
"""Packets up to the ECN threshold S, and from S to the limit L, that are solved one by one; more only
where bursts are that long.
"""
LARGEST_BURSTS: Final = 3
MOST_PACKETS: Final = 4096
RAREST_SIZE: Final = 1e-9
"""Share of the bursts beyond which the geometric distribution is cut off."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A class reduced for the solver, and what to correct in its results."""

    queue: ClassQueue
    kept_share: float
    """Share of the offered packets that is left after long bursts were cut."""
    hidden_below: int
    """How many packets the ECN threshold S was lowered by."""
    hidden_above: int
    """How many packets the room from the ECN threshold S to the limit L was narrowed by."""


def reduced(offered: QueueTraffic, limits: QueueThresholds) -> Reduced:
    """The class with thresholds and bursts shortened where their full length makes no difference."""
    limit = ceil(limits.limit_packets)
    threshold = limits.ecn_threshold_packets
    start = limit if threshold is None else min(limit, ceil(threshold))
    important = float(1 - offered.unimportant_share)
    if not important:
        # Unimportant packets alone get no further than S, which is then a limit for all.
        limit, important = start, 1.0
    longest = min(MOST_PACKETS, max(LONGEST_PART, LARGEST_BURSTS * largest_burst(offered.arrivals)))
    room, below = min(limit - start, longest), min(start, longest)
    alike = is_burst_alike(offered)
    enough = below + room + 1 if alike else filling_packets(below, below + room, important)
    sizes, shares = _cut(*_burst_sizes(offered.arrivals, enough), enough)
    mean = _mean_size(offered.arrivals)
    rate, kept = offered.load / mean, float(np.dot(sizes, shares)) / mean
    if start == 0 and important < 1:
        # Unimportant packets never join: the queue is offered the others alone.
        if alike:
            arrive = important
        else:
            sizes, shares, arrive = _thinned(sizes, shares, important)
        rate, important = rate * arrive, 1.0
    queue = ClassQueue(rate, below, below + room, important, sizes, shares, alike)
    return Reduced(queue, kept, start - below, limit - start - room)


def is_burst_alike(offered: QueueTraffic) -> bool:
    """Whether all packets of a burst share one importance; an incast round, though one burst here, does
    not."""
    is_single = mean_burst_packets(offered.arrivals) == 1
    return offered.importance == "burst" and not is_single and not isinstance(offered.arrivals, Incast)


def largest_burst(arrivals: Arrivals) -> int:
    """The largest burst in packets; for random sizes, their mean."""
    return max(arrivals.sizes_packets) if isinstance(arrivals, Trace) else ceil(_mean_size(arrivals))


def _mean_size(arrivals: Arrivals) -> float:
    """Packets of what comes at once."""
    return mean_burst_packets(backlog_burst(arrivals) if isinstance(arrivals, Incast) else arrivals)


def _burst_sizes(arrivals: Arrivals, enough: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Sizes and probabilities; geometric ones only up to `enough`, with all larger ones in the last."""
    match arrivals:
        case Poisson():
            return (1,), (1.0,)
        case Batch(burst_packets=size, distribution="fixed"):
            return (int(size),), (1.0,)
        case Batch(burst_packets=mean):
            return _geometric(mean, enough)
        case Trace(sizes_packets=sizes, probabilities=shares):
            return tuple(sizes), tuple(shares)
        case Incast():
            return (int(backlog_burst(arrivals).burst_packets),), (1.0,)


def _geometric(mean: float, enough: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if mean == 1:
        return (1,), (1.0,)
    onward = 1 - 1 / mean
    count = max(1, min(enough, ceil(log(RAREST_SIZE) / log(onward))))
    shares = (1 - onward) * onward ** np.arange(count)
    shares[-1] = onward ** (count - 1)
    return tuple(range(1, count + 1)), tuple(shares.tolist())


def _cut(
    sizes: tuple[int, ...], shares: tuple[float, ...], enough: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if max(sizes) <= enough:
        return sizes, shares
    small = [(size, share) for size, share in zip(sizes, shares, strict=True) if size < enough]
    large = 1.0 - sum(share for _, share in small)
    return (*(size for size, _ in small), enough), (*(share for _, share in small), large)


def _thinned(
    sizes: tuple[int, ...], shares: tuple[float, ...], kept: float
) -> tuple[tuple[int, ...], tuple[float, ...], float]:
    """Sizes of bursts of which each packet is kept or not; and the share of bursts of which any is left."""
    left = chosen(kept).distributed(np.bincount(sizes, weights=shares))
    some = float(left[1:].sum())
    return tuple(range(1, len(left))), tuple((left[1:] / some).tolist()), some
