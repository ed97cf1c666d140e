"""The entry to the loss model `completion`: checks what it supports, solves the port and returns
predictions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import ceil, inf, log
from typing import Any, Final

import numpy as np
from threadpoolctl import ThreadpoolController

from mltswitch.errors import UserInputError
from mltswitch.queueing.arrivals import Batch, Incast
from mltswitch.queueing.completion.counted import solve_counted_port
from mltswitch.queueing.completion.durations import Slot
from mltswitch.queueing.completion.port import port_losses, solve_port
from mltswitch.queueing.completion.reduction import (
    LONGEST_PART,
    Reduced,
    is_burst_alike,
    largest_burst,
    not_arrived_packets,
    raised_thresholds,
    reduced,
    source_rate_ratio,
)
from mltswitch.queueing.completion.state import Losses, QueueState, percentiles
from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds, QueueTraffic


@cache
def _controller() -> Any:
    return ThreadpoolController()


def one_thread() -> Any:
    """Context in which BLAS and LAPACK use one thread."""
    return _controller().limit(limits=1, user_api="blas")


DELAYS: Final = (0.5, 0.99, 0.999)
LEAST_TOLD: Final = 0.1
"""The part of the computed mean queue that must have arrived for the mean to be reported; below it errors
dominate."""
REACHED_DECAYS: Final = 28.0
"""ln(1e12): after this many decay lengths a quantity has shrunk by a factor of 1e12."""
MOST_COUNTED: Final = 512
"""The longest queue in packets that is solved with thresholds that count the packet in transmission."""
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
    classes = _classes(traffic, thresholds)
    solve = solve_counted_port if port.count_in_service else solve_port
    with one_thread():
        states = dict(zip(classes, solve([entry.queue for entry in classes.values()]), strict=True))
    return tuple(
        _prediction(states[index], classes[index], offered, limits) if index in classes else _unused(limits)
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
    """Losses and marks of each queue, in half the time of `predict`, for use in a search."""
    if port.count_in_service:
        return predict(port, traffic, thresholds)
    _check(port, traffic, thresholds)
    thresholds = _reachable(traffic, thresholds)
    classes = _classes(traffic, thresholds)
    with one_thread():
        found = dict(zip(classes, port_losses([entry.queue for entry in classes.values()]), strict=True))
    return tuple(
        _only_losses(found[index], classes[index], offered, limits) if index in classes else _unused(limits)
        for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True))
    )


def _reachable(
    traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> list[QueueThresholds]:
    """Thresholds cut to lengths that a queue exceeds with a probability of 1e-12 at most.

    With the classes above it a queue falls off by θ a packet, where load · (exp(θ · burst) - 1) = θ · burst
    with the largest burst (Kingman 1962): by at least log(1 / load) / burst. Where bursts are geometric, it
    is (1 - load) / burst.
    """
    cut: list[QueueThresholds] = []
    load, burst, is_geometric = 0.0, 1, False
    for offered, limits in zip(traffic, thresholds, strict=True):
        load += offered.load
        burst = max(burst, largest_burst(offered.arrivals))
        is_geometric |= isinstance(offered.arrivals, Batch) and offered.arrivals.distribution != "fixed"
        if load >= 1 or isinstance(offered.arrivals, Incast):
            return [*cut, *thresholds[len(cut) :]]
        length = burst / (1 - load if is_geometric else -log(load)) if load else 0.0
        most = float(ceil(REACHED_DECAYS * length + burst))
        threshold = limits.ecn_threshold_packets
        short = 0.0 if threshold is None else min(threshold, most)
        above = min(limits.limit_packets - (threshold or 0.0), most)
        cut.append(
            replace(
                limits,
                ecn_threshold_packets=None if threshold is None else short,
                limit_packets=short + above,
            )
        )
    return cut


def _classes(traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]) -> dict[int, Reduced]:
    """The classes of which any packet joins, by index."""
    acting = raised_thresholds(traffic, thresholds)
    return {
        index: reduced(offered, acting[index])
        for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True))
        if _joins(offered, limits)
    }


def _check(port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]) -> None:
    if port.service != "fixed":
        raise _refused("packets of random size", "service")
    if port.weights is not None and any(port.weights):
        raise _refused("queues that share by weight", "weights")
    total = sum(ceil(limits.limit_packets) for limits in thresholds)
    if port.buffer_packets is not None and port.buffer_packets < total:
        raise _refused(f"a shared buffer below the sum of the limits, {total} packets", "buffer_packets")
    if port.count_in_service and any(limits.limit_packets > MOST_COUNTED for limits in thresholds):
        raise _refused(f"limits above {MOST_COUNTED} packets together with it", "count_in_service")
    for index, (offered, limits) in enumerate(zip(traffic, thresholds, strict=True)):
        where = f"queues[{index}]"
        if not limits.is_step:
            raise _refused("thresholds other than a step on the instantaneous queue", where)
        alike = is_burst_alike(offered)
        if alike and not (isinstance(offered.arrivals, Batch) and offered.arrivals.distribution == "fixed"):
            raise _refused("importance by burst where bursts differ in size", f"{where}.importance")
        if alike and port.count_in_service:
            raise _refused("importance by burst with count_in_service", f"{where}.importance")


def _refused(what: str, where: str) -> UserInputError:
    return UserInputError(f"the loss model completion does not know {what}", where=where, hint=HINT)


def _only_losses(
    found: Losses | None, reduced_to: Reduced, offered: QueueTraffic, limits: QueueThresholds
) -> QueuePrediction:
    if found is None:
        return QueuePrediction(1.0, 1.0)
    threshold = limits.ecn_threshold_packets
    never = threshold == 0
    only_unimportant = offered.unimportant_share == 1 and threshold is not None
    # Unimportant packets alone fill a queue no further than S.
    reaches_limit = not only_unimportant or threshold == limits.limit_packets
    kept = reduced_to.kept_share
    return QueuePrediction(
        loss_unimportant=1.0 if never else _share(1 - (1 - found.unimportant) * kept),
        loss_important=_share(1 - (1 - found.important) * kept) if reaches_limit else 0.0,
        mark_share=1.0 if never else None if only_unimportant else _share(found.marked),
    )


def _prediction(
    state: QueueState | None, reduced_to: Reduced, offered: QueueTraffic, limits: QueueThresholds
) -> QueuePrediction:
    if state is None:
        return _starved(limits)
    hidden, often = _hidden_packets(state, reduced_to)
    probabilities = state.queue_probabilities
    mean_queue = float(probabilities @ np.arange(len(probabilities))) + hidden * often
    shares = _only_losses(state.losses, reduced_to, offered, limits)
    unimportant = offered.unimportant_share
    carried = offered.load * (
        1 - unimportant * shares.loss_unimportant - (1 - unimportant) * shares.loss_important
    )
    arrived = mean_queue - not_arrived_packets(offered, carried)
    # Where most of the queue has not arrived yet, the difference is too small to be told.
    is_told = arrived >= LEAST_TOLD * mean_queue
    waits = [
        delay + (hidden * state.turn.mean if often > 1 - share else 0.0)
        for share, delay in zip(DELAYS, percentiles(state, DELAYS), strict=True)
    ]
    if isinstance(state.turn, Slot):
        waits = [min(wait, float(ceil(limits.limit_packets))) for wait in waits]
    is_whole = source_rate_ratio(offered) == inf and not hidden
    return replace(
        shares,
        mean_delay_packet_times=arrived / carried if is_told and carried else None,
        # Long waits are those behind bursts that have long arrived.
        p50_delay_packet_times=arrived / mean_queue * waits[0] if is_told and mean_queue else None,
        p99_delay_packet_times=waits[1],
        p999_delay_packet_times=waits[2],
        mean_queue_packets=arrived if is_told else None,
        queue_probabilities=tuple(probabilities.tolist()) if is_whole else None,
    )


def _hidden_packets(state: QueueState, reduced_to: Reduced) -> tuple[float, float]:
    """Packets that a shortened queue holds beside those it shows, and the share of time in which it does."""
    threshold, probabilities = reduced_to.queue.threshold, state.queue_probabilities
    above = float(probabilities[(threshold + len(probabilities)) // 2 :].sum())
    if reduced_to.hidden_above and above > 0.5:
        return float(reduced_to.hidden_below + reduced_to.hidden_above), above
    return float(reduced_to.hidden_below), float(probabilities[threshold // 2 :].sum())


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _unused(limits: QueueThresholds) -> QueuePrediction:
    """A queue that nothing joins, because nothing is offered or everything is dropped."""
    return QueuePrediction(
        loss_unimportant=float(limits.limit_packets == 0 or limits.ecn_threshold_packets == 0),
        loss_important=float(limits.limit_packets == 0),
        mean_queue_packets=0.0,
        mark_share=0.0,
        queue_probabilities=_certain(limits, 0),
    )


def _starved(limits: QueueThresholds) -> QueuePrediction:
    """Full for good: the classes above leave nothing."""
    limit = ceil(limits.limit_packets)
    return QueuePrediction(
        1.0, 1.0, mean_queue_packets=float(limit), queue_probabilities=_certain(limits, limit)
    )


def _certain(limits: QueueThresholds, length: int) -> tuple[float, ...] | None:
    """The distribution of a queue that always has this length, unless it would be a very long list."""
    limit = ceil(limits.limit_packets)
    if limit > 2 * LONGEST_PART:
        return None
    return tuple(1.0 if place == length else 0.0 for place in range(limit + 1))
