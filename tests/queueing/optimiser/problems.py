"""Random small problems, and all their choices compared by the models' own predictions."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product

import numpy as np
from hypothesis import strategies as st

from mltswitch.queueing import Port, QueuePrediction, QueueThresholds, QueueTraffic, mm1k, paper
from mltswitch.queueing.objective import (
    LOSS_WEIGHT,
    PACKET_WEIGHT,
    FloatArray,
    QueueObjective,
    RoundsCurve,
    ThresholdProblem,
)


def hinge(tolerance: float, slope: float) -> RoundsCurve:
    """Nothing up to the tolerance, then a straight line."""

    def curve(loss: FloatArray) -> FloatArray:
        return slope * np.maximum(0.0, loss - tolerance)

    return curve


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    queues: st.SearchStrategy[int],
    buffers: st.SearchStrategy[int],
    has_delays: bool = True,
) -> ThresholdProblem:
    """Static or shared, ordered or free, with and without granules, delay bounds and given queues."""
    count = draw(queues)
    loads = draw(st.lists(st.floats(0.02, 1.3 / count), min_size=count, max_size=count))
    traffic = [QueueTraffic(load, draw(st.floats(0.05, 0.95))) for load in loads]
    objectives = [
        QueueObjective(
            load / sum(loads),
            hinge(draw(st.floats(0, 0.2)), draw(st.floats(0, 5))),
            hinge(draw(st.floats(0, 0.05)), draw(st.floats(0, 50))),
            draw(st.none() | st.floats(4, 60)) if has_delays else None,
        )
        for load in loads
    ]
    fixed: list[QueueThresholds | None] = [None] * count
    if draw(st.booleans()):
        fixed.insert(0, QueueThresholds(None, 8))
        traffic.insert(0, QueueTraffic(0.05))
    is_shared = draw(st.booleans())
    return ThresholdProblem(
        Port(count_in_service=draw(st.booleans())),
        tuple(traffic),
        tuple(fixed),
        tuple(objectives),
        draw(buffers),
        hops=draw(st.integers(1, 3)),
        buffer="shared" if is_shared else "static",
        alphas=tuple(draw(st.sampled_from([(0.5,), (0.25, 1), (0.5, 1, 2), (0.125, 0.3, 4)])))
        if is_shared
        else (),
        granularity_packets=draw(st.sampled_from([1, 1, 2])),
        is_ordered=draw(st.booleans()),
    )


@dataclass(frozen=True)
class Best:
    """What comparing every choice finds."""

    cost: float
    """With the tie-breaks."""
    rounds: float


def brute_force(problem: ThresholdProblem, model: str) -> Best | None:
    """Every choice that keeps all constraints, compared; None where there is none."""
    costs = [_queue_costs(problem, model, queue) for queue in range(len(problem.objectives))]
    found = [
        tuple(
            sum(queue[choice][part] for queue, choice in zip(costs, choices, strict=True)) for part in (0, 1)
        )
        for choices in _choices(problem, costs)
    ]
    return Best(min(f[0] for f in found), min(f[1] for f in found)) if found else None


_Choice = tuple[int, int]
"""S and L in packets."""


def _choices(
    problem: ThresholdProblem, costs: list[dict[_Choice, tuple[float, float]]]
) -> Iterator[tuple[_Choice, ...]]:
    for choices in product(*costs):
        if problem.is_ordered and not all(low[0] < high[0] for low, high in pairwise(choices)):
            continue
        if fits(problem, [limit for _, limit in choices]):
            yield choices


def fits(problem: ThresholdProblem, limits: list[int]) -> bool:
    """Whether the buffer and the device admit these limits."""
    return all(limit in menu(problem) for limit in limits) and (
        problem.buffer == "shared" or sum(limits) <= problem.buffer_packets
    )


def menu(problem: ThresholdProblem) -> list[int]:
    """Every L of one queue: in steps, or where it rests with one of the alphas."""
    size, buffer = problem.granularity_packets, problem.buffer_packets
    if problem.buffer == "static":
        return list(range(size, buffer + 1, size))
    return sorted({int(buffer * alpha / (1 + alpha)) for alpha in problem.alphas})


@cache
def _predict_class(
    service: mm1k.ClassService, share: float, thresholds: QueueThresholds, count_in_service: bool
) -> QueuePrediction:
    return mm1k.predict_class(service, share, thresholds, count_in_service=count_in_service)


def predict_choice(problem: ThresholdProblem, model: str, queue: int, choice: _Choice) -> QueuePrediction:
    """The model's figures for one chosen queue; what the others hold does not matter."""
    own = [index for index, fixed in enumerate(problem.fixed) if fixed is None][queue]
    thresholds = QueueThresholds(*choice)
    offered = problem.traffic[own]
    if model == "mm1k":
        service = mm1k.class_services([q.load for q in problem.traffic])[own]
        return _predict_class(service, offered.unimportant_share, thresholds, problem.port.count_in_service)
    return paper.predict(problem.port, problem.traffic, [thresholds] * len(problem.traffic))[own]


def keeps_delay(problem: ThresholdProblem, model: str, queue: int, choice: _Choice) -> bool:
    """Whether the queue's delay bound holds: of the 99th percentile, or of L services."""
    bound = problem.objectives[queue].delay_bound_packet_times
    if bound is None:
        return True
    if model == "mm1k":
        p99 = predict_choice(problem, model, queue, choice).p99_delay_packet_times
        return p99 is not None and p99 <= bound * (1 + 1e-9)
    own = [index for index, fixed in enumerate(problem.fixed) if fixed is None][queue]
    rate = float(
        np.prod([1 - min(1, rho) for rho in paper.utilisations([q.load for q in problem.traffic])[:own]])
    )
    return choice[1] <= bound * rate * (1 + 1e-9)


def _queue_costs(problem: ThresholdProblem, model: str, queue: int) -> dict[_Choice, tuple[float, float]]:
    """S and L → (cost with tie-breaks, extra rounds)."""
    objective = problem.objectives[queue]
    offered = [t for t, fixed in zip(problem.traffic, problem.fixed, strict=True) if fixed is None][queue]
    theta = offered.unimportant_share
    costs: dict[_Choice, tuple[float, float]] = {}
    size = problem.granularity_packets
    for limit in menu(problem):
        for threshold in range(size, limit + 1, size):
            if not keeps_delay(problem, model, queue, (threshold, limit)):
                continue
            one_hop = predict_choice(problem, model, queue, (threshold, limit))
            small, large = (
                1 - (1 - loss) ** problem.hops for loss in (one_hop.loss_unimportant, one_hop.loss_important)
            )
            rounds = float(
                objective.rounds_unimportant(np.array(small)) + objective.rounds_important(np.array(large))
            )
            loss = objective.byte_share * (theta * small + (1 - theta) * large)
            costs[threshold, limit] = (rounds + LOSS_WEIGHT * loss + PACKET_WEIGHT * limit, rounds)
    return costs
