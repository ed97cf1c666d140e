"""The model against an exact chain, at its edges, and what it refuses."""

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
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
from mltswitch.queueing.models import predict_losses
from tests.queueing.exact import solve_chain

PORT = Port()
COUNTED = Port(count_in_service=True)
Drawn = list[tuple[QueueTraffic, QueueThresholds]]


@st.composite
def queues(draw: st.DrawFn, most: int = 3, longest: int = 7) -> tuple[QueueTraffic, QueueThresholds]:
    threshold = draw(st.integers(1, longest - 1))
    limit = draw(st.integers(threshold, longest))
    return (
        QueueTraffic(
            load=draw(st.floats(0.05, 0.8)),
            unimportant_share=draw(st.floats(0.1, 0.9)),
            arrivals=Batch(draw(st.integers(1, 9))),
        ),
        QueueThresholds(threshold, limit),
    )


def problem(
    drawn: Drawn,
) -> tuple[list[QueueTraffic], list[QueueThresholds]]:
    return [entry[0] for entry in drawn], [entry[1] for entry in drawn]


def assert_exact(port: Port, traffic: list[QueueTraffic], thresholds: list[QueueThresholds]) -> None:
    for found, truth in zip(
        predict(port, traffic, thresholds), solve_chain(port, traffic, thresholds), strict=True
    ):
        assert found.loss_unimportant == pytest.approx(truth.loss_unimportant, abs=1e-6)
        assert found.loss_important == pytest.approx(truth.loss_important, abs=1e-6)
        assert found.mark_share == pytest.approx(truth.mark_share, abs=1e-6)
        assert found.mean_queue_packets == pytest.approx(truth.mean_queue_packets, abs=1e-5)
        assert found.mean_delay_packet_times == pytest.approx(
            truth.mean_delay_packet_times, rel=1e-4, abs=1e-6
        )
        assert found.queue_probabilities is not None
        size = min(len(found.queue_probabilities), len(truth.queue_probabilities))
        assert np.allclose(found.queue_probabilities[:size], truth.queue_probabilities[:size], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(queues(), min_size=1, max_size=2))
def test_equals_the_exact_chain(drawn: Drawn) -> None:
    assert_exact(PORT, *problem(drawn))


@settings(max_examples=8, deadline=None)
@given(st.lists(queues(longest=4), min_size=3, max_size=3))
def test_equals_the_exact_chain_of_three(drawn: Drawn) -> None:
    assert_exact(PORT, *problem(drawn))


@settings(max_examples=25, deadline=None)
@given(st.lists(queues(), min_size=1, max_size=2))
def test_counting_the_packet_in_service_is_exact(drawn: Drawn) -> None:
    assert_exact(COUNTED, *problem(drawn))


@settings(max_examples=25, deadline=None)
@given(st.lists(queues(), min_size=1, max_size=2))
def test_importance_by_burst_is_exact(drawn: Drawn) -> None:
    traffic, thresholds = problem(drawn)
    assert_exact(PORT, [replace(entry, importance="burst") for entry in traffic], thresholds)


@pytest.mark.parametrize(
    "arrivals", [Trace((1, 3, 8), (0.5, 0.3, 0.2)), Trace((4, 5), (0.25, 0.75)), Trace((2,), (1.0,))]
)
def test_bursts_of_many_sizes_are_exact(arrivals: Trace) -> None:
    traffic = [QueueTraffic(0.4, 0.5, arrivals), QueueTraffic(0.5, 0.3, arrivals)]
    assert_exact(PORT, traffic, [QueueThresholds(3, 6), QueueThresholds(5, 9)])


def test_geometric_bursts_agree_with_the_simulator() -> None:
    pytest.importorskip("numba")
    traffic = [QueueTraffic(0.3, 0.5, Batch(8, "geometric")), QueueTraffic(0.5, 0.4, Batch(5, "geometric"))]
    thresholds = [QueueThresholds(10, 30), QueueThresholds(16, 40)]
    simulated = predict(PORT, traffic, thresholds, "simulate", simulation=SimulationSettings(4_000_000))
    for found, referee in zip(predict(PORT, traffic, thresholds), simulated, strict=True):
        assert referee.loss_unimportant_error is not None
        assert referee.loss_important_error is not None
        assert abs(found.loss_unimportant - referee.loss_unimportant) < 2 * referee.loss_unimportant_error
        assert abs(found.loss_important - referee.loss_important) < 2 * referee.loss_important_error
        assert found.p99_delay_packet_times == pytest.approx(referee.p99_delay_packet_times, rel=0.15)
        assert found.p50_delay_packet_times == pytest.approx(referee.p50_delay_packet_times, rel=0.25)


@settings(max_examples=40, deadline=None)
@given(queues(longest=60), st.integers(1, 20), st.sampled_from(["packet", "burst"]))
def test_thresholds_of_one_class_help_their_own_packets(
    drawn: tuple[QueueTraffic, QueueThresholds], more: int, importance: str
) -> None:
    traffic, thresholds = drawn
    traffic = replace(traffic, importance="burst" if importance == "burst" else "packet")
    threshold = thresholds.ecn_threshold_packets or 0
    longer = replace(thresholds, limit_packets=thresholds.limit_packets + more)
    later = replace(longer, ecn_threshold_packets=threshold + more)
    (base,), (limit_raised,), (both_raised,) = (
        predict(PORT, [traffic], [choice]) for choice in (thresholds, longer, later)
    )
    assert limit_raised.loss_important <= base.loss_important + 1e-12
    assert both_raised.loss_unimportant <= limit_raised.loss_unimportant + 1e-12


@settings(max_examples=40, deadline=None)
@given(st.lists(queues(longest=40), min_size=1, max_size=4), st.floats(0.1, 3))
def test_shares_are_shares(drawn: Drawn, scale: float) -> None:
    traffic, thresholds = problem(drawn)
    scaled = [replace(entry, load=entry.load * scale) for entry in traffic]
    found = predict(PORT, scaled, thresholds)
    carried = 0.0
    for offered, queue in zip(scaled, found, strict=True):
        assert 0 <= queue.loss_important <= 1
        assert queue.loss_important <= queue.loss_unimportant <= 1
        assert queue.queue_probabilities is not None
        assert sum(queue.queue_probabilities) == pytest.approx(1, abs=1e-9)
        share = offered.unimportant_share
        lost = share * queue.loss_unimportant + (1 - share) * queue.loss_important
        carried += offered.load * (1 - lost)
    assert carried <= 1 + 1e-6


def test_fractional_thresholds_act_at_the_next_packet() -> None:
    traffic = [QueueTraffic(0.9, 0.5, Batch(4))]
    assert predict(PORT, traffic, [QueueThresholds(7.5, 12.2)]) == predict(
        PORT, traffic, [QueueThresholds(8, 13)]
    )


def test_a_class_without_threshold_loses_both_kinds_at_its_limit() -> None:
    (found,) = predict(PORT, [QueueTraffic(0.9, 0.5, Batch(4))], [QueueThresholds(None, 12)])
    (same,) = predict(PORT, [QueueTraffic(0.9, 0.5, Batch(4))], [QueueThresholds(12, 12)])
    assert found.loss_unimportant == pytest.approx(found.loss_important)
    assert found.loss_important == pytest.approx(same.loss_important)


def test_unimportant_packets_alone_stop_at_their_threshold() -> None:
    (found,) = predict(PORT, [QueueTraffic(0.9, 1.0, Batch(4))], [QueueThresholds(6, 12)])
    (limited,) = predict(PORT, [QueueTraffic(0.9, 0.0, Batch(4))], [QueueThresholds(6, 6)])
    assert found.loss_unimportant == pytest.approx(limited.loss_important)
    assert found.loss_important == 0


def test_no_threshold_at_all_lets_no_unimportant_packet_in() -> None:
    traffic = [QueueTraffic(0.8, 0.5, Batch(4), "burst")]
    (found,) = predict(PORT, traffic, [QueueThresholds(0, 6)])
    (alone,) = predict(PORT, [QueueTraffic(0.4, 0.0, Batch(4))], [QueueThresholds(6, 6)])
    assert found.loss_unimportant == 1
    assert found.loss_important == pytest.approx(alone.loss_important)


def test_nothing_joins_a_queue_without_room() -> None:
    traffic = [QueueTraffic(0.3, 0.5), QueueTraffic(0.3, 0.5)]
    closed, behind = predict(PORT, traffic, [QueueThresholds(0, 0), QueueThresholds(8, 16)])
    (alone,) = predict(PORT, traffic[1:], [QueueThresholds(8, 16)])
    assert closed.loss_important == closed.loss_unimportant == 1
    assert behind.loss_unimportant == pytest.approx(alone.loss_unimportant)


def test_a_class_below_a_flood_starves() -> None:
    traffic = [QueueTraffic(5, 0.5, Batch(4)), QueueTraffic(0.1, 0.5)]
    flood, starved = predict(PORT, traffic, [QueueThresholds(400, 500), QueueThresholds(8, 16)])
    assert flood.loss_unimportant * 0.5 + flood.loss_important * 0.5 == pytest.approx(0.8, abs=1e-6)
    assert starved.loss_important == starved.loss_unimportant == 1
    assert starved.mean_delay_packet_times is None


def test_an_idle_class_changes_nothing() -> None:
    traffic = [QueueTraffic(0, 0.5), QueueTraffic(0.9, 0.5, Batch(4))]
    idle, busy = predict(PORT, traffic, [QueueThresholds(8, 16)] * 2)
    assert idle.loss_unimportant == idle.loss_important == 0
    assert (busy,) == predict(PORT, traffic[1:], [QueueThresholds(8, 16)])


def test_long_queues_are_shortened() -> None:
    traffic = [QueueTraffic(0.2, 0.5, Batch(40)), QueueTraffic(0.9, 0.5, Batch(40))]
    thresholds = [QueueThresholds(40, 60), QueueThresholds(5000, 9000)]
    high, low = predict(PORT, traffic, thresholds)
    left = 1 - 0.2 * (1 - (high.loss_unimportant + high.loss_important) / 2)
    # The port is never idle; all that the low class loses is unimportant.
    assert low.loss_unimportant == pytest.approx((0.9 - left) / 0.45, rel=0.02)
    assert low.loss_important == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("port", "traffic", "thresholds", "where"),
    [
        (Port(service="exponential"), QueueTraffic(0.5), QueueThresholds(4, 8), "service"),
        (Port(weights=(1.0,)), QueueTraffic(0.5), QueueThresholds(4, 8), "weights"),
        (Port(buffer_packets=4), QueueTraffic(0.5), QueueThresholds(4, 8), "buffer_packets"),
        (PORT, QueueTraffic(0.5), QueueThresholds(4, 8, average_weight=0.5), "queues[0]"),
        (PORT, QueueTraffic(0.5), QueueThresholds(4, 8, alpha=1.0), "queues[0]"),
        (
            PORT,
            QueueTraffic(0.5, 0.5, Batch(4, "geometric"), "burst"),
            QueueThresholds(4, 8),
            "queues[0].importance",
        ),
        (COUNTED, QueueTraffic(0.5, 0.5, Batch(4), "burst"), QueueThresholds(4, 8), "queues[0].importance"),
    ],
)
def test_what_only_the_simulator_knows_is_refused(
    port: Port, traffic: QueueTraffic, thresholds: QueueThresholds, where: str
) -> None:
    with pytest.raises(UserInputError, match="simulate") as caught:
        predict(port, [traffic], [thresholds])
    assert caught.value.where == where


def test_an_incast_epoch_is_one_burst_of_its_backlog() -> None:
    thresholds = [QueueThresholds(20, 40)]
    # 4 senders · 16 packets, less the 16 + 10 packet times in which they arrive.
    incast = QueueTraffic(0.6, 0.5, Incast(4, 16, jitter_packet_times=10, burst_packets=4), "burst")
    assert predict(PORT, [incast], thresholds) == predict(
        PORT, [QueueTraffic(0.6, 0.5, Batch(38))], thresholds
    )


def test_poisson_packets_are_bursts_of_one() -> None:
    thresholds = [QueueThresholds(6, 9)]
    assert predict(PORT, [QueueTraffic(0.9, 0.5, Poisson())], thresholds) == predict(
        PORT, [QueueTraffic(0.9, 0.5, Batch(1), "burst")], thresholds
    )


@pytest.mark.parametrize(
    ("arrivals", "thresholds"),
    [
        (Trace((1, 100), (0.5, 0.5)), QueueThresholds(150, 400)),
        (Trace((1, 1000), (0.5, 0.5)), QueueThresholds(1500, 2000)),
        (Batch(40, "geometric"), QueueThresholds(8, 16)),
        (Batch(500), QueueThresholds(8, 64)),
    ],
)
def test_bursts_far_apart_in_size_or_beyond_the_queue_agree_with_the_simulator(
    arrivals: Trace | Batch, thresholds: QueueThresholds
) -> None:
    pytest.importorskip("numba")
    traffic = [QueueTraffic(0.3, 0.5, arrivals)]
    (found,) = predict(PORT, traffic, [thresholds])
    (referee,) = predict(PORT, traffic, [thresholds], "simulate", simulation=SimulationSettings(2_000_000))
    assert found.loss_unimportant == pytest.approx(referee.loss_unimportant, rel=0.15)
    assert found.mean_delay_packet_times == pytest.approx(referee.mean_delay_packet_times, rel=0.05)


def test_nothing_offered_is_no_error() -> None:
    (found,) = predict(PORT, [QueueTraffic(0, 0.5)], [QueueThresholds(8, 16)])
    assert found.loss_unimportant == found.loss_important == 0
    assert predict(COUNTED, [QueueTraffic(0, 0.5)], [QueueThresholds(8, 16)])[0].loss_important == 0


def test_whole_numbers_are_numbers() -> None:
    traffic = [QueueTraffic(1, 0, Batch(8))]
    assert predict(PORT, traffic, [QueueThresholds(8, 16)]) == predict(
        PORT, [QueueTraffic(1.0, 0.0, Batch(8))], [QueueThresholds(8.0, 16.0)]
    )


def test_the_highest_class_waits_no_longer_than_its_queue() -> None:
    (found,) = predict(PORT, [QueueTraffic(0.9, 0.5, Batch(8))], [QueueThresholds(4, 6)])
    assert found.p999_delay_packet_times is not None
    assert found.p999_delay_packet_times <= 6


@pytest.mark.parametrize("distribution", ["fixed", "geometric"])
def test_losses_alone_never_grow_when_the_load_falls(distribution: Literal["fixed", "geometric"]) -> None:
    """Long queues are cut where hardly any packet comes, at small loads of long bursts, too."""
    queue, limits = QueueTraffic(0.9, 0.5, Batch(16, distribution)), QueueThresholds(200, 400)
    losses = [
        predict_losses(PORT, [replace(queue, load=load)], [limits], "completion")[0].loss_unimportant
        for load in (0.05, 0.1, 0.3, 0.6, 0.9)
    ]
    assert all(low <= high + 1e-9 for low, high in pairwise(losses))
