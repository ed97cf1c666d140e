"""Local search: ever smaller moves of the S and D of one queue, or of two at once, within the constraints."""

from collections.abc import Sequence
from itertools import pairwise, product
from math import inf
from typing import Final

import numpy as np

from mltswitch.queueing.optimiser.cost import IntArray, QueueCost
from mltswitch.queueing.paper import FloatArray

MOVES: Final = np.array([move for move in product((-1, 0, 1), repeat=2) if move != (0, 0)])
"""Changes of (S, D) in steps."""
MAXIMUM_MOVES: Final = 60
"""Moves of one step size."""
LARGEST_STEP_SHARE: Final = 64
"""The first step is the buffer divided by this."""


def polish(
    costs: Sequence[QueueCost], thresholds: list[int], limits: list[int], units: int, *, is_ordered: bool
) -> tuple[list[int], list[int]]:
    """Improve a choice that keeps all constraints; the same input gives the same result."""
    thresholds, limits = list(thresholds), list(limits)
    step = 1
    while 2 * step <= units // LARGEST_STEP_SHARE:
        step *= 2
    while step >= 1:
        for _ in range(MAXIMUM_MOVES):
            gains, changes = _single_moves(costs, thresholds, limits, step)
            move = _best_move(gains, changes, thresholds, units - sum(limits), is_ordered=is_ordered)
            if move is None:
                break
            for queue, threshold, limit in move:
                thresholds[queue] += threshold
                limits[queue] += limit
        step //= 2
    return thresholds, limits


def _single_moves(
    costs: Sequence[QueueCost], thresholds: list[int], limits: list[int], step: int
) -> tuple[FloatArray, IntArray]:
    """(change of cost, (queue, change of S, of L)) for each move of one queue; infinite: not allowed."""
    gains: list[FloatArray] = []
    changes: list[IntArray] = []
    for queue, (cost, threshold, limit) in enumerate(zip(costs, thresholds, limits, strict=True)):
        here = np.array([threshold, limit - threshold])
        moved = np.vstack((here, here + MOVES * step))
        new_threshold, new_spare = moved[:, 0], moved[:, 1]
        longest = cost.frontier.allowed[np.clip(new_threshold, 0, len(cost.frontier.allowed) - 1)]
        is_allowed = (new_threshold >= 1) & (new_spare >= 0) & (new_threshold + new_spare <= longest)
        values = cost.cost(np.maximum(new_threshold, 1), np.maximum(new_spare, 0))
        gains.append(np.where(is_allowed, values - values[0], inf)[1:])
        change = MOVES * step
        changes.append(np.column_stack((np.full(len(change), queue), change[:, 0], change.sum(axis=1))))
    return np.concatenate(gains), np.concatenate(changes)


def _best_move(
    gains: FloatArray, changes: IntArray, thresholds: list[int], left: int, *, is_ordered: bool
) -> list[tuple[int, int, int]] | None:
    """The moves of one or two queues that save most."""
    # A row more that changes nothing makes single moves pairs, too.
    gains = np.append(gains, 0.0)
    changes = np.vstack((changes, [-1, 0, 0]))
    pairs = gains[:, None] + gains[None, :]
    taken = changes[:, 2][:, None] + changes[:, 2][None, :]
    is_same_queue = changes[:, 0][:, None] == changes[:, 0][None, :]
    pairs = np.where(is_same_queue | (taken > left), inf, pairs)
    candidates = np.flatnonzero(pairs.ravel() < 0)
    for candidate in candidates[np.argsort(pairs.ravel()[candidates], kind="stable")]:
        rows = np.unravel_index(candidate, pairs.shape)
        move = [tuple(int(value) for value in changes[row]) for row in rows if changes[row][0] >= 0]
        moved = list(thresholds)
        for queue, threshold, _ in move:
            moved[queue] += threshold
        if not is_ordered or all(low < high for low, high in pairwise(moved)):
            return [(queue, threshold, limit) for queue, threshold, limit in move]
    return None
