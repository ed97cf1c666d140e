"""Descent over S and L of all queues at once, in shrinking steps, each step accepted by an evaluation.

A queue's losses depend mostly on its own thresholds, and only through what they drop on those of the classes
above. So one evaluation with every queue moved tells of every queue what its move is worth, about: six
evaluations price the moves of all queues, a small dynamic programme picks the combination that fits into the
buffer, and an evaluation of that combination accepts it or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from mltswitch.queueing.descent.choice import Choice, Constraints
from mltswitch.queueing.descent.evaluation import BudgetSpent, Evaluation, Evaluator

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
            best = better
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
        for count, choice in enumerate(_candidates(evaluator.constraints, best.choice, options)):
            if trials is not None and count > trials:
                return None
            found = evaluator.evaluate(choice)
            if found.score < best.score:
                return found
    except BudgetSpent:
        pass
    return None


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
