"""Thresholds under any loss model: its answers on a coarse grid, and the best choice between them.

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
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import ceil, inf, isfinite
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.errors import UserInputError
from mltswitch.queueing.models import predict, predict_losses
from mltswitch.queueing.objective import (
    LEAST_TOLERANCE,
    FloatArray,
    Optimum,
    QueueObjective,
    Scenario,
    ThresholdProblem,
    end_to_end,
)
from mltswitch.queueing.problem import QueuePrediction, QueueThresholds, QueueTraffic
from mltswitch.queueing.surface import IntArray, Space, Surface, geometric_grid

GRID_THRESHOLDS: Final = 4
"""Values of S on the grid where L is chosen, too, and with GRID_MARGINS values of L - S for each."""
GRID_MARGINS: Final = 3
GRID_ALONE: Final = 5
"""Values of S on the grid where L is given."""
LATTICE: Final = 96
"""Places of S, and of L - S, between which the best are found."""
CORRECTIONS: Final = 2
"""Choices that the model is asked about, each correcting the interpolation for the next."""
MOST_CORRECTIONS: Final = 12
"""The same as long as a delay bound is broken."""
HEADROOM_WEIGHT: Final = 1e-6
"""Extra rounds that a loss at its tolerance counts for: a tie-break that nobody can measure."""
CERTAIN_PART: Final = 4
"""Room for bursts below and above S is certain where all of it takes one part in so many of the buffer."""
ROOM_WEIGHT: Final = 3e-3
"""Extra rounds that a queue without any such room counts for, below S and above it."""
SPREAD_WEIGHT: Final = 1e-8
"""Extra rounds that the least S over S, and the least L - S over L - S, count for: no buffer stays unused."""
BELOW_WEIGHT: Final = 16.0
"""Room below S counts for so much more: both kinds of packets use it."""
HEADROOM_POWER: Final = 0.5
"""A loss at its tolerance counts 1, one at a ten-thousandth of it a hundredth: the nearest class decides."""
PLANNED_WEIGHT: Final = 1e3
"""Weight of rounds at the planned load where the first choice costs some there: a plan is to hold at least
where it was planned, whatever that costs in the other scenarios."""
DELAY_WEIGHT: Final = 1e3
"""Extra rounds for each packet time beyond a delay bound: bounds come before losses."""

Predictor = Callable[[tuple[QueueTraffic, ...], tuple[QueueThresholds, ...]], Sequence[QueuePrediction]]
"""(traffic, thresholds of all queues of a port) → what a model says of each."""
Progress = Callable[[int], None]
"""Told after each call of the loss model how many there were."""
Choice = tuple[tuple[int, int], ...]
"""(S, L) of each chosen queue, in packets."""


def optimise(
    problem: ThresholdProblem, model: str = "completion", *, progress: Progress | None = None
) -> Optimum:
    """S and L of the gradient queues of a port; the same problem gives the same answer.

    Args:
        problem: the port, its scenarios, and what bounds the choice.
        model: the loss model.
        progress: told after each call of the model.

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
    """`optimise` under any predictor; `starts` are compared with what it finds.

    Raises:
        UserInputError: as `optimise`.
    """
    spaces = _spaces(problem)
    evaluator = Evaluator(problem, predictor, progress)
    surfaces = [Surface(space) for space in spaces]
    for index in range(spaces[0].size):
        figures = evaluator.bounds(tuple(space.point(index) for space in spaces))
        for surface, own in zip(surfaces, figures, strict=True):
            surface.samples.append(own)
    search = partial(_searched, problem, spaces, surfaces, evaluator)
    free = best = search([evaluator.evaluate(start) for start in starts], None)
    caps = [space.cap for space in spaces]
    stretch = 1
    while _exceeds(free.choice, caps, stretch):
        best = search([], stretch)
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
        tuple(QueueThresholds(float(threshold), float(limit)) for threshold, limit in best.choice),
        extra_rounds=best.rounds,
        evaluations=evaluator.calls,
        loss_of_caps=tuple(cost),
        stretch=stretch,
    )


def _exceeds(choice: Choice, caps: Sequence[int | None], times: int) -> bool:
    """Whether an S lies above so many times what its queue may have."""
    return any(
        cap is not None and threshold > times * cap for (threshold, _), cap in zip(choice, caps, strict=True)
    )


def _searched(
    problem: ThresholdProblem,
    spaces: Sequence[Space],
    surfaces: Sequence[Surface],
    evaluator: "Evaluator",
    tried: list["Evaluation"],
    stretch: int | None,
) -> "Evaluation":
    """The best choice found, or of `tried`: every S at most `stretch` times its cap; None: however large."""
    seen: set[Choice] = set()
    for planned_weight in (0.0, PLANNED_WEIGHT):
        if tried and min(tried).is_within:
            break
        for count in range(MOST_CORRECTIONS):
            choice = _capped(
                _best_choice(problem, spaces, surfaces, planned_weight, stretch), spaces, stretch
            )
            if choice in seen or (count >= CORRECTIONS and min(tried).delay_excess == 0):
                break
            seen.add(choice)
            found = evaluator.evaluate(choice)
            tried.append(found)
            for surface, own, (threshold, limit) in zip(surfaces, found.figures, choice, strict=True):
                surface.correct(threshold, problem.room_packets(limit) - threshold, own)
    return min(tried)


def _capped(choice: Choice, spaces: Sequence[Space], stretch: int | None) -> Choice:
    """The choice with every S at most `stretch` times its cap, which the search keeps to its own steps."""
    if stretch is None:
        return choice
    return tuple(
        (threshold if space.cap is None else min(threshold, stretch * space.cap), limit)
        for (threshold, limit), space in zip(choice, spaces, strict=True)
    )


def _spaces(problem: ThresholdProblem) -> list[Space]:
    """The choices of each queue; raises UserInputError where not even a packet below and above S fits."""
    given = problem.shared_limit_packets
    floors = [entry.least_threshold_packets for entry in problem.objectives]
    margins = [entry.least_margin_packets for entry in problem.objectives]
    room = problem.buffer_packets if given is None else problem.room_packets(given)
    caps = [entry.most_threshold_packets for entry in problem.objectives]
    floors = [floor if cap is None else min(floor, cap) for floor, cap in zip(floors, caps, strict=True)]
    if problem.is_ordered:
        floors = list(accumulate(floors, max))
    needed = 2 * (len(floors) if given is None else 1)
    if room < needed:
        raise UserInputError(
            f"{len(floors)} gradient queues do not fit into {room} packets",
            where="buffer_packets",
            expected=f"at least {needed}",
        )
    caps = [None if cap is None else max(cap, floor) for cap, floor in zip(caps, floors, strict=True)]
    if problem.is_ordered:
        lowest = accumulate((inf if cap is None else cap for cap in reversed(caps)), min)
        caps = [None if cap == inf else int(cap) for cap in reversed(list(lowest))]
    # Room for bursts is certain up to a part of the buffer; beyond it costs as much as `_missing_room` says.
    wanted = sum(floors) + sum(margins) if given is None else max(floors) + max(margins)
    if wanted > room // CERTAIN_PART:
        floors = [max(1, entry * room // (CERTAIN_PART * wanted)) for entry in floors]
        margins = [max(1, entry * room // (CERTAIN_PART * wanted)) for entry in margins]
    spaces: list[Space] = []
    for floor, margin, cap in zip(floors, margins, caps, strict=True):
        most = room if given is not None else room - (sum(floors) + sum(margins)) + floor + margin
        spaces.append(
            Space(
                floor,
                margin,
                most if given is None else given,
                None if cap is None else max(cap, floor),
                given is not None,
                geometric_grid(floor, most - margin, GRID_THRESHOLDS if given is None else GRID_ALONE),
                geometric_grid(margin, most - floor, GRID_MARGINS if given is None else 1),
            )
        )
    return spaces


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a choice costs under the model."""

    choice: Choice
    figures: list[FloatArray]
    """Per chosen queue: (scenario, [loss of unimportant, of important packets, delay]), as the model says."""
    rounds: float
    cost: float
    delay_excess: float
    is_within: bool
    """No loss costs a round at the planned load."""

    def __lt__(self, other: "Evaluation") -> bool:
        """Delay bounds come first, then tolerances at the planned load, then the cost over all scenarios."""
        return (self.delay_excess, not self.is_within, self.cost) < (
            other.delay_excess,
            not other.is_within,
            other.cost,
        )


class Evaluator:
    """Asks the model about choices in every scenario."""

    def __init__(self, problem: ThresholdProblem, predictor: Predictor, progress: Progress | None) -> None:
        self.calls = 0
        self._problem, self._predictor, self._progress = problem, predictor, progress
        self._weights = _weights(problem)
        planned = problem.scenarios[0].traffic
        self._is_below = [
            entry.limit_packets is None and _is_below(entry.traffic, planned) for entry in problem.scenarios
        ]

    def bounds(self, choice: Choice) -> list[FloatArray]:
        """Per chosen queue: (scenario, [loss of unimportant, of important packets, p99 delay]).

        Losses never grow when the load falls: scenarios below the planned load have its figures.
        """
        said: list[FloatArray] = []
        for scenario, is_below in zip(self._problem.scenarios, self._is_below, strict=True):
            said.append(said[0] if is_below and said else self._ask(scenario, choice))
        return list(np.array(said).transpose(1, 0, 2))

    def evaluate(self, choice: Choice) -> Evaluation:
        """What the choice costs."""
        figures = self.bounds(choice)
        found = self._evaluation(choice, figures)
        if found.rounds == 0 or not any(self._is_below[1:]):
            return found
        for place, scenario in enumerate(self._problem.scenarios):
            if place and self._is_below[place]:
                for own, exact in zip(figures, self._ask(scenario, choice), strict=True):
                    own[place] = exact
        return self._evaluation(choice, figures)

    def _ask(self, scenario: Scenario, choice: Choice) -> FloatArray:
        """The model's figures of the chosen queues in one scenario."""
        full = self._problem.full(choice, scenario)
        predictions = self._predictor(scenario.traffic, full)
        self.calls += 1
        if self._progress is not None:
            self._progress(self.calls)
        said: list[tuple[float, float, float]] = []
        for position in self._problem.chosen:
            own, worst = predictions[position], full[position].limit_packets
            delay = own.p99_delay_packet_times
            said.append((own.loss_unimportant, own.loss_important, worst if delay is None else delay))
        return np.array(said)

    def _evaluation(self, choice: Choice, figures: list[FloatArray]) -> Evaluation:
        rounds = cost = excess = planned = 0.0
        for objective, own, (threshold, limit) in zip(self._problem.objectives, figures, choice, strict=True):
            own_rounds, total = queue_cost(objective, own, self._weights, self._problem.hops)
            planned += float(own_rounds[0])
            rounds += float(own_rounds @ self._weights)
            cost += float(
                total + _spread(objective, threshold, self._problem.room_packets(limit) - threshold)
            )
            excess += _delay_excess(objective, own)
        return Evaluation(choice, figures, rounds, cost, excess, planned == 0)


def _is_below(traffic: tuple[QueueTraffic, ...], planned: tuple[QueueTraffic, ...]) -> bool:
    """Whether the same arrivals come, at no greater loads."""
    return all(
        own.load <= other.load and replace(own, load=other.load) == other
        for own, other in zip(traffic, planned, strict=True)
    )


def _shortened(problem: ThresholdProblem, broken: Evaluation) -> Choice:
    """The choice with queues that break their delay bound as much shorter as they are late."""
    pairs: list[tuple[int, int]] = []
    for objective, figures, (threshold, limit) in zip(
        problem.objectives, broken.figures, broken.choice, strict=True
    ):
        late = ceil(_delay_excess(objective, figures))
        shorter = limit if problem.shared_limit_packets is not None else max(2, limit - late)
        pairs.append((min(threshold, max(1, threshold - late), shorter - 1), shorter))
    if problem.is_ordered:
        lowest = accumulate((threshold for threshold, _ in reversed(pairs)), min)
        pairs = [(low, limit) for low, (_, limit) in zip(reversed(list(lowest)), pairs, strict=True)]
    return tuple(pairs)


def _weights(problem: ThresholdProblem) -> FloatArray:
    weights = np.array([scenario.weight for scenario in problem.scenarios])
    return np.asarray(weights / weights.sum())


def _delay_excess(objective: QueueObjective, figures: FloatArray) -> float:
    """Packet times beyond the bound in the planned scenario."""
    bound = objective.delay_bound_packet_times
    return 0.0 if bound is None else max(0.0, float(figures[0, 2]) - bound)


def queue_cost(
    objective: QueueObjective, figures: FloatArray, weights: FloatArray, hops: int
) -> tuple[FloatArray, FloatArray]:
    """(extra rounds in each scenario, their sum with tie-breaks and broken delay bounds) of one queue.

    Args:
        objective: of the queue.
        figures: losses and delays, shape (…, scenarios, 3).
        weights: of the scenarios; they sum to 1.
        hops: ports in a row.
    """
    unimportant, important = (end_to_end(figures[..., kind], hops) for kind in (0, 1))
    rounds = objective.rounds_unimportant(unimportant) + objective.rounds_important(important)
    headroom = sum(
        (loss / max(tolerance, LEAST_TOLERANCE)) ** HEADROOM_POWER
        for loss, tolerance in zip((unimportant, important), objective.tolerances, strict=True)
    )
    total = rounds @ weights + HEADROOM_WEIGHT * (np.asarray(headroom) @ weights)
    if objective.delay_bound_packet_times is not None:
        excess = np.maximum(0.0, figures[..., 0, 2] - objective.delay_bound_packet_times)
        total = total + DELAY_WEIGHT * excess
    return np.asarray(rounds), np.asarray(total)


def _missing_room(objective: QueueObjective, threshold: npt.ArrayLike, margin: npt.ArrayLike) -> FloatArray:
    """Price of the room for bursts that a queue has less than it should, below S and above it."""
    below = np.maximum(0.0, 1 - np.asarray(threshold) / objective.least_threshold_packets)
    above = np.maximum(0.0, 1 - np.asarray(margin) / objective.least_margin_packets)
    return np.asarray(ROOM_WEIGHT * (below + above))


def _spread(objective: QueueObjective, threshold: npt.ArrayLike, margin: npt.ArrayLike) -> FloatArray:
    """Tie-break where losses are below what a model can tell: room below S and above it, for all queues."""
    below = objective.least_threshold_packets / np.maximum(threshold, 1)
    above = objective.least_margin_packets / np.maximum(margin, 1)
    spread = SPREAD_WEIGHT * (BELOW_WEIGHT * below + above)
    return np.asarray(spread) + _missing_room(objective, threshold, margin)


def _best_choice(
    problem: ThresholdProblem,
    spaces: Sequence[Space],
    surfaces: Sequence[Surface],
    planned_weight: float,
    stretch: int | None,
) -> Choice:
    """The cheapest S and L of all queues between the points of the grid; the planned load may weigh more."""
    weights = _weights(problem)

    def costs(queue: int, thresholds: FloatArray, margins: FloatArray) -> FloatArray:
        objective, figures = problem.objectives[queue], surfaces[queue].at(thresholds, margins)
        rounds, priced = queue_cost(objective, figures, weights, problem.hops)
        total = priced + planned_weight * rounds[..., 0] + _spread(objective, thresholds, margins)
        cap = spaces[queue].cap
        if cap is not None and stretch is not None:
            least = thresholds[thresholds >= spaces[queue].least_threshold].min(initial=inf)
            total = np.where(thresholds <= max(stretch * cap, least), total, inf)
        return np.asarray(total)

    if problem.shared_limit_packets is not None:
        return _choose_thresholds(problem, spaces, costs)
    return _choose_both(problem, spaces, costs)


Costs = Callable[[int, FloatArray, FloatArray], FloatArray]
"""(queue, S, M) → the cost of each pair."""


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
    best = np.full((count, count), inf)
    decision = np.zeros((count, count), dtype=np.int64)
    for row in range(count):
        for spare in range(count - row):
            taken = row + spare
            offered = before[: count - taken, row] + own[row, spare]
            is_less = offered < best[taken:, row]
            best[taken:, row][is_less] = offered[is_less]
            decision[taken:, row][is_less] = spare
    return best, decision


def _with_rest(problem: ThresholdProblem, choice: Choice) -> Choice:
    """What no unit holds any more goes to L of the last queue."""
    *others, (threshold, limit) = choice
    rest = problem.buffer_packets - sum(own for _, own in choice)
    return (*others, (threshold, limit + rest))
