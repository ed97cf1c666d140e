"""Shared buffers: each queue has an alpha, and holds alpha · B / (1 + sum of the alphas) while all are full.

A queue joins while it is shorter than alpha · (free buffer). When all chosen queues are full, their lengths
are in the ratio of their alphas and rest there; alone, a queue may grow to alpha / (1 + alpha) · B. The
losses are those of the former, which no other queue can take away for long, and L never exceeds it.

For a given sum of the alphas the queues are independent but for that sum: a knapsack. Ranges of sums are
bounded by the caps of their least sum and the alphas that their largest sum admits, and halved where that is
not near enough. Where S must rise, see `pool_ordered`.
"""

import heapq
from collections.abc import Sequence
from math import inf
from typing import Final

import numpy as np

from mltswitch.queueing.optimiser.cost import LOSS_WEIGHT, IntArray, QueueCost
from mltswitch.queueing.optimiser.pool import Pool
from mltswitch.queueing.optimiser.pool_ordered import search_ordered
from mltswitch.queueing.optimiser.solution import Solution

MAXIMUM_NODES: Final = 400
METHOD: Final = "branch and bound on the alphas"


def search_shared(
    costs: Sequence[QueueCost],
    buffer_packets: int,
    granularity_packets: int,
    alphas: Sequence[float],
    *,
    is_ordered: bool,
) -> Solution | None:
    """Thresholds and alphas; None where nothing keeps all constraints."""
    pool = Pool(costs, buffer_packets, granularity_packets, alphas, is_ordered=is_ordered)
    bound = search_ordered(pool) if is_ordered else _search(pool)
    if pool.choice is None:
        return None
    thresholds, limits, chosen = pool.choice
    # The tie-breaks are part of the bound, and together below this.
    ties = sum(
        LOSS_WEIGHT * cost.byte_share + float(cost.buffer_cost(np.array(limit)))
        for cost, limit in zip(costs, limits, strict=True)
    )
    return Solution(thresholds, limits, max(0.0, bound - ties), METHOD, chosen)


def _search(pool: Pool) -> float:
    """Halve ranges of the sum until the bound is near; returns the bound."""
    sums = pool.sums()
    heap: list[tuple[float, int, int]] = []
    closed = inf

    def push(first: int, last: int) -> None:
        found = _knapsack(pool, float(sums[first]), float(sums[last]))
        if found is not None:
            pool.try_alphas(found[1])
            if found[0] < pool.cost:
                heapq.heappush(heap, (found[0], first, last))

    push(0, len(sums) - 1)
    for _ in range(MAXIMUM_NODES):
        if not heap or pool.is_near(min(closed, heap[0][0])):
            break
        bound, first, last = heapq.heappop(heap)
        if first == last:
            closed = min(closed, bound)
            continue
        middle = (first + last) // 2
        push(first, middle)
        push(middle + 1, last)
    return min([closed, pool.cost, *(entry[0] for entry in heap)])


def _knapsack(pool: Pool, least_sum: float, largest_sum: float) -> tuple[float, tuple[float, ...]] | None:
    """Least sum of the queues' bounds, capped as at `least_sum`, with alphas of at most `largest_sum`."""
    budget = largest_sum * (1 + 1e-12)
    sums, values = np.zeros(1), np.zeros(1)
    stages: list[tuple[IntArray, IntArray]] = []
    for index, queue in enumerate(pool.queues):
        bounds = np.array([queue.bound(pool.cap(alpha, least_sum)) for alpha in pool.alphas])
        still = (len(pool.queues) - index - 1) * pool.alphas[0]
        all_sums = (sums[:, None] + pool.alphas).ravel()
        all_values = (values[:, None] + bounds).ravel()
        kept = np.flatnonzero((all_sums + still <= budget) & np.isfinite(all_values))
        if len(kept) == 0:
            return None
        kept = kept[np.lexsort((all_values[kept], all_sums[kept]))]
        # What costs no less than something with a smaller sum is never needed.
        before = np.concatenate(([inf], np.minimum.accumulate(all_values[kept])[:-1]))
        kept = kept[all_values[kept] < before]
        sums, values = all_sums[kept], all_values[kept]
        stages.append((kept // len(pool.alphas), kept % len(pool.alphas)))
    row = int(values.argmin())
    value, chosen = float(values[row]), []
    for parents, options in reversed(stages):
        chosen.append(pool.alphas[int(options[row])])
        row = int(parents[row])
    return value, tuple(chosen[::-1])
