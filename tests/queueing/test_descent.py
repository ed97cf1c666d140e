"""Thresholds by descent: against brute force, within the constraints, never worse than where it started."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.queueing.arrivals import Arrivals, Batch, Poisson
from mltswitch.queueing.descent import (
    Choice,
    Constraints,
    Evaluator,
    Predictor,
    as_choice,
    descend,
    evaluation_budget,
    optimise,
    optimise_by_descent,
)
from mltswitch.queueing.descent.bound import least_rounds
from mltswitch.queueing.models import predict, predict_losses
from mltswitch.queueing.objective import (
    FloatArray,
    QueueObjective,
    RoundsCurve,
    ThresholdProblem,
    admissible_limits,
    least_buffer_packets,
)
from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds, QueueTraffic

CONTROL = QueueThresholds(None, 16.0)


def hinge(tolerance: float, slope: float) -> RoundsCurve:
    def curve(loss: FloatArray) -> FloatArray:
        return slope * np.maximum(0.0, loss - tolerance)

    return curve


def problem_of(
    loads: Sequence[float],
    buffer_packets: int,
    *,
    tolerances: Sequence[tuple[float, float]] | None = None,
    has_control: bool = False,
    **changes: object,
) -> ThresholdProblem:
    pairs = tolerances or [(0.05 / (queue + 1), 0.005 / (queue + 1)) for queue in range(len(loads))]
    shares = [load / sum(loads) for load in loads]
    traffic = tuple(QueueTraffic(load, 0.5, Batch(4)) for load in loads)
    fixed: tuple[QueueThresholds | None, ...] = (None,) * len(loads)
    if has_control:
        traffic, fixed = (QueueTraffic(0.005), *traffic), (CONTROL, *fixed)
    problem = ThresholdProblem(
        port=Port(),
        traffic=traffic,
        fixed=fixed,
        objectives=tuple(
            QueueObjective(share, hinge(small, share), hinge(large, 2 * share))
            for share, (small, large) in zip(shares, pairs, strict=True)
        ),
        buffer_packets=buffer_packets,
    )
    return replace(problem, **changes)  # type: ignore[arg-type]  # fields by name


def coupled(problem: ThresholdProblem, weight: float = 1.0) -> Predictor:
    """A cheap model with the structure of the real ones: a queue feels what those above let through."""

    def predictor(thresholds: Sequence[QueueThresholds]) -> list[QueuePrediction]:
        above, predictions = 0.0, []
        for offered, limits in zip(problem.traffic, thresholds, strict=True):
            pressure = 6.0 * offered.load / max(0.1, 1.2 - weight * above)
            level = (
                limits.limit_packets if limits.ecn_threshold_packets is None else limits.ecn_threshold_packets
            )
            room = limits.limit_packets - offered.unimportant_share * level
            small, large = (exp(-length / (pressure + 0.01)) for length in (level, 1.5 * room))
            share = offered.unimportant_share
            above += offered.load * (share * (1 - small) + (1 - share) * (1 - large))
            delay = limits.limit_packets * (1 + above)
            predictions.append(QueuePrediction(small, large, p99_delay_packet_times=delay))
        return predictions

    return predictor


def brute_force(problem: ThresholdProblem, predictor: Predictor) -> tuple[float, float]:
    constraints = Constraints(problem)
    evaluator = Evaluator(constraints, predictor, 10**9)
    sizes = range(1, problem.buffer_packets + 1)
    best = (float("inf"), float("inf"))
    for limits in product(sizes, repeat=constraints.count):
        if problem.buffer == "static" and sum(limits) > problem.buffer_packets:
            continue
        for thresholds in product(*(range(1, limit + 1) for limit in limits)):
            if problem.is_ordered and sorted(set(thresholds)) != list(thresholds):
                continue
            best = min(best, evaluator.evaluate(Choice(thresholds, limits)).score)
    return best


def score(problem: ThresholdProblem, predictor: Predictor, choice: Choice) -> tuple[float, float]:
    return Evaluator(Constraints(problem), predictor, 1).evaluate(choice).score


LOADS = st.lists(st.floats(0.05, 0.6), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(loads=LOADS, extra=st.integers(0, 6), is_ordered=st.booleans(), weight=st.floats(0, 1))
def test_finds_what_brute_force_finds(
    loads: list[float], extra: int, is_ordered: bool, weight: float
) -> None:
    """Tiny buffers; a local search may stop short, by at most a little."""
    problem = problem_of(loads, least_buffer_packets(len(loads)) + extra, is_ordered=is_ordered)
    predictor = coupled(problem, weight)
    found = optimise_by_descent(problem, predictor, evaluations=400)
    reached = score(problem, predictor, as_choice(Constraints(problem), found))
    exact = brute_force(problem, predictor)
    assert exact[1] * (1 - 1e-12) <= reached[1] <= exact[1] * 1.01 + 1e-12


@settings(max_examples=15, deadline=None)
@given(loads=LOADS, extra=st.integers(0, 4))
def test_finds_what_brute_force_finds_under_mm1k(loads: list[float], extra: int) -> None:
    problem = problem_of(loads, least_buffer_packets(len(loads)) + extra, is_ordered=True)
    problem = replace(problem, traffic=tuple(replace(q, arrivals=Batch(1)) for q in problem.traffic))

    def predictor(thresholds: Sequence[QueueThresholds]) -> Sequence[QueuePrediction]:
        return predict(problem.port, problem.traffic, thresholds, model="mm1k")

    found = optimise_by_descent(problem, predictor)
    reached = score(problem, predictor, as_choice(Constraints(problem), found))
    exact = brute_force(problem, predictor)
    assert exact[1] * (1 - 1e-12) <= reached[1] <= exact[1] * 1.01 + 1e-12


@st.composite
def problems(draw: st.DrawFn) -> ThresholdProblem:
    loads = draw(st.lists(st.floats(0.01, 0.6), min_size=1, max_size=8))
    step = draw(st.integers(1, 5))
    is_ordered = draw(st.booleans())
    least = least_buffer_packets(len(loads), step, is_ordered=is_ordered)
    problem = problem_of(
        loads,
        least + draw(st.integers(0, 400)),
        granularity_packets=step,
        is_ordered=is_ordered,
        has_control=draw(st.booleans()),
    )
    if draw(st.booleans()):
        alphas = tuple(2.0**exponent for exponent in range(draw(st.integers(-3, 0)), 5))
        return replace(problem, buffer="shared", alphas=alphas, buffer_packets=4 * least + 200)
    return problem


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_constraints_are_never_broken_and_answers_repeat(problem: ThresholdProblem) -> None:
    found = optimise_by_descent(problem, coupled(problem), evaluations=60)
    step = problem.granularity_packets
    limits = [entry.limit_packets for entry in found.thresholds]
    marking = [entry.ecn_threshold_packets or 0 for entry in found.thresholds]
    assert all(step <= s <= limit and s % step == 0 for s, limit in zip(marking, limits, strict=True))
    if problem.buffer == "static":
        assert sum(limits) <= problem.buffer_packets
        assert all(limit % step == 0 for limit in limits)
    else:
        resting = {int(problem.buffer_packets * a / (1 + a)) for a in problem.alphas}
        assert set(limits) <= resting
    if problem.is_ordered:
        assert all(above < below for above, below in pairwise(marking))
    assert found == optimise_by_descent(problem, coupled(problem), evaluations=60)


@settings(max_examples=30, deadline=None)
@given(problem=problems(), data=st.data())
def test_any_start_becomes_feasible(problem: ThresholdProblem, data: st.DataObject) -> None:
    constraints = Constraints(problem)
    lengths = st.lists(st.integers(-5, 2000), min_size=constraints.count, max_size=constraints.count)
    start = Choice(tuple(data.draw(lengths)), tuple(data.draw(lengths)))
    assert constraints.is_feasible(constraints.nearest(start))


def test_a_descent_never_loses_ground() -> None:
    problem = problem_of([0.2, 0.3, 0.4], 120)
    evaluator = Evaluator(Constraints(problem), coupled(problem), 500)
    start = evaluator.evaluate(Choice((1, 1, 1), (40, 40, 40)))
    end = descend(evaluator, start, largest_step=16)
    assert end.score < start.score
    again = descend(evaluator, end, largest_step=16)
    assert again.score <= end.score


def test_more_evaluations_never_do_worse_from_the_same_start() -> None:
    problem = problem_of([0.15, 0.15, 0.2, 0.4], 200)
    predictor = coupled(problem)
    constraints = Constraints(problem)
    start = constraints.proportional([1, 1, 1, 1], 0.5)
    scores = []
    for budget in (1, 10, 40, 160):
        evaluator = Evaluator(constraints, predictor, budget)
        scores.append(descend(evaluator, evaluator.evaluate(start), largest_step=16).score)
        assert evaluator.evaluations <= budget
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < scores[0]


def test_a_choice_is_evaluated_once() -> None:
    problem = problem_of([0.3, 0.4], 60)
    asked: list[tuple[QueueThresholds, ...]] = []
    inner = coupled(problem)

    def predictor(thresholds: Sequence[QueueThresholds]) -> Sequence[QueuePrediction]:
        asked.append(tuple(thresholds))
        return inner(thresholds)

    optimise_by_descent(problem, predictor)
    assert len(asked) == len(set(asked)) <= evaluation_budget(problem)


def test_few_choices_are_all_compared_and_then_the_bound_is_known() -> None:
    problem = problem_of([0.7], 12)
    found = optimise_by_descent(problem, coupled(problem))
    assert found.lower_bound_rounds == found.extra_rounds > 0
    assert found.gap == 0
    assert found.method.startswith("every choice compared (78)")


def test_a_descent_claims_no_bound() -> None:
    problem = problem_of([0.4, 0.5], 40, tolerances=[(0, 0), (0, 0)])
    found = optimise_by_descent(problem, coupled(problem))
    assert found.lower_bound_rounds == 0
    assert found.gap == 1
    assert "local, no useful bound" in found.method


def test_a_delay_bound_is_kept_or_refused() -> None:
    loose = problem_of([0.4, 0.5], 60)
    free = optimise_by_descent(loose, coupled(loose))
    bounded = replace(
        loose, objectives=tuple(replace(o, delay_bound_packet_times=12.0) for o in loose.objectives)
    )
    kept = optimise_by_descent(bounded, coupled(bounded))
    delays = [p.p99_delay_packet_times or 0 for p in coupled(bounded)(kept.thresholds)]
    assert max(delays) <= 12 < max(p.p99_delay_packet_times or 0 for p in coupled(loose)(free.thresholds))
    assert kept.extra_rounds > free.extra_rounds
    impossible = replace(
        loose, objectives=tuple(replace(o, delay_bound_packet_times=0.5) for o in loose.objectives)
    )
    with pytest.raises(UserInputError, match="no thresholds were found that keep the delay bounds"):
        optimise_by_descent(impossible, coupled(impossible))


def test_without_a_predicted_delay_the_limit_is_bounded() -> None:
    problem = problem_of([0.7], 40)
    bounded = replace(problem, objectives=(replace(problem.objectives[0], delay_bound_packet_times=9.5),))

    def silent(thresholds: Sequence[QueueThresholds]) -> list[QueuePrediction]:
        known = coupled(bounded)(thresholds)
        return [QueuePrediction(entry.loss_unimportant, entry.loss_important) for entry in known]

    assert optimise_by_descent(bounded, silent).thresholds[0].limit_packets == 9


def test_a_flat_optimum_takes_no_more_buffer_than_it_needs() -> None:
    problem = problem_of([0.1], 500, tolerances=[(0.9, 0.9)])
    found = optimise_by_descent(problem, coupled(problem))
    assert found.extra_rounds == 0
    assert found.byte_weighted_loss < 1e-8
    assert found.thresholds[0].limit_packets < 60
    assert "nothing undercuts" in found.method
    assert found.gap == 0


def test_too_small_a_buffer_names_the_least_one() -> None:
    with pytest.raises(UserInputError, match="expected at least 12 packets"):
        Constraints(problem_of([0.2, 0.2, 0.2], 11, granularity_packets=2, is_ordered=True))
    with pytest.raises(UserInputError, match="expected at least 6 packets"):
        Constraints(problem_of([0.2, 0.2, 0.2], 5, granularity_packets=2))
    assert Constraints(problem_of([0.2, 0.2, 0.2], 6, granularity_packets=2)).least.limits == (2, 2, 2)


def test_limits_of_a_shared_buffer_are_where_queues_rest() -> None:
    problem = problem_of([0.3], 90, buffer="shared", alphas=(0.125, 0.5, 1.0, 8.0))
    assert admissible_limits(problem) == (10, 30, 45, 80)


def test_long_queues_get_fewer_evaluations() -> None:
    assert evaluation_budget(problem_of([0.3] * 8, 1024)) == 96
    assert evaluation_budget(problem_of([0.3] * 8, 1536)) == 64
    assert evaluation_budget(problem_of([0.3] * 8, 10**6)) == 48


def test_the_named_models() -> None:
    problem = problem_of([0.3, 0.4], 16, is_ordered=True)
    for model in ("paper", "mm1k", "completion"):
        found = optimise(problem, model)
        assert sum(entry.limit_packets for entry in found.thresholds) <= 16
        assert found == optimise(problem, model)
    assert "descent from" in optimise(problem, "completion").method
    with pytest.raises(UserInputError, match="unknown loss model"):
        optimise(problem, "tarot")


def under_completion(problem: ThresholdProblem) -> Predictor:
    return lambda thresholds: predict_losses(problem.port, problem.traffic, thresholds, "completion")


@st.composite
def bursty_problems(draw: st.DrawFn) -> ThresholdProblem:
    """For the default model: bursts of several sizes, both kinds of importance, light load to overload."""
    loads = draw(st.lists(st.floats(0.05, 0.8), min_size=1, max_size=3))
    kinds: list[Arrivals] = [Poisson(), Batch(2), Batch(5), Batch(3, "geometric"), Batch(6, "fixed", 1.0)]
    traffic = tuple(
        QueueTraffic(load, draw(st.floats(0.1, 0.9)), draw(st.sampled_from(kinds))) for load in loads
    )
    traffic = tuple(
        replace(entry, importance="burst") if entry.arrivals == Batch(5) else entry for entry in traffic
    )
    curves = [
        (hinge(draw(st.sampled_from([0, 0.02])), 1.0), hinge(draw(st.sampled_from([0, 0.002])), 8.0))
        for _ in loads
    ]
    problem = problem_of(loads, draw(st.integers(3, 24)), has_control=draw(st.booleans()))
    fixed = len(problem.traffic) - len(loads)
    problem = replace(
        problem,
        traffic=(*problem.traffic[:fixed], *traffic),
        objectives=tuple(QueueObjective(1.0 / len(loads), *pair) for pair in curves),
        hops=draw(st.integers(1, 3)),
    )
    if draw(st.booleans()):
        return replace(problem, buffer="shared", alphas=(0.5, 1.0, 4.0))
    return problem


@settings(max_examples=40, deadline=None)
@given(problem=bursty_problems(), data=st.data())
def test_no_choice_undercuts_the_bound(problem: ThresholdProblem, data: st.DataObject) -> None:
    constraints = Constraints(problem)
    lengths = st.lists(st.integers(1, 24), min_size=constraints.count, max_size=constraints.count)
    choice = constraints.nearest(Choice(tuple(data.draw(lengths)), tuple(data.draw(lengths))))
    rounds = Evaluator(constraints, under_completion(problem), 1).evaluate(choice).rounds
    assert least_rounds(problem) <= rounds * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(("loads", "buffer_packets"), [([0.95], 14), ([0.5, 0.7], 7), ([0.2, 0.3, 0.4], 5)])
def test_the_default_model_against_brute_force(loads: list[float], buffer_packets: int) -> None:
    """Every choice under the real model: none below the bound, and the descent finds the best."""
    problem = problem_of(loads, buffer_packets, tolerances=[(0.01, 0.001)] * len(loads))
    predictor = under_completion(problem)
    exact = brute_force(problem, predictor)
    found = optimise_by_descent(problem, predictor, evaluations=40)
    assert 0 < least_rounds(problem) <= exact[1]
    assert found.extra_rounds <= exact[1] * 1.01


def test_overload_has_a_useful_bound_and_says_how_far_it_is() -> None:
    problem = problem_of([0.5, 1.0], 60, tolerances=[(0, 0)] * 2)
    problem = replace(
        problem,
        objectives=tuple(QueueObjective(0.5, hinge(0, 1), hinge(0, 1)) for _ in problem.objectives),
    )
    found = optimise(problem)
    assert 0 < found.lower_bound_rounds <= found.extra_rounds
    assert found.gap < 0.5
    assert "local, at most" in found.method
    assert "above the bound" in found.method


def test_bounds_of_queues_too_long_to_solve_are_those_of_endless_ones() -> None:
    problem = problem_of([1.25], 10**5, tolerances=[(0, 0)])
    problem = replace(problem, objectives=(QueueObjective(1.0, hinge(0, 2), hinge(0, 2)),))
    # A fifth of all packets is lost, and unimportant and important ones are half each.
    assert least_rounds(problem) == pytest.approx(2 * 2 * 0.2, rel=0.02)


def test_a_class_alone_may_lose_more_important_packets() -> None:
    """Why the bound is not made of classes alone with their own S and L: a class below shuts out unimportant
    packets of the class above, and so leaves room for important ones."""
    top, below = QueueTraffic(0.2, 0.9, Batch(2), "burst"), QueueTraffic(0.6)
    own, others = QueueThresholds(1.0, 2.0), QueueThresholds(None, 20.0)
    alone = predict(Port(), [top], [own])[0]
    together = predict(Port(), [top, below], [own, others])[0]
    assert alone.loss_important > 1.05 * together.loss_important
    assert alone.loss_unimportant < together.loss_unimportant
