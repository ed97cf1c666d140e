"""Excursions of one queue: what happens between two moments at which it and all classes above it are empty.

Looked at whenever the class gets its turn, the queue is a Markov chain that goes down by one at most.
Expected visits come from level crossings: in an excursion the chain goes up through each level as often as
it comes down. All terms are positive, so that small probabilities are as exact as large ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltswitch.queueing.completion.admission import Admission, Offer
from mltswitch.queueing.completion.rational import FloatArray

HUGE = 1e150
INTERVAL = 8
"""Levels between two looks at how large the numbers are; one level multiplies them by 1e13 at most."""


@dataclass(frozen=True, slots=True)
class Start:
    """How an excursion begins: so many wait, and then comes what is offered during the first duration."""

    waiting: FloatArray
    """Probabilities of 0 … L."""
    offer: Offer


@dataclass(frozen=True, slots=True)
class Visits:
    """Expected turns at each length, a row for each kind of start, all relative to `unit` excursions."""

    turns: FloatArray
    """[kind, w]: turns with w waiting, w = 0 … L (0 at w = 0)."""
    unit: float
    """Underflows to 0 where an excursion has no end in practice."""


def visits(admission: Admission, offer: Offer, starts: Sequence[Start]) -> Visits:
    """Turns of each kind of excursion; `offer` is what comes during each later turn."""
    threshold, limit = admission.threshold, admission.limit
    up = np.array([_up_crossings(admission, start) for start in starts])
    turns = np.zeros((len(starts), limit + 1))
    unit = 1.0
    offered = _tails(offer.packets[0], float(offer.more[0]), limit + 2)
    joined = admission.above(offer)[0]
    let_in = _tails(joined, 0.0, limit + 2)
    for level in range(limit):
        if level == threshold:
            up[:, threshold:] += admission.crossing_tails(turns[:, 1 : threshold + 1], offer)
        is_below = level < threshold
        first, tails = (1, offered) if is_below else (threshold + 1, let_in)
        # From w at its turn w - 1 are left: to end above `level`, level + 2 - w must join.
        flow = up[:, level] + turns[:, first : level + 1] @ tails[level + 2 - first : 1 : -1]
        turns[:, level + 1] = flow / (offer.packets[0, 0] if is_below else joined[0])
        if level % INTERVAL == 0 and (largest := turns[:, level + 1].max()) > HUGE:
            turns /= largest
            up /= largest
            unit /= largest
    return Visits(turns, unit)


def _up_crossings(admission: Admission, start: Start) -> FloatArray:
    """Probability that the first duration ends above 0, 1, … L - 1."""
    threshold, limit = admission.threshold, admission.limit
    waiting, offer = start.waiting, start.offer
    offered = _tails(offer.packets[0], float(offer.more[0]), limit + 2)
    let_in = _tails(admission.above(offer)[0], 0.0, limit + 2)
    above_already = np.append(waiting[::-1].cumsum()[::-1], 0.0)
    up = above_already[1 : limit + 1].copy()
    for length in np.flatnonzero(waiting):
        if length < threshold:
            up[length:threshold] += waiting[length] * offered[1 : threshold - length + 1]
        elif length < limit:
            up[length:] += waiting[length] * let_in[1 : limit - length + 1]
    if limit > threshold:
        up[threshold:] += admission.crossing_tails(waiting[None, :threshold], offer)[0]
    return np.asarray(up)


def _tails(weights: FloatArray, more: float, length: int) -> FloatArray:
    """Weight of m or more, for m = 0 … length - 1."""
    tails = np.full(length, more)
    count = min(length, len(weights))
    tails[:count] = weights[::-1].cumsum()[::-1][:count] + more
    return tails
