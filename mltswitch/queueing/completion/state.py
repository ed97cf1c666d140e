"""Turns the visits of a queue into losses, queue lengths and delays.

Percentiles of the delay come from what packets meet and the moments of the turns. A packet that joins behind
w others waits for the rest of the duration under way and for w turns. Its mean is exact (Little); the shape
takes rest and turns for independent, and their sum for a shifted gamma distribution with the right mean and
variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Final

import numpy as np

from mltswitch.queueing.completion.admission import Admission
from mltswitch.queueing.completion.durations import Duration
from mltswitch.queueing.completion.rational import FloatArray


@dataclass(frozen=True, slots=True)
class Stay:
    """Expected totals of one class over some number of cycles, the same number for all fields."""

    turns: FloatArray
    """Element [w]: packets served that left w - 1 waiting behind them, w = 0 … L (0 at w = 0)."""
    starts: FloatArray
    """Number of excursions that begin with 0 … L packets waiting."""
    idle_time: float
    busy_time: float
    """Time in which a packet of this class or a higher one waits, or any packet is in transmission."""
    high_time: float
    """Part of the busy time that is spent until the end of a higher burst that met an idle port."""
    served_at_once: float
    """Number of packets that met an idle port."""
    dropped_important: float
    """Number of important packets dropped at L."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Loss and mark ratios of one queue's packets."""

    unimportant: float
    important: float
    carried: float
    """Admitted packets over offered packets."""
    marked: float
    """Share of the admitted important packets that met a queue of the ECN threshold S or more, and are
    marked.
    """


@dataclass(frozen=True, slots=True)
class QueueState:
    """The solution for one queue: losses, queue lengths, and what arriving packets meet."""

    losses: Losses
    queue_probabilities: FloatArray
    """Share of time with 0 … L packets waiting."""
    joined: FloatArray
    """Share of the admitted packets that met 0 … L - 1 packets waiting."""
    at_once: float
    """Share of the admitted packets that met an idle port."""
    mean_delay: float
    turn: Duration
    high: Duration | None
    high_share: float
    """Part of the busy time that is spent until the end of a higher burst that met the port idle."""


def losses(admission: Admission, stay: Stay) -> Losses:
    """Losses and marks from level crossings: packets that raise the queue from w equal the turns at w + 1."""
    important = admission.important_share
    raised = stay.turns[1:]
    joining = np.where(np.arange(admission.limit) < admission.threshold, 1.0, important)
    seen = np.divide(raised, joining, out=np.zeros_like(raised), where=joining > 0)
    full = stay.dropped_important / important if important else 0.0
    offered = stay.served_at_once + float(seen.sum()) + full
    marked = float(seen[admission.threshold :].sum())
    return Losses(
        unimportant=(marked + full) / offered,
        important=full / offered,
        carried=(stay.served_at_once + float(raised.sum())) / offered,
        marked=marked / (offered - full) if offered > full else 0.0,
    )


def queue_state(
    admission: Admission,
    stay: Stay,
    *,
    rate: float,
    turn: Duration,
    high: Duration | None,
) -> QueueState:
    """The queue's lengths over time and what packets meet, from the totals of a stay."""
    shares = losses(admission, stay)
    change = stay.starts - stay.turns
    change[:-1] += stay.turns[1:]
    change[0] -= stay.starts.sum()
    time = admission.time_at_lengths(change, stay.busy_time, rate)
    time[0] += stay.idle_time
    probabilities = time / time.sum()
    mean_queue = float(probabilities @ np.arange(len(probabilities)))
    let_in = stay.served_at_once + float(stay.turns.sum())
    return QueueState(
        losses=shares,
        queue_probabilities=probabilities,
        joined=stay.turns[1:] / let_in,
        at_once=stay.served_at_once / let_in,
        mean_delay=mean_queue / (rate * admission.mean_burst * shares.carried),
        turn=turn,
        high=high,
        high_share=stay.high_time / stay.busy_time if isfinite(stay.busy_time) and stay.busy_time else 0.0,
    )


POINTS: Final = 64
QUANTILES: Final = np.concatenate([np.linspace(0.05, 0.9, 18), 1 - np.geomspace(0.08, 1e-7, 22)])
"""Quantiles of the queue lengths that packets meet at which lengths are grouped."""
SHORTEST: Final = 0.02
"""First point of the grid on which the distribution is evaluated, in packet times."""


def percentiles(state: QueueState, shares: Sequence[float]) -> tuple[float, ...]:
    """The delays, in packet times, that these shares of the packets do not exceed."""
    ahead, weights = _grouped(state.joined)
    if not weights.sum():
        return tuple(0.0 for _ in shares)
    rest_mean, rest_variance = _rest(state)
    variance = max(0.0, state.turn.moments()[0] - state.turn.mean**2)
    means = np.maximum(rest_mean + ahead * (state.turn.mean - 1), 1e-6)
    variances = np.maximum(rest_variance + ahead * variance, 1e-9)
    largest = float((ahead + means + 8 * np.sqrt(variances)).max())
    times = np.geomspace(SHORTEST, largest, POINTS)
    below = np.array([state.at_once + float(weights @ row) for row in _gamma(times, ahead, means, variances)])
    scale = _scale(state, ahead, means, weights)
    found = np.interp(shares, np.maximum.accumulate(below), times, left=0.0)
    return tuple(
        0.0 if share <= below[0] else float(value * scale) for share, value in zip(shares, found, strict=True)
    )


def _grouped(joined: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Positions and their weights, put together to so few that they cost no time, finely in the tail."""
    total = joined.sum()
    if not total:
        return np.zeros(1), np.zeros(1)
    ends = np.searchsorted(joined.cumsum() / total, QUANTILES) + 1
    bounds = np.unique(np.concatenate([[0], ends[ends < len(joined)]]))
    weights = np.add.reduceat(joined, bounds)
    places = np.add.reduceat(joined * np.arange(len(joined)), bounds)
    middle = np.divide(places, weights, out=bounds.astype(float), where=weights > 0)
    return middle, weights


def _rest(state: QueueState) -> tuple[float, float]:
    """Mean and variance of the rest of the duration that a packet meets."""
    moments = np.zeros(2)
    parts = [(1 - state.high_share, state.turn)]
    if state.high is not None:
        parts.append((state.high_share, state.high))
    for share, duration in parts:
        second, third = duration.moments()
        moments += share * np.array([second / (2 * duration.mean), third / (3 * duration.mean)])
    mean, second = float(moments[0]), float(moments[1])
    return mean, max(second - mean**2, 0.0)


def _scale(state: QueueState, ahead: FloatArray, means: FloatArray, weights: FloatArray) -> float:
    """The exact mean over the mean of the approximation."""
    mean = float(weights @ (ahead + means))
    return state.mean_delay / mean if mean > 0 else 1.0


def _gamma(times: FloatArray, shift: FloatArray, means: FloatArray, variances: FloatArray) -> FloatArray:
    """Distribution functions of shifted gammas, [time, place] (Wilson and Hilferty's cube root)."""
    shape = means**2 / variances
    scaled = np.cbrt(np.maximum(times[:, None] - shift, 0.0) / means)
    return _normal((scaled - 1 + 1 / (9 * shape)) * (3 * np.sqrt(shape)))


def _normal(deviate: FloatArray) -> FloatArray:
    """Normal distribution function to 1e-7 (Abramowitz and Stegun, 26.2.17)."""
    near = 1 / (1 + 0.2316419 * np.abs(deviate))
    powers = near * (
        0.319381530
        + near * (-0.356563782 + near * (1.781477937 + near * (-1.821255978 + near * 1.330274429)))
    )
    upper = np.exp(-(deviate**2) / 2) / sqrt(2 * np.pi) * powers
    return np.asarray(np.where(deviate > 0, 1 - upper, upper))
