"""Refinement by simulation: nothing gets worse, and what is said of it is what was simulated."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mltswitch.queueing import QueuePrediction, QueueThresholds, QueueTraffic, SimulationSettings, predict
from mltswitch.queueing.objective import Evaluator
from mltswitch.queueing.optimise import optimise_with
from mltswitch.queueing.refine import Simulator, refine
from tests.queueing.test_optimise import coupled, problem_of

SMALL = SimulationSettings(packets=64_000, replications=8, seed=3)


def pairs(*lengths: tuple[int, int]) -> tuple[QueueThresholds, ...]:
    return tuple(QueueThresholds(float(threshold), float(limit)) for threshold, limit in lengths)


def noisy(noise: float) -> Simulator:
    """The coupled model with noise that depends on the seed alone: common random numbers."""

    def simulator(
        traffic: tuple[QueueTraffic, ...],
        thresholds: tuple[QueueThresholds, ...],
        settings: SimulationSettings,
    ) -> list[QueuePrediction]:
        factor = float(np.exp(noise * np.random.default_rng(settings.seed).normal()))
        return [
            replace(
                entry,
                loss_unimportant=min(1.0, entry.loss_unimportant * factor),
                loss_important=min(1.0, entry.loss_important * factor),
            )
            for entry in coupled(traffic, thresholds)
        ]

    return simulator


def test_a_bad_start_is_left_and_the_change_told() -> None:
    problem = problem_of([0.2, 0.3, 0.4], 60, factors=(1.0, 1.2))
    start, told = pairs((2, 20), (2, 20), (2, 20)), list[tuple[int, int]]()
    found = refine(problem, start, SMALL, simulator=noisy(0.1), progress=lambda *step: told.append(step))
    assert found.has_changed
    assert found.before == start
    assert found.rounds_change.value + found.rounds_change.error < 0
    assert found.rounds_after.value == pytest.approx(found.rounds_before.value + found.rounds_change.value)
    assert found.optimum.extra_rounds == found.rounds_after.value
    assert sum(entry.limit_packets for entry in found.optimum.thresholds) == 60
    assert [done for done, _ in told] == list(range(1, found.optimum.evaluations + 1))
    assert all(done <= most for done, most in told)


def test_an_optimum_of_the_same_model_stays() -> None:
    problem = problem_of([0.2, 0.6], 14)
    best = optimise_with(problem, coupled)
    found = refine(problem, best.thresholds, SMALL, simulator=noisy(0.0))
    assert not found.has_changed
    assert found.rounds_change.value == 0


def test_luck_is_not_taken_for_improvement() -> None:
    """Noise that differs from choice to choice: the search finds a lucky one, the comparison knows better."""
    problem = problem_of([0.2, 0.3, 0.4], 60, tolerances=[(0, 0)] * 3)

    def simulator(
        _traffic: tuple[QueueTraffic, ...],
        thresholds: tuple[QueueThresholds, ...],
        settings: SimulationSettings,
    ) -> list[QueuePrediction]:
        key = [settings.seed, *(int(entry.limit_packets) for entry in thresholds)]
        key += [int(entry.ecn_threshold_packets or 0) for entry in thresholds]
        return [QueuePrediction(loss, loss) for loss in np.random.default_rng(key).uniform(0.1, 0.2, 3)]

    start = pairs((9, 20), (9, 20), (9, 20))
    changed = [refine(problem, start, replace(SMALL, seed=seed), simulator=simulator) for seed in range(10)]
    assert sum(entry.has_changed for entry in changed) <= 1


def test_nothing_to_gain_costs_no_search() -> None:
    problem = problem_of([0.1], 500, tolerances=[(0.9, 0.9)], factors=(1.0, 1.1))
    found = refine(problem, pairs((40, 60)), SMALL, simulator=noisy(0.1))
    assert not found.has_changed
    assert found.optimum.evaluations == 2


def test_a_delay_bound_counts_more_than_the_objective() -> None:
    problem = problem_of([0.4, 0.5], 60)
    bounds = tuple(replace(entry, delay_bound_packet_times=15.0) for entry in problem.objectives)
    bounded = replace(problem, objectives=bounds)
    found = refine(bounded, pairs((8, 20), (8, 20)), SMALL, simulator=noisy(0.05))
    assert found.has_changed
    traffic = bounded.scenarios[0].traffic
    assert max(e.p99_delay_packet_times or 0 for e in coupled(traffic, found.optimum.thresholds)) <= 15


def test_the_real_simulator_makes_nothing_worse() -> None:
    """Paired on fresh arrivals: after is below before, or the same."""
    problem = problem_of([0.3, 0.55], 40, tolerances=[(0.01, 0.001), (0.01, 0.001)], has_control=True)
    start = pairs((2, 10), (3, 30))
    found = refine(problem, start, SMALL)
    assert found == refine(problem, start, SMALL)
    fresh = replace(SMALL, seed=77, packets=4 * SMALL.packets)

    def simulated(
        traffic: tuple[QueueTraffic, ...], thresholds: tuple[QueueThresholds, ...]
    ) -> Sequence[QueuePrediction]:
        return predict(problem.port, traffic, thresholds, "simulate", simulation=fresh)

    costs = [
        Evaluator(problem, simulated, None)
        .evaluate(tuple((int(entry.ecn_threshold_packets or 0), int(entry.limit_packets)) for entry in side))
        .rounds
        for side in (found.before, found.optimum.thresholds)
    ]
    assert found.has_changed
    assert costs[1] < costs[0]
    assert found.rounds_before.error > 0
