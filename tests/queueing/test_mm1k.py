"""The birth-death chain against a dense solution of its generator, against `paper`, and its properties."""

from math import ceil, exp, factorial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.queueing import Port, QueuePrediction, QueueThresholds, QueueTraffic, blocking, mm1k, predict
from mltswitch.queueing.mm1k import ClassService, ServicesWaited, class_services, predict_class

COUNTS = st.booleans()
SERVICES = st.builds(
    lambda rate, load, residual: ClassService(rate, load / rate, residual),
    st.floats(0.05, 1),
    st.floats(0.01, 3),
    st.floats(0, 1),
)
SHARES = st.floats(0, 1)


def dense(
    service: ClassService, share: float, threshold: int, limit: int, count_in_service: bool
) -> dict[tuple[str, int], float]:
    """Probabilities of (who is in transmission, own packets waiting), from the generator matrix."""
    states = [
        ("nobody", 0),
        *(("own", w) for w in range(limit + 1)),
        *(("other", w) for w in range(1, limit + 1)),
    ]
    place = {state: index for index, state in enumerate(states)}
    generator = np.zeros((len(states), len(states)))
    birth = service.utilisation * service.rate

    def admits(length: int) -> float:
        return 1.0 if length < threshold else (1 - share if length < limit else 0.0)

    def add(start: tuple[str, int], end: tuple[str, int], rate: float) -> None:
        generator[place[start], place[end]] += rate
        generator[place[start], place[start]] -= rate

    for who, waiting in states:
        if who == "nobody":
            add((who, 0), ("own", 0), birth * admits(0) * (1 - service.residual))
            add((who, 0), ("other", 1), birth * admits(0) * service.residual)
            continue
        length = waiting + (1 if who == "own" and count_in_service else 0)
        if length < limit:
            add((who, waiting), (who, waiting + 1), birth * admits(length))
        end = ("own", waiting - 1) if waiting else ("nobody", 0)
        add((who, waiting), end, service.rate)
    equations = np.vstack((generator.T, np.ones(len(states))))
    answer = np.linalg.lstsq(equations, np.append(np.zeros(len(states)), 1.0), rcond=None)[0]
    return dict(zip(states, answer, strict=True))


@settings(deadline=None)
@given(service=SERVICES, share=SHARES, threshold=st.integers(0, 7), spare=st.integers(0, 7), count=COUNTS)
def test_equals_the_dense_generator(
    service: ClassService, share: float, threshold: int, spare: int, count: bool
) -> None:
    limit = threshold + spare
    assume(limit > 0)
    probabilities = dense(service, share, threshold, limit, count)

    def length(who: str, waiting: int) -> int:
        return waiting + (1 if who == "own" and count else 0)

    found = predict_class(service, share, QueueThresholds(threshold, limit), count_in_service=count)
    at_threshold = sum(p for state, p in probabilities.items() if length(*state) >= threshold)
    at_limit = sum(p for state, p in probabilities.items() if length(*state) >= limit)
    assert found.loss_unimportant == pytest.approx(at_threshold, abs=1e-10)
    assert found.loss_important == pytest.approx(at_limit, abs=1e-10)
    queue = sum(p * waiting for (_, waiting), p in probabilities.items())
    assert found.mean_queue_packets == pytest.approx(queue, abs=1e-9)
    assert found.queue_probabilities is not None
    empty = sum(p for (_, waiting), p in probabilities.items() if waiting == 0)
    assert found.queue_probabilities[0] == pytest.approx(empty, abs=1e-10)


@settings(deadline=None)
@given(service=SERVICES, share=SHARES, threshold=st.integers(0, 40), spare=st.integers(0, 40), count=COUNTS)
def test_properties(service: ClassService, share: float, threshold: int, spare: int, count: bool) -> None:
    limit = threshold + spare
    assume(limit > 0)
    found = predict_class(service, share, QueueThresholds(threshold, limit), count_in_service=count)
    assert 0 <= found.loss_important <= found.loss_unimportant + 1e-12 <= 1 + 1e-12
    assert found.queue_probabilities is not None
    assert len(found.queue_probabilities) == limit + 1
    assert sum(found.queue_probabilities) == pytest.approx(1, abs=1e-12)
    assert found.mark_share is not None
    assert 0 <= found.mark_share <= 1
    if found.mean_delay_packet_times is not None and found.mean_queue_packets is not None:
        lost = share * found.loss_unimportant + (1 - share) * found.loss_important
        admitted = service.rate * service.utilisation * (1 - lost)
        if lost < 1 - 1e-6:
            # Little's law: the delays come from the mixture of services, the queue from the chain.
            assert found.mean_queue_packets == pytest.approx(
                admitted * found.mean_delay_packet_times, rel=1e-9
            )
    delays = (found.p50_delay_packet_times, found.p99_delay_packet_times, found.p999_delay_packet_times)
    assert delays == tuple(sorted(delays, key=lambda delay: delay or 0.0))


@settings(deadline=None)
@given(service=SERVICES, share=SHARES, threshold=st.integers(1, 40), spare=st.integers(1, 40), count=COUNTS)
def test_losses_move_with_the_thresholds(
    service: ClassService, share: float, threshold: int, spare: int, count: bool
) -> None:
    def losses(s: int, limit: int) -> QueuePrediction:
        return predict_class(service, share, QueueThresholds(s, limit), count_in_service=count)

    limit = threshold + spare
    now = losses(threshold, limit)
    higher, longer, both = (
        losses(threshold + 1, limit),
        losses(threshold, limit + 1),
        losses(threshold + 1, limit + 1),
    )
    assert higher.loss_unimportant <= now.loss_unimportant * (1 + 1e-9)
    assert longer.loss_important <= now.loss_important * (1 + 1e-9)
    assert longer.loss_unimportant >= now.loss_unimportant * (1 - 1e-9)
    assert both.loss_unimportant <= now.loss_unimportant * (1 + 1e-9)
    assert both.loss_important <= now.loss_important * (1 + 1e-9)
    # With S not quite: at a load of 2 it fell by a hundredth, from S = 1 to 2 of L = 2.
    assert (higher.p99_delay_packet_times or 0) >= (now.p99_delay_packet_times or 0) * (1 - 1 / 16)
    assert (longer.p99_delay_packet_times or 0) >= (now.p99_delay_packet_times or 0) * (1 - 1e-6)


@pytest.mark.parametrize("share", [0.0, 1.0])
@given(load=st.floats(0.01, 3), limit=st.integers(1, 60))
def test_one_queue_of_one_kind_is_the_papers(share: float, load: float, limit: int) -> None:
    (found,) = mm1k.predict(
        Port(count_in_service=True), [QueueTraffic(load, share)], [QueueThresholds(limit, limit)]
    )
    expected = float(blocking(load, limit))
    assert found.loss_unimportant == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert found.loss_important == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_mean_delay_of_an_endless_queue() -> None:
    """M/M/1: rho / (1 - rho) services; and the wait of those that wait is exponential."""
    (found,) = predict(Port(), [QueueTraffic(0.8)], [QueueThresholds(None, 2000)], "mm1k")
    assert found.mean_delay_packet_times == pytest.approx(4, rel=1e-9)
    assert found.p99_delay_packet_times == pytest.approx(np.log(0.8 / 0.01) / 0.2, rel=1e-8)
    assert found.mark_share == 0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.floats(0.1, 5))
def test_waiting_time_against_the_sum_over_erlangs(weights: list[float], packet_times: float) -> None:
    assume(sum(weights) > 0.1)
    shares = np.array(weights) / sum(weights)
    rate = 0.7
    mean = rate * packet_times
    terms = [exp(-mean) * mean**j / factorial(j) for j in range(len(shares))]
    expected = sum(share * sum(terms[:k]) for k, share in enumerate(shares))
    assert ServicesWaited(shares, rate).beyond(packet_times) == pytest.approx(expected, abs=1e-12)


def test_fractional_thresholds_act_as_the_next_packet() -> None:
    traffic = [QueueTraffic(0.9, 0.5)]
    assert predict(Port(), traffic, [QueueThresholds(7.5, 15.2)], "mm1k") == predict(
        Port(), traffic, [QueueThresholds(8, 16)], "mm1k"
    )
    assert ceil(7.5) == 8


@pytest.mark.parametrize("load", [1e-6, 0.5, 0.999, 1.0, 1.001, 2.0, 10.0])
@pytest.mark.parametrize("count", [False, True])
def test_extremes_stay_finite(load: float, count: bool) -> None:
    for share in (0.0, 0.3, 1.0):
        found = predict_class(
            ClassService(0.8, load, 0.4), share, QueueThresholds(40_000, 100_000), count_in_service=count
        )
        assert 0 <= found.loss_important <= found.loss_unimportant <= 1
        assert found.queue_probabilities is not None
        assert sum(found.queue_probabilities) == pytest.approx(1, abs=1e-9)
        assert found.p999_delay_packet_times is not None
        assert np.isfinite(found.p999_delay_packet_times)


def test_classes_above_slow_down_and_all_others_delay() -> None:
    high, middle, low = class_services([0.3, 0.2, 0.4])
    assert high.rate == 1
    assert middle.rate == pytest.approx(0.7)
    assert low.rate == pytest.approx(0.5)
    # High: the 0.6 below it fall into the 0.7 of the time without it. Low: only the 0.5 above it delay it.
    assert high.residual == pytest.approx(0.6 / 0.7)
    assert low.residual == pytest.approx(0.5)
    assert class_services([0.9])[0].residual == 0
    assert class_services([1.5, 0.5])[0].residual == 1


def test_nothing_left_to_serve() -> None:
    _, low, silent = predict(
        Port(), [QueueTraffic(1.2), QueueTraffic(0.1), QueueTraffic(0.0)], [QueueThresholds(4, 8)] * 3, "mm1k"
    )
    assert (low.loss_unimportant, low.loss_important) == (1, 1)
    assert (low.mean_queue_packets, low.p99_delay_packet_times) == (8, None)
    assert (silent.loss_unimportant, silent.mean_queue_packets) == (0, 0)


@pytest.mark.parametrize("others", [0.0, 0.4])
def test_a_class_that_offers_nothing_has_no_delay(others: float) -> None:
    silent, other = predict(
        Port(), [QueueTraffic(0.0, 0.5), QueueTraffic(others, 0.5)], [QueueThresholds(4, 8)] * 2, "mm1k"
    )
    delays = (silent.mean_delay_packet_times, silent.p50_delay_packet_times, silent.p99_delay_packet_times)
    assert (*delays, silent.p999_delay_packet_times) == (None,) * 4
    assert (silent.loss_unimportant, silent.loss_important) == (0, 0)
    assert (other.mean_delay_packet_times is None) == (others == 0)


def test_no_room_at_all() -> None:
    (found,) = predict(Port(), [QueueTraffic(0.5, 0.5)], [QueueThresholds(0, 0)], "mm1k")
    assert (found.loss_unimportant, found.loss_important) == (1, 1)
    (found,) = predict(Port(), [QueueTraffic(0.5, 0.5)], [QueueThresholds(0, 8)], "mm1k")
    assert found.loss_unimportant == 1
    assert found.loss_important < 1e-3
    assert found.mark_share == 1


@pytest.mark.parametrize(
    ("port", "thresholds", "where"),
    [
        (Port(weights=(0, 1)), QueueThresholds(4, 8), "weights"),
        (Port(buffer_packets=10), QueueThresholds(4, 8), "buffer_packets"),
        (Port(), QueueThresholds(4, 8, ecn_maximum_packets=6), r"queues\[0\]"),
        (Port(), QueueThresholds(4, 8, mark_probability=0.5), r"queues\[0\]"),
        (Port(), QueueThresholds(4, 8, average_weight=0.5), r"queues\[0\]"),
        (Port(), QueueThresholds(4, 8, alpha=1.0), r"queues\[0\]"),
        (Port(), QueueThresholds(9, 8), r"queues\[0\].limit_packets"),
    ],
)
def test_what_it_cannot_express_is_refused(port: Port, thresholds: QueueThresholds, where: str) -> None:
    with pytest.raises(UserInputError, match=where):
        predict(port, [QueueTraffic(0.4, 0.5)] * 2, [thresholds] * 2, "mm1k")
    assert predict(Port(weights=(0, 0)), [QueueTraffic(0.4)] * 2, [QueueThresholds(4, 8)] * 2, "mm1k")
