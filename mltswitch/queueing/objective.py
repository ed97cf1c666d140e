"""The optimisation problem of one port: its traffic, the thresholds to choose, and what they cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds, QueueTraffic

FloatArray = npt.NDArray[np.float64]
RoundsCurve = Callable[[FloatArray], FloatArray]
"""Maps loss ratios, in an array of any shape, to extra training rounds in an array of that shape."""

Predictor = Callable[[tuple[QueueTraffic, ...], tuple[QueueThresholds, ...]], Sequence[QueuePrediction]]
"""Maps the traffic and the thresholds of all queues of a port to a loss model's prediction for each queue."""
Progress = Callable[[int], None]
"""Called after each call of the loss model with the number of calls so far."""
Choice = tuple[tuple[int, int], ...]
"""The thresholds (S, L) in packets of each queue whose thresholds are chosen."""

LEAST_TOLERANCE: Final = 1e-6
"""A smaller tolerance counts as this one where losses are divided by it."""
HEADROOM_WEIGHT: Final = 1e-6
"""Cost, in extra rounds, of a loss exactly at its tolerance: a tie-break too small to measure."""
ROOM_WEIGHT: Final = 3e-3
"""Cost, in extra rounds, of a queue that lacks all of its least room below the ECN threshold S, or above
it.
"""
SPREAD_WEIGHT: Final = 1e-8
"""Cost, in extra rounds, of the least ECN threshold S over S and of the least L - S over L - S, so that
no buffer stays unused.
"""
BELOW_WEIGHT: Final = 16.0
"""How many times more room below the ECN threshold S counts than room above it, since all packets use it."""
HEADROOM_POWER: Final = 0.5
"""Exponent of loss over tolerance in the cost: the class nearest to its tolerance decides."""
DELAY_WEIGHT: Final = 1e3
"""Cost, in extra rounds, of each packet time beyond a delay bound, so that bounds come before losses."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One situation that thresholds are chosen for."""

    weight: float
    """The scenario's share of the objective, relative to the weights of the problem's other scenarios."""
    traffic: tuple[QueueTraffic, ...]
    """Traffic of all queues of the port, highest priority first."""
    limit_packets: int | None = None
    """The limit L of every chosen queue in this scenario, with the ECN threshold S below it; None: it is
    `shared_limit_packets`.
    """


@dataclass(frozen=True, slots=True)
class QueueObjective:
    """What losses of one gradient class cost, and what bounds its thresholds."""

    rounds_unimportant: RoundsCurve
    rounds_important: RoundsCurve
    tolerances: tuple[float, float]
    """End-to-end loss of (unimportant, important) packets up to which training takes no extra round."""
    least_threshold_packets: int = 1
    """The least ECN threshold S: a sender's largest burst and the class's share of an incast."""
    least_margin_packets: int = 1
    """The least L - S, which lets important packets survive bursts that no scenario foresees."""
    most_threshold_packets: int | None = None
    """The largest ECN threshold S, so that marks do not come too late; None: whatever the buffer holds."""
    delay_bound_packet_times: float | None = None
    """Bound, in packet times, of the delay's 99th percentile, or of the worst case, the limit L, where the
    model predicts no delay; None: no bound.
    """


@dataclass(frozen=True)
class ThresholdProblem:
    """The problem of choosing the ECN threshold S, and the limit L where the device has one, of a port's
    gradient queues.
    """

    port: Port
    scenarios: tuple[Scenario, ...]
    """The scenarios to plan for, the planned load first."""
    fixed: tuple[QueueThresholds | None, ...]
    """For each queue its given thresholds (as for control and background), or None where they are to be
    chosen."""
    objectives: tuple[QueueObjective, ...]
    """The objective of each gradient queue, in the order of the Nones in `fixed`."""
    buffer_packets: int
    """Packets that the chosen queues may hold together; without effect where `shared_limit_packets` is
    set."""
    hops: int = 1
    """Number of equal ports in a row over which the loss counts: 1 - (1 - r)^hops."""
    shared_limit_packets: int | None = None
    """The limit L of every chosen queue where the device allows no choice: what the chip's shared memory
    leaves a congested queue. None: L is chosen, and the limits of all queues fit into the buffer
    together.
    """
    is_ordered: bool = True
    """Whether a class of higher priority must have a smaller or equal ECN threshold S (MLT, section 5.2)."""
    is_cap_firm: bool = True
    """Whether `most_threshold_packets` is firm. False: where it alone costs training rounds at the planned
    load, it is doubled for all queues until it does not."""

    def room_packets(self, limit_packets: int) -> int:
        """Packets that a queue with this limit can hold in every scenario; its threshold must lie below."""
        limits = [entry.limit_packets for entry in self.scenarios if entry.limit_packets is not None]
        return min([limit_packets, *limits])

    @cached_property
    def weights(self) -> FloatArray:
        """The scenarios' weights, normalised to a sum of 1."""
        weights = np.array([scenario.weight for scenario in self.scenarios])
        return np.asarray(weights / weights.sum())

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """Positions of the gradient queues among all queues of the port."""
        return tuple(position for position, given in enumerate(self.fixed) if given is None)

    def full(self, choice: Choice, scenario: Scenario) -> tuple[QueueThresholds, ...]:
        """Thresholds of all queues of the port in a scenario, from (S, L) of the chosen ones."""
        most = inf if scenario.limit_packets is None else scenario.limit_packets
        remaining = iter(
            QueueThresholds(float(least), float(max(least, min(limit, most)))) for least, limit in choice
        )
        return tuple(next(remaining) if given is None else given for given in self.fixed)


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best thresholds of the chosen queues, highest priority first, and what they cost."""

    thresholds: tuple[QueueThresholds, ...]
    extra_rounds: float
    """Extra training rounds expected over the scenarios: Σ weight · Σ f^S(r^S) + f^L(r^L)."""
    evaluations: int
    """How many times the search called the loss model."""
    loss_of_caps: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    """How much more of its (unimportant, important) packets each queue loses because of
    `most_threshold_packets`, at the planned load and in the worst scenario; empty where that bound holds
    no ECN threshold S back.
    """
    stretch: int = 1
    """Factor by which `most_threshold_packets` was stretched to keep the tolerances at the planned load."""


def end_to_end(loss: npt.ArrayLike, hops: int) -> FloatArray:
    """Total loss over `hops` ports in a row that each lose the ratio `loss`."""
    ratio = np.clip(np.asarray(loss, dtype=np.float64), 0.0, 1 - 1e-16)
    return np.asarray(-np.expm1(hops * np.log1p(-ratio)))


def choice_of(thresholds: Sequence[QueueThresholds]) -> Choice:
    """The pairs (S, L) of these thresholds."""
    return tuple((int(entry.ecn_threshold_packets or 0), int(entry.limit_packets)) for entry in thresholds)


def thresholds_of(choice: Choice) -> tuple[QueueThresholds, ...]:
    """Thresholds of the chosen queues from their pairs (S, L)."""
    return tuple(QueueThresholds(float(threshold), float(limit)) for threshold, limit in choice)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a choice of thresholds costs under the loss model."""

    choice: Choice
    figures: list[FloatArray]
    """For each chosen queue an array (scenario, [loss of unimportant, of important packets, delay]) from the
    model."""
    rounds: float
    cost: float
    delay_excess: float
    is_within: bool
    """Whether no loss costs a training round at the planned load."""

    @property
    def rank(self) -> tuple[float, bool, float]:
        """Sort key, lower is better: delay bounds first, then tolerances at the planned load, then the total
        cost."""
        return self.delay_excess, not self.is_within, self.cost


class Evaluator:
    """Evaluates choices of thresholds with the loss model in every scenario."""

    def __init__(self, problem: ThresholdProblem, predictor: Predictor, progress: Progress | None) -> None:
        self.calls = 0
        self._problem, self._predictor, self._progress = problem, predictor, progress
        planned = problem.scenarios[0].traffic
        self._is_below = [
            entry.limit_packets is None and _is_below(entry.traffic, planned) for entry in problem.scenarios
        ]

    def bounds(self, choice: Choice) -> list[FloatArray]:
        """For each chosen queue an array (scenario, [loss of unimportant, of important packets, p99 delay]).

        Losses never grow when the load falls: scenarios below the planned load have its figures.
        """
        said: list[FloatArray] = []
        for scenario, is_below in zip(self._problem.scenarios, self._is_below, strict=True):
            said.append(said[0] if is_below and said else self._ask(scenario, choice))
        return list(np.array(said).transpose(1, 0, 2))

    def evaluate(self, choice: Choice) -> Evaluation:
        """The cost of one choice of thresholds."""
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
            own_rounds, total = queue_cost(objective, own, self._problem.weights, self._problem.hops)
            planned += float(own_rounds[0])
            rounds += float(own_rounds @ self._problem.weights)
            cost += float(total + spread(objective, threshold, self._problem.room_packets(limit) - threshold))
            excess += delay_excess(objective, own)
        return Evaluation(choice, figures, rounds, cost, excess, planned == 0)


def _is_below(traffic: tuple[QueueTraffic, ...], planned: tuple[QueueTraffic, ...]) -> bool:
    """Whether the same arrivals come, at no greater loads."""
    return all(
        own.load <= other.load and replace(own, load=other.load) == other
        for own, other in zip(traffic, planned, strict=True)
    )


def delay_excess(objective: QueueObjective, figures: FloatArray) -> float:
    """By how many packet times the delay exceeds its bound in the planned scenario."""
    bound = objective.delay_bound_packet_times
    return 0.0 if bound is None else max(0.0, float(figures[0, 2]) - bound)


def queue_cost(
    objective: QueueObjective, figures: FloatArray, weights: FloatArray, hops: int
) -> tuple[FloatArray, FloatArray]:
    """For one queue, the extra rounds in each scenario, and their weighted sum with tie-breaks and broken
    delay bounds.

    Args:
        objective: the queue's objective.
        figures: losses and delays, shape (…, scenarios, 3).
        weights: the scenarios' weights, which sum to 1.
        hops: number of ports in a row.
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


def spread(objective: QueueObjective, threshold: npt.ArrayLike, margin: npt.ArrayLike) -> FloatArray:
    """Tie-break cost for queues whose losses are too small to compare: more room below the ECN threshold
    S and above it costs less.
    """
    below = objective.least_threshold_packets / np.maximum(threshold, 1)
    above = objective.least_margin_packets / np.maximum(margin, 1)
    return np.asarray(SPREAD_WEIGHT * (BELOW_WEIGHT * below + above)) + _missing_room(
        objective, threshold, margin
    )
