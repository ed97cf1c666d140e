"""The simulator against exact results and against its own laws."""

import sys
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mltswitch.errors import MachineError, UserInputError
from mltswitch.queueing import (
    Batch,
    Incast,
    Poisson,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    Trace,
)
from mltswitch.queueing.simulation import simulate
from mltswitch.queueing.simulation.referee import replicate
from tests.queueing.exact import (
    batch_md1_mean_wait,
    mm1k_loss,
    priority_mean_waits,
    solve_chain,
)
from tests.queueing.simulation.support import ENDLESS, mean_and_error, settings


@pytest.mark.parametrize("burst", [1, 8])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_endless_queue_waits_as_long_as_theory_says(load: float, burst: int) -> None:
    traffic = [QueueTraffic(load, arrivals=Batch(burst))]
    runs = [simulate(Port(), traffic, [ENDLESS], settings(200_000, seed, 1))[0] for seed in range(12)]
    mean, error = mean_and_error([run.mean_delay_packet_times or 0.0 for run in runs])
    assert abs(mean - batch_md1_mean_wait(load, burst)) < error
    assert error < 0.2 * mean


def test_classes_wait_as_long_as_theory_says() -> None:
    loads, bursts = [0.2, 0.3, 0.3], [1, 4, 2]
    traffic = [QueueTraffic(load, arrivals=Batch(b)) for load, b in zip(loads, bursts, strict=True)]
    runs = [simulate(Port(), traffic, [ENDLESS] * 3, settings(200_000, seed, 1)) for seed in range(12)]
    for queue, expected in enumerate(priority_mean_waits(loads, bursts)):
        mean, error = mean_and_error([run[queue].mean_delay_packet_times or 0.0 for run in runs])
        assert abs(mean - expected) < error


@pytest.mark.parametrize("count_in_service", [False, True])
def test_exponential_service_loses_as_mm1k(count_in_service: bool) -> None:
    capacity = 10
    port = Port(service="exponential", count_in_service=count_in_service)
    limit = capacity if count_in_service else capacity - 1
    queue = simulate(port, [QueueTraffic(0.9)], [QueueThresholds(None, limit)], settings())[0]
    assert queue.loss_important_error is not None
    assert abs(queue.loss_important - mm1k_loss(0.9, capacity)) < 1.5 * queue.loss_important_error
    assert queue.loss_important_error < 0.1 * queue.loss_important


CHAINS = {
    "bursts": ([QueueTraffic(0.4, 0.5, Batch(4)), QueueTraffic(0.5, 0.5, Batch(4))], False),
    "counting the packet in service": (
        [QueueTraffic(0.4, 0.5, Batch(4)), QueueTraffic(0.5, 0.5, Batch(4))],
        True,
    ),
    "tag per burst": (
        [QueueTraffic(0.3, 0.5, Batch(4), "burst"), QueueTraffic(0.6, 0.3, Batch(3), "burst")],
        False,
    ),
    "geometric and trace": (
        [QueueTraffic(0.4, 0.5, Batch(3, "geometric")), QueueTraffic(0.5, 0.7, Trace((1, 6), (0.7, 0.3)))],
        False,
    ),
    "overload": ([QueueTraffic(0.7, 0.5), QueueTraffic(0.6, 0.5, Batch(2))], False),
}


@pytest.mark.parametrize("name", CHAINS)
def test_two_queues_agree_with_the_brute_force_chain(name: str) -> None:
    traffic, count_in_service = CHAINS[name]
    port = Port(count_in_service=count_in_service)
    thresholds = [QueueThresholds(2.5, 6), QueueThresholds(4, 8)]
    exact = solve_chain(port, traffic, thresholds)
    for simulated, known in zip(simulate(port, traffic, thresholds, settings()), exact, strict=True):
        assert simulated.loss_unimportant_error is not None
        assert simulated.loss_important_error is not None
        unimportant = simulated.loss_unimportant - known.loss_unimportant
        assert abs(unimportant) < 1.5 * simulated.loss_unimportant_error
        important = simulated.loss_important - known.loss_important
        assert abs(important) < 1.5 * simulated.loss_important_error
        assert simulated.loss_unimportant_error < 0.1 * simulated.loss_unimportant
        assert simulated.mark_share == pytest.approx(known.mark_share, rel=0.03)
        assert simulated.mean_delay_packet_times == pytest.approx(known.mean_delay_packet_times, rel=0.03)
        assert simulated.mean_queue_packets == pytest.approx(known.mean_queue_packets, rel=0.03)
        assert simulated.queue_probabilities is not None
        assert len(simulated.queue_probabilities) == len(known.queue_probabilities)
        assert np.abs(np.subtract(simulated.queue_probabilities, known.queue_probabilities)).max() < 0.01


def test_percentiles_of_a_burst_into_an_idle_port() -> None:
    """The packets of a rare burst of 100 wait 0, 1 … 99 packet times."""
    queue = simulate(Port(), [QueueTraffic(1e-6, arrivals=Batch(100))], [ENDLESS], settings(10_000))[0]
    assert queue.p50_delay_packet_times == pytest.approx(49, abs=0.1)
    assert queue.p99_delay_packet_times == pytest.approx(98, abs=0.1)
    assert queue.p999_delay_packet_times == pytest.approx(99, abs=0.1)
    assert queue.mean_delay_packet_times == pytest.approx(49.5)


def test_a_lone_sender_as_fast_as_the_port_never_waits() -> None:
    incast = Incast(senders=1, round_packets=64, burst_packets=8)
    queue = simulate(Port(), [QueueTraffic(0.9, 0.5, incast)], [QueueThresholds(1, 4)], settings(50_000))[0]
    assert queue.p999_delay_packet_times == 0
    assert queue.loss_unimportant == queue.loss_important == 0
    assert queue.mean_queue_packets == 0


def test_simultaneous_senders_fill_the_queue_as_counted_by_hand() -> None:
    """Four senders of 50 packets at the port's rate: three of four packets stay, up to the limit of 60."""
    incast = Incast(senders=4, round_packets=50)
    thresholds = [QueueThresholds(None, 60)]
    queue = simulate(Port(), [QueueTraffic(0.1, 0, incast)], thresholds, settings(100_000))[0]
    # Those of the 200 get through that leave within the 50 packet times of the round, and 60 that wait then.
    assert queue.loss_important == pytest.approx((200 - 50 - 60) / 200, abs=0.01)


def test_a_slow_source_loses_less_than_a_burst_at_once() -> None:
    losses = []
    for ratio in (inf, 4.0, 1.0, 0.01):
        traffic = [QueueTraffic(0.4, 0.5, Batch(16, source_rate_ratio=ratio))] * 2
        losses.append(simulate(Port(), traffic, [QueueThresholds(8, 16)] * 2, settings())[1].loss_unimportant)
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 1.3 * losses[2]


def test_thresholds_do_not_change_the_arrivals_and_the_seed_does() -> None:
    traffic = [QueueTraffic(0.5, 0.5, Batch(8)), QueueTraffic(0.5, 0.5, Batch(8))]
    loose = simulate(Port(), traffic, [QueueThresholds(8, 64)] * 2, settings())
    assert simulate(Port(), traffic, [QueueThresholds(8, 64)] * 2, settings()) == loose
    assert simulate(Port(), traffic, [QueueThresholds(8, 64)] * 2, settings(seed=2)) != loose
    offered_loose, dropped_loose, _ = replicate(Port(), traffic, [QueueThresholds(8, 64)] * 2, settings())
    offered_tight, dropped_tight, _ = replicate(Port(), traffic, [QueueThresholds(2, 5)] * 2, settings())
    assert np.array_equal(offered_loose, offered_tight)
    assert dropped_tight.sum() > 2 * dropped_loose.sum()


def test_the_spread_between_runs_is_what_the_interval_says() -> None:
    traffic, thresholds = [QueueTraffic(0.8, 0.5, Batch(8))], [QueueThresholds(8, 32)]
    runs = [simulate(Port(), traffic, thresholds, settings(50_000, seed))[0] for seed in range(60)]
    truth = np.mean([run.loss_unimportant for run in runs])
    inside = [abs(run.loss_unimportant - truth) <= (run.loss_unimportant_error or 0) for run in runs]
    assert 0.85 < np.mean(inside) <= 1


def test_a_silent_port() -> None:
    queues = simulate(Port(), [QueueTraffic(0.0), QueueTraffic(0.0)], [QueueThresholds(2, 4)] * 2, settings())
    assert queues[0].loss_important == 0
    assert queues[0].mean_delay_packet_times is None
    assert queues[0].queue_probabilities == (1, 0, 0, 0, 0)


def test_a_queue_that_is_never_served_has_no_delay() -> None:
    queues = simulate(
        Port(), [QueueTraffic(3.0), QueueTraffic(0.1)], [QueueThresholds(None, 9)] * 2, settings()
    )
    assert queues[1].loss_important > 0.99
    assert queues[1].queue_probabilities is not None
    assert queues[1].queue_probabilities[-1] > 0.99


@pytest.mark.parametrize(
    ("name", "value"),
    [("packets", 0), ("seed", -1), ("replications", 0), ("warmup_share", -0.1), ("warmup_share", inf)],
)
def test_impossible_settings_are_named(name: str, value: float) -> None:
    impossible = replace(SimulationSettings(), **{name: value})  # type: ignore[arg-type]
    with pytest.raises(UserInputError) as caught:
        simulate(Port(), [QueueTraffic(0.5)], [ENDLESS], impossible)
    assert caught.value.where == f"simulation.{name}"


def test_without_numba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("simulation.engine", "jit", "verdict"):
        monkeypatch.delitem(sys.modules, f"mltswitch.queueing.{module}", raising=False)
    monkeypatch.delattr("mltswitch.queueing.simulation.engine", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MachineError) as caught:
        simulate(Port(), [QueueTraffic(0.5)], [ENDLESS], settings())
    assert "mltswitch[sim]" in caught.value.hint


ARRIVALS = st.one_of(
    st.just(Poisson()),
    st.builds(
        Batch,
        st.integers(1, 20),
        st.sampled_from(["fixed", "geometric"]),
        st.sampled_from([0.05, 1.0, 4.0, inf]),
    ),
    st.builds(
        Incast,
        st.integers(1, 12),
        st.integers(1, 20),
        st.sampled_from([0.0, 5.0, 5000.0]),
        st.integers(1, 8),
        st.sampled_from([0.3, 1.0, inf]),
    ),
    st.just(Trace((2, 5, 9), (0.5, 0.25, 0.25), 2.0)),
)
TRAFFIC = st.builds(
    QueueTraffic,
    st.sampled_from([0.0, 0.1, 0.4, 1.1]),
    st.sampled_from([0.0, 0.3, 1.0]),
    ARRIVALS,
    st.sampled_from(["packet", "burst"]),
)


@st.composite
def thresholds_of_one(draw: st.DrawFn) -> QueueThresholds:
    limit = draw(st.sampled_from([0.0, 1.0, 3.7, 12.0, 40.0]))
    threshold = draw(st.none() | st.floats(0, limit))
    return QueueThresholds(
        threshold,
        limit,
        None if threshold is None else draw(st.none() | st.floats(threshold, 2 * limit)),
        draw(st.sampled_from([0.1, 1.0])),
        draw(st.sampled_from([0.002, 0.5, 1.0])),
        draw(st.none() | st.sampled_from([0.25, 1.0, 8.0])),
    )


def check_laws(queue: QueuePrediction, load: float, limits: QueueThresholds) -> None:
    assert 0 <= queue.loss_unimportant <= 1
    assert 0 <= queue.loss_important <= 1
    assert queue.mark_share is None or 0 <= queue.mark_share <= 1
    assert queue.queue_probabilities is not None
    assert sum(queue.queue_probabilities) == pytest.approx(1)
    assert queue.mean_queue_packets is not None
    assert queue.mean_queue_packets <= np.ceil(limits.limit_packets)
    assert load > 0 or queue.mean_delay_packet_times is None
    delays = [queue.p50_delay_packet_times, queue.p99_delay_packet_times, queue.p999_delay_packet_times]
    if None not in delays:
        assert delays == sorted(delays, key=float)  # type: ignore[arg-type]


def check_conservation(
    port: Port, traffic: list[QueueTraffic], thresholds: list[QueueThresholds], seed: int
) -> None:
    """From an empty port on, what was offered was dropped, was forwarded or waits."""
    whole = SimulationSettings(packets=2000, seed=seed, replications=1, warmup_share=0)
    offered, dropped, tally = replicate(port, traffic, thresholds, whole)
    waiting = offered.sum(axis=(0, 2)) - dropped.sum(axis=(0, 2)) - tally.counters["started"]
    assert (waiting >= 0).all()
    assert (waiting <= [np.ceil(limits.limit_packets) for limits in thresholds]).all()
    assert offered.sum() >= 2000 or all(queue.load == 0 for queue in traffic)


@given(
    problem=st.lists(
        st.tuples(TRAFFIC, thresholds_of_one(), st.sampled_from([0.0, 0.0, 1.0, 2.5])), min_size=1, max_size=4
    ),
    buffer=st.sampled_from([1.0, 10.5, 60.0]),
    count_in_service=st.booleans(),
    service=st.sampled_from(["fixed", "exponential"]),
    seed=st.integers(0, 3),
)
@hypothesis_settings(max_examples=60, deadline=None)
def test_any_problem_obeys_the_laws(
    problem: list[tuple[QueueTraffic, QueueThresholds, float]],
    buffer: float,
    count_in_service: bool,
    service: str,
    seed: int,
) -> None:
    traffic, thresholds, weights = (list(column) for column in zip(*problem, strict=True))
    port = Port(count_in_service, buffer, tuple(weights), service)  # type: ignore[arg-type]
    queues = simulate(port, traffic, thresholds, settings(4000, seed, 4))
    for queue, offered, limits in zip(queues, traffic, thresholds, strict=True):
        check_laws(queue, offered.load, limits)
    assert sum(queue.mean_queue_packets or 0.0 for queue in queues) <= buffer
    check_conservation(port, traffic, thresholds, seed)
