"""The two plain simulators against the exact chain, from fixed seeds."""

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev

import pytest

from benchmarks.des_library import simulate_simpy
from benchmarks.heap_simulator import Tally, simulate_heap
from mltswitch.errors import UserInputError
from mltswitch.queueing import Batch, Incast, Port, QueueThresholds, QueueTraffic
from tests.queueing.exact import mm1k_loss, solve_chain

Simulate = Callable[
    [Port, Sequence[QueueTraffic], Sequence[QueueThresholds], int, int],
    list[Tally],
]
RUNS = 8
WITHIN = 4.0
"""Standard errors; the seeds are fixed, so a pass stays a pass."""

TRAFFIC = (
    QueueTraffic(0.3, 0.5, Batch(2.5, "geometric"), "burst"),
    QueueTraffic(0.2, 0.4),
    QueueTraffic(0.5, 0.3, Batch(6)),
)
THRESHOLDS = (QueueThresholds(2.5, 5.5), QueueThresholds(1, 3), QueueThresholds(4, 9))
BOTH = pytest.mark.parametrize(("simulate", "packets"), [(simulate_heap, 20_000), (simulate_simpy, 10_000)])


def is_near(figures: Sequence[float], exact: float) -> bool:
    error = stdev(figures) / sqrt(len(figures))
    return abs(fmean(figures) - exact) <= WITHIN * error + 1e-12


@BOTH
@pytest.mark.parametrize("count_in_service", [False, True])
def test_losses_and_delays_are_those_of_the_chain(
    simulate: Simulate, packets: int, count_in_service: bool
) -> None:
    port = Port(count_in_service=count_in_service)
    exact = solve_chain(port, TRAFFIC, THRESHOLDS)
    runs = [simulate(port, TRAFFIC, THRESHOLDS, packets, seed) for seed in range(RUNS)]
    for queue, expected in enumerate(exact):
        for name in ("loss_unimportant", "loss_important", "mean_delay_packet_times"):
            found = [getattr(run[queue], name) for run in runs]
            assert is_near(found, getattr(expected, name)), (queue, name, found)


@BOTH
def test_exponential_service_is_mm1k(simulate: Simulate, packets: int) -> None:
    port = Port(service="exponential", count_in_service=True)
    runs = [
        simulate(port, [QueueTraffic(0.9, 0.5)], [QueueThresholds(None, 6)], packets, seed)
        for seed in range(RUNS)
    ]
    assert is_near([run[0].loss_important for run in runs], mm1k_loss(0.9, 6))


@BOTH
def test_what_they_do_not_know_they_refuse(simulate: Simulate, packets: int) -> None:
    with pytest.raises(UserInputError, match="Poisson and batch"):
        simulate(Port(), [QueueTraffic(0.5, 0.5, Incast(4, 8))], [QueueThresholds(4, 8)], packets, 1)
    with pytest.raises(UserInputError, match="plain thresholds"):
        simulate(Port(buffer_packets=9), [QueueTraffic(0.5, 0.5)], [QueueThresholds(4, 8)], packets, 1)
