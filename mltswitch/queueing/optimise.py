"""Chooses thresholds under any loss model: it asks the model on a coarse grid and interpolates between the
answers.

A queue's losses depend mostly on its own S and L, and on the queues above only through what those drop. So
one call of the model with the thresholds of every queue moved tells of every queue what its move is worth.
Losses fall about exponentially in S and in L - S: their logarithms, known on a grid of few points, are
interpolated. Between the points a dynamic programme finds the best S and L of all queues that fit into the
buffer in order. The model is asked about that choice, the interpolation is corrected by what it says, and so
once more.

Where the objective is flat, the choice goes to what stands farthest from its tolerance in the scenarios,
class by class: buffer that nobody else needs is used, and L - S grows with S.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import ceil, inf, isfinite
from typing import Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.queueing.models import predict, predict_losses
from mltswitch.queueing.objective import (
    Choice,
    Evaluation,
    Evaluator,
    FloatArray,
    Optimum,
    Predictor,
    Progress,
    ThresholdProblem,
    delay_excess,
    queue_cost,
    spread,
    thresholds_of,
)
from mltswitch.queueing.surface import IntArray, Space, Surface, spaces_of

LATTICE: Final = 96
"""Number of values of the ECN threshold S, and of L - S, among which the best are searched."""
CORRECTIONS: Final = 2
"""How many choices are checked with the model; each answer corrects the interpolation for the next."""
MOST_CORRECTIONS: Final = 12
"""How many choices are checked at most as long as a delay bound is broken."""
PLANNED_WEIGHT: Final = 1e3
"""Weight of rounds at the planned load where the first choice costs some there: a plan must at least hold at
that load, whatever that costs in the other scenarios."""


def optimise(
    problem: ThresholdProblem, model: str = "completion", *, progress: Progress | None = None
) -> Optimum:
    """The best ECN thresholds S and limits L of a port's gradient queues; the same problem gives
    the same answer.

    Args:
        problem: the port, its scenarios, and what bounds the choice.
        model: the loss model.
        progress: called after each call of the model.

    Raises:
        UserInputError: the buffer is too small, no choice was found that keeps the delay bounds, or the model
            cannot express the problem.
    """
    is_bounded = any(objective.delay_bound_packet_times is not None for objective in problem.objectives)
    price = predict if is_bounded else predict_losses
    return optimise_with(
        problem,
        lambda traffic, thresholds: price(problem.port, traffic, thresholds, model),
        progress=progress,
    )


def optimise_with(
    problem: ThresholdProblem,
    predictor: Predictor,
    *,
    starts: Sequence[Choice] = (),
    progress: Progress | None = None,
) -> Optimum:
    """The best ECN thresholds S and limits L as by `optimise`, for any predictor; `starts` are
    further choices to compare.

    Raises:
        UserInputError: as `optimise`.
    """
    search = _Search(problem, predictor, progress)
    evaluator = search.evaluator
    free = best = search.best([evaluator.evaluate(start) for start in starts], None)
    stretch = 1
    while search.exceeds(free.choice, stretch):
        best = search.best([], stretch)
        if best.is_within or problem.is_cap_firm or not free.is_within:
            break
        best, stretch = free, 2 * stretch
    for _ in range(MOST_CORRECTIONS):
        if best.delay_excess == 0:
            break
        shorter = evaluator.evaluate(_shortened(problem, best))
        if shorter.delay_excess >= best.delay_excess:
            break
        best = shorter
    if best.delay_excess > 0:
        raise UserInputError(
            f"no thresholds were found that keep the delay bounds; the best exceeds them by "
            f"{best.delay_excess:.3g} packet times",
            where="delay_bound",
            expected="larger bounds, or a lower load of the classes above",
        )
    cost: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    if best is not free:
        pairs = zip(best.figures, free.figures, strict=True)
        more = [np.maximum(0.0, own[:, :2] - other[:, :2]) for own, other in pairs]
        cost = [(tuple(own[0].tolist()), tuple(own.max(axis=0).tolist())) for own in more]
    return Optimum(
        thresholds_of(best.choice),
        extra_rounds=best.rounds,
        evaluations=evaluator.calls,
        loss_of_caps=tuple(cost),
        stretch=stretch,
    )


class _Search:
    """The model's answers on the grid, and what was learnt of them since."""

    def __init__(self, problem: ThresholdProblem, predictor: Predictor, progress: Progress | None) -> None:
        self._problem = problem
        self._spaces = spaces_of(problem)
        self.evaluator = Evaluator(problem, predictor, progress)
        self._surfaces = [Surface(space) for space in self._spaces]
        for index in range(self._spaces[0].size):
            figures = self.evaluator.bounds(tuple(space.point(index) for space in self._spaces))
            for surface, own in zip(self._surfaces, figures, strict=True):
                surface.samples.append(own)

    def exceeds(self, choice: Choice, times: int) -> bool:
        """Whether an S lies above so many times what its queue may have."""
        return self._capped(choice, times) != choice

    def _capped(self, choice: Choice, stretch: int | None) -> Choice:
        """The choice with every S at most `stretch` times its cap, which the search keeps to in its steps."""
        if stretch is None:
            return choice
        return tuple(
            (threshold if space.cap is None else min(threshold, stretch * space.cap), limit)
            for (threshold, limit), space in zip(choice, self._spaces, strict=True)
        )

    def best(self, tried: list[Evaluation], stretch: int | None) -> Evaluation:
        """The best choice found, or of `tried`: S at most `stretch` times its cap; None: however large."""
        seen: set[Choice] = set()
        for planned_weight in (0.0, PLANNED_WEIGHT):
            if tried and min(tried, key=_rank).is_within:
                break
            for count in range(MOST_CORRECTIONS):
                choice = self._capped(self._cheapest(planned_weight, stretch), stretch)
                if choice in seen or (count >= CORRECTIONS and min(tried, key=_rank).delay_excess == 0):
                    break
                seen.add(choice)
                found = self.evaluator.evaluate(choice)
                tried.append(found)
                for surface, own, (threshold, limit) in zip(
                    self._surfaces, found.figures, choice, strict=True
                ):
                    surface.correct(threshold, self._problem.room_packets(limit) - threshold, own)
        return min(tried, key=_rank)

    def _cheapest(self, planned_weight: float, stretch: int | None) -> Choice:
        """The cheapest S and L of all queues between the grid's points; the planned load may weigh more."""
        problem, spaces = self._problem, self._spaces

        def costs(queue: int, thresholds: FloatArray, margins: FloatArray) -> FloatArray:
            objective, figures = problem.objectives[queue], self._surfaces[queue].at(thresholds, margins)
            rounds, priced = queue_cost(objective, figures, problem.weights, problem.hops)
            total = priced + planned_weight * rounds[..., 0] + spread(objective, thresholds, margins)
            cap = spaces[queue].cap
            if cap is not None and stretch is not None:
                least = thresholds[thresholds >= spaces[queue].least_threshold].min(initial=inf)
                total = np.where(thresholds <= max(stretch * cap, least), total, inf)
            return np.asarray(total)

        choose = _choose_both if problem.shared_limit_packets is None else _choose_thresholds
        return choose(problem, spaces, costs)


def _rank(tried: Evaluation) -> tuple[float, bool, float]:
    return tried.rank


def _shortened(problem: ThresholdProblem, broken: Evaluation) -> Choice:
    """The choice with queues that break their delay bound as much shorter as they are late."""
    pairs: list[tuple[int, int]] = []
    for objective, figures, (threshold, limit) in zip(
        problem.objectives, broken.figures, broken.choice, strict=True
    ):
        late = ceil(delay_excess(objective, figures))
        shorter = limit if problem.shared_limit_packets is not None else max(2, limit - late)
        pairs.append((min(threshold, max(1, threshold - late), shorter - 1), shorter))
    if problem.is_ordered:
        lowest = accumulate((threshold for threshold, _ in reversed(pairs)), min)
        pairs = [(low, limit) for low, (_, limit) in zip(reversed(list(lowest)), pairs, strict=True)]
    return tuple(pairs)


Costs = Callable[[int, FloatArray, FloatArray], FloatArray]
"""Maps a queue's number and arrays of the ECN threshold S and M = L - S to the cost of each pair."""


def _choose_thresholds(problem: ThresholdProblem, spaces: Sequence[Space], costs: Costs) -> Choice:
    """S of every queue below its given L."""
    limit = spaces[0].limit
    room = problem.room_packets(limit)
    least = min(space.least_threshold for space in spaces)
    exact = [space.cap for space in spaces if space.cap is not None and least <= space.cap < room]
    places = np.unique(np.round([*np.linspace(least, room - 1, 4 * LATTICE), *exact]))
    stages: list[FloatArray] = []
    below = np.zeros(len(places))
    for queue, space in enumerate(spaces):
        own = costs(queue, places, room - places)
        own[(places < space.least_threshold) | (places > room - space.least_margin)] = inf
        stages.append(own + below)
        below = np.minimum.accumulate(stages[-1]) if problem.is_ordered else below
    chosen: list[tuple[int, int]] = []
    end = len(places)
    for stage in reversed(stages):
        # Of equal costs the largest S: there the buffer is used.
        row = end - 1 - int(np.argmin(stage[:end][::-1]))
        chosen.append((int(places[row]), limit))
        end = row + 1 if problem.is_ordered else len(places)
    return tuple(reversed(chosen))


def _choose_both(problem: ThresholdProblem, spaces: Sequence[Space], costs: Costs) -> Choice:
    """S and L of every queue within the buffer: a dynamic programme over (buffer used, last S).

    S counts in units above the least S of all queues, L - S in units above the queue's least.
    """
    base = min(space.least_threshold for space in spaces)
    free = problem.buffer_packets - sum(base + space.least_margin for space in spaces)
    unit = max(1, -(-free // LATTICE))
    count = free // unit + 1
    steps = np.arange(count, dtype=np.float64)
    best = np.full((count, count), inf)
    best[0, 0] = 0.0
    stages: list[tuple[IntArray, IntArray]] = []
    for queue, space in enumerate(spaces):
        threshold, margin = base + unit * steps, space.least_margin + unit * steps
        pairs = [axis.ravel() for axis in np.meshgrid(threshold, margin, indexing="ij")]
        own = costs(queue, pairs[0], pairs[1]).reshape(count, count)
        own[threshold < space.least_threshold] = inf
        before, origin = _least_so_far(best, is_ordered=problem.is_ordered)
        best, decision = _extended(before, own)
        stages.append((decision, origin))
    used, last = np.unravel_index(int(np.argmin(best)), best.shape)
    if not isfinite(best[used, last]):
        # Units are too coarse for a buffer that hardly holds the least of all queues.
        least = [(space.least_threshold, space.least_threshold + space.least_margin) for space in spaces]
        return _with_rest(problem, tuple(least))
    chosen: list[tuple[int, int]] = []
    place, row = int(used), int(last)
    for space, (decision, origin) in zip(reversed(spaces), reversed(stages), strict=True):
        spare = int(decision[place, row])
        start = base + unit * row
        chosen.append((start, start + space.least_margin + unit * spare))
        place -= row + spare
        row = int(origin[place, row])
    choice = tuple(reversed(chosen))
    # A delay bound may leave buffer unused.
    return _with_rest(problem, choice) if used == count - 1 else choice


def _least_so_far(best: FloatArray, *, is_ordered: bool) -> tuple[FloatArray, IntArray]:
    """For each (buffer used, S): the least cost of the queues above, and their last S, at most this one."""
    if not is_ordered:
        origin = np.broadcast_to(best.argmin(axis=1)[:, None], best.shape)
        return np.take_along_axis(best, origin, axis=1), origin
    least = np.minimum.accumulate(best, axis=1)
    places = np.broadcast_to(np.arange(best.shape[1]), best.shape)
    is_new = np.concatenate((np.ones((len(best), 1), bool), least[:, 1:] < least[:, :-1]), axis=1)
    return least, np.maximum.accumulate(np.where(is_new, places, 0), axis=1)


def _extended(before: FloatArray, own: FloatArray) -> tuple[FloatArray, IntArray]:
    """One queue more: the least cost for each (buffer used, its S), and the L - S that has it."""
    count = len(own)
    # By the buffer used without this queue's S, so that one step serves all S.
    least = np.full((count, count), inf)
    spares = np.zeros((count, count), dtype=np.int64)
    for spare in range(count):
        offered = before[: count - spare] + own[:, spare]
        is_less = offered < least[spare:]
        np.copyto(least[spare:], offered, where=is_less)
        np.copyto(spares[spare:], spare, where=is_less)
    rows = np.arange(count)
    without = rows[:, None] - rows
    best = np.where(without >= 0, least[without, rows], inf)
    return best, np.where(without >= 0, spares[without, rows], 0)


def _with_rest(problem: ThresholdProblem, choice: Choice) -> Choice:
    """What no unit holds any more goes to L of the last queue."""
    *others, (threshold, limit) = choice
    rest = problem.buffer_packets - sum(own for _, own in choice)
    return (*others, (threshold, limit + rest))
