"""What no thresholds do better than under `completion`, from queues that can only lose less.

Take any queues K of a port, whatever their thresholds, and beside them one queue alone on an empty port that
tests all packets against one limit of at least the sum of theirs. Offer both the same packets at the same
moments. At any moment the lone queue has let in at least as many packets. For if it fell behind, there would
be a first packet that K lets in and the lone queue, with as many let in so far, drops. Up to there each n-th
packet came into the lone queue no later than into K, so its transmission began no later: a port with nothing
else to do begins at the later of its arrival and the end of the one before. So the lone queue has let in as
many and sent at least as many, is no longer than K together, and K had room: it would not have dropped.

So K together loses at least what the lone queue loses. In the same way a class loses at least

- of its important packets what they lose alone, without the unimportant ones: those that K lets in besides
  take room and time, and are at most as many as it sent besides;
- of its unimportant packets what a lone queue with the limit L for all loses: below S both kinds are treated
  alike, and what a packet finds does not depend on its own importance.

It is not true that a class with the same S and L loses less of each kind when it is alone: classes below
delay the first packets of a busy period and so shut out unimportant packets, which leaves room for important
ones. The bound does without that.

All this is of bursts that come at once. The model takes bursts of a slower source for such, with thresholds
raised by what the port sends of a burst while it arrives; the lone queues have the largest such rise.

What losses within these bounds cost at least follows from a price on each lost packet (Lagrangian): every
price gives a bound, and the best one is taken.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Final

import numpy as np

from mltswitch.queueing.arrivals import Arrivals, Batch, Poisson, Trace, mean_burst_packets
from mltswitch.queueing.completion import predict_losses
from mltswitch.queueing.descent.choice import Constraints
from mltswitch.queueing.objective import FloatArray, RoundsCurve, ThresholdProblem
from mltswitch.queueing.problem import QueueThresholds, QueueTraffic

LONGEST_PACKETS: Final = 2048
"""Longer queues are not solved packet by packet; theirs is the loss of an endless one."""
MARGIN: Final = 1e-5
"""Relative error that the model may have."""
SMALLEST_LOSS: Final = 1e-9
LOSSES: Final = 2000
"""Intervals of a loss ratio: its cost is taken at the lower end, what it saves the others at the upper."""
PRICES: Final = np.geomspace(1e-9, 1e7, 65)
FINER: Final = 33
"""Prices between the neighbours of the best one."""


def least_rounds(problem: ThresholdProblem) -> float:
    """Extra rounds that the chosen queues cost at least, whatever S and L within the constraints."""
    constraints = Constraints(problem)
    queues = zip(problem.traffic, problem.fixed, strict=True)
    chosen = [offered for offered, given in queues if given is None]
    rises = [_rise_packets(offered.arrivals) for offered in chosen]
    chosen = [replace(offered, arrivals=_at_once(offered.arrivals)) for offered in chosen]
    options: list[_Losses] = []
    for queue, offered in enumerate(chosen):
        most, objective = constraints.most_limit(queue) + rises[queue], problem.objectives[queue]
        alone = _loss(problem, offered, most)
        important = _loss(problem, offered, most, is_important_only=True)
        share = offered.unimportant_share
        options += [
            _Losses(objective.rounds_unimportant, alone, offered.load * share, problem.hops),
            _Losses(objective.rounds_important, important, offered.load * (1 - share), problem.hops),
        ]
    together = _together(chosen)
    if together is None:
        return _least(options, 0.0)
    held = problem.buffer_packets
    if problem.buffer == "shared":
        held = len(chosen) * constraints.limits[-1]
    return _least(options, together.load * _loss(problem, together, held + sum(rises)))


class _Losses:
    """Loss ratios of one kind of packets of one class, from the least one, and what they cost."""

    def __init__(self, curve: RoundsCurve, least: float, load: float, hops: int) -> None:
        grid = np.geomspace(SMALLEST_LOSS, 1.0, LOSSES)
        lower = np.concatenate(([least], grid[grid > least]))
        self.load = load
        self.upper = np.append(lower[1:], 1.0)
        self.rounds = np.asarray(curve(-np.expm1(hops * np.log1p(-np.minimum(lower, 1 - 1e-16)))))

    def least(self, prices: FloatArray) -> FloatArray:
        """Least of the rounds less the price of each packet lost, for each price."""
        saved = np.outer(prices, self.load * self.upper)
        return np.asarray((self.rounds - saved).min(axis=1))


def _least(options: Sequence[_Losses], lost: float) -> float:
    """Least rounds of all together, if they lose so many packets per packet time."""

    def bounds(prices: FloatArray) -> FloatArray:
        return np.asarray(prices * lost + np.sum([entry.least(prices) for entry in options], axis=0))

    prices = np.concatenate(([0.0], PRICES))
    coarse = bounds(prices)
    place = int(coarse.argmax())
    finer = np.linspace(prices[max(0, place - 1)], prices[min(place + 1, len(prices) - 1)], FINER)
    return max(0.0, float(coarse.max()), float(bounds(finer).max()))


def _loss(
    problem: ThresholdProblem, offered: QueueTraffic, limit: int, *, is_important_only: bool = False
) -> float:
    """What a lone queue with one limit loses at least."""
    load = offered.load * (1 - offered.unimportant_share) if is_important_only else offered.load
    if load == 0:
        return 0.0
    if limit > LONGEST_PACKETS:
        return max(0.0, 1 - 1 / load)
    if not is_important_only:
        offered = replace(offered, unimportant_share=0.0, importance="packet")
    thresholds = QueueThresholds(0.0 if is_important_only else None, float(limit))
    port = replace(problem.port, buffer_packets=None, weights=None)
    (found,) = predict_losses(port, [offered], [thresholds])
    return max(0.0, found.loss_important * (1 - MARGIN))


def _rise_packets(arrivals: Arrivals) -> int:
    """What a port sends of a burst at most while it arrives."""
    if not isinstance(arrivals, Batch | Trace):
        return 0
    return ceil((mean_burst_packets(arrivals) - 1) / max(1.0, arrivals.source_rate_ratio))


def _at_once(arrivals: Arrivals) -> Arrivals:
    if not isinstance(arrivals, Batch | Trace):
        return arrivals
    return replace(arrivals, source_rate_ratio=inf)


def _together(offered: Sequence[QueueTraffic]) -> QueueTraffic | None:
    """All of them as one stream of bursts; None where their bursts do not add up to one that is known."""
    load = sum(entry.load for entry in offered)
    kinds = {entry.arrivals for entry in offered}
    if load == 0:
        return None
    if len(kinds) == 1:
        return QueueTraffic(load, arrivals=kinds.pop())
    rates: dict[int, float] = {}
    for entry in offered:
        sizes = _sizes(entry.arrivals)
        if sizes is None:
            return None
        rate = entry.load / mean_burst_packets(entry.arrivals)
        for size, share in sizes.items():
            rates[size] = rates.get(size, 0.0) + rate * share
    total = sum(rates.values())
    ordered = sorted(rates)
    return QueueTraffic(load, arrivals=Trace(tuple(ordered), tuple(rates[size] / total for size in ordered)))


def _sizes(arrivals: Arrivals) -> dict[int, float] | None:
    """Burst sizes with their shares."""
    match arrivals:
        case Poisson():
            return {1: 1.0}
        case Batch(burst_packets=size, distribution="fixed"):
            return {int(size): 1.0}
        case Trace(sizes_packets=sizes, probabilities=shares):
            return dict(zip(sizes, shares, strict=True))
    return None
