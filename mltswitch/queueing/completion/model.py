"""The model `completion` behind the common call: what it takes, what it refuses, what it says."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.queueing.arrivals import (
    Arrivals,
    Batch,
    Incast,
    Poisson,
    Trace,
    backlog_burst,
    mean_burst_packets,
)
from mltswitch.queueing.completion.admission import ClassQueue
from mltswitch.queueing.completion.counted import solve_counted_port
from mltswitch.queueing.completion.delays import percentiles
from mltswitch.queueing.completion.port import port_losses, solve_port
from mltswitch.queueing.completion.source_rate import (
    not_arrived_packets,
    raised_thresholds,
    source_rate_ratio,
)
from mltswitch.queueing.completion.state import Losses, QueueState
from mltswitch.queueing.completion.tables import binomials
from mltswitch.queueing.completion.threads import one_thread
from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds, QueueTraffic

DELAYS: Final = (0.5, 0.99, 0.999)
LONGEST_QUEUE: Final = 2048
"""Packets of the longest queue that is solved packet by packet; above, several count as one."""
RAREST_SIZE: Final = 1e-9
"""Share of the bursts beyond which the geometric distribution is cut off."""
HINT: Final = "the model simulate knows it"


def predict(
    port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueuePrediction, ...]:
    """Loss, delay, queue and marks of each queue, highest priority first.

    Exact, to about 1e-6, for packets of one size, strict priority, and bursts that come at once at
    exponential gaps; only percentiles of the delay are approximate. So are bursts with a finite
    `source_rate_ratio` (see `source_rate`), and an incast epoch, which is taken for one burst of the backlog
    that it leaves, at random times.

    Raises:
        UserInputError: the port or the traffic is of a kind that only `simulate` knows.
    """
    _check(port, traffic, thresholds)
    group = _packets_in_one(thresholds)
    active = _active(traffic, thresholds)
    acting = raised_thresholds(traffic, thresholds)
    queues = [_class_queue(traffic[index], acting[index], group) for index in active]
    solve = solve_counted_port if port.count_in_service else solve_port
    with one_thread():
        states = dict(zip(active, solve(queues), strict=True))
    return tuple(
        _prediction(states[index], offered, limits, group) if index in states else _unused(limits)
        for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True))
    )


def _joins(offered: QueueTraffic, limits: QueueThresholds) -> bool:
    """Whether any packet of the class ever joins."""
    important = 1 - offered.unimportant_share
    return (
        offered.load > 0 and limits.limit_packets > 0 and (limits.ecn_threshold_packets != 0 or important > 0)
    )


def predict_losses(
    port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueuePrediction, ...]:
    """As `predict`, but losses and marks only, in half the time: for a search."""
    if port.count_in_service:
        return predict(port, traffic, thresholds)
    _check(port, traffic, thresholds)
    group = _packets_in_one(thresholds)
    active = _active(traffic, thresholds)
    acting = raised_thresholds(traffic, thresholds)
    with one_thread():
        found = port_losses([_class_queue(traffic[index], acting[index], group) for index in active])
    known = dict(zip(active, found, strict=True))
    return tuple(
        _only_losses(known[index], offered, limits) if index in known else _unused(limits)
        for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True))
    )


def _active(traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]) -> list[int]:
    return [
        index
        for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True))
        if _joins(offered, limits)
    ]


def _check(port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]) -> None:
    if port.service != "fixed":
        raise _refused("packets of random size", "service")
    if port.weights is not None and any(port.weights):
        raise _refused("queues that share by weight", "weights")
    total = sum(ceil(limits.limit_packets) for limits in thresholds)
    if port.buffer_packets is not None and port.buffer_packets < total:
        raise _refused(f"a shared buffer below the sum of the limits, {total} packets", "buffer_packets")
    for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True)):
        where = f"queues[{index}]"
        if not limits.is_step:
            raise _refused("thresholds other than a step on the instantaneous queue", where)
        alike = _is_burst_alike(offered)
        if alike and not (isinstance(offered.arrivals, Batch) and offered.arrivals.distribution == "fixed"):
            raise _refused("importance by burst where bursts differ in size", f"{where}.importance")
        if alike and port.count_in_service:
            raise _refused("importance by burst with count_in_service", f"{where}.importance")


def _refused(what: str, where: str) -> UserInputError:
    return UserInputError(f"the loss model completion does not know {what}", where=where, hint=HINT)


def _packets_in_one(thresholds: Sequence[QueueThresholds]) -> int:
    longest = max(limits.limit_packets for limits in thresholds)
    return max(1, ceil(longest / LONGEST_QUEUE))


def _class_queue(offered: QueueTraffic, limits: QueueThresholds, group: int) -> ClassQueue:
    sizes, shares = _burst_sizes(offered.arrivals)
    if group > 1:
        sizes, shares = (max(1, round(float(np.dot(sizes, shares)) / group)),), (1.0,)
    limit = ceil(limits.limit_packets / group)
    threshold = limits.ecn_threshold_packets
    important = 1 - offered.unimportant_share
    start = limit if threshold is None else min(limit, ceil(threshold / group))
    rate = offered.load / float(np.dot(sizes, shares))
    is_burst_alike = _is_burst_alike(offered)
    if start == 0 and important < 1:
        # Unimportant packets never join: the queue is offered the others alone.
        arrive = important if is_burst_alike else 1.0
        if not is_burst_alike:
            sizes, shares, arrive = _thinned(sizes, shares, important)
        rate, important = rate * arrive, 1.0
    return ClassQueue(
        rate=rate,
        threshold=start,
        limit=limit if important > 0 else start,
        important_share=important or 1.0,
        sizes=sizes,
        probabilities=shares,
        is_burst_alike=is_burst_alike,
    )


def _thinned(
    sizes: tuple[int, ...], shares: tuple[float, ...], kept: float
) -> tuple[tuple[int, ...], tuple[float, ...], float]:
    """Sizes of bursts of which each packet is kept or not; and the share of bursts of which any is left."""
    table = binomials(max(sizes), kept, max(sizes))
    left = sum(share * table[size] for size, share in zip(sizes, shares, strict=True))
    some = float(left[1:].sum())
    return tuple(range(1, len(left))), tuple((left[1:] / some).tolist()), some


def _is_burst_alike(offered: QueueTraffic) -> bool:
    """An epoch of many senders is one burst here, but not of one importance."""
    is_single = mean_burst_packets(offered.arrivals) == 1
    return offered.importance == "burst" and not is_single and not isinstance(offered.arrivals, Incast)


def _burst_sizes(arrivals: Arrivals) -> tuple[tuple[int, ...], tuple[float, ...]]:
    match arrivals:
        case Poisson():
            return (1,), (1.0,)
        case Batch(burst_packets=size, distribution="fixed"):
            return (int(size),), (1.0,)
        case Batch(burst_packets=mean):
            return _geometric(mean)
        case Trace(sizes_packets=sizes, probabilities=shares):
            return sizes, shares
        case Incast():
            return (int(backlog_burst(arrivals).burst_packets),), (1.0,)


def _geometric(mean: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Sizes from 1, cut off where hardly any burst is larger; the last size keeps the mean."""
    if mean == 1:
        return (1,), (1.0,)
    onward = 1 - 1 / mean
    count = ceil(np.log(RAREST_SIZE) / np.log(onward))
    sizes = np.arange(1, count + 1)
    shares = (1 - onward) * onward ** (sizes - 1.0)
    shares[-1] = onward ** (count - 1.0)
    return tuple(sizes.tolist()), tuple((shares / shares.sum()).tolist())


def _only_losses(found: Losses | None, offered: QueueTraffic, limits: QueueThresholds) -> QueuePrediction:
    if found is None:
        return QueuePrediction(1.0, 1.0)
    threshold = limits.ecn_threshold_packets
    never = threshold == 0
    # Unimportant packets alone fill a queue no further than S.
    reaches_limit = offered.unimportant_share < 1 or threshold in (None, limits.limit_packets)
    return QueuePrediction(
        loss_unimportant=1.0 if never else _share(found.unimportant),
        loss_important=_share(found.important) if reaches_limit else 0.0,
        mark_share=1.0 if never else _share(found.marked),
    )


def _prediction(
    state: QueueState | None, offered: QueueTraffic, limits: QueueThresholds, group: int
) -> QueuePrediction:
    if state is None:
        return _starved(limits, group)
    probabilities = state.queue_probabilities
    arrives_at_once = source_rate_ratio(offered) == inf
    mean_queue = group * float(probabilities @ np.arange(len(probabilities)))
    carried = offered.load * state.losses.carried
    shown = max(0.0, mean_queue - not_arrived_packets(offered, carried))
    shorter = shown / mean_queue if mean_queue > 0 else 1.0
    p50, p99, p999 = (group * delay for delay in percentiles(state, DELAYS))
    return replace(
        _only_losses(state.losses, offered, limits),
        mean_delay_packet_times=group * shorter * state.mean_delay,
        # Long waits are those behind bursts that have long arrived.
        p50_delay_packet_times=shorter * p50,
        p99_delay_packet_times=p99,
        p999_delay_packet_times=p999,
        mean_queue_packets=shown,
        queue_probabilities=tuple(probabilities.tolist()) if group == 1 and arrives_at_once else None,
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _unused(limits: QueueThresholds) -> QueuePrediction:
    """A queue that nothing joins, because nothing is offered or everything is dropped."""
    lost_unimportant = float(limits.limit_packets == 0 or limits.ecn_threshold_packets == 0)
    lost_important = float(limits.limit_packets == 0)
    empty = (
        (1.0, *(0.0 for _ in range(ceil(limits.limit_packets))))
        if limits.limit_packets < LONGEST_QUEUE
        else None
    )
    return QueuePrediction(
        lost_unimportant,
        lost_important,
        mean_queue_packets=0.0,
        mark_share=0.0,
        queue_probabilities=empty,
    )


def _starved(limits: QueueThresholds, group: int) -> QueuePrediction:
    """Full for good: the classes above leave nothing."""
    limit = ceil(limits.limit_packets)
    full = (*(0.0 for _ in range(limit)), 1.0) if group == 1 else None
    return QueuePrediction(1.0, 1.0, mean_queue_packets=float(limit), queue_probabilities=full)
