"""Descent over S and L of all queues at once, in shrinking steps, each step accepted by an evaluation.

A queue's losses depend mostly on its own thresholds, and only through what they drop on those of the classes
above. So one evaluation with every queue moved tells of every queue what its move is worth, about: six
evaluations price the moves of all queues, a small dynamic programme picks the combination that fits into the
buffer (of all S and L that queues were ever seen with, then of these moves), and an evaluation of that
combination accepts it or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import inf, isfinite
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.descent.choice import Choice, Constraints
from mltswitch.queueing.descent.evaluation import BudgetSpent, Evaluation, Evaluator

IntArray = npt.NDArray[np.int64]
MOVES: Final = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1))
"""Direction of (S, L)."""
TRIALS_PER_STEP: Final = 3
"""Changes of one or two queues that are tried where the combination of all fails, until the last step."""


@dataclass(frozen=True, slots=True)
class Option:
    """One queue's thresholds, and their cost as far as known."""

    threshold: int
    limit: int
    cost: float


def descend(evaluator: Evaluator, start: Evaluation, *, largest_step: int) -> Evaluation:
    """The best that is found from `start`, never worse; ends where no step improves, or with the budget."""
    best, step = start, largest_step
    while step >= 1:
        better = _improved(evaluator, best, step, trials=TRIALS_PER_STEP)
        if better is None:
            step //= 2
        else:
            best = _pursued(evaluator, best, better)
    return best


def polish(evaluator: Evaluator, start: Evaluation) -> Evaluation:
    """Single steps of one or two queues, the most promising first, until none improves or the budget ends."""
    best: Evaluation | None = start
    while best is not None:
        start = best
        best = _improved(evaluator, start, 1, trials=None)
    return start


def _improved(evaluator: Evaluator, best: Evaluation, step: int, trials: int | None) -> Evaluation | None:
    """A better choice at most `step` places away in every queue; None where none was found."""
    try:
        options = _options(evaluator, best, step)
        mixed = recombine(evaluator, best)
        if mixed is not best:
            return mixed
        for count, choice in enumerate(_candidates(evaluator.constraints, best.choice, options)):
            if trials is not None and count > trials:
                return None
            found = evaluator.evaluate(choice)
            if found.score < best.score:
                return found
    except BudgetSpent:
        pass
    return None


def _pursued(evaluator: Evaluator, before: Evaluation, better: Evaluation) -> Evaluation:
    """The same change once more, as long as it helps: one evaluation each, where pricing takes six."""
    while True:
        change = zip(before.choice.thresholds, better.choice.thresholds, strict=True)
        thresholds = tuple(2 * new - old for old, new in change)
        change = zip(before.choice.limits, better.choice.limits, strict=True)
        limits = tuple(2 * new - old for old, new in change)
        further = evaluator.constraints.nearest(Choice(thresholds, limits))
        try:
            found = evaluator.evaluate(further)
        except BudgetSpent:
            return better
        if found.score >= better.score:
            return better
        before, better = better, found


def recombine(evaluator: Evaluator, best: Evaluation) -> Evaluation:
    """The best mix of all that queues were seen with, as long as that helps; each try corrects the prices."""
    if evaluator.constraints.problem.is_ordered:
        return best
    while True:
        mix = _best_mix(evaluator)
        if mix is None or mix == best.choice:
            return best
        try:
            found = evaluator.evaluate(mix)
        except BudgetSpent:
            return best
        if found.score >= best.score:
            return best
        best = found


def _best_mix(evaluator: Evaluator) -> Choice | None:
    """The S and L of each queue that fit into the buffer together at the least sum of known prices."""
    constraints = evaluator.constraints
    room = constraints.problem.buffer_packets
    least = np.zeros(room + 1)
    stages: list[tuple[list[tuple[int, int]], IntArray]] = []
    for prices in evaluator.prices:
        options = sorted(own for own in prices if own[1] <= room)
        sums = np.full((len(options), room + 1), inf)
        for row, own in enumerate(options):
            taken = 0 if constraints.is_shared else own[1]
            sums[row, taken:] = prices[own] + least[: room + 1 - taken]
        stages.append((options, sums.argmin(axis=0)))
        least = sums.min(axis=0)
    if not isfinite(least[room]):
        return None
    chosen: list[tuple[int, int]] = []
    for options, rows in reversed(stages):
        chosen.append(options[int(rows[room])])
        room -= 0 if constraints.is_shared else chosen[-1][1]
    choice = Choice(tuple(s for s, _ in reversed(chosen)), tuple(limit for _, limit in reversed(chosen)))
    return choice if constraints.is_feasible(choice) else None


def _options(evaluator: Evaluator, best: Evaluation, step: int) -> list[list[Option]]:
    """For each queue: where it stands, then its moves, each priced by an evaluation that moves all queues."""
    choice, constraints = best.choice, evaluator.constraints
    queues = range(constraints.count)
    options = [
        [Option(choice.thresholds[queue], choice.limits[queue], best.queues[queue].total)] for queue in queues
    ]
    for moves in MOVES:
        moved = [constraints.moved(choice, queue, moves, step) for queue in queues]
        probe = evaluator.evaluate(Choice(*(tuple(values) for values in zip(*moved, strict=True))))
        for queue, (threshold, limit) in enumerate(moved):
            if all((threshold, limit) != (known.threshold, known.limit) for known in options[queue]):
                options[queue].append(Option(threshold, limit, probe.queues[queue].total))
    return options


def _candidates(constraints: Constraints, current: Choice, options: list[list[Option]]) -> Iterator[Choice]:
    """The best combination by price, then changes of one or two queues, the most promising first."""
    together = _cheapest(constraints, options)
    if together is not None and together != current:
        yield together
    priced: list[tuple[float, Choice]] = []
    for queues in (
        *((queue,) for queue in range(constraints.count)),
        *combinations(range(constraints.count), 2),
    ):
        for changes in product(*(options[queue][1:] for queue in queues)):
            choice, gain = current, 0.0
            for queue, option in zip(queues, changes, strict=True):
                choice = choice.with_queue(queue, option.threshold, option.limit)
                gain += option.cost - options[queue][0].cost
            if choice != together and constraints.is_feasible(choice):
                priced.append((gain, choice))
    priced.sort(key=lambda entry: (entry[0], entry[1].limits, entry[1].thresholds))
    yield from (choice for _, choice in priced)


def _cheapest(constraints: Constraints, options: list[list[Option]]) -> Choice | None:
    """Dynamic programme over (buffer used, last S): the feasible combination with the least sum of prices."""
    states: dict[tuple[int, int], tuple[float, tuple[Option, ...]]] = {(0, 0): (0.0, ())}
    is_ordered = constraints.problem.is_ordered
    for queue_options in options:
        extended: dict[tuple[int, int], tuple[float, tuple[Option, ...]]] = {}
        for (used, last), (cost, chosen) in states.items():
            for option in queue_options:
                total = used + option.limit
                if not constraints.fits_buffer(total) or (is_ordered and option.threshold <= last):
                    continue
                key = (total, option.threshold if is_ordered else 0)
                if key not in extended or cost + option.cost < extended[key][0]:
                    extended[key] = (cost + option.cost, (*chosen, option))
        states = extended
    if not states:
        return None
    _, chosen = min(states.values(), key=lambda entry: entry[0])
    choice = Choice(tuple(o.threshold for o in chosen), tuple(o.limit for o in chosen))
    return choice if constraints.is_feasible(choice) else None
