"""What a choice costs under a model: the objective and its tie-breaks, each choice evaluated once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mltswitch.queueing.descent.choice import Choice, Constraints
from mltswitch.queueing.objective import LOSS_WEIGHT, PACKET_WEIGHT, QueueObjective, ThresholdProblem
from mltswitch.queueing.problem import QueuePrediction, QueueThresholds

DELAY_WEIGHT: Final = 1e6
"""Extra rounds for each packet time beyond a delay bound, where single queues are compared."""

Predictor = Callable[[Sequence[QueueThresholds]], Sequence[QueuePrediction]]
"""Thresholds of all queues of a port → what a model says of each."""


class BudgetSpent(Exception):  # noqa: N818  (no error: the search ends with the best that it has)
    """The evaluations that a search may make are used up; never leaves this package."""


@dataclass(frozen=True, slots=True)
class QueueCost:
    """What the losses of one chosen queue cost."""

    rounds: float
    byte_weighted_loss: float
    delay_excess_packet_times: float
    limit_packets: int

    @property
    def total(self) -> float:
        """The cost as one number, tie-breaks included."""
        return (
            self.rounds
            + LOSS_WEIGHT * self.byte_weighted_loss
            + PACKET_WEIGHT * self.limit_packets
            + DELAY_WEIGHT * self.delay_excess_packet_times
        )


@dataclass(frozen=True)
class Evaluation:
    """What a choice costs."""

    choice: Choice
    queues: tuple[QueueCost, ...]

    @cached_property
    def score(self) -> tuple[float, float]:
        """Less is better: first what breaks the delay bounds, then the cost."""
        return self.delay_excess_packet_times, sum(queue.total for queue in self.queues)

    @property
    def delay_excess_packet_times(self) -> float:
        """0 where every delay bound is kept."""
        return sum(queue.delay_excess_packet_times for queue in self.queues)

    @property
    def is_flat(self) -> bool:
        """Nothing costs less: no extra round, and every delay bound kept."""
        return self.rounds == 0 and self.delay_excess_packet_times == 0

    @property
    def rounds(self) -> float:
        """The objective."""
        return sum(queue.rounds for queue in self.queues)

    @property
    def byte_weighted_loss(self) -> float:
        """The first tie-break."""
        return sum(queue.byte_weighted_loss for queue in self.queues)


class Evaluator:
    """Evaluates choices with a predictor, each once, up to a number of evaluations."""

    def __init__(
        self,
        constraints: Constraints,
        predictor: Predictor,
        budget: int,
        *,
        flat_budget: int | None = None,
    ) -> None:
        """`flat_budget` is the budget once a choice costs no extra round: what is left to gain are ties."""
        self.constraints = constraints
        self.evaluations = 0
        self._predictor = predictor
        self._budget = budget
        self._flat_budget = budget if flat_budget is None else flat_budget
        self._known: dict[Choice, Evaluation] = {}
        self.prices: list[dict[tuple[int, int], float]] = [{} for _ in range(constraints.count)]
        """Per queue: S and L → what they cost when they were last seen, beside whatever other queues."""

    @property
    def left(self) -> int:
        """Evaluations that may still be made."""
        return self._budget - self.evaluations

    def evaluate(self, choice: Choice) -> Evaluation:
        """What `choice` costs; raises BudgetSpent."""
        if choice not in self._known:
            if self.left <= 0:
                raise BudgetSpent
            self.evaluations += 1
            predictions = self._predictor(self.constraints.full(choice))
            costs = queue_costs(self.constraints.problem, predictions, choice.limits)
            self._known[choice] = found = Evaluation(choice, costs)
            pairs = zip(choice.thresholds, choice.limits, strict=True)
            for prices, pair, cost in zip(self.prices, pairs, costs, strict=True):
                prices[pair] = cost.total
            if found.is_flat and self.constraints.is_feasible(choice):
                self._budget = min(self._budget, max(self.evaluations, self._flat_budget))
        return self._known[choice]


def queue_costs(
    problem: ThresholdProblem, predictions: Sequence[QueuePrediction], limits: Sequence[int]
) -> tuple[QueueCost, ...]:
    """Cost of each chosen queue."""
    chosen = [
        (offered.unimportant_share, prediction)
        for given, offered, prediction in zip(problem.fixed, problem.traffic, predictions, strict=True)
        if given is None
    ]
    return tuple(
        _queue_cost(objective, share, prediction, limit, problem.hops)
        for objective, (share, prediction), limit in zip(problem.objectives, chosen, limits, strict=True)
    )


def _queue_cost(
    objective: QueueObjective, unimportant_share: float, prediction: QueuePrediction, limit: int, hops: int
) -> QueueCost:
    losses = np.array([prediction.loss_unimportant, prediction.loss_important])
    unimportant, important = -np.expm1(hops * np.log1p(-np.clip(losses, 0.0, 1 - 1e-16)))
    rounds = objective.rounds_unimportant(unimportant) + objective.rounds_important(important)
    loss = unimportant_share * unimportant + (1 - unimportant_share) * important
    excess = 0.0
    if objective.delay_bound_packet_times is not None:
        delay = prediction.p99_delay_packet_times
        excess = max(0.0, (float(limit) if delay is None else delay) - objective.delay_bound_packet_times)
    return QueueCost(float(rounds), float(objective.byte_share * loss), excess, limit)
