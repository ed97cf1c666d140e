"""The global optimum against brute force, its bound, and its constraints on random problems."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.queueing import Port, QueueTraffic
from mltswitch.queueing.objective import (
    LOSS_WEIGHT,
    PACKET_WEIGHT,
    TOLERANCE_ROUNDS,
    Optimum,
    QueueObjective,
    ThresholdProblem,
    least_buffer_packets,
)
from mltswitch.queueing.optimiser import complete, dual, optimise_separable, separable
from tests.queueing.optimiser.problems import (
    brute_force,
    fits,
    hinge,
    keeps_delay,
    predict_choice,
    problems,
)

NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SMALL = problems(queues=st.integers(1, 2), buffers=st.integers(3, 12)) | problems(
    queues=st.just(3), buffers=st.integers(6, 9)
)


def figures(problem: ThresholdProblem, model: str, found: Optimum) -> tuple[float, float]:
    """(extra rounds, byte-weighted loss), by the model's own predictions."""
    rounds = loss = 0.0
    for queue, (objective, chosen) in enumerate(zip(problem.objectives, found.thresholds, strict=True)):
        assert chosen.ecn_threshold_packets is not None
        choice = (int(chosen.ecn_threshold_packets), int(chosen.limit_packets))
        one_hop = predict_choice(problem, model, queue, choice)
        small, large = (
            1 - (1 - ratio) ** problem.hops for ratio in (one_hop.loss_unimportant, one_hop.loss_important)
        )
        rounds += float(
            objective.rounds_unimportant(np.array(small)) + objective.rounds_important(np.array(large))
        )
        theta = [t for t, f in zip(problem.traffic, problem.fixed, strict=True) if f is None][
            queue
        ].unimportant_share
        loss += objective.byte_share * (theta * small + (1 - theta) * large)
    return rounds, loss


def check_constraints(problem: ThresholdProblem, model: str, found: Optimum) -> None:
    size = problem.granularity_packets
    thresholds = [q.ecn_threshold_packets or 0.0 for q in found.thresholds]
    limits = [q.limit_packets for q in found.thresholds]
    assert all(s % size == 0 for s in thresholds)
    assert all(size <= s <= limit for s, limit in zip(thresholds, limits, strict=True))
    if problem.is_ordered:
        assert all(low < high for low, high in pairwise(thresholds))
    for queue, (s, limit) in enumerate(zip(thresholds, limits, strict=True)):
        assert keeps_delay(problem, model, queue, (int(s), int(limit)))
    assert fits(problem, [int(limit) for limit in limits])


@pytest.mark.parametrize("model", ["paper", "mm1k"])
@settings(NO_DEADLINE, max_examples=30)
@given(problem=SMALL)
def test_equals_brute_force(model: str, problem: ThresholdProblem) -> None:
    best = brute_force(problem, model)
    if best is None:
        with pytest.raises(UserInputError, match="buffer_packets"):
            optimise_separable(problem, model)
        return
    found = optimise_separable(problem, model)
    check_constraints(problem, model, found)
    rounds, loss = figures(problem, model, found)
    buffer = sum(q.limit_packets for q in found.thresholds)
    reached = rounds + LOSS_WEIGHT * loss + PACKET_WEIGHT * buffer
    assert reached == pytest.approx(best.cost, rel=1e-9, abs=1e-12)
    assert found.extra_rounds == pytest.approx(rounds, rel=1e-9, abs=1e-12)
    assert found.byte_weighted_loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
    assert found.lower_bound_rounds <= best.rounds * (1 + 1e-9) + 1e-12
    assert found.gap == 0


@pytest.mark.parametrize("model", ["paper", "mm1k"])
def test_methods_for_large_buffers_bound_small_ones(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made to take small buffers, too, they find the brute force's optimum within the gap that they state."""
    monkeypatch.setattr(complete, "MAXIMUM_UNITS", 0)
    gaps: list[float] = []

    @settings(NO_DEADLINE, max_examples=20)
    @given(problem=SMALL)
    def check(problem: ThresholdProblem) -> None:
        best = brute_force(problem, model)
        if best is None:
            with pytest.raises(UserInputError):
                optimise_separable(problem, model)
            return
        found = optimise_separable(problem, model)
        check_constraints(problem, model, found)
        assert found.extra_rounds == pytest.approx(figures(problem, model, found)[0], rel=1e-9, abs=1e-12)
        assert found.lower_bound_rounds <= best.rounds * (1 + 1e-9) + 1e-12
        assert found.extra_rounds >= best.rounds * (1 - 1e-9) - 1e-12
        gaps.append(found.gap)
        if found.gap <= 0.005:
            assert found.extra_rounds <= best.rounds * 1.005 + TOLERANCE_ROUNDS

    check()
    assert np.quantile(gaps, 0.9) <= 0.005


@pytest.mark.parametrize("model", ["paper", "mm1k"])
@settings(NO_DEADLINE, max_examples=10)
@given(
    problem=problems(queues=st.integers(1, 8), buffers=st.integers(100, 1500)),
)
def test_keeps_its_constraints(model: str, problem: ThresholdProblem) -> None:
    try:
        found = optimise_separable(problem, model)
    except UserInputError:
        return
    check_constraints(problem, model, found)
    assert 0 <= found.lower_bound_rounds <= found.extra_rounds
    assert found == optimise_separable(problem, model)
    if problem.buffer == "static" or all(o.delay_bound_packet_times is None for o in problem.objectives):
        assert found.gap <= 0.005


def one_queue(load: float = 0.5, **changes: Any) -> ThresholdProblem:
    problem = ThresholdProblem(
        Port(),
        (QueueTraffic(load, 0.5),),
        (None,),
        (QueueObjective(1.0, hinge(0.5, 1), hinge(0.1, 50)),),
        buffer_packets=30,
    )
    return replace(problem, **changes)


def test_a_flat_optimum_takes_no_more_buffer_than_it_needs() -> None:
    found = optimise_separable(one_queue(0.3, buffer_packets=190), "paper")
    assert found.thresholds[0].limit_packets < 60
    assert found.byte_weighted_loss < 1e-8


def test_fragile_important_gradients_get_the_buffer() -> None:
    (chosen,) = optimise_separable(one_queue(1.1), "paper").thresholds
    assert chosen.ecn_threshold_packets is not None
    assert chosen.ecn_threshold_packets < chosen.limit_packets == 30


def test_large_buffers_do_no_worse_than_the_largest_complete_search() -> None:
    """More room never costs extra rounds, beyond the gap that is stated."""
    steep = QueueObjective(0.5, hinge(0.01, 5), hinge(0.001, 50))
    problem = ThresholdProblem(
        Port(),
        (QueueTraffic(0.5, 0.5),) * 2,
        (None,) * 2,
        (steep,) * 2,
        complete.MAXIMUM_UNITS,
        is_ordered=True,
    )
    small = optimise_separable(problem, "mm1k")
    large = optimise_separable(replace(problem, buffer_packets=complete.MAXIMUM_UNITS + 1), "mm1k")
    assert small.method != large.method
    assert large.extra_rounds <= small.extra_rounds * 1.005
    assert large.extra_rounds > 0


@pytest.mark.parametrize("model", ["paper", "mm1k"])
def test_a_curve_that_is_not_convex_is_branched_on(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three queues only some can be saved: a price alone cannot choose, branching does."""
    step = QueueObjective(
        1 / 3, hinge(1, 0), lambda loss: np.minimum(1.0, 900 * np.maximum(0.0, loss - 5e-4))
    )
    problem = ThresholdProblem(
        Port(),
        tuple(QueueTraffic(load, 0.0) for load in (0.95, 0.0495, 0.00049)),
        (None,) * 3,
        (step,) * 3,
        buffer_packets=230,
    )
    found = optimise_separable(problem, model)
    assert found.gap <= 0.005
    with monkeypatch.context() as patch:
        patch.setattr(complete, "MAXIMUM_UNITS", 1000)
        exact = optimise_separable(problem, model)
    assert exact.method != found.method
    assert exact.extra_rounds - TOLERANCE_ROUNDS <= found.extra_rounds <= exact.extra_rounds * 1.005
    assert found.lower_bound_rounds <= exact.extra_rounds
    monkeypatch.setattr(dual, "MAXIMUM_NODES", 0)
    assert optimise_separable(problem, model).gap > 0.005


def test_delay_bounds_cap_the_queue() -> None:
    free = optimise_separable(one_queue(0.95, buffer_packets=400), "mm1k")
    bounded = one_queue(
        0.95,
        buffer_packets=400,
        objectives=(QueueObjective(1.0, hinge(0.5, 1), hinge(0.1, 50), delay_bound_packet_times=20.0),),
    )
    (chosen,) = optimise_separable(bounded, "mm1k").thresholds
    assert chosen.limit_packets < free.thresholds[0].limit_packets
    (chosen,) = optimise_separable(bounded, "paper").thresholds
    assert chosen.limit_packets <= 20


def test_a_shared_pool_of_any_size_is_compared_completely() -> None:
    """Thirty megabytes of packets, eleven alphas: the optimum, and no doubt of it."""
    loads = np.linspace(0.05, 0.2, 8)
    problem = ThresholdProblem(
        Port(),
        tuple(QueueTraffic(float(load), 0.5) for load in loads),
        (None,) * 8,
        tuple(QueueObjective(0.125, hinge(0.02, 2), hinge(0.001, 20)) for _ in loads),
        buffer_packets=20_000,
        buffer="shared",
        alphas=tuple(2.0**exponent for exponent in range(-7, 4)),
        granularity_packets=4,
        is_ordered=True,
    )
    found = optimise_separable(problem, "paper")
    check_constraints(problem, "paper", found)
    assert found.gap == 0
    free = optimise_separable(replace(problem, is_ordered=False), "paper")
    assert free.extra_rounds <= found.extra_rounds


def test_least_buffer() -> None:
    assert [least_buffer_packets(queues) for queues in (1, 2, 8)] == [1, 3, 36]
    assert least_buffer_packets(3, 4, is_ordered=False) == 12


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"buffer_packets": 0}, "buffer_packets"),
        ({"hops": 0}, "hops"),
        ({"granularity_packets": 0}, "granularity_packets"),
        ({"fixed": ()}, "fixed"),
        ({"objectives": ()}, "objectives"),
        ({"traffic": (QueueTraffic(-0.1),)}, r"queues\[0\].load"),
        ({"traffic": (QueueTraffic(float("nan")),)}, r"queues\[0\].load"),
        ({"traffic": (QueueTraffic(0.5, 1.5),)}, r"queues\[0\].unimportant_share"),
        ({"buffer": "shared"}, "alphas"),
        ({"buffer": "shared", "alphas": (0.5, -1.0)}, "alphas"),
        (
            {"objectives": (QueueObjective(1.0, hinge(0, 1), hinge(0, 1), delay_bound_packet_times=-1),)},
            r"objectives\[0\].delay_bound_packet_times",
        ),
    ],
)
def test_nonsense_names_the_field(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(UserInputError, match=where):
        optimise_separable(one_queue(**changes), "paper")


def test_other_models_are_refused() -> None:
    with pytest.raises(UserInputError, match="completion"):
        optimise_separable(one_queue(), "completion")
    assert "completion" not in separable.SEPARABLE
