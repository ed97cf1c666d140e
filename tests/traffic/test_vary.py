"""A bare problem at other loads, bursts and buffers."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.queueing import (
    Batch,
    Incast,
    Poisson,
    Port,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    Trace,
    predict,
)
from mltswitch.traffic.vary import Problem, ProblemCells, vary

PROBLEM: Problem = (
    Port(),
    (QueueTraffic(0.2, 0.5, Batch(8, "geometric", 2.0)), QueueTraffic(0.6, 0.3)),
    (QueueThresholds(8, 16), QueueThresholds(None, 48)),
)


def test_nothing_changed_is_the_same_problem() -> None:
    assert vary(PROBLEM) == PROBLEM


@given(load=st.floats(0, 10))
def test_queues_keep_their_part_of_the_load(load: float) -> None:
    _, traffic, _ = vary(PROBLEM, load=load)
    assert fsum(queue.load for queue in traffic) == pytest.approx(load)
    assert traffic[1].load == pytest.approx(3 * traffic[0].load)


def test_bursts_keep_what_else_is_known_of_them() -> None:
    _, traffic, _ = vary(PROBLEM, burst_packets=4)
    assert [queue.arrivals for queue in traffic] == [Batch(4, "geometric", 2.0), Batch(4)]
    others = (
        QueueTraffic(0.1, arrivals=Incast(4, 16)),
        QueueTraffic(0.1, arrivals=Trace((1, 9), (0.5, 0.5), 2)),
    )
    limits = (QueueThresholds(None, 8), QueueThresholds(None, 8))
    _, traffic, _ = vary((Port(), others, limits), burst_packets=2)
    assert [queue.arrivals for queue in traffic] == [
        Incast(4, 16, burst_packets=2),
        Batch(2, source_rate_ratio=2),
    ]
    _, traffic, _ = vary(PROBLEM, burst_packets=1)
    assert traffic[1].arrivals == Poisson()


@pytest.mark.parametrize(("port", "buffer"), [(Port(), 32), (Port(buffer_packets=100), 50)])
def test_thresholds_follow_the_buffer(port: Port, buffer: float) -> None:
    changed, _, thresholds = vary((port, *PROBLEM[1:]), buffer_packets=buffer)
    assert thresholds == [QueueThresholds(4, 8), QueueThresholds(None, 24)]
    assert changed.buffer_packets == (port.buffer_packets and buffer)


def test_what_cannot_be_scaled() -> None:
    idle = (Port(), (QueueTraffic(0.0),), (QueueThresholds(None, 0),))
    with pytest.raises(UserInputError, match=r"^load: no queue offers a load"):
        vary(idle, load=0.5)
    with pytest.raises(UserInputError, match=r"^queues: no queue has a length"):
        vary(idle, buffer_packets=5)


def test_a_cell_has_a_row_for_each_queue() -> None:
    rows = ProblemCells(PROBLEM, SimulationSettings())((0.4, None, None, "paper"))
    expected = predict(*vary(PROBLEM, load=0.4), model="paper")
    assert [row["loss_unimportant"] for row in rows] == [entry.loss_unimportant for entry in expected]
    assert [(row["queue"], row["buffer_packets"], row["class_burst_packets"]) for row in rows] == [
        (0, 64, 8),
        (1, 64, 1),
    ]
