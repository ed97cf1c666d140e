"""The replay of a Linux port: plain it is the port of the loss models, and each of Linux's ways shows."""

import numpy as np
import pytest

from benchmarks.linux_port import AVERAGING, PLAIN, SURVIVING, PortModel, replay
from mltswitch.measure.schedule import Flow, Schedule, merged, packets_at, poisson_bursts
from mltswitch.queueing import Batch, QueueThresholds, QueueTraffic, predict
from mltswitch.queueing.problem import Port

PACKETS = 60_000.0
THRESHOLDS = (QueueThresholds(8, 20), QueueThresholds(16, 32))


def burst_at(*times: float, packets: int, position: int = 0, is_important: bool = False) -> Schedule:
    return packets_at(np.repeat(np.array(times), packets), position, (is_important,))


def lost_packets(schedule: Schedule, model: PortModel, position: int = 0) -> int:
    """Packets of one class that are lost."""
    loss = replay(schedule, THRESHOLDS, 1.0, model)[position].loss
    mine = schedule.class_index == position
    important = schedule.is_important[mine]
    return round(float(loss[0] * np.sum(~important) + loss[1] * np.sum(important)))


def test_plain_it_is_the_port_of_the_models() -> None:
    flows = [Flow(0, 0.4, 8, 0.5, "burst"), Flow(1, 0.6, 8, 0.5, "burst")]
    sent = poisson_bursts(flows, PACKETS, seed=3)
    found = replay(sent, THRESHOLDS, 1.0, PLAIN)
    traffic = [QueueTraffic(load, 0.5, Batch(8), "burst") for load in (0.4, 0.6)]
    for one, expected in zip(found, predict(Port(), traffic, THRESHOLDS), strict=True):
        assert one.loss[0] == pytest.approx(expected.loss_unimportant, rel=0.15)
        assert one.p50_packet_times == pytest.approx(expected.p50_delay_packet_times, rel=0.1)


def test_thresholds_of_a_burst_into_an_empty_port() -> None:
    """One packet is in transmission, S = 8 or L = 20 wait."""
    assert lost_packets(burst_at(0.0, packets=12), PLAIN) == 12 - 9
    assert lost_packets(burst_at(0.0, packets=24, is_important=True), PLAIN) == 24 - 21


def test_the_average_lags_behind_a_burst() -> None:
    assert lost_packets(burst_at(0.0, packets=12), AVERAGING) == 12 - 10


def test_the_average_survives_an_empty_queue_below_a_shaper() -> None:
    sent = merged([burst_at(0.0, packets=40, is_important=True), burst_at(1000.0, packets=10)])
    assert lost_packets(sent, AVERAGING) == 19
    assert lost_packets(sent, SURVIVING) == 19 + 1


def test_a_class_below_tells_red_that_its_queue_is_empty() -> None:
    first = burst_at(0.0, packets=40, is_important=True)
    below = burst_at(500.0, packets=1, position=1)
    second = burst_at(1000.0, packets=10)
    assert lost_packets(merged([first, below, second]), SURVIVING) == 19


def test_the_bucket_lets_the_first_packets_pass() -> None:
    assert lost_packets(burst_at(0.0, packets=20), PortModel(bucket_packets=6.0)) == 20 - 14


def test_strict_priority() -> None:
    sent = merged(
        [burst_at(0.0, packets=5, position=1, is_important=True), burst_at(0.5, packets=5, is_important=True)]
    )
    high, low = replay(sent, THRESHOLDS, 1.0, PLAIN)
    assert high.p50_packet_times == pytest.approx(2.5)
    assert low.p50_packet_times == pytest.approx(7.0)
