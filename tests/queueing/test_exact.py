"""The exact chain against textbook formulas, so that what is held against it holds."""

import pytest

from mltswitch.queueing import Batch, Port, QueueThresholds, QueueTraffic, Trace
from tests.queueing.exact import (
    batch_md1_mean_wait,
    chain_losses,
    md1_mean_wait,
    mm1k_loss,
    priority_mean_waits,
    solve_chain,
)

ENDLESS = QueueThresholds(None, 110)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_a_long_queue_is_md1(load: float) -> None:
    (queue,) = solve_chain(Port(), [QueueTraffic(load, 0.5)], [ENDLESS])
    assert queue.mean_delay_packet_times == pytest.approx(md1_mean_wait(load), rel=1e-6)
    assert queue.mean_queue_packets == pytest.approx(load * md1_mean_wait(load), rel=1e-6)
    assert sum(queue.queue_probabilities) == pytest.approx(1)


def test_bursts_wait_for_their_own_first_packets() -> None:
    (queue,) = solve_chain(Port(), [QueueTraffic(0.4, 0.5, Batch(5))], [ENDLESS])
    assert queue.mean_delay_packet_times == pytest.approx(batch_md1_mean_wait(0.4, 5), rel=1e-6)


def test_lower_classes_wait_for_the_higher_ones() -> None:
    traffic = [QueueTraffic(0.3, 0.5, Batch(4)), QueueTraffic(0.3, 0.5, Batch(2))]
    limits = [QueueThresholds(None, 40), QueueThresholds(None, 90)]
    waits = [queue.mean_delay_packet_times for queue in solve_chain(Port(), traffic, limits)]
    assert waits == pytest.approx(priority_mean_waits([0.3, 0.3], [4, 2]), rel=1e-6)


def test_one_place_is_the_formula_of_erlang() -> None:
    """Without waiting room a packet is lost exactly while another is sent: load / (1 + load)."""
    (losses,) = chain_losses(
        Port(count_in_service=True), [QueueTraffic(0.7, 0.5)], [QueueThresholds(None, 1)]
    )
    assert losses == pytest.approx((0.7 / 1.7, 0.7 / 1.7), rel=1e-12)
    assert mm1k_loss(0.7, 1) == pytest.approx(0.7 / 1.7)


def test_a_trace_of_one_size_is_a_batch() -> None:
    thresholds = [QueueThresholds(3, 6)]
    as_batch = chain_losses(Port(), [QueueTraffic(0.7, 0.4, Batch(3))], thresholds)
    as_trace = chain_losses(Port(), [QueueTraffic(0.7, 0.4, Trace((3,), (1.0,)))], thresholds)
    assert as_batch[0] == pytest.approx(as_trace[0], rel=1e-12)


def test_a_geometric_burst_of_mean_one_is_a_packet() -> None:
    thresholds = [QueueThresholds(2, 4)]
    single = chain_losses(Port(), [QueueTraffic(0.9, 0.4)], thresholds)
    geometric = chain_losses(Port(), [QueueTraffic(0.9, 0.4, Batch(1, "geometric"))], thresholds)
    assert single[0] == pytest.approx(geometric[0], rel=1e-12)
