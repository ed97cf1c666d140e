"""Thresholds for a model in which queues do not influence each other through their thresholds.

Minimises the sum over the queues of f^S(r^S) + f^L(r^L) (MLT, appendix B) subject to L >= S >= one packet,
S smaller for higher priority (section 5.2), and the sum of all L within the buffer. Where the optimum is
flat: the least byte-weighted loss, then the least buffer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.paper import FloatArray, blocking

LOSS_WEIGHT: Final = 1e-6
"""Tie-break: what a byte-weighted loss of 1 counts in extra rounds; far below what anybody can measure."""
PACKET_WEIGHT: Final = LOSS_WEIGHT * 1e-9
"""Tie-break: a packet of buffer is spent where it saves at least one packet in 10^9."""
MAXIMUM_UNITS: Final = 192
"""Buffers up to this many packets are searched completely; above, in coarser steps and then refined."""

IntArray = npt.NDArray[np.int64]
RoundsCurve = Callable[[FloatArray], FloatArray]
"""Loss ratio (any shape) → extra training rounds (same shape)."""


@dataclass(frozen=True, slots=True)
class GradientQueue:
    """One gradient class on one port."""

    utilisation: float
    unimportant_share: float
    byte_share: float
    """Part of the model's bytes that the class carries."""
    rounds_unimportant: RoundsCurve
    rounds_important: RoundsCurve


@dataclass(frozen=True, slots=True)
class Optimum:
    """Thresholds in packets, highest priority first."""

    ecn_thresholds_packets: tuple[int, ...]
    limits_packets: tuple[int, ...]
    extra_rounds: float
    byte_weighted_loss: float
    is_global: bool
    """Every combination was compared (packet by packet); else the best of a grid, refined locally."""


def least_buffer_packets(queues: int) -> int:
    """Smallest buffer in which S can rise from queue to queue: 1 + 2 + … + n packets."""
    return queues * (queues + 1) // 2


def optimise(queues: Sequence[GradientQueue], buffer_packets: int, hops: int) -> Optimum:
    """Best S and L of each queue; the loss counts over `hops` equal ports in a row, 1 - (1 - r)^hops.

    Raises ValueError when the buffer is below `least_buffer_packets`.
    """
    least = least_buffer_packets(len(queues))
    if buffer_packets < least:
        raise ValueError(f"{len(queues)} queues need at least {least} packets")
    step = min(-(-buffer_packets // MAXIMUM_UNITS), buffer_packets // least)
    costs = [_QueueCost(queue, hops) for queue in queues]
    thresholds, limits = _search(costs, buffer_packets // step, step)
    if step > 1:
        thresholds, limits = _refine(costs, thresholds, limits, buffer_packets, step)
    rounds = sum(cost.rounds(s, m) for cost, s, m in zip(costs, thresholds, limits, strict=True))
    loss = sum(cost.loss(s, m) for cost, s, m in zip(costs, thresholds, limits, strict=True))
    return Optimum(tuple(thresholds), tuple(limits), rounds, loss, is_global=step == 1)


class _QueueCost:
    """Cost of one queue as a function of S and L, both terms evaluated for all values at once."""

    def __init__(self, queue: GradientQueue, hops: int) -> None:
        self._queue = queue
        self._hops = hops

    def _losses(self, threshold: FloatArray, limit: FloatArray) -> tuple[FloatArray, FloatArray]:
        split = self._queue.unimportant_share * threshold
        one_hop = (
            blocking(self._queue.utilisation, split),
            blocking(self._queue.utilisation, np.maximum(limit - split, 0.0)),
        )
        unimportant, important = (
            -np.expm1(self._hops * np.log1p(-np.minimum(r, 1 - 1e-16))) for r in one_hop
        )
        return unimportant, important

    def table(self, threshold: FloatArray, limit: FloatArray) -> FloatArray:
        """Cost for S and L that broadcast against each other; infinite where L < S."""
        unimportant, important = self._losses(threshold, limit)
        theta = self._queue.unimportant_share
        rounds = self._queue.rounds_unimportant(unimportant) + self._queue.rounds_important(important)
        loss = self._queue.byte_share * (theta * unimportant + (1 - theta) * important)
        cost = rounds + LOSS_WEIGHT * loss + PACKET_WEIGHT * limit
        return np.where(limit >= threshold, cost, np.inf)

    def at(self, threshold: int, limit: int) -> float:
        """Cost of one choice."""
        return float(self.table(np.array(float(threshold)), np.array(float(limit))))

    def rounds(self, threshold: int, limit: int) -> float:
        """Extra rounds of one choice."""
        unimportant, important = self._losses(np.array(float(threshold)), np.array(float(limit)))
        return float(self._queue.rounds_unimportant(unimportant) + self._queue.rounds_important(important))

    def loss(self, threshold: int, limit: int) -> float:
        """Byte-weighted loss of one choice."""
        unimportant, important = self._losses(np.array(float(threshold)), np.array(float(limit)))
        theta = self._queue.unimportant_share
        return float(self._queue.byte_share * (theta * unimportant + (1 - theta) * important))


def _search(costs: Sequence[_QueueCost], units: int, step: int) -> tuple[list[int], list[int]]:
    """Dynamic programme over (buffer used so far, last S): complete for S and L in multiples of `step`.

    best[b, s]: least cost of the queues so far with at most b units of buffer and the last S equal to s.
    """
    sizes: FloatArray = np.arange(1, units + 1, dtype=np.float64) * step
    best = np.full((units + 1, units + 1), np.inf)
    best[:, 0] = 0.0
    stages: list[tuple[FloatArray, IntArray]] = []
    for cost in costs:
        best, limits = _extend(cost.table(sizes[:, None], sizes[None, :]), best)
        stages.append((best, limits))
    left, ceiling = units, units + 1
    thresholds: list[int] = []
    limits_packets: list[int] = []
    for best, limits in reversed(stages):
        threshold = int(best[left, :ceiling].argmin())
        limit = int(limits[left, threshold])
        thresholds.append(threshold * step)
        limits_packets.append(limit * step)
        left -= limit
        ceiling = threshold
    return thresholds[::-1], limits_packets[::-1]


def _extend(table: FloatArray, best: FloatArray) -> tuple[FloatArray, IntArray]:
    """One queue more: next[b, s] = min over l of table[s, l] + (min over s' < s of best[b - l, s'])."""
    units = len(table)
    below = np.minimum.accumulate(best, axis=1)
    extended = np.full_like(best, np.inf)
    limits = np.zeros(best.shape, dtype=np.int64)
    padded = np.full(2 * units + 1, np.inf)
    for threshold in range(1, units + 1):
        padded[units:] = below[:, threshold - 1]
        # Row b reads below[b - 1], below[b - 2], …: what is left when this queue takes 1, 2, … units.
        window = np.lib.stride_tricks.sliding_window_view(padded, units)[: units + 1, ::-1]
        total = window + table[threshold - 1]
        limits[:, threshold] = total.argmin(axis=1) + 1
        extended[:, threshold] = total.min(axis=1)
    return extended, limits


def _refine(
    costs: Sequence[_QueueCost], thresholds: list[int], limits: list[int], buffer_packets: int, step: int
) -> tuple[list[int], list[int]]:
    """Local search in ever smaller moves down to one packet, in a fixed order, within the constraints."""
    choice = _Choice(list(thresholds), list(limits))
    move = step
    while move >= 1:
        improved = True
        while improved:
            improved = False
            for neighbour in choice.neighbours(move):
                if neighbour.is_valid(buffer_packets) and neighbour.cost(costs) < choice.cost(costs):
                    choice, improved = neighbour, True
                    break
        move //= 2
    return choice.thresholds, choice.limits


@dataclass(frozen=True, slots=True)
class _Choice:
    thresholds: list[int]
    limits: list[int]

    def is_valid(self, buffer_packets: int) -> bool:
        pairs = zip(self.thresholds, self.limits, strict=True)
        return (
            self.thresholds[0] >= 1
            and all(limit >= threshold for threshold, limit in pairs)
            and all(low < high for low, high in pairwise(self.thresholds))
            and sum(self.limits) <= buffer_packets
        )

    def cost(self, costs: Sequence[_QueueCost]) -> float:
        return sum(cost.at(s, m) for cost, s, m in zip(costs, self.thresholds, self.limits, strict=True))

    def neighbours(self, move: int) -> Iterator["_Choice"]:
        """S of one queue up or down, L of one queue up or down, buffer handed from one queue to another."""
        queues = range(len(self.limits))
        for queue in queues:
            for change in (move, -move):
                yield self._with((queue, change), ())
                yield self._with((), (queue, change))
                yield self._with((queue, change), (queue, change))
        for giver in queues:
            for taker in queues:
                if giver != taker:
                    yield self._with((), (giver, -move, taker, move))

    def _with(self, threshold_changes: tuple[int, ...], limit_changes: tuple[int, ...]) -> "_Choice":
        thresholds, limits = list(self.thresholds), list(self.limits)
        for values, changes in ((thresholds, threshold_changes), (limits, limit_changes)):
            for queue, change in zip(changes[::2], changes[1::2], strict=True):
                values[queue] += change
        return _Choice(thresholds, limits)
