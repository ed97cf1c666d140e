"""Shares of each policy, from the first bursts on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.hostagent.spraying.policies import CYCLES, Sequencer, by_delay, by_loss, sequencer_for
from mltswitch.hostagent.spraying.settings import Policy, SprayingSettings

SETTINGS = SprayingSettings()
IN_TURN, RANDOM, EVEN = Policy.ROUND_ROBIN, Policy.RANDOM, Policy.LEAST_LOSS


def sequencer(policy: Policy, shares: list[float], seed: int = 0) -> Sequencer:
    made = sequencer_for(policy, np.random.default_rng(seed))
    made.share(np.array(shares))
    return made


def drawn(policy: Policy, shares: list[float], calls: list[int], seed: int = 0) -> NDArray[np.int64]:
    made = sequencer(policy, shares, seed)
    return np.concatenate([made.draw(bursts) for bursts in calls])


@given(st.integers(1, 64), st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 1000))
def test_in_turn_no_path_is_more_than_one_ahead(paths: int, calls: list[int], seed: int) -> None:
    """However the bursts are cut into calls; each full cycle holds every path once."""
    found = drawn(IN_TURN, [1.0] * paths, calls, seed)
    assert len(found) == sum(calls)
    for cycle in range(len(found) // paths):
        assert sorted(found[cycle * paths : (cycle + 1) * paths]) == list(range(paths))
    counts = np.bincount(found, minlength=paths)
    assert counts.max() - counts.min() <= 1


def test_in_turn_the_order_changes_from_cycle_to_cycle() -> None:
    found = drawn(IN_TURN, [1.0] * 4, [4 * CYCLES])
    assert len({tuple(cycle) for cycle in found.reshape(-1, 4).tolist()}) > CYCLES / 2


@pytest.mark.parametrize("policy", [IN_TURN, EVEN])
@given(
    st.lists(st.sampled_from([0.0, 0.0625, 0.25, 0.5, 1.0]), min_size=1, max_size=16).filter(any),
    st.integers(0, 1000),
)
def test_shares_are_kept_closely(policy: Policy, shares: list[float], seed: int) -> None:
    if policy is IN_TURN:
        shares = [*shares, 1.0]  # shares are kept in sixteenths of the largest
    bursts = round(CYCLES * sum(shares) / max(shares)) * 8
    counts = np.bincount(drawn(policy, shares, [bursts], seed), minlength=len(shares))
    expected = bursts * np.array(shares) / sum(shares)
    assert np.all(np.abs(counts - expected) <= (0 if policy is IN_TURN else 6))


@pytest.mark.parametrize("shares", [[1.0] * 4, [1.0, 0.25, 0.0, 0.5]])
def test_at_random_shares_are_kept_in_the_mean(shares: list[float]) -> None:
    bursts = 100_000
    expected = np.array(shares) / sum(shares)
    found = drawn(RANDOM, shares, [bursts])
    counts = np.bincount(found, minlength=4)
    assert np.all(np.abs(counts / bursts - expected) <= 5 * np.sqrt(expected * (1 - expected) / bursts))
    again = np.mean(found[1:] == found[:-1])
    assert abs(again - np.sum(expected**2)) < 0.01, "a burst does not depend on the one before"


@pytest.mark.parametrize("policy", list(Policy))
def test_the_seed_decides(policy: Policy) -> None:
    one, same, other = (drawn(policy, [1.0] * 4, [100], seed).tolist() for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("policy", list(Policy))
def test_a_path_without_a_share_gets_nothing(policy: Policy) -> None:
    for shares in ([0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]):
        assert set(drawn(policy, shares, [1000]).tolist()) == {shares.index(1.0)}


def test_twice_the_delay_is_a_quarter_of_the_share() -> None:
    floor_ns = SETTINGS.delay_floor_ns
    shares = by_delay([10**6, 2 * 10**6 + floor_ns, None, 10**9], SETTINGS)
    assert shares.tolist() == pytest.approx([1.0, 0.25, 1.0, SETTINGS.least_share])
    assert by_delay([None, None], SETTINGS).tolist() == [1.0, 1.0]


def test_delays_that_only_batches_make_hardly_matter() -> None:
    assert by_delay([1_000, 6_000], SETTINGS).min() > 0.8


def test_one_percent_more_loss_is_half_of_the_share() -> None:
    shares = by_loss([0.01, 0.02, None, 0.9], SETTINGS)
    assert shares.tolist() == pytest.approx([1.0, 0.5, 1.0, SETTINGS.least_share])
    assert by_loss([None], SETTINGS).tolist() == [1.0]
