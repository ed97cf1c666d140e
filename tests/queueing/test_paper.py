"""The paper's model against the formula evaluated in exact arithmetic."""

from decimal import Decimal, getcontext
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.queueing import QueueLoad, QueueThresholds, blocking, predict, utilisations

getcontext().prec = 60


def exact_blocking(rho: float, m: float) -> Decimal:
    """(1 - rho) rho^m / (1 - rho^(m+1)), straight from MLT, appendix B, with 60 digits."""
    r, exponent = Decimal(rho), Decimal(m)
    if r == 1:
        return 1 / (exponent + 1)
    return (1 - r) * r**exponent / (1 - r ** (exponent + 1))


@given(rho=st.floats(1e-3, 20), m=st.floats(0, 400))
def test_blocking_equals_the_printed_formula(rho: float, m: float) -> None:
    exact = exact_blocking(rho, m)
    found = Decimal(float(blocking(rho, m)))
    assert abs(found - exact) <= Decimal("1e-12") * exact + Decimal("1e-300")


@pytest.mark.parametrize("rho", [1.0, 1 - 1e-15, 1 + 1e-15, 1 - 1e-9, 1 + 1e-9])
def test_blocking_is_smooth_at_one(rho: float) -> None:
    assert float(blocking(rho, 9)) == pytest.approx(0.1, rel=1e-6)


def test_blocking_at_the_edges() -> None:
    assert float(blocking(0.0, 3)) == 0.0
    assert float(blocking(0.0, 0)) == 1.0
    assert float(blocking(inf, 3)) == 1.0
    assert float(blocking(0.5, 0)) == 1.0
    assert float(blocking(1e9, 1000)) == pytest.approx(1.0)


def test_service_left_by_higher_classes() -> None:
    rho = utilisations([0.2, 0.3, 0.4])
    assert rho == pytest.approx([0.2, 0.3 / 0.8, 0.4 / 0.5])


def test_no_service_left_means_loss_one() -> None:
    loads = [QueueLoad(1.2, 0.5), QueueLoad(0.1, 0.5), QueueLoad(0.0, 0.5)]
    losses = predict(loads, [QueueThresholds(8, 16)] * 3)
    assert 0 < losses[0].unimportant < 1
    assert losses[1].unimportant == losses[1].important == 1.0
    assert losses[2].important == 0.0


def test_two_queues_by_hand() -> None:
    losses = predict(
        [QueueLoad(0.5, 0.4), QueueLoad(0.3, 0.4)], [QueueThresholds(10, 25), QueueThresholds(20, 30)]
    )
    expected = [(0.5, 4, 21), (0.6, 8, 22)]
    for loss, (rho, m_unimportant, m_important) in zip(losses, expected, strict=True):
        assert loss.unimportant == pytest.approx(float(exact_blocking(rho, m_unimportant)), rel=1e-12)
        assert loss.important == pytest.approx(float(exact_blocking(rho, m_important)), rel=1e-12)


def test_a_class_without_threshold_loses_alike() -> None:
    (loss,) = predict([QueueLoad(0.9, 0.5)], [QueueThresholds(None, 12)])
    assert loss.unimportant == loss.important == pytest.approx(float(exact_blocking(0.9, 12)), rel=1e-12)


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
    offered = [QueueLoad(load, theta)]
    limit = threshold + more + step
    (small,) = predict(offered, [QueueThresholds(threshold, limit)])
    (large_s,) = predict(offered, [QueueThresholds(threshold + step, limit)])
    (large_l,) = predict(offered, [QueueThresholds(threshold, limit + step)])
    assert large_s.unimportant <= small.unimportant
    assert large_l.important <= small.important
    assert 0 <= small.unimportant <= 1
    assert 0 <= small.important <= 1


def test_blocking_is_vectorised() -> None:
    assert blocking(0.5, np.arange(6).reshape(2, 3)).shape == (2, 3)
