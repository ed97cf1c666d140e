"""Thresholds for a set of scenarios: within the constraints, near the best, using all of the buffer."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.queueing import (
    Batch,
    Optimum,
    Port,
    QueueObjective,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    Scenario,
    ThresholdProblem,
    optimise,
    predict,
)
from mltswitch.queueing.objective import Choice, Evaluator, FloatArray, RoundsCurve
from mltswitch.queueing.optimise import optimise_with
from mltswitch.queueing.surface import CERTAIN_PART

CONTROL = QueueThresholds(None, 16.0)
LOADS = st.lists(st.floats(0.05, 0.6), min_size=1, max_size=3)


def hinge(tolerance: float, slope: float) -> RoundsCurve:
    def curve(loss: FloatArray) -> FloatArray:
        return slope * np.maximum(0.0, loss - tolerance)

    return curve


def problem_of(
    loads: Sequence[float],
    buffer_packets: int,
    *,
    tolerances: Sequence[tuple[float, float]] | None = None,
    burst: int = 1,
    has_control: bool = False,
    factors: Sequence[float] = (1.0,),
    **changes: object,
) -> ThresholdProblem:
    """Gradient queues with these planned loads, in scenarios with these factors on them."""
    pairs = tolerances or [(0.05 / (queue + 1), 0.005 / (queue + 1)) for queue in range(len(loads))]
    shares = [load / sum(loads) for load in loads]
    control = (QueueTraffic(0.005),) if has_control else ()
    problem = ThresholdProblem(
        port=Port(),
        scenarios=tuple(
            Scenario(
                1.0 / (1 + place),
                (*control, *(QueueTraffic(factor * load, 0.5, Batch(max(burst, 2))) for load in loads)),
            )
            for place, factor in enumerate(factors)
        ),
        fixed=(*((CONTROL,) if has_control else ()), *((None,) * len(loads))),
        objectives=tuple(
            QueueObjective(
                hinge(small, share),
                hinge(large, 2 * share),
                (small, large),
                least_threshold_packets=burst,
                least_margin_packets=burst,
            )
            for share, (small, large) in zip(shares, pairs, strict=True)
        ),
        buffer_packets=buffer_packets,
    )
    return replace(problem, **changes)  # type: ignore[arg-type]  # fields by name


def coupled(
    traffic: tuple[QueueTraffic, ...], thresholds: tuple[QueueThresholds, ...]
) -> list[QueuePrediction]:
    """A cheap model with the structure of the real ones: a queue feels what those above let through."""
    above, predictions = 0.0, []
    for offered, limits in zip(traffic, thresholds, strict=True):
        pressure = 6.0 * offered.load / max(0.1, 1.2 - above)
        level = limits.limit_packets if limits.ecn_threshold_packets is None else limits.ecn_threshold_packets
        room = limits.limit_packets - offered.unimportant_share * level
        small, large = (exp(-length / (pressure + 0.01)) for length in (level, 1.5 * room))
        share = offered.unimportant_share
        above += offered.load * (share * (1 - small) + (1 - share) * (1 - large))
        delay = limits.limit_packets * (1 + above)
        predictions.append(QueuePrediction(small, large, p99_delay_packet_times=delay))
    return predictions


def lengths(found: Optimum) -> list[tuple[int, int]]:
    return [(int(entry.ecn_threshold_packets or 0), int(entry.limit_packets)) for entry in found.thresholds]


def rounds_of(problem: ThresholdProblem, choice: Choice) -> float:
    return Evaluator(problem, coupled, None).evaluate(choice).rounds


def least_rounds(problem: ThresholdProblem) -> float:
    """By trying everything."""
    count, best = len(problem.objectives), float("inf")
    sizes = range(1, problem.buffer_packets)
    for limits in product(range(2, problem.buffer_packets + 1), repeat=count):
        if sum(limits) > problem.buffer_packets:
            continue
        for thresholds in product(sizes, repeat=count):
            pairs = tuple(zip(thresholds, limits, strict=True))
            if all(s < limit for s, limit in pairs) and (
                not problem.is_ordered or sorted(thresholds) == list(thresholds)
            ):
                best = min(best, rounds_of(problem, pairs))
    return best


@settings(max_examples=25, deadline=None)
@given(loads=LOADS, extra=st.integers(0, 4), is_ordered=st.booleans())
def test_a_small_problem_is_solved_nearly_as_well_as_by_trying_everything(
    loads: list[float], extra: int, is_ordered: bool
) -> None:
    problem = problem_of(loads, 2 * len(loads) + extra, is_ordered=is_ordered, factors=(1.0, 1.2))
    found = optimise_with(problem, coupled)
    assert found.extra_rounds <= 1.12 * least_rounds(problem) + 1e-6


@settings(max_examples=60, deadline=None)
@given(
    loads=LOADS,
    burst=st.integers(1, 12),
    buffer_packets=st.integers(10, 600),
    given_limit=st.none() | st.integers(2, 600),
    is_ordered=st.booleans(),
)
def test_every_choice_keeps_its_constraints_and_uses_the_buffer(
    loads: list[float], burst: int, buffer_packets: int, given_limit: int | None, is_ordered: bool
) -> None:
    problem = problem_of(
        loads,
        buffer_packets,
        burst=burst,
        factors=(1.0, 0.75, 1.15),
        shared_limit_packets=given_limit,
        is_ordered=is_ordered,
    )
    found = optimise_with(problem, coupled)
    pairs = lengths(found)
    assert lengths(optimise_with(problem, coupled)) == pairs
    assert all(1 <= threshold < limit for threshold, limit in pairs)
    assert not is_ordered or all(above <= below for (above, _), (below, _) in pairwise(pairs))
    if given_limit is not None:
        assert {limit for _, limit in pairs} == {given_limit}
        room = given_limit >= CERTAIN_PART * 2 * burst
    else:
        assert sum(limit for _, limit in pairs) == buffer_packets
        room = buffer_packets >= CERTAIN_PART * 2 * burst * len(loads)
    assert not room or all(s >= burst and limit - s >= burst for s, limit in pairs)


def test_given_thresholds_stay_and_starts_are_never_undercut() -> None:
    problem = problem_of([0.2, 0.3, 0.4], 60, has_control=True)
    start = ((3, 10), (5, 20), (8, 30))
    found = optimise_with(problem, coupled, starts=(start,))
    assert len(found.thresholds) == 3
    assert found.extra_rounds <= rounds_of(problem, start)


def test_scenarios_count_by_their_weight() -> None:
    """A scenario of overload moves the choice towards it, and costs little where nothing else happens."""
    calm = problem_of([0.3, 0.5], 60)
    both = problem_of([0.3, 0.5], 60, factors=(1.0, 1.6))
    overload = problem_of([0.3 * 1.6, 0.5 * 1.6], 60)
    for_calm, for_both = (tuple(lengths(optimise_with(problem, coupled))) for problem in (calm, both))
    assert rounds_of(overload, for_both) <= rounds_of(overload, for_calm)
    assert rounds_of(calm, for_both) <= rounds_of(calm, for_calm) + 0.01


def test_delay_bounds_come_before_losses() -> None:
    problem = problem_of([0.3, 0.4], 200)
    free = optimise_with(problem, coupled)
    assert free.thresholds[1].limit_packets > 60
    bounded = tuple(replace(entry, delay_bound_packet_times=80.0) for entry in problem.objectives)
    found = optimise_with(replace(problem, objectives=bounded), coupled)
    traffic = problem.scenarios[0].traffic
    assert all((entry.p99_delay_packet_times or 0) <= 80 for entry in coupled(traffic, found.thresholds))
    impossible = tuple(replace(entry, delay_bound_packet_times=0.5) for entry in problem.objectives)
    with pytest.raises(UserInputError, match="delay bounds"):
        optimise_with(replace(problem, objectives=impossible), coupled)


@pytest.mark.parametrize("given_limit", [None, 1])
def test_a_buffer_for_nothing_is_refused(given_limit: int | None) -> None:
    with pytest.raises(UserInputError, match="do not fit into"):
        optimise_with(problem_of([0.3, 0.4], 3, shared_limit_packets=given_limit), coupled)


@pytest.mark.parametrize("model", ["completion", "paper"])
def test_every_model_finds_better_than_an_equal_split(model: str) -> None:
    problem = problem_of([0.1, 0.3, 0.5], 90, factors=(1.0, 1.15))
    found = optimise(problem, model)
    seen: list[int] = []
    assert optimise(problem, model, progress=seen.append) == found
    assert seen == list(range(1, found.evaluations + 1))

    def only(
        traffic: tuple[QueueTraffic, ...], thresholds: tuple[QueueThresholds, ...]
    ) -> Sequence[QueuePrediction]:
        return predict(problem.port, traffic, thresholds, model)

    evaluator = Evaluator(problem, only, None)
    assert found.extra_rounds <= evaluator.evaluate(((15, 30),) * 3).rounds
    assert evaluator.evaluate(tuple(lengths(found))).rounds == pytest.approx(found.extra_rounds, abs=1e-9)
