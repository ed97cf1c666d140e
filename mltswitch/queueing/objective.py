"""The optimisation problem of one port: what its queues are offered, what is chosen, and what that costs."""

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
"""Loss ratio (any shape) → extra training rounds (same shape)."""

Predictor = Callable[[tuple[QueueTraffic, ...], tuple[QueueThresholds, ...]], Sequence[QueuePrediction]]
"""(traffic, thresholds of all queues of a port) → what a model says of each."""
Progress = Callable[[int], None]
"""Told after each call of the loss model how many there were."""
Choice = tuple[tuple[int, int], ...]
"""(S, L) of each chosen queue, in packets."""

LEAST_TOLERANCE: Final = 1e-6
"""Stands for a tolerance of 0 where losses are compared with it."""
HEADROOM_WEIGHT: Final = 1e-6
"""Extra rounds that a loss at its tolerance counts for: a tie-break that nobody can measure."""
ROOM_WEIGHT: Final = 3e-3
"""Extra rounds that a queue without any such room counts for, below S and above it."""
SPREAD_WEIGHT: Final = 1e-8
"""Extra rounds that the least S over S, and the least L - S over L - S, count for: no buffer stays unused."""
BELOW_WEIGHT: Final = 16.0
"""Room below S counts for so much more: both kinds of packets use it."""
HEADROOM_POWER: Final = 0.5
"""A loss at its tolerance counts 1, one at a ten-thousandth of it a hundredth: the nearest class decides."""
DELAY_WEIGHT: Final = 1e3
"""Extra rounds for each packet time beyond a delay bound: bounds come before losses."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One situation that thresholds are chosen for."""

    weight: float
    """Its share of the objective; the weights of a problem are relative to each other."""
    traffic: tuple[QueueTraffic, ...]
    """All queues of the port, highest priority first."""
    limit_packets: int | None = None
    """L of every chosen queue there, where it is less than `shared_limit_packets`; S lies below it."""


@dataclass(frozen=True, slots=True)
class QueueObjective:
    """What losses of one gradient class cost, and what bounds its thresholds."""

    rounds_unimportant: RoundsCurve
    rounds_important: RoundsCurve
    tolerances: tuple[float, float]
    """End-to-end loss of (unimportant, important) packets up to which training takes no extra round."""
    least_threshold_packets: int = 1
    """S holds at least a sender's largest burst and the class's share of an incast."""
    least_margin_packets: int = 1
    """L lies so far above S, so that important packets survive what no scenario foresees."""
    most_threshold_packets: int | None = None
    """S is at most this, so that marks do not come too late; None: as much as the buffer holds."""
    delay_bound_packet_times: float | None = None
    """Bound of the 99th percentile of the delay (of the worst case L where the model predicts no delay)."""


@dataclass(frozen=True)
class ThresholdProblem:
    """Choose S, and L where the device has one, of the gradient queues of a port."""

    port: Port
    scenarios: tuple[Scenario, ...]
    """The planned one first."""
    fixed: tuple[QueueThresholds | None, ...]
    """Per queue: thresholds that are given (control, background), or None: a gradient queue, to be chosen."""
    objectives: tuple[QueueObjective, ...]
    """One for each None in `fixed`, in the same order."""
    buffer_packets: int
    """What the chosen queues may hold together; with `shared_limit_packets` nothing depends on it."""
    hops: int = 1
    """Equal ports in a row over which the loss counts: 1 - (1 - r)^hops."""
    shared_limit_packets: int | None = None
    """L of every chosen queue where the device lets nobody set one: what the chip's shared memory leaves a
    congested queue. None: L is chosen, and all of them fit into the buffer together."""
    is_ordered: bool = True
    """A class of higher priority has a smaller or equal S (MLT, section 5.2)."""
    is_cap_firm: bool = True
    """False: where `most_threshold_packets` alone costs training rounds at the planned load, all of them are
    doubled until it does not."""

    def room_packets(self, limit_packets: int) -> int:
        """What a chosen queue with this L can fill in every scenario: S stays below it."""
        limits = [entry.limit_packets for entry in self.scenarios if entry.limit_packets is not None]
        return min([limit_packets, *limits])

    @cached_property
    def weights(self) -> FloatArray:
        """Weights of the scenarios, whose sum is 1."""
        weights = np.array([scenario.weight for scenario in self.scenarios])
        return np.asarray(weights / weights.sum())

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """Positions of the gradient queues among all."""
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
    """Thresholds of the chosen queues, highest priority first, and what they cost."""

    thresholds: tuple[QueueThresholds, ...]
    extra_rounds: float
    """Expected over the scenarios: Σ weight · Σ f^S(r^S) + f^L(r^L)."""
    evaluations: int
    """Calls of the loss model that the search made."""
    loss_of_caps: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    """What each queue loses more of its (unimportant, important) packets because of `most_threshold_packets`,
    at the planned load and in the worst scenario; empty where no S is held back by it."""
    stretch: int = 1
    """Times that `most_threshold_packets` was exceeded at most, for the tolerances at the planned load."""


def end_to_end(loss: npt.ArrayLike, hops: int) -> FloatArray:
    """Loss over `hops` ports in a row that lose `loss` each."""
    ratio = np.clip(np.asarray(loss, dtype=np.float64), 0.0, 1 - 1e-16)
    return np.asarray(-np.expm1(hops * np.log1p(-ratio)))


def choice_of(thresholds: Sequence[QueueThresholds]) -> Choice:
    """Thresholds of the chosen queues as a choice."""
    return tuple((int(entry.ecn_threshold_packets or 0), int(entry.limit_packets)) for entry in thresholds)


def thresholds_of(choice: Choice) -> tuple[QueueThresholds, ...]:
    """A choice as thresholds of the chosen queues."""
    return tuple(QueueThresholds(float(threshold), float(limit)) for threshold, limit in choice)


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

    @property
    def rank(self) -> tuple[float, bool, float]:
        """Less is better: delay bounds first, then tolerances at the planned load, then the cost over all."""
        return self.delay_excess, not self.is_within, self.cost


class Evaluator:
    """Asks the model about choices in every scenario."""

    def __init__(self, problem: ThresholdProblem, predictor: Predictor, progress: Progress | None) -> None:
        self.calls = 0
        self._problem, self._predictor, self._progress = problem, predictor, progress
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


def spread(objective: QueueObjective, threshold: npt.ArrayLike, margin: npt.ArrayLike) -> FloatArray:
    """Tie-break where losses are below what a model can tell: room below S and above it, for all queues."""
    below = objective.least_threshold_packets / np.maximum(threshold, 1)
    above = objective.least_margin_packets / np.maximum(margin, 1)
    return np.asarray(SPREAD_WEIGHT * (BELOW_WEIGHT * below + above)) + _missing_room(
        objective, threshold, margin
    )
