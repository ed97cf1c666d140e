"""Large static buffers: a price on the buffer splits the problem into queues and bounds every choice.

With a price per granule, each queue minimises its cost plus its rent (a chain of queues where S must rise),
and the sum less the price of the whole buffer is a lower bound (Lagrangian dual). Boxes of choices stand for
all that they contain, at the cost that none undercuts, and are cut where the best chain passes. Where prices
leave a gap, because a curve is not convex, the limits of one queue are divided into two ranges: branch and
bound.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from mltswitch.queueing.objective import TOLERANCE_ROUNDS
from mltswitch.queueing.optimiser.cells import Cells
from mltswitch.queueing.optimiser.cost import IntArray, QueueCost
from mltswitch.queueing.optimiser.polish import polish
from mltswitch.queueing.optimiser.price import Chain, best_price
from mltswitch.queueing.optimiser.solution import Solution, figures, total_cost
from mltswitch.queueing.paper import FloatArray

RELATIVE_GAP: Final = 0.002
"""The search ends when the bound is this near."""
MAXIMUM_NODES: Final = 200
MAXIMUM_REFINEMENTS: Final = 60
SPLIT_AT_ONCE: Final = 8
"""Boxes of a queue, nearest to the optimum, that are cut in one refinement."""
METHOD: Final = "branch and bound on the price of the buffer"

_Ranges = tuple[tuple[int, int], ...]
"""Per queue: least and largest L."""


@dataclass(frozen=True, slots=True)
class _Node:
    """Bound of the choices within some ranges of the limits."""

    ranges: _Ranges
    bound_rounds: float
    limits_below: tuple[int, ...]
    """Limits of the best chain that fits into the buffer …"""
    limits_above: tuple[int, ...]
    """… and of the best one that does not; the same where the price leaves no gap."""
    thresholds: tuple[int, ...]


def search_static(costs: Sequence[QueueCost], units: int, *, is_ordered: bool) -> Solution | None:
    """Limits that together fit into `units`; None where nothing keeps all constraints."""
    tree = _Tree(costs, units, is_ordered=is_ordered)
    if not tree.is_feasible:
        return None
    bound = tree.search()
    return Solution(tuple(tree.thresholds), tuple(tree.limits), bound, METHOD)


class _Tree:
    """Nodes still to be divided, and the best choice so far."""

    def __init__(self, costs: Sequence[QueueCost], units: int, *, is_ordered: bool) -> None:
        self._costs, self._units, self._is_ordered = costs, units, is_ordered
        queues = len(costs)
        self.thresholds = list(range(1, queues + 1)) if is_ordered else [1] * queues
        self.limits = list(self.thresholds)
        least = sum(self.limits)
        self.is_feasible = least <= units and all(
            cost.frontier.allowed[threshold] >= threshold
            for cost, threshold in zip(costs, self.thresholds, strict=True)
        )
        if not self.is_feasible:
            return
        self._cost = total_cost(costs, self.thresholds, self.limits)
        self._rounds = figures(costs, self.thresholds, self.limits)[0]
        self._cells = [
            Cells(cost, threshold, units - least + threshold)
            for cost, threshold in zip(costs, self.thresholds, strict=True)
        ]
        self._ranges = tuple((threshold, units - least + threshold) for threshold in self.thresholds)

    def search(self) -> float:
        """Improve the best choice until the bound is near; return the bound in extra rounds."""
        root = self._node(self._ranges)
        if root is None:
            return 0.0
        self._improve(root)
        heap = [(root.bound_rounds, 0, root)]
        closed = inf
        for count in range(MAXIMUM_NODES):
            if not heap or self._is_near(min(heap[0][0], closed)):
                break
            _, _, node = heapq.heappop(heap)
            parts = _divide(node)
            if not parts:
                closed = min(closed, node.bound_rounds)
                continue
            for index, ranges in enumerate(parts):
                child = self._node(ranges)
                if child is not None:
                    self._improve(child)
                    heapq.heappush(
                        heap, (max(child.bound_rounds, node.bound_rounds), 2 * count + 1 + index, child)
                    )
        return min([closed, self._rounds, *(entry[0] for entry in heap)])

    def _is_near(self, bound: float) -> bool:
        return self._rounds - bound <= max(RELATIVE_GAP * self._rounds, TOLERANCE_ROUNDS / 2)

    def _improve(self, node: _Node) -> None:
        start = self._repair(node)
        if start is None:
            return
        thresholds, limits = polish(self._costs, *start, self._units, is_ordered=self._is_ordered)
        cost = total_cost(self._costs, thresholds, limits)
        if cost < self._cost:
            self.thresholds, self.limits, self._cost = thresholds, limits, cost
            self._rounds = figures(self._costs, thresholds, limits)[0]

    def _repair(self, node: _Node) -> tuple[list[int], list[int]] | None:
        """A choice near the node's chain that keeps all constraints."""
        thresholds: list[int] = []
        limits: list[int] = []
        for cost, threshold, limit in zip(self._costs, node.thresholds, node.limits_below, strict=True):
            least = thresholds[-1] + 1 if self._is_ordered and thresholds else 1
            thresholds.append(max(threshold, least))
            limits.append(max(thresholds[-1], min(limit, int(cost.frontier.allowed[thresholds[-1]]))))
            if limits[-1] > cost.frontier.allowed[thresholds[-1]]:
                return None
        return (thresholds, limits) if sum(limits) <= self._units else None

    def _node(self, ranges: _Ranges) -> _Node | None:
        """Bound of these ranges; boxes are cut until the best chains are single choices. None: no fit."""
        price = 0.0
        for _ in range(MAXIMUM_REFINEMENTS):
            chains = _Chains(self._cells, ranges, self._units, is_ordered=self._is_ordered)
            found = chains.best_price(price)
            if found is None:
                return None
            price, below, above = found
            if not self._cut(chains, price, below, above):
                break
        chains = _Chains(self._cells, ranges, self._units, is_ordered=self._is_ordered)
        found = chains.best_price(price)
        if found is None:
            return None
        price, below, above = found
        boxes = [cells.boxes[row] for cells, row in zip(self._cells, below.rows, strict=True)]
        return _Node(
            ranges,
            chains.bound_rounds(price),
            chains.limits(below),
            chains.limits(above),
            tuple(int(box[0]) for box in boxes),
        )

    def _cut(self, chains: "_Chains", price: float, below: Chain, above: Chain) -> bool:
        """Cut the boxes nearest to the best chain; False where the best chains hold single choices only."""
        through = chains.through(price)
        has_cut = False
        splits: list[IntArray] = []
        for cells, costs, first, second in zip(self._cells, through, below.rows, above.rows, strict=True):
            is_unit = cells.is_unit
            has_cut |= not (is_unit[first] and is_unit[second])
            nearest = np.argsort(np.where(is_unit, inf, costs), kind="stable")[:SPLIT_AT_ONCE]
            rows = np.union1d(nearest, [first, second])
            splits.append(rows[~is_unit[rows] & np.isfinite(costs[rows])])
        if has_cut:
            for cells, rows in zip(self._cells, splits, strict=True):
                if len(rows):
                    cells.split(rows)
        return has_cut


def _divide(node: _Node) -> list[_Ranges]:
    """Two halves of the range in which the node's two chains differ most; none where they agree."""
    differences = [abs(a - b) for a, b in zip(node.limits_above, node.limits_below, strict=True)]
    widest = int(np.argmax(differences))
    if differences[widest] == 0:
        return []
    low, high = sorted((node.limits_above[widest], node.limits_below[widest]))
    middle = (low + high) // 2
    first, last = node.ranges[widest]
    return [
        (*node.ranges[:widest], part, *node.ranges[widest + 1 :])
        for part in ((first, middle), (middle + 1, last))
    ]


class _Chains:
    """Best chains of boxes for any price, within ranges of the limits."""

    def __init__(self, cells: Sequence[Cells], ranges: _Ranges, units: int, *, is_ordered: bool) -> None:
        self._units, self._is_ordered = units, is_ordered
        self._costs: list[FloatArray] = []
        self._rounds: list[FloatArray] = []
        self._taken: list[IntArray] = []
        for queue, (least, most) in zip(cells, ranges, strict=True):
            is_inside = (queue.least_limits <= most) & (queue.largest_limits >= least)
            self._costs.append(np.where(is_inside, queue.total, inf))
            self._rounds.append(np.where(is_inside, queue.rounds, inf))
            self._taken.append(np.maximum(queue.least_limits, least))
        self._least = [queue.boxes[:, 0] for queue in cells]
        self._most = [queue.boxes[:, 1] for queue in cells]
        # A predecessor's least S must lie below a box's largest S.
        self._before = [
            np.searchsorted(least, most - 1, side="right")
            for least, most in zip(self._least[:-1], self._most[1:], strict=True)
        ]

    def limits(self, chain: Chain) -> tuple[int, ...]:
        """Smallest L of each box of a chain."""
        return tuple(int(taken[row]) for taken, row in zip(self._taken, chain.rows, strict=True))

    def best_price(self, guess: float) -> tuple[float, Chain, Chain] | None:
        """The price of a granule with the highest bound, and the chains that meet there."""
        return best_price(self._best, self._units, guess)

    def bound_rounds(self, price: float) -> float:
        """No choice has fewer extra rounds."""
        value = self._forward([c + price * t for c, t in zip(self._rounds, self._taken, strict=True)])[
            -1
        ].min()
        return max(0.0, (float(value) - price * self._units) * (1 - 1e-12))

    def through(self, price: float) -> list[FloatArray]:
        """Cost plus rent of the best chain through each box."""
        keys = self._keys(price)
        if not self._is_ordered:
            return keys
        forward = self._forward(keys)
        tail = np.zeros(len(keys[-1]))
        through = [forward[-1]]
        for index in range(len(keys) - 2, -1, -1):
            following = keys[index + 1] + tail
            order = np.argsort(self._most[index + 1], kind="stable")
            # From the back: the cheapest follower whose largest S is at least …
            cheapest = np.append(np.minimum.accumulate(following[order][::-1])[::-1], inf)
            first = np.searchsorted(self._most[index + 1][order], self._least[index] + 1, side="left")
            tail = cheapest[first]
            through.append(forward[index] + tail)
        return through[::-1]

    def _keys(self, price: float) -> list[FloatArray]:
        return [cost + price * taken for cost, taken in zip(self._costs, self._taken, strict=True)]

    def _forward(self, keys: list[FloatArray]) -> list[FloatArray]:
        """Per box: cost plus rent of the best chain that ends in it."""
        values = [keys[0]]
        for key, before in zip(keys[1:], self._before, strict=True):
            if self._is_ordered:
                cheapest = np.concatenate(([inf], np.minimum.accumulate(values[-1])))
                values.append(key + cheapest[before])
            else:
                values.append(key + values[-1].min())
        return values

    def _best(self, price: float) -> Chain | None:
        values = self._forward(self._keys(price))
        row = int(values[-1].argmin())
        if not np.isfinite(values[-1][row]):
            return None
        rows = [row]
        for index in range(len(values) - 2, -1, -1):
            end = int(self._before[index][rows[-1]]) if self._is_ordered else len(values[index])
            rows.append(int(values[index][:end].argmin()))
        rows.reverse()
        return Chain(
            tuple(rows),
            float(sum(cost[row] for cost, row in zip(self._costs, rows, strict=True))),
            float(sum(taken[row] for taken, row in zip(self._taken, rows, strict=True))),
        )
