"""Weights of paths by each policy."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.spraying.shares import DELAY_FLOOR_SECONDS, FULL_WEIGHT, Policy, path_weights
from mltswitch.hostagent.transport.records import PathSnapshot
from tests.hostagent.telemetry.examples import PATH


def path(
    number: int, round_trip_seconds: float | None = None, arrived: int = 0, lost: int = 0
) -> PathSnapshot:
    counted = replace(PATH, acknowledged_packets=arrived, lost_packets=lost)
    return replace(counted, path=number, round_trip_seconds=round_trip_seconds)


def by_delay(*round_trips: float | None) -> tuple[int, ...]:
    return path_weights(Policy.LEAST_DELAY, [path(*entry) for entry in enumerate(round_trips)])


def by_loss(*counts: tuple[int, int], before: tuple[tuple[int, int], ...] = ()) -> tuple[int, ...]:
    now, then = (
        [path(number, None, *entry) for number, entry in enumerate(each)] for each in (counts, before)
    )
    return path_weights(Policy.LEAST_LOSS, now, then)


@given(
    st.sampled_from(Policy),
    st.lists(
        st.tuples(st.none() | st.floats(0, 10), st.integers(0, 10**12), st.integers(0, 10**12)), max_size=64
    ),
)
def test_each_path_has_a_weight_and_the_best_one_all_of_it(
    policy: Policy, values: list[tuple[float | None, int, int]]
) -> None:
    weights = path_weights(policy, [path(number, *entry) for number, entry in enumerate(values)])
    assert len(weights) == len(values)
    assert all(1 <= weight <= FULL_WEIGHT for weight in weights)
    assert not weights or max(weights) == FULL_WEIGHT


@pytest.mark.parametrize("policy", [Policy.ROUND_ROBIN, Policy.RANDOM])
def test_these_treat_all_alike(policy: Policy) -> None:
    assert len(set(path_weights(policy, [path(0, 0.1, 9, 1), path(1, 0.001, 10, 0), path(2)]))) == 1
    assert not policy.is_adaptive


def test_twice_the_delay_is_a_quarter_of_the_weight() -> None:
    assert by_delay(0.001, 0.002 + DELAY_FLOOR_SECONDS, None, 1.0) == (1000, 250, 1000, 50)
    assert by_delay(None, None) == (1000, 1000)


def test_delays_that_only_batches_make_hardly_matter() -> None:
    assert min(by_delay(1e-6, 6e-6)) > 800


def test_one_percent_more_loss_is_half_of_the_weight() -> None:
    assert by_loss((99, 1), (98, 2), (0, 0), (10, 90)) == (1000, 500, 1000, 50)


def test_losses_of_long_ago_do_not_count() -> None:
    assert by_loss((1000, 500), (1000, 0), before=((0, 500), (0, 0))) == (1000, 1000)
    assert by_loss((1000, 500), (1000, 0), before=((1000, 500), (0, 0))) == (1000, 1000)
