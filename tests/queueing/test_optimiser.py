"""The optimiser against brute force, and its constraints on random problems."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.queueing import GradientQueue, blocking, optimise, utilisations
from mltswitch.queueing.optimiser import (
    LOSS_WEIGHT,
    MAXIMUM_UNITS,
    PACKET_WEIGHT,
    RoundsCurve,
    least_buffer_packets,
)
from mltswitch.queueing.paper import FloatArray


def hinge(tolerance: float, slope: float) -> RoundsCurve:
    def curve(loss: FloatArray) -> FloatArray:
        return slope * np.maximum(0.0, loss - tolerance)

    return curve


@st.composite
def problems(draw: st.DrawFn, queues: st.SearchStrategy[int]) -> list[GradientQueue]:
    count = draw(queues)
    loads = draw(st.lists(st.floats(0.01, 0.6), min_size=count, max_size=count))
    return [
        GradientQueue(
            utilisation=float(rho),
            unimportant_share=draw(st.floats(0.1, 0.9)),
            byte_share=load / sum(loads),
            rounds_unimportant=hinge(draw(st.floats(0, 0.2)), draw(st.floats(0, 5))),
            rounds_important=hinge(draw(st.floats(0, 0.05)), draw(st.floats(0, 50))),
        )
        for rho, load in zip(utilisations(loads), loads, strict=True)
    ]


def cost(
    queues: list[GradientQueue], thresholds: tuple[int, ...], limits: tuple[int, ...], hops: int
) -> float:
    """The objective once more, written without the optimiser's arrays."""
    total = 0.0
    for queue, s, limit in zip(queues, thresholds, limits, strict=True):
        split = queue.unimportant_share * s
        small = 1 - (1 - float(blocking(queue.utilisation, split))) ** hops
        large = 1 - (1 - float(blocking(queue.utilisation, limit - split))) ** hops
        loss = queue.unimportant_share * small + (1 - queue.unimportant_share) * large
        rounds = queue.rounds_unimportant(np.array(small)) + queue.rounds_important(np.array(large))
        total += float(rounds) + LOSS_WEIGHT * queue.byte_share * loss + PACKET_WEIGHT * limit
    return total


def brute_force(queues: list[GradientQueue], buffer_packets: int, hops: int) -> float:
    best = float("inf")
    sizes = range(1, buffer_packets + 1)
    for limits in product(sizes, repeat=len(queues)):
        if sum(limits) > buffer_packets:
            continue
        for thresholds in product(*(range(1, limit + 1) for limit in limits)):
            if all(a < b for a, b in pairwise(thresholds)):
                best = min(best, cost(queues, thresholds, limits, hops))
    return best


@settings(max_examples=40, deadline=None)
@given(queues=problems(st.integers(1, 3)), extra=st.integers(0, 5), hops=st.integers(1, 3))
def test_equals_brute_force(queues: list[GradientQueue], extra: int, hops: int) -> None:
    buffer_packets = least_buffer_packets(len(queues)) + extra
    found = optimise(queues, buffer_packets, hops)
    assert found.is_global
    reached = cost(queues, found.ecn_thresholds_packets, found.limits_packets, hops)
    assert reached == pytest.approx(brute_force(queues, buffer_packets, hops), rel=1e-9, abs=1e-15)


@settings(max_examples=30, deadline=None)
@given(queues=problems(st.integers(1, 8)), buffer_packets=st.integers(36, 900), hops=st.integers(1, 3))
def test_keeps_its_constraints(queues: list[GradientQueue], buffer_packets: int, hops: int) -> None:
    found = optimise(queues, buffer_packets, hops)
    thresholds, limits = found.ecn_thresholds_packets, found.limits_packets
    assert sum(limits) <= buffer_packets
    assert thresholds[0] >= 1
    assert all(limit >= s for s, limit in zip(thresholds, limits, strict=True))
    assert all(low < high for low, high in pairwise(thresholds))
    assert found == optimise(queues, buffer_packets, hops)


@settings(max_examples=10, deadline=None)
@given(queues=problems(st.integers(2, 4)))
def test_refined_grid_is_near_the_complete_search(queues: list[GradientQueue]) -> None:
    """Above MAXIMUM_UNITS the search is coarse; it must not lose against a smaller buffer, searched fully."""
    complete = optimise(queues, MAXIMUM_UNITS, 3)
    larger = optimise(queues, MAXIMUM_UNITS + 40, 3)
    assert not larger.is_global
    assert larger.extra_rounds <= complete.extra_rounds + 0.005 * complete.extra_rounds + 1e-6


def test_a_flat_optimum_takes_no_more_buffer_than_it_needs() -> None:
    queue = GradientQueue(0.3, 0.5, 1.0, hinge(0.5, 1), hinge(0.5, 1))
    found = optimise([queue], 190, 1)
    assert found.limits_packets[0] < 60
    assert found.byte_weighted_loss < 1e-8


def test_fragile_important_gradients_get_the_buffer() -> None:
    queue = GradientQueue(1.1, 0.5, 1.0, hinge(0.5, 1), hinge(0.1, 50))
    found = optimise([queue], 30, 1)
    assert found.ecn_thresholds_packets[0] < found.limits_packets[0] == 30


def test_many_queues_in_a_small_buffer_still_rise() -> None:
    """The grid is never so coarse that it has fewer steps than the queues need."""
    queues = [GradientQueue(0.05, 0.5, 1 / 14, hinge(0, 1), hinge(0, 1))] * 14
    found = optimise(queues, 2 * least_buffer_packets(14) - 1, 1)
    assert sum(found.limits_packets) <= 2 * least_buffer_packets(14) - 1
    assert all(low < high for low, high in pairwise(found.ecn_thresholds_packets))


def test_too_small_a_buffer() -> None:
    queue = GradientQueue(0.5, 0.5, 0.5, hinge(0, 1), hinge(0, 1))
    with pytest.raises(ValueError, match="at least 3 packets"):
        optimise([queue, queue], 2, 1)
