"""The paper's model against the formula evaluated in exact arithmetic."""

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from math import inf, nextafter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mltswitch.queueing import (
    Batch,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    blocking,
    predict,
    utilisations,
)

EXACT = Context(prec=80, Emax=MAX_EMAX, Emin=MIN_EMIN)
RELATIVE = Decimal("1e-12")
SMALLEST = Decimal("1e-300")
"""Below it floating-point numbers lose digits."""
PER_BLOCKING = 2000
PER_PORT = 500


def exact_blocking(rho: Decimal, m: Decimal) -> Decimal:
    """(1 - rho) rho^m / (1 - rho^(m+1)), straight from MLT, appendix B, with 80 digits."""
    with localcontext(EXACT):
        if rho == 1:
            return 1 / (m + 1)
        return (1 - rho) * rho**m / (1 - rho ** (m + 1))


def exact_paper(
    traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> list[tuple[Decimal, Decimal]]:
    """Appendix B for a whole port with 80 digits: rho_i, theta S, L - theta S and the blocking."""
    with localcontext(EXACT):
        service, losses = Decimal(1), []
        for offered, limits in zip(traffic, thresholds, strict=True):
            rho = Decimal(offered.load) / service
            service *= 1 - rho
            assert limits.ecn_threshold_packets is not None
            split = Decimal(offered.unimportant_share) * Decimal(limits.ecn_threshold_packets)
            losses.append(
                (exact_blocking(rho, split), exact_blocking(rho, Decimal(limits.limit_packets) - split))
            )
        return losses


def is_equal(found: float, exact: Decimal) -> bool:
    return abs(Decimal(found) - exact) <= RELATIVE * exact + SMALLEST


def paper(
    traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueuePrediction, ...]:
    return predict(Port(), traffic, thresholds, "paper")


NEAR_ONE = st.integers(-15, -1).flatmap(
    lambda exponent: st.sampled_from([1 - 10.0**exponent, 1 + 10.0**exponent])
)


@settings(max_examples=PER_BLOCKING, deadline=None)
@given(rho=st.one_of(st.floats(1e-3, 20), NEAR_ONE), m=st.one_of(st.floats(0, 400), st.integers(0, 10**6)))
@example(rho=1.0, m=9.5)
@example(rho=nextafter(1.0, 0.0), m=512.25)
@example(rho=nextafter(1.0, 2.0), m=512.25)
@example(rho=0.999, m=1e6)
def test_blocking_equals_the_printed_formula(rho: float, m: float) -> None:
    assert is_equal(blocking(rho, m), exact_blocking(Decimal(rho), Decimal(m)))


@st.composite
def ports(draw: st.DrawFn) -> tuple[list[QueueTraffic], list[QueueThresholds]]:
    """Queues below, near and (the last one) above saturation, with fractional theta S."""
    count = draw(st.integers(1, 8))
    left, traffic, thresholds = 1.0, [], []
    for queue in range(count):
        most = 0.9 if queue < count - 1 else 3.0
        rho = draw(st.one_of(st.floats(1e-3, most), NEAR_ONE if queue == count - 1 else st.just(0.1)))
        traffic.append(QueueTraffic(rho * left, draw(st.floats(0, 1))))
        left *= 1 - rho
        low, more = draw(st.floats(0, 256)), draw(st.floats(0, 256))
        thresholds.append(QueueThresholds(low, low + more))
    return traffic, thresholds


@settings(max_examples=PER_PORT, deadline=None)
@given(problem=ports())
def test_a_port_equals_the_formula(problem: tuple[list[QueueTraffic], list[QueueThresholds]]) -> None:
    for found, (unimportant, important) in zip(paper(*problem), exact_paper(*problem), strict=True):
        assert is_equal(found.loss_unimportant, unimportant)
        assert is_equal(found.loss_important, important)


@pytest.mark.parametrize("rho", [1.0, 1 - 1e-15, 1 + 1e-15, 1 - 1e-9, 1 + 1e-9])
def test_blocking_is_smooth_at_one(rho: float) -> None:
    assert blocking(rho, 9) == pytest.approx(0.1, rel=1e-6)


def test_blocking_at_the_edges() -> None:
    assert blocking(0.0, 3) == 0.0
    assert blocking(0.0, 0) == 1.0
    assert blocking(inf, 3) == 1.0
    assert blocking(0.5, 0) == 1.0
    assert blocking(1e9, 1000) == pytest.approx(1.0)


def test_service_left_by_higher_classes() -> None:
    rho = utilisations([0.2, 0.3, 0.4])
    assert rho == pytest.approx([0.2, 0.3 / 0.8, 0.4 / 0.5])


def test_no_service_left_means_loss_one() -> None:
    traffic = [QueueTraffic(1.2, 0.5), QueueTraffic(0.1, 0.5), QueueTraffic(0.0, 0.5)]
    losses = paper(traffic, [QueueThresholds(8, 16)] * 3)
    assert 0 < losses[0].loss_unimportant < 1
    assert losses[1].loss_unimportant == losses[1].loss_important == 1.0
    assert losses[2].loss_important == 0.0


def test_two_queues_by_hand() -> None:
    losses = paper(
        [QueueTraffic(0.5, 0.4), QueueTraffic(0.3, 0.4)], [QueueThresholds(10, 25), QueueThresholds(20, 30)]
    )
    expected = [(Decimal("0.5"), 4, 21), (Decimal("0.6"), 8, 22)]
    for loss, (rho, m_unimportant, m_important) in zip(losses, expected, strict=True):
        assert is_equal(loss.loss_unimportant, exact_blocking(rho, Decimal(m_unimportant)))
        assert is_equal(loss.loss_important, exact_blocking(rho, Decimal(m_important)))


def test_a_class_without_threshold_loses_alike() -> None:
    (loss,) = paper([QueueTraffic(0.9, 0.5)], [QueueThresholds(None, 12)])
    assert loss.loss_unimportant == loss.loss_important
    assert is_equal(loss.loss_important, exact_blocking(Decimal.from_float(0.9), Decimal(12)))


def test_it_knows_neither_bursts_nor_delays() -> None:
    thresholds = [QueueThresholds(4, 9)]
    (single,) = paper([QueueTraffic(0.9, 0.5)], thresholds)
    (bursts,) = paper([QueueTraffic(0.9, 0.5, Batch(8), "burst")], thresholds)
    assert single == bursts
    assert single.mean_delay_packet_times is None


@given(
    load=st.floats(0.01, 1.5),
    theta=st.floats(0, 1),
    threshold=st.integers(1, 300),
    more=st.integers(0, 300),
    step=st.integers(1, 50),
)
def test_loss_never_rises_with_its_threshold(
    load: float, theta: float, threshold: int, more: int, step: int
) -> None:
    offered = [QueueTraffic(load, theta)]
    limit = threshold + more + step
    (small,) = paper(offered, [QueueThresholds(threshold, limit)])
    (large_s,) = paper(offered, [QueueThresholds(threshold + step, limit)])
    (large_l,) = paper(offered, [QueueThresholds(threshold, limit + step)])
    assert large_s.loss_unimportant <= small.loss_unimportant
    assert large_l.loss_important <= small.loss_important
    assert 0 <= small.loss_unimportant <= 1
    assert 0 <= small.loss_important <= 1
