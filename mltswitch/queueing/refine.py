"""Refines thresholds with the simulator: the model finds the region, the simulation the best point in it.

All choices are simulated with the same arrivals, so that their difference is not lost in noise. Whoever picks
the best of many noisy figures picks a lucky one, too: what the search found is therefore compared with the
start once more, with arrivals that the search has not seen, and kept where the difference is significant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from mltswitch.queueing.models import predict
from mltswitch.queueing.objective import (
    Choice,
    Evaluation,
    Evaluator,
    Optimum,
    Predictor,
    ThresholdProblem,
    choice_of,
    thresholds_of,
)
from mltswitch.queueing.optimise import optimise_with
from mltswitch.queueing.problem import (
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
)

BLOCKS: Final = 8
"""Independent runs of the final comparison, whose spread gives its confidence intervals."""
STUDENT_T: Final = 2.365
"""97.5 % quantile of Student's t with BLOCKS - 1 degrees of freedom."""
SEED_STRIDE: Final = 1_000_003
"""Distance between the random seeds of search and comparison, far more than either has replications."""
SIMULATIONS_EXPECTED: Final = 96
"""About how many simulations one port's search and comparison take, for a progress bar."""

Progress = Callable[[int, int], None]
"""Called with the simulations done and the number that is expected."""
Simulator = Callable[
    [tuple[QueueTraffic, ...], tuple[QueueThresholds, ...], SimulationSettings], Sequence[QueuePrediction]
]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A simulated figure with its confidence interval."""

    value: float
    error: float
    """Half width of the figure's 95 % confidence interval."""


@dataclass(frozen=True, slots=True)
class Refinement:
    """What refinement changed, before and after; all figures are simulated."""

    before: tuple[QueueThresholds, ...]
    optimum: Optimum
    rounds_before: Estimate
    rounds_after: Estimate
    rounds_change: Estimate
    """Extra rounds after less those before, over the same arrivals."""

    @property
    def has_changed(self) -> bool:
        """Whether the thresholds differ from those at the start."""
        return self.before != self.optimum.thresholds


def refine(
    problem: ThresholdProblem,
    start: tuple[QueueThresholds, ...],
    settings: SimulationSettings | None = None,
    *,
    progress: Progress | None = None,
    simulator: Simulator | None = None,
) -> Refinement:
    """Better thresholds than `start`, or `start` where the simulator knows none; reproducible by the seed.

    Args:
        problem: the port and its scenarios.
        start: thresholds of the chosen queues.
        settings: settings of each simulation.
        progress: called after each simulation.
        simulator: used in place of the built-in one.

    Raises:
        UserInputError: the simulator cannot express the problem.
        MachineError: the simulator's extra is missing.
    """
    given = settings or SimulationSettings()
    run = _Counted(simulator or partial(_simulate, problem.port), progress)
    first = choice_of(start)
    here = Evaluator(problem, run.with_settings(given), None).evaluate(first)
    if here.rounds == 0 and here.delay_excess == 0:
        nothing = Estimate(0.0, 0.0)
        return Refinement(start, Optimum(start, 0.0, run.calls), nothing, nothing, nothing)
    found = optimise_with(problem, run.with_settings(given), starts=(first,))
    after = choice_of(found.thresholds)
    old = _simulated(problem, run, given, first)
    new = old if after == first else _simulated(problem, run, given, after)
    change = _estimate([b - a for a, b in zip(_rounds(old), _rounds(new), strict=True)])
    is_better = _excess(new) < _excess(old) or (
        _excess(new) == _excess(old) and change.value + change.error < 0
    )
    if not is_better:
        new, after, change = old, first, Estimate(0.0, 0.0)
    rounds = _estimate(_rounds(new))
    return Refinement(
        before=thresholds_of(first),
        optimum=Optimum(thresholds_of(after), rounds.value, run.calls),
        rounds_before=_estimate(_rounds(old)),
        rounds_after=rounds,
        rounds_change=change,
    )


def _simulate(
    port: Port,
    traffic: tuple[QueueTraffic, ...],
    thresholds: tuple[QueueThresholds, ...],
    settings: SimulationSettings,
) -> Sequence[QueuePrediction]:
    return predict(port, traffic, thresholds, model="simulate", simulation=settings)


class _Counted:
    """A simulator that tells its progress."""

    def __init__(self, simulator: Simulator, progress: Progress | None) -> None:
        self.calls = 0
        self._simulator, self._progress = simulator, progress

    def with_settings(self, settings: SimulationSettings) -> Predictor:
        """The simulator as a loss model."""
        return partial(self._run, settings)

    def _run(
        self,
        settings: SimulationSettings,
        traffic: tuple[QueueTraffic, ...],
        thresholds: tuple[QueueThresholds, ...],
    ) -> Sequence[QueuePrediction]:
        predictions = self._simulator(traffic, thresholds, settings)
        self.calls += 1
        if self._progress is not None:
            self._progress(self.calls, max(SIMULATIONS_EXPECTED, self.calls))
        return predictions


def _simulated(
    problem: ThresholdProblem, run: _Counted, settings: SimulationSettings, choice: Choice
) -> list[Evaluation]:
    """The choice in BLOCKS runs that the search has not seen, each an eighth as long."""
    blocks = [
        replace(
            settings,
            packets=max(1, settings.packets // BLOCKS),
            replications=max(1, settings.replications // BLOCKS),
            seed=settings.seed + SEED_STRIDE * (block + 1),
        )
        for block in range(BLOCKS)
    ]
    return [Evaluator(problem, run.with_settings(block), None).evaluate(choice) for block in blocks]


def _rounds(blocks: Sequence[Evaluation]) -> list[float]:
    return [entry.rounds for entry in blocks]


def _excess(blocks: Sequence[Evaluation]) -> float:
    return sum(entry.delay_excess for entry in blocks)


def _estimate(values: Sequence[float]) -> Estimate:
    """Mean over independent runs, and the half width of its interval by Student's t."""
    error = STUDENT_T * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Estimate(float(np.mean(values)), error)
