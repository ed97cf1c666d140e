"""What the port does with a packet."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.queueing import Batch, Decision, Incast, Port, QueueThresholds, QueueTraffic, decide, verdict
from mltswitch.queueing.simulation import engine, simulate
from mltswitch.queueing.simulation.arrays import QUEUE
from mltswitch.queueing.simulation.records import build_port, build_rules, random_streams
from tests.queueing.simulation.support import settings

LENGTHS = st.integers(0, 20) | st.floats(0, 20)


@given(length=LENGTHS, is_capable=st.booleans(), threshold=st.none() | LENGTHS, limit=LENGTHS)
@hypothesis_settings(deadline=None)  # the first call compiles
def test_the_compiled_verdict_is_the_decision(
    length: float, is_capable: bool, threshold: float | None, limit: float
) -> None:
    compiled = verdict.verdict(
        float(length), float(length), is_capable, inf if threshold is None else float(threshold), float(limit)
    )
    expected = decide(length, is_capable=is_capable, ecn_threshold=threshold, limit=limit)
    assert list(Decision)[compiled] == expected


def drop_share(limits: QueueThresholds, waiting: int, trials: int = 4000) -> float:
    """Share of unimportant packets that a queue of this length drops, the port busy with another queue."""
    rules, port, queues = build_rules(Port(), [limits]), build_port(Port()), np.zeros(1, QUEUE)
    stream = random_streams(1, 0, 1)[0]
    port["serving"], port["total"], queues["waiting"] = 1, waiting, waiting
    fates = [engine.judge(rules[0], queues[0], port[0], 0, False, stream) for _ in range(trials)]
    assert set(fates) <= {verdict.FORWARD, verdict.DROP_UNIMPORTANT}
    return fates.count(verdict.DROP_UNIMPORTANT) / trials


def test_red_rises_from_s_to_its_maximum_and_then_jumps() -> None:
    limits = QueueThresholds(10, 100, ecn_maximum_packets=30, mark_probability=0.5)
    assert [drop_share(limits, waiting) for waiting in (0, 9, 10, 30, 60)] == [0, 0, 0, 1, 1]
    assert drop_share(limits, 15) == pytest.approx(0.125, abs=0.02)
    assert drop_share(limits, 29) == pytest.approx(0.475, abs=0.03)


def test_red_against_its_birth_and_death_chain() -> None:
    """Poisson arrivals, exponential service: the length is a chain with admission by length."""
    load, limits = 1.1, QueueThresholds(3, 40, ecn_maximum_packets=9.5, mark_probability=0.4)
    drop = [0.0] * 3 + [0.4 * (n - 3) / 6.5 for n in range(3, 10)] + [1.0]
    weights = [1.0, load]  # idle, nobody waiting, one waiting …
    for probability in drop:
        weights.append(weights[-1] * load * (1 - probability))
    # An idle port finds nobody waiting and admits.
    expected = float(np.dot(weights[1:-1], drop)) / sum(weights)
    port = Port(service="exponential")
    queue = simulate(port, [QueueTraffic(load, 1.0)], [limits], settings())[0]
    assert queue.loss_unimportant_error is not None
    assert abs(queue.loss_unimportant - expected) < 1.5 * queue.loss_unimportant_error


def test_the_average_moves_by_its_weight_and_decays_over_idle_time() -> None:
    queues = np.zeros(1, QUEUE)
    assert engine.sample_average(0.25, queues[0], 8, 1.0, False) == 2.0
    assert engine.sample_average(0.25, queues[0], 8, 2.0, False) == 3.5
    assert engine.sample_average(0.25, queues[0], 0, 5.0, True) == pytest.approx(3.5 * 0.75**3)
    assert queues["updated"][0] == 5.0


def test_a_slow_average_lets_a_short_burst_pass() -> None:
    traffic = [QueueTraffic(0.05, 1.0, Batch(64))]
    fast, slow = (
        simulate(Port(), traffic, [QueueThresholds(40, 200, average_weight=weight)], settings(100_000))[0]
        for weight in (1.0, 0.001)
    )
    assert fast.loss_unimportant > 0.3
    assert slow.loss_unimportant < 0.01


def test_the_average_forgets_a_round_before_the_next_one() -> None:
    """Without decay over idle time the average would still be high when the next round comes."""
    incast = Incast(senders=64, round_packets=2, source_rate_ratio=inf)
    losses = [
        simulate(
            Port(),
            [QueueTraffic(load, 1.0, incast)],
            [QueueThresholds(4, 500, average_weight=0.02)],
            settings(50_000),
        )[0].loss_unimportant
        for load in (0.001, 0.3)
    ]
    # By hand: the average after n packets at once is the sum of 0.02 k 0.98^(n-k), below 4 up to the 22nd.
    average, admitted = 0.0, 0
    for _ in range(128):
        average += 0.02 * (admitted - average)
        admitted += average < 4
    assert losses[0] == pytest.approx(1 - admitted / 128, abs=0.02)
    assert losses[1] >= losses[0] - 0.01


def test_weights_share_what_the_strict_queue_leaves() -> None:
    traffic = [QueueTraffic(1.0, arrivals=Batch(8)), QueueTraffic(0.3), QueueTraffic(1.0), QueueTraffic(1.0)]
    port = Port(weights=(2.5, 0.0, 0.4, 0.6))
    queues = simulate(port, traffic, [QueueThresholds(None, 100)] * 4, settings(200_000))
    carried = [
        offered.load * (1 - queue.loss_important) for offered, queue in zip(traffic, queues, strict=True)
    ]
    assert carried == pytest.approx([0.5, 0.3, 0.08, 0.12], rel=0.03)


def test_an_idle_weighted_queue_leaves_its_share_to_the_others() -> None:
    traffic = [QueueTraffic(0.1), QueueTraffic(2.0), QueueTraffic(2.0)]
    queues = simulate(Port(weights=(8, 1, 1)), traffic, [QueueThresholds(None, 100)] * 3, settings(200_000))
    carried = [
        offered.load * (1 - queue.loss_important) for offered, queue in zip(traffic, queues, strict=True)
    ]
    assert carried == pytest.approx([0.1, 0.45, 0.45], rel=0.02)


def test_alpha_alone_is_a_limit_where_the_buffer_is_half_full() -> None:
    traffic = [QueueTraffic(0.9, 0.5, Batch(8))]
    dynamic = simulate(Port(buffer_packets=20), traffic, [QueueThresholds(5, 1000, alpha=1.0)], settings())[0]
    fixed = simulate(Port(), traffic, [QueueThresholds(5, 10)], settings())[0]
    assert dynamic.loss_important == fixed.loss_important > 0
    assert dynamic.queue_probabilities is not None
    assert fixed.queue_probabilities is not None
    assert dynamic.queue_probabilities[: len(fixed.queue_probabilities)] == fixed.queue_probabilities


def test_overloaded_queues_share_the_buffer_by_alpha() -> None:
    """Each stands at alpha · (buffer - all): 30 / (1 + 2) apiece."""
    queues = simulate(
        Port(buffer_packets=30, weights=(1, 1)),
        [QueueTraffic(3.0)] * 2,
        [QueueThresholds(None, 1000, alpha=1.0)] * 2,
        settings(100_000),
    )
    assert [queue.mean_queue_packets for queue in queues] == pytest.approx([10, 10], abs=0.7)


def test_a_shared_buffer_bounds_all_queues_together() -> None:
    queues = simulate(
        Port(buffer_packets=12.5),
        [QueueTraffic(2.0)] * 2,
        [QueueThresholds(None, 100)] * 2,
        settings(100_000),
    )
    assert 11 < sum(queue.mean_queue_packets or 0 for queue in queues) <= 12


def test_alpha_without_a_buffer_is_refused() -> None:
    with pytest.raises(UserInputError) as caught:
        simulate(Port(), [QueueTraffic(0.5)], [QueueThresholds(None, 9, alpha=1.0)], settings())
    assert caught.value.where == "queues[0].alpha"
