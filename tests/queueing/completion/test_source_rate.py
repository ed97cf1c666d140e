"""Bursts that take time to arrive."""

from dataclasses import replace

import pytest

from mltswitch.queueing import Batch, Port, QueueThresholds, QueueTraffic, SimulationSettings, predict

THRESHOLDS = [QueueThresholds(6, 24), QueueThresholds(16, 48)]


def bursts(source_rate_ratio: float) -> list[QueueTraffic]:
    arrivals = Batch(8, "fixed", source_rate_ratio)
    return [QueueTraffic(0.3, 0.5, arrivals), QueueTraffic(0.6, 0.5, arrivals, "burst")]


def test_very_fast_senders_are_bursts_at_once() -> None:
    at_once = predict(Port(), bursts(float("inf")), THRESHOLDS)
    for fast, found in zip(predict(Port(), bursts(1e9), THRESHOLDS), at_once, strict=True):
        assert fast.loss_unimportant == pytest.approx(found.loss_unimportant, rel=0.3)
        assert fast.mean_delay_packet_times == pytest.approx(found.mean_delay_packet_times, rel=0.3)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_slow_senders_lose_less_and_about_as_simulated(ratio: float) -> None:
    pytest.importorskip("numba")
    found = predict(Port(), bursts(ratio), THRESHOLDS)
    settings = SimulationSettings(2_000_000)
    simulated = predict(Port(), bursts(ratio), THRESHOLDS, "simulate", simulation=settings)
    at_once = predict(Port(), bursts(float("inf")), THRESHOLDS)
    # The class below may lose more: the class above drops less.
    assert found[0].loss_unimportant < at_once[0].loss_unimportant
    for queue, referee in zip(found, simulated, strict=True):
        assert queue.loss_unimportant == pytest.approx(referee.loss_unimportant, rel=0.3)
        assert queue.mean_delay_packet_times == pytest.approx(referee.mean_delay_packet_times, rel=0.1)


def test_closed_thresholds_stay_closed() -> None:
    traffic = [replace(entry, importance="packet") for entry in bursts(1.0)]
    closed, open_ = predict(Port(), traffic, [QueueThresholds(0, 0), QueueThresholds(0, 48)])
    assert closed.loss_important == 1
    assert open_.loss_unimportant == 1
    assert open_.loss_important < 1
