"""Losses of one queue at one port as functions of S and D = L - S, in packets, for whole arrays at once."""

from collections.abc import Callable

import numpy as np

from mltswitch.queueing.mm1k import ClassService
from mltswitch.queueing.paper import FloatArray, blocking

LossFunction = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""(S, D) → loss of unimportant and of important packets; S and D broadcast against each other."""


def paper_losses(rho: float, unimportant_share: float) -> LossFunction:
    """Two M/M/1/m queues, m = theta S and m = L - theta S."""

    def losses(threshold: FloatArray, spare: FloatArray) -> tuple[FloatArray, FloatArray]:
        split = unimportant_share * threshold
        return blocking(rho, split), blocking(rho, np.maximum(threshold + spare - split, 0.0))

    return losses


def mm1k_losses(service: ClassService, unimportant_share: float, *, count_in_service: bool) -> LossFunction:
    """The chain of `mm1k` in closed form, for S of at least 1.

    All is relative to x^S, the weight of the state at S but for a factor near 1; x and y are the births over
    the services below and above S.
    """
    x = service.utilisation
    if x == 0 or service.rate <= 0:
        loss = 0.0 if x == 0 else 1.0
        return lambda threshold, spare: (loss + 0.0 * (threshold + spare), loss + 0.0 * (threshold + spare))
    y = x * (1 - unimportant_share)
    parts = _Counted(x, y, service.residual) if count_in_service else _Waiting(x, y, service.residual)

    def losses(threshold: FloatArray, spare: FloatArray) -> tuple[FloatArray, FloatArray]:
        # A sum too large for a float stands for a loss below 1e-300.
        with np.errstate(over="ignore"):
            above, last = parts.above(threshold, spare)
            total = parts.below(threshold) * _scale(y, spare) + above
            return above / total, last / total

    return losses


def _scale(y: float, spare: FloatArray) -> FloatArray:
    """The weights from S up to L are relative to the largest of them, y^D where y > 1."""
    return np.asarray(np.power(y, -spare)) if y > 1 else np.ones_like(spare)


def _geometric(ratio: float, terms: FloatArray) -> FloatArray:
    """1 + ratio + … + ratio^(terms - 1)."""
    if ratio == 1:
        return np.asarray(terms, dtype=float)
    if ratio == 0:
        return np.where(terms > 0, 1.0, 0.0)
    return np.asarray(np.expm1(terms * np.log(ratio)) / (ratio - 1))


class _Waiting:
    """Thresholds see waiting packets: p_1 = x (residual + x) p_empty, p_{w+1} = x p_w, above S with y."""

    def __init__(self, x: float, y: float, residual: float) -> None:
        self._x, self._y = x, y
        self._first = residual + x

    def below(self, threshold: FloatArray) -> FloatArray:
        """Mass of the empty state and of 0 … S - 1 waiting, over p_S."""
        x = self._x
        empty = (1 + x) / (x * self._first) * np.power(x, 1 - threshold)
        return np.asarray(empty + _geometric(1 / x, threshold - 1) / x)

    def above(self, threshold: FloatArray, spare: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mass of S … L waiting, and of L alone."""
        del threshold
        y = self._y
        if y > 1:
            return _geometric(1 / y, spare + 1), np.ones_like(spare)
        return _geometric(y, spare + 1), np.asarray(np.power(y, spare))


class _Counted:
    """Thresholds see the own packet in transmission; `residual` of the busy periods start behind another's.

    Below S, t_n = x^n + residual x^(n-1) (1 - (1+x)^-n) with n own packets, of which r_n = x^n residual
    (1+x)^-n behind another's; above S the same recursions with y, and no way up from L.
    """

    def __init__(self, x: float, y: float, residual: float) -> None:
        self._x, self._y, self._residual = x, y, residual

    def below(self, threshold: FloatArray) -> FloatArray:
        """Sum of t_n for n < S, over x^S."""
        x = self._x
        if x > 1:
            whole = _geometric(1 / x, threshold) / x
            behind = _geometric(1 / x, threshold - 1) / x**2 - np.power(x, -threshold)
            return np.asarray(whole + self._residual * (behind + np.power(1 + x, 1 - threshold) / x))
        rest = 1 - np.power(x / (1 + x), threshold - 1)
        total = _geometric(x, threshold) + self._residual * (_geometric(x, threshold - 1) - rest)
        return np.asarray(total * np.power(x, -threshold))

    def above(self, threshold: FloatArray, spare: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mass of n = S … L, and of L alone, both over x^S and over y^D where y > 1."""
        y = self._y
        fresh = np.power(1 + self._x, 1 - threshold)
        own = 1 + self._residual / self._x * (1 - fresh)
        behind = self._residual * fresh / np.where(spare > 0, 1 + y, 1.0)
        here = own + behind
        # With D = 0, L is S itself, and no step up is left.
        steps = np.maximum(spare - 1, 0.0)
        if y > 1:
            between = here * _geometric(1 / y, spare) / y
            between = between + behind * (
                _geometric(1 / y, steps) / y**2 - np.power(y, -spare) + np.power(1 + y, -steps) / y
            )
            before_last = here / y + behind / y**2 * (1 - np.power(1 + y, -steps))
        else:
            between = here * _geometric(y, spare)
            between = between + behind * (_geometric(y, steps) - 1 + np.power(y / (1 + y), steps))
            lower = np.maximum(steps - 1, 0.0)
            before_last = here * np.power(y, steps) + behind * np.power(y, lower) * (
                1 - np.power(1 + y, -steps)
            )
        behind_last = y * behind * (np.power(y / (1 + y), steps) if y <= 1 else np.power(1 + y, -steps) / y)
        last = np.where(spare > 0, y * before_last + behind_last, here)
        return np.where(spare > 0, between + last, here), last
