"""What is lost: whole packets, of the right kind, as many as the ratio says, and nothing else."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.training.tolerance.loss import (
    PAYLOAD_BYTES,
    Gradient,
    Importance,
    Loss,
    Tally,
    important_packets,
    lose,
)

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=5)
PER_PACKET = st.integers(1, 12)
RATIO = st.floats(0, 1)


def gradients_of(sizes: list[int], seed: int) -> list[Gradient]:
    """Normal numbers, none of them 0."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size).astype(np.float32) + np.float32(1e-9) for size in sizes]


def packets(gradient: Gradient, per_packet: int) -> list[Gradient]:
    return [gradient[first : first + per_packet] for first in range(0, len(gradient), per_packet)]


def test_a_packet_carries_what_the_agents_do_over_ipv4() -> None:
    assert PAYLOAD_BYTES == 1432


@given(
    sizes=SIZES,
    per_packet=PER_PACKET,
    ratio=RATIO,
    importance=st.sampled_from(Importance),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_whole_packets_of_the_kind_and_as_many_as_the_ratio_says(
    sizes: list[int], per_packet: int, ratio: float, importance: Importance, seed: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(sizes) - 1))
    last = data.draw(st.integers(first, len(sizes) - 1))
    before, after = gradients_of(sizes, seed), gradients_of(sizes, seed)
    tally = Tally()
    loss = Loss(first, last, importance, ratio)
    lose(after, [per_packet] * len(sizes), [loss], np.random.default_rng(seed), tally)
    kind = lost = total = 0
    for layer, (old, new) in enumerate(zip(before, after, strict=True)):
        # Fewer than 64 packets: the sample is all of them, wherever it begins.
        important = important_packets(old, per_packet, 0)
        is_eligible = np.full(len(important), importance is Importance.ANY)
        is_eligible |= important == (importance is Importance.IMPORTANT)
        for flag, was, now in zip(
            is_eligible, packets(old, per_packet), packets(new, per_packet), strict=True
        ):
            if np.array_equal(was, now):
                continue
            assert not now.any()
            assert flag
            assert first <= layer <= last
            lost += 1
        if first <= layer <= last:
            kind += int(is_eligible.sum())
            total += len(important)
    assert (tally.packets, tally.eligible, tally.lost) == (total, kind, lost)
    assert lost in {math.floor(ratio * kind), math.ceil(ratio * kind), math.floor(ratio * kind) + 1}


@given(size=st.integers(1, 63), per_packet=PER_PACKET, start=st.integers(0, 100), seed=st.integers(0, 1000))
def test_importance_splits_at_the_median_of_packet_means(
    size: int, per_packet: int, start: int, seed: int
) -> None:
    (gradient,) = gradients_of([size], seed)
    means = [float(np.abs(packet).mean()) for packet in packets(gradient, per_packet)]
    median = sorted(means)[len(means) // 2]
    found = important_packets(gradient, per_packet, start % len(means))
    assert found.tolist() == [mean >= median for mean in means]


def test_a_large_layer_is_sampled_and_still_split_in_the_middle() -> None:
    (gradient,) = gradients_of([362 * 5000], 1)
    share = important_packets(gradient, 362, 17).mean()
    assert 0.4 < share < 0.6


def test_what_is_no_number_is_important_as_the_agent_has_it() -> None:
    gradient = np.array([1, 2, math.nan, 3], np.float32)
    assert important_packets(gradient, 1, 0)[2]


def test_the_ratio_is_met_on_average_where_a_layer_has_one_packet() -> None:
    tally, rng = Tally(), np.random.default_rng(0)
    for _ in range(4000):
        lose(gradients_of([3], 0), [10], [Loss(0, 0, Importance.ANY, 0.1)], rng, tally)
    assert tally.lost / tally.packets == pytest.approx(0.1, abs=0.015)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_several_losses_go_by_importance_before_any_of_them(seed: int) -> None:
    gradients = gradients_of([40, 40], seed)
    losses = [Loss(0, 1, Importance.UNIMPORTANT, 1), Loss(0, 1, Importance.IMPORTANT, 1)]
    lose(gradients, [4, 4], losses, np.random.default_rng(seed), Tally())
    assert not any(gradient.any() for gradient in gradients)
