"""Thresholds refined against the simulator: the model finds the region, the simulation the place in it.

All choices are simulated with the same arrivals, so that their difference is not lost in noise. Whoever picks
the best of many noisy figures picks a lucky one, too: what the search found is therefore compared with the
start once more, with arrivals that the search has not seen, and kept where the difference is significant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mltswitch.queueing.descent import (
    Choice,
    Constraints,
    Evaluation,
    Evaluator,
    as_choice,
    as_optimum,
    descend,
)
from mltswitch.queueing.descent.evaluation import QueueCost, queue_costs
from mltswitch.queueing.models import predict
from mltswitch.queueing.objective import Optimum, ThresholdProblem, resting_packets
from mltswitch.queueing.problem import QueuePrediction, QueueThresholds
from mltswitch.queueing.settings import SimulationSettings

EVALUATIONS: Final = 48
"""Simulations of a whole port that a search may make."""
BLOCKS: Final = 8
"""Independent runs of the comparison; its confidence intervals come from their spread."""
STUDENT_T: Final = 2.365
"""97.5 % quantile of Student's t with BLOCKS - 1 degrees of freedom."""
LARGEST_STEP: Final = 8
"""Packets, or steps of the device: the refinement is local."""
SEED_STRIDE: Final = 1_000_003
"""Between the seeds of search and comparison, far beyond the replications of either."""

Progress = Callable[[int, int], None]
"""(simulations done, simulations at most)."""
Simulator = Callable[[Sequence[QueueThresholds], SimulationSettings], Sequence[QueuePrediction]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A simulated figure."""

    value: float
    error: float
    """Half width of its 95 % confidence interval."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """One chosen queue before and after, with its part of the objective as simulated."""

    before: QueueThresholds
    after: QueueThresholds
    rounds_before: Estimate
    rounds_after: Estimate


@dataclass(frozen=True, slots=True)
class Refinement:
    """What the simulator changed; all figures are simulated."""

    optimum: Optimum
    queues: tuple[QueueChange, ...]
    """One for each chosen queue, highest priority first."""
    rounds_before: Estimate
    rounds_after: Estimate
    rounds_change: Estimate
    """After minus before, over the same arrivals."""
    simulations: int

    @property
    def has_changed(self) -> bool:
        """Whether the start was left."""
        return any(entry.before != entry.after for entry in self.queues)


def refine(
    problem: ThresholdProblem,
    start: Optimum,
    settings: SimulationSettings | None = None,
    *,
    evaluations: int = EVALUATIONS,
    progress: Progress | None = None,
    simulator: Simulator | None = None,
) -> Refinement:
    """Better thresholds near `start`, or `start` where the simulator knows none; reproducible by the seed.

    Args:
        problem: the one that `start` solves.
        start: an optimum of some model.
        settings: of each simulation.
        evaluations: simulations of the search at most; the comparison takes as long as two or four more.
        progress: told after each simulation.
        simulator: in place of the built-in one.

    Raises:
        UserInputError: the simulator cannot express the problem.
        MachineError: the simulator's extra is missing.
    """
    given = settings or SimulationSettings()
    run = _Counted(simulator or _simulator(problem), evaluations + 2 * BLOCKS, progress)
    constraints = Constraints(problem)
    before = as_choice(constraints, start)
    evaluator = Evaluator(constraints, lambda thresholds: run(thresholds, given), max(1, evaluations))
    first = evaluator.evaluate(before)
    step = min(LARGEST_STEP, constraints.largest_step)
    found = first if first.is_flat else descend(evaluator, first, largest_step=step)
    comparison = _Comparison(constraints, run, given)
    after = found.choice if comparison.is_better(before, found) else before
    return comparison.report(before, after, run)


def _simulator(problem: ThresholdProblem) -> Simulator:
    """The built-in one; queues of a shared buffer feel each other there, by the alphas of their limits."""
    port, alphas = problem.port, dict[float, float]()
    if problem.buffer == "shared":
        port = replace(port, buffer_packets=problem.buffer_packets)
        alphas = {float(resting_packets(alpha, problem.buffer_packets)): alpha for alpha in problem.alphas}

    def simulate(
        thresholds: Sequence[QueueThresholds], settings: SimulationSettings
    ) -> Sequence[QueuePrediction]:
        dynamic = [
            replace(limits, alpha=alphas.get(limits.limit_packets)) if given is None else limits
            for limits, given in zip(thresholds, problem.fixed, strict=True)
        ]
        return predict(port, problem.traffic, dynamic, model="simulate", simulation=settings)

    return simulate


class _Counted:
    """A simulator that tells its progress."""

    def __init__(self, simulator: Simulator, most: int, progress: Progress | None) -> None:
        self.calls = 0
        self._simulator, self._most, self._progress = simulator, most, progress

    def __call__(
        self, thresholds: Sequence[QueueThresholds], settings: SimulationSettings
    ) -> Sequence[QueuePrediction]:
        predictions = self._simulator(thresholds, settings)
        self.calls += 1
        if self._progress is not None:
            self._progress(self.calls, max(self._most, self.calls))
        return predictions


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A choice in BLOCKS independent runs: rounds of each queue with all runs, and with each one left out."""

    whole: tuple[QueueCost, ...]
    without: tuple[tuple[QueueCost, ...], ...]

    def rounds(self) -> tuple[float, list[float]]:
        """The objective, and with each run left out."""
        return _total(self.whole), [_total(costs) for costs in self.without]


class _Comparison:
    """Two choices under arrivals that the search has not seen, the same for both."""

    def __init__(self, constraints: Constraints, run: _Counted, settings: SimulationSettings) -> None:
        self._constraints = constraints
        self._run = run
        self._blocks = [
            replace(
                settings,
                packets=max(1, settings.packets // BLOCKS),
                replications=max(1, settings.replications // BLOCKS),
                seed=settings.seed + SEED_STRIDE * (block + 1),
            )
            for block in range(BLOCKS)
        ]
        self._known: dict[Choice, _Blocks] = {}

    def is_better(self, before: Choice, found: Evaluation) -> bool:
        """Whether what was found keeps the bounds as well, and costs significantly less."""
        if found.choice == before:
            return False
        old, new = self._simulated(before), self._simulated(found.choice)
        if _excess(new.whole) > _excess(old.whole):
            return False
        if _excess(new.whole) < _excess(old.whole):
            return True
        change = self._change(before, found.choice)
        return change.value + change.error < 0

    def report(self, before: Choice, after: Choice, run: _Counted) -> Refinement:
        """The outcome, every figure from the comparison."""
        old, new = self._simulated(before), self._simulated(after)
        constraints = self._constraints
        full = [constraints.full(choice) for choice in (before, after)]
        positions = [position for position, given in enumerate(constraints.problem.fixed) if given is None]
        changes = tuple(
            QueueChange(
                before=full[0][position],
                after=full[1][position],
                rounds_before=_queue_estimate(old, queue),
                rounds_after=_queue_estimate(new, queue),
            )
            for queue, position in enumerate(positions)
        )
        if after == before:
            how = f"{run.calls} simulations found nothing better"
        else:
            how = f"refined by {run.calls} simulations"
        return Refinement(
            optimum=as_optimum(constraints, Evaluation(after, new.whole), how),
            queues=changes,
            rounds_before=_estimate(*old.rounds()),
            rounds_after=_estimate(*new.rounds()),
            rounds_change=self._change(before, after),
            simulations=run.calls,
        )

    def _change(self, before: Choice, after: Choice) -> Estimate:
        old, new = self._simulated(before).rounds(), self._simulated(after).rounds()
        return _estimate(new[0] - old[0], [b - a for a, b in zip(old[1], new[1], strict=True)])

    def _simulated(self, choice: Choice) -> _Blocks:
        if choice not in self._known:
            thresholds = self._constraints.full(choice)
            runs = [self._run(thresholds, settings) for settings in self._blocks]
            self._known[choice] = _Blocks(
                self._costs(choice, runs),
                tuple(self._costs(choice, runs[:block] + runs[block + 1 :]) for block in range(BLOCKS)),
            )
        return self._known[choice]

    def _costs(self, choice: Choice, runs: Sequence[Sequence[QueuePrediction]]) -> tuple[QueueCost, ...]:
        pooled = [_pooled(queue) for queue in zip(*runs, strict=True)]
        return queue_costs(self._constraints.problem, pooled, choice.limits)


def _pooled(runs: Sequence[QueuePrediction]) -> QueuePrediction:
    """Mean over runs of equal length; the curves are applied to it, for they are not linear."""
    delays = [run.p99_delay_packet_times for run in runs if run.p99_delay_packet_times is not None]
    return QueuePrediction(
        loss_unimportant=float(np.mean([run.loss_unimportant for run in runs])),
        loss_important=float(np.mean([run.loss_important for run in runs])),
        p99_delay_packet_times=float(np.mean(delays)) if delays else None,
    )


def _queue_estimate(blocks: _Blocks, queue: int) -> Estimate:
    return _estimate(blocks.whole[queue].rounds, [costs[queue].rounds for costs in blocks.without])


def _estimate(value: float, without: Sequence[float]) -> Estimate:
    """Jackknife: the spread of a figure as each run is left out (Efron and Tibshirani 1993, chapter 11)."""
    runs = len(without)
    deviations = np.asarray(without) - np.mean(without)
    variance = (runs - 1) / runs * float(np.sum(deviations**2))
    return Estimate(value, STUDENT_T * variance**0.5)


def _total(costs: Sequence[QueueCost]) -> float:
    return sum(cost.rounds for cost in costs)


def _excess(costs: Sequence[QueueCost]) -> float:
    return sum(cost.delay_excess_packet_times for cost in costs)
