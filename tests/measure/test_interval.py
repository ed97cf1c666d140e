"""Intervals of measured losses: they cover the truth as often as they say, also for bursts."""

import numpy as np
import pytest

from mltswitch.measure.probe import BLOCKS, by_block, loss_half_width

LOSS = 0.1
BURST = 8


def test_every_packet_falls_into_one_block() -> None:
    counts = by_block(np.linspace(0.0, 5.0, 1001), 5.0)
    assert counts.sum() == 1001
    assert len(counts) == BLOCKS
    assert counts.min() >= 49


def test_bursts_that_share_their_fate_are_covered() -> None:
    """Whole bursts are lost or not: binomial intervals of packets would be sqrt(8) times too narrow."""
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        sent = generator.poisson(50, BLOCKS) * BURST
        lost = generator.binomial(sent // BURST, LOSS) * BURST
        width = loss_half_width(sent, lost, BURST)
        assert width is not None
        covered += abs(lost.sum() / sent.sum() - LOSS) <= width
    assert 0.91 <= covered / 400 <= 0.985


def test_none_lost_is_not_none_possible() -> None:
    sent = np.full(BLOCKS, 40)
    width = loss_half_width(sent, np.zeros(BLOCKS, dtype=np.int64), BURST)
    assert width == pytest.approx(3 * BURST / 800)


def test_nothing_sent_says_nothing() -> None:
    nothing = np.zeros(BLOCKS, dtype=np.int64)
    assert loss_half_width(nothing, nothing, 1) is None
