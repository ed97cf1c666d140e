"""Shared buffers where S must rise from queue to queue: branch and bound on the alphas and their sum.

A price on alpha splits the queues but for the order of S, which one pass over S settles (see `dual` for the
same with a price on the buffer). What the price leaves open is divided: the range of the sum, or that of one
queue's alpha.
"""

import heapq
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from mltswitch.queueing.optimiser.cost import IntArray
from mltswitch.queueing.optimiser.pool import Pool, rising
from mltswitch.queueing.optimiser.price import Chain, best_price
from mltswitch.queueing.paper import FloatArray

WORK: Final = 400_000
"""Nodes times granules that are searched at most …"""
LEAST_NODES: Final = 20
MOST_NODES: Final = 3_000
"""… within these."""
NARROW: Final = 1.01
"""A range of sums whose caps differ by less than this factor is divided after the alphas."""


@dataclass(frozen=True, slots=True)
class _Region:
    """Places of the sum among all sums, and of each queue's alpha among all alphas, both ends included."""

    first: int
    last: int
    alphas: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Node:
    region: _Region
    bound: float
    below: tuple[int, ...]
    """Place of each queue's alpha in the best chain that keeps the sum …"""
    above: tuple[int, ...]
    """… and in the best one that does not."""


def search_ordered(pool: Pool) -> float:
    """Improve the pool's choice until the bound is near; returns the bound."""
    sums = pool.sums()
    _start(pool, sums)
    if pool.choice is None:
        return inf
    whole = _Region(0, len(sums) - 1, ((0, len(pool.alphas) - 1),) * len(pool.queues))
    heap: list[tuple[float, int, _Node]] = []
    closed, count = inf, 0
    regions = [whole]
    for _ in range(min(MOST_NODES, max(LEAST_NODES, WORK // pool.units))):
        for region in regions:
            node = _bound(pool, sums, region)
            if node is not None and node.bound < pool.cost:
                count += 1
                heapq.heappush(heap, (node.bound, count, node))
        if not heap or pool.is_near(min(closed, heap[0][0])):
            break
        bound, _, node = heapq.heappop(heap)
        regions = _divide(node, sums)
        if not regions:
            closed = min(closed, bound)
    return min([closed, pool.cost, *(entry[0] for entry in heap)])


def _start(pool: Pool, sums: FloatArray) -> None:
    """The least S that can rise, 1, 2, …, and equal alphas: whatever is possible at all has the first."""
    for total in sums:
        chosen: list[float] = []
        for threshold in range(1, len(pool.queues) + 1):
            chosen += [alpha for alpha in pool.alphas if pool.cap(alpha, float(total)) >= threshold][:1]
        if len(chosen) == len(pool.queues) and sum(chosen) <= total * (1 + 1e-12):
            pool.try_alphas(tuple(chosen))
            break
    for alpha in pool.alphas:
        pool.try_alphas((alpha,) * len(pool.queues))


def _bound(pool: Pool, sums: FloatArray, region: _Region) -> _Node | None:
    """What no choice in a region costs less than; None: the region holds none."""
    least, largest = float(sums[region.first]), float(sums[region.last])
    options = _Options(pool, least, region)
    found = best_price(options.best, largest * (1 + 1e-12), 0.0)
    if found is None:
        return None
    price, below, above = found
    chosen = tuple(pool.alphas[place] for place in below.rows)
    exact = pool.try_alphas(chosen)
    bound = (below.cost + price * below.taken - price * largest * (1 + 1e-12)) * (1 - 1e-12)
    if region.first == region.last and all(low == high for low, high in region.alphas):
        bound = max(bound, exact)
    return _Node(region, bound, below.rows, above.rows)


def _divide(node: _Node, sums: FloatArray) -> list[_Region]:
    """Two halves of a region, by the sum or by the alpha in which its chains differ most."""
    region = node.region
    middle = (region.first + region.last) // 2
    by_sum = [
        _Region(region.first, middle, region.alphas),
        _Region(middle + 1, region.last, region.alphas),
    ]
    is_wide = (1 + sums[region.last]) / (1 + sums[region.first]) > NARROW
    differences = [abs(a - b) for a, b in zip(node.above, node.below, strict=True)]
    widest = int(np.argmax(differences))
    if is_wide or (differences[widest] == 0 and region.first < region.last):
        return by_sum
    if differences[widest] == 0:
        return []
    low, high = region.alphas[widest]
    cut = (node.above[widest] + node.below[widest]) // 2
    return [
        _Region(region.first, region.last, (*region.alphas[:widest], part, *region.alphas[widest + 1 :]))
        for part in ((low, cut), (cut + 1, high))
    ]


class _Options:
    """What each alpha of each queue costs at each S, with the caps of one sum."""

    def __init__(self, pool: Pool, alphas_sum: float, region: _Region) -> None:
        self._alphas = np.array(pool.alphas)
        self._first = [low for low, _ in region.alphas]
        self._costs: list[FloatArray] = []
        for queue, (low, high) in zip(pool.queues, region.alphas, strict=True):
            caps = [pool.cap(alpha, alphas_sum) for alpha in pool.alphas[low : high + 1]]
            table = np.full((len(caps), max(1, *caps, 1)), inf)
            for row, cap in enumerate(caps):
                if cap >= 1:
                    table[row, :cap] = queue.column(cap).bounds
            self._costs.append(table)

    def best(self, price: float) -> Chain | None:
        """The cheapest alphas and S at a price of one unit of alpha."""
        places: list[IntArray] = []
        cheapest: list[FloatArray] = []
        for first, table in zip(self._first, self._costs, strict=True):
            keys = table + price * self._alphas[first : first + len(table), None]
            rows = keys.argmin(axis=0)
            places.append(rows)
            cheapest.append(keys[rows, np.arange(keys.shape[1])])
        thresholds = rising(cheapest)
        if thresholds is None:
            return None
        rows = [int(place[s - 1]) for place, s in zip(places, thresholds, strict=True)]
        cost = sum(t[row, s - 1] for t, row, s in zip(self._costs, rows, thresholds, strict=True))
        chosen = tuple(first + row for first, row in zip(self._first, rows, strict=True))
        return Chain(chosen, float(cost), float(sum(self._alphas[place] for place in chosen)))
