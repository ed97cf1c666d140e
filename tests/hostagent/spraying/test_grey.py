"""The test for grey paths: how soon it convicts, and that sound paths go free however losses come."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.hostagent.spraying.grey import GreyTest
from mltswitch.hostagent.spraying.settings import SprayingSettings

SETTINGS = SprayingSettings()
BLOCK = SETTINGS.block_packets
Losses = Callable[[np.random.Generator, int], NDArray[Any]]


def blocks_until_grey(random: np.random.Generator, losses: Losses, most: int, paths: int) -> dict[int, int]:
    """Path → blocks until it was called grey; paths called grey are left out from then on."""
    test = GreyTest(paths, SETTINGS)
    found: dict[int, int] = {}
    for block in range(1, most + 1):
        lost = losses(random, block)
        for path in range(paths):
            for grey in test.settled(path, BLOCK, int(lost[path])).grey:
                found[grey] = block
                test.leave(grey)
    return found


def constant(*shares: float) -> Losses:
    return lambda random, _: random.binomial(BLOCK, shares)


def whole_bursts(packets: int, share: float, paths: int) -> Losses:
    return lambda random, _: packets * random.binomial(BLOCK // packets, share, paths)


def congestion(paths: int) -> Losses:
    """Every tenth block another state of a queue that all paths share: none, 5 % or 30 % loss."""
    state = {"share": 0.0}

    def losses(random: np.random.Generator, block: int) -> NDArray[Any]:
        if block % 10 == 1:
            state["share"] = random.choice([0.0, 0.05, 0.3])
        return random.binomial(BLOCK, state["share"], paths)

    return losses


@pytest.mark.parametrize(
    ("shares", "packets"),
    [
        ((0.05, 0, 0, 0), 6_000),
        ((0.05, 0), 6_000),
        ((0.05, 0.005, 0.005, 0.005), 10_000),
        ((0.06, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01), 10_000),
        ((0.1, 0.05, 0.05, 0.05), 20_000),
        ((0.5, 0, 0, 0), 2_600),
    ],
)
def test_one_grey_path_is_noticed_within_so_many_of_its_packets(
    shares: tuple[float, ...], packets: int
) -> None:
    for seed in range(40):
        found = blocks_until_grey(
            np.random.default_rng(seed), constant(*shares), packets // BLOCK, len(shares)
        )
        assert list(found) == [0], seed


def test_two_of_four_are_noticed_both() -> None:
    for seed in range(20):
        found = blocks_until_grey(np.random.default_rng(seed), constant(0.05, 0.05, 0, 0), 8_000 // BLOCK, 4)
        assert sorted(found) == [0, 1]


@pytest.mark.parametrize(
    "losses",
    [
        *(constant(share, share, share, share) for share in (0.0, 0.001, 0.005, 0.02, 0.05, 0.2)),
        constant(0.005, 0, 0, 0),
        constant(0.01, 0, 0, 0),
        congestion(4),
        whole_bursts(16, 0.05, 4),
        whole_bursts(16, 0.2, 4),
        whole_bursts(45, 0.05, 4),
        whole_bursts(64, 0.3, 4),
    ],
)
def test_sound_paths_go_free(losses: Losses) -> None:
    """8 · 500 blocks: 512,000 packets on each of four paths."""
    for seed in range(8):
        assert blocks_until_grey(np.random.default_rng(seed), losses, 500, 4) == {}


def test_the_bound_of_false_alarms_holds_for_any_losses() -> None:
    """The worst that like paths can do: two of four lie far above the other two, drawn anew in each block."""

    def losses(random: np.random.Generator, _: int) -> NDArray[Any]:
        return random.permutation(np.array([60, 60, 0, 0]))

    alarms = sum(len(blocks_until_grey(np.random.default_rng(seed), losses, 500, 4)) for seed in range(8))
    assert alarms <= 1


def test_a_path_that_came_back_is_convicted_sooner() -> None:
    random = np.random.default_rng(1)
    test = GreyTest(4, SETTINGS)
    test.leave(0)
    test.come_back(0)
    convicted: list[int] = []
    for _ in range(11):
        lost = random.binomial(BLOCK, [0.1, 0, 0, 0])
        convicted += [grey for path in range(4) for grey in test.settled(path, BLOCK, int(lost[path])).grey]
    assert set(convicted) == {0}


def test_a_path_that_came_back_and_is_sound_is_cleared_in_four_blocks() -> None:
    test = GreyTest(4, SETTINGS)
    test.leave(0)
    test.come_back(0)
    for _ in range(3):
        assert all(0 not in test.settled(path, BLOCK, 0).sound for path in range(4))
    assert any(0 in test.settled(path, BLOCK, 0).sound for path in range(4))


def test_a_path_with_few_packets_is_not_judged_and_stops_nobody() -> None:
    test = GreyTest(3, SETTINGS)
    for _ in range(20 * 6 + 1):
        verdicts = [
            test.settled(path, packets, lost)
            for path, packets, lost in ((0, BLOCK, 0), (1, BLOCK, 12), (2, 2, 0))
        ]
        if any(1 in verdict.grey for verdict in verdicts):
            break
    else:
        pytest.fail("a path that loses 9 % was not noticed")
    assert test.loss_share(2) is None
    assert test.loss_share(1) == pytest.approx(12 / BLOCK)


def test_a_single_path_is_compared_with_nothing() -> None:
    assert blocks_until_grey(np.random.default_rng(0), constant(0.5), 500, 1) == {}
