"""Refinement by simulation: nothing gets worse, and what is said of it is what was simulated."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mltswitch.queueing.descent import Choice, Constraints, as_choice, optimise_by_descent
from mltswitch.queueing.models import predict
from mltswitch.queueing.objective import Optimum, ThresholdProblem
from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds
from mltswitch.queueing.refine import BLOCKS, Simulator, refine
from mltswitch.queueing.settings import SimulationSettings
from tests.queueing.test_descent import coupled, problem_of

SMALL = SimulationSettings(packets=64_000, replications=8, seed=3)


def start_at(problem: ThresholdProblem, thresholds: Sequence[int], limits: Sequence[int]) -> Optimum:
    pairs = zip(thresholds, limits, strict=True)
    return Optimum(tuple(QueueThresholds(float(s), float(m)) for s, m in pairs), 0.0, 0.0, 0.0, "by hand")


def noisy(problem: ThresholdProblem, noise: float) -> Simulator:
    """The coupled model with noise that depends on the seed alone: common random numbers."""
    exact = coupled(problem)

    def simulator(
        thresholds: Sequence[QueueThresholds], settings: SimulationSettings
    ) -> list[QueuePrediction]:
        factor = float(np.exp(noise * np.random.default_rng(settings.seed).normal()))
        return [
            replace(
                entry,
                loss_unimportant=min(1.0, entry.loss_unimportant * factor),
                loss_important=min(1.0, entry.loss_important * factor),
            )
            for entry in exact(thresholds)
        ]

    return simulator


def test_a_bad_start_is_left_and_the_change_told() -> None:
    problem = problem_of([0.2, 0.3, 0.4], 60)
    start = start_at(problem, (2, 2, 2), (20, 20, 20))
    found = refine(problem, start, SMALL, simulator=noisy(problem, 0.1))
    assert found.has_changed
    assert found.rounds_change.value + found.rounds_change.error < 0
    assert found.rounds_after.value == pytest.approx(found.rounds_before.value + found.rounds_change.value)
    assert tuple(entry.after for entry in found.queues) == found.optimum.thresholds
    assert tuple(entry.before for entry in found.queues) == start.thresholds
    assert sum(entry.rounds_after.value for entry in found.queues) == pytest.approx(found.rounds_after.value)
    assert found.optimum.lower_bound_rounds == 0
    assert "refined by" in found.optimum.method
    assert Constraints(problem).is_feasible(as_choice(Constraints(problem), found.optimum))


def test_an_optimum_of_the_same_model_stays() -> None:
    problem = problem_of([0.2, 0.6], 14)
    best = optimise_by_descent(problem, coupled(problem))
    found = refine(problem, best, SMALL, simulator=noisy(problem, 0.0))
    assert not found.has_changed
    assert found.optimum.thresholds == best.thresholds
    assert found.rounds_change.value == 0
    assert "found nothing better" in found.optimum.method


def test_luck_is_not_taken_for_improvement() -> None:
    """Noise that differs from choice to choice: the search finds a lucky one, the comparison knows better."""
    problem = problem_of([0.2, 0.3, 0.4], 60, tolerances=[(0, 0)] * 3)

    def simulator(
        thresholds: Sequence[QueueThresholds], settings: SimulationSettings
    ) -> list[QueuePrediction]:
        key = [settings.seed, *(int(entry.limit_packets) for entry in thresholds)]
        key += [int(entry.ecn_threshold_packets or 0) for entry in thresholds]
        return [QueuePrediction(loss, loss) for loss in np.random.default_rng(key).uniform(0.1, 0.2, 3)]

    changed = [
        refine(
            problem,
            start_at(problem, (9, 9, 9), (20, 20, 20)),
            replace(SMALL, seed=seed),
            simulator=simulator,
        )
        for seed in range(10)
    ]
    assert sum(entry.has_changed for entry in changed) <= 1


def test_nothing_to_gain_costs_no_search() -> None:
    problem = problem_of([0.1], 500, tolerances=[(0.9, 0.9)])
    found = refine(problem, start_at(problem, (40,), (60,)), SMALL, simulator=noisy(problem, 0.1))
    assert not found.has_changed
    assert found.simulations == 1 + BLOCKS


def test_a_delay_bound_counts_more_than_the_objective() -> None:
    problem = problem_of([0.4, 0.5], 60)
    bounds = tuple(replace(entry, delay_bound_packet_times=15.0) for entry in problem.objectives)
    bounded = replace(problem, objectives=bounds)
    found = refine(bounded, start_at(bounded, (8, 8), (20, 20)), SMALL, simulator=noisy(bounded, 0.05))
    assert found.has_changed
    delays = [entry.p99_delay_packet_times or 0 for entry in coupled(bounded)(found.optimum.thresholds)]
    assert max(delays) <= 15


def test_progress_is_told_and_bounded() -> None:
    problem = problem_of([0.2, 0.3, 0.4], 60)
    told: list[tuple[int, int]] = []
    found = refine(
        problem,
        start_at(problem, (2, 2, 2), (20, 20, 20)),
        SMALL,
        evaluations=12,
        progress=lambda done, most: told.append((done, most)),
        simulator=noisy(problem, 0.1),
    )
    assert [done for done, _ in told] == list(range(1, found.simulations + 1))
    assert found.simulations <= 12 + 2 * BLOCKS
    assert all(done <= most for done, most in told)


def test_a_start_off_the_devices_steps_is_rounded_first() -> None:
    problem = problem_of([0.3, 0.4], 60, granularity_packets=4)
    found = refine(problem, start_at(problem, (7, 9), (21, 30)), SMALL, simulator=noisy(problem, 0.1))
    before = Choice(
        tuple(int(entry.before.ecn_threshold_packets or 0) for entry in found.queues),
        tuple(int(entry.before.limit_packets) for entry in found.queues),
    )
    assert before == Choice((4, 8), (20, 28))


def test_queues_of_a_shared_buffer_feel_each_other_in_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their limits are simulated as the alphas that rest there, beside given thresholds without one."""
    problem = problem_of([0.5, 0.4], 80, buffer="shared", alphas=(0.25, 1.0), has_control=True)
    asked: list[tuple[float | None, list[float | None]]] = []

    def watched(
        port: Port, traffic: object, thresholds: Sequence[QueueThresholds], **options: object
    ) -> Sequence[QueuePrediction]:
        asked.append((port.buffer_packets, [entry.alpha for entry in thresholds]))
        return coupled(problem)(thresholds)

    monkeypatch.setattr("mltswitch.queueing.refine.predict", watched)
    refine(problem, start_at(problem, (10, 20), (16, 40)), SMALL, evaluations=1)
    assert asked[0] == (80, [None, 0.25, 1.0])


def test_the_real_simulator_makes_nothing_worse() -> None:
    """Paired on fresh arrivals: after is below before, or the same."""
    problem = problem_of([0.3, 0.55], 40, tolerances=[(0.01, 0.001), (0.01, 0.001)], has_control=True)
    start = start_at(problem, (2, 3), (10, 30))
    found = refine(problem, start, SMALL, evaluations=24)
    assert found == refine(problem, start, SMALL, evaluations=24)
    fresh = replace(SMALL, seed=77, packets=4 * SMALL.packets)
    full = [
        (problem.fixed[0], *(getattr(entry, side) for entry in found.queues)) for side in ("before", "after")
    ]
    costs = []
    for thresholds in full:
        assert all(entry is not None for entry in thresholds)
        losses = predict(
            problem.port,
            problem.traffic,
            [entry for entry in thresholds if entry is not None],
            model="simulate",
            simulation=fresh,
        )[1:]
        costs.append(
            sum(
                float(o.rounds_unimportant(np.array(p.loss_unimportant)))
                + float(o.rounds_important(np.array(p.loss_important)))
                for o, p in zip(problem.objectives, losses, strict=True)
            )
        )
    assert found.has_changed
    assert costs[1] < costs[0]
    assert found.rounds_before.error > 0
