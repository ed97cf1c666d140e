"""How long one queue takes to empty, and how often it has each length in between.

First passages say how long until a queue, with all classes above it, has one packet less.
A class serves one packet in a duration T (its transmission and the busy period above it), and what arrives
meanwhile joins. g_w(s) is the transform of the time in which it goes from w to w - 1 waiting packets; by
the structure of the chain (down by one at most),

    g_w = m_0 / (m_0 + D),    D = 1 - E exp(-s T) + sum over j of m_j (1 - g_w+1 … g_w+j-1),

with m_j the weight of j packets let in. Everything in D is a complement of a transform: near s = 0 nothing
cancels, so that even busy periods of 10^12 packet times keep their digits.

Excursions say how often each length is met. Looked at whenever the class gets its turn, the queue is a Markov
chain that goes down by one at most. Expected visits come from level crossings: in an excursion the chain goes
up through each level as often as it comes down. All terms are positive, so that small probabilities are as
exact as large ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.queueing.completion.admission import Admission, Offer
from mltswitch.queueing.completion.rational import ComplexArray, FloatArray
from mltswitch.queueing.completion.tables import Array

HUGE = 1e150
INTERVAL = 8
"""Number of queue lengths between two checks for overflow; each length multiplies the numbers by 1e13 at
most."""


@dataclass(frozen=True, slots=True)
class Start:
    """How an excursion begins: the packets that wait, and the arrivals in its first duration."""

    waiting: FloatArray
    """Probabilities that 0 … L packets wait at the beginning."""
    offer: Offer


@dataclass(frozen=True, slots=True)
class Visits:
    """Expected turns at each queue length, a row for each kind of start, relative to `unit` excursions."""

    turns: FloatArray
    """Element [kind, w] is the expected number of turns with w packets waiting, w = 0 … L (0 at w = 0)."""
    unit: float
    """The number of excursions that `turns` counts, which underflows to 0 where an excursion has no end in
    practice."""


def visits(admission: Admission, offer: Offer, starts: Sequence[Start]) -> Visits:
    """Expected turns of each kind of excursion at each queue length; `offer` is the arrivals in each later
    turn."""
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


SAME: Final = 1e-12
"""Relative change from one queue length to the next below which the thresholds no longer have an effect."""
LEAST_INTERVAL: Final = 8
"""The fewest queue lengths between two checks of that change, which are at least one burst apart."""

BLOCK: Final = 64
"""Number of queue lengths after which the products over all lengths are renewed in one go."""


def passages(admission: Admission, offer: Offer) -> ComplexArray:
    """F[:, w], the transform of the time in which the queue goes from w waiting packets to none, for w = 0 …
    L."""
    threshold, limit, room = admission.threshold, admission.limit, admission.room
    late = np.zeros((len(offer.total), limit + 1), dtype=complex)
    """Column w: the complement 1 - g_w of one step down, from w waiting to w - 1."""
    lost = 1 - offer.total
    joined = admission.above(offer)
    if room:
        left = offer.total[:, None] - joined[:, :-1].cumsum(axis=1)
        stays = np.concatenate([left, joined[:, -1:]], axis=1)
        _descend(late[:, threshold:], joined[:, :-1], lost[:, None], stays, admission.stride_above)
    above = np.zeros((len(lost), room + 1), dtype=complex)
    for place in range(1, room + 1):
        above[:, place] = _either(above[:, place - 1], late[:, threshold + place])
    crossing = admission.crossing_values(offer, above)
    width = min(offer.packets.shape[1] - 1, threshold)
    left = offer.total[:, None] - offer.packets[:, : width + 1].cumsum(axis=1)
    stays = left[:, np.minimum(np.arange(threshold + 1), width)] - crossing
    # Who passes S is late by the way back to S, and by what comes from beyond.
    crossed = lost[:, None] + crossing
    stride = admission.fixed_burst or 1
    _descend(late[:, : threshold + 1], offer.packets[:, : width + 1], crossed, stays, stride, may_settle=True)
    return np.asarray((1 - late).cumprod(axis=1))


def _descend(
    late: ComplexArray,
    packets: Array,
    crossed: ComplexArray,
    stays: ComplexArray,
    stride: int,
    *,
    may_settle: bool = False,
) -> None:
    """Set column w = top … 1 of `late`: 1 - g_w.

    Args:
        late: its column 0 stays as it is.
        packets: column j: weight of j packets let in, none but at multiples of `stride`.
        crossed: column d: what delays at top + 1 - d, beside the packets let in; or one column for all.
        stays: column d: weight of the ways that lead to the top.
        stride: packets between two numbers of packets that may join.
        may_settle: whether lengths far below the top are all alike in the end.
    """
    highest, width = late.shape[1] - 1, packets.shape[1] - 1
    idle = packets[:, 0]
    crossed = np.broadcast_to(crossed, (len(late), highest + 1))
    at_least = packets[:, ::-1].cumsum(axis=1)[:, ::-1]
    # complements[:, w'] is 1 - g_w+1 … g_w' up to the block's end, and 1 - g_end+1 … g_w' beyond.
    complements = np.zeros((len(late), highest + 1), dtype=complex)
    end = highest
    top = np.zeros(len(late), dtype=complex)
    interval = max(LEAST_INTERVAL, stride)
    unchanged = 0
    for length in range(highest, 0, -1):
        distance = highest - length + 1
        reach = min(distance, width)
        delay = crossed[:, distance] + top * stays[:, distance]
        inside = min(reach, end - length + 1)
        if inside >= stride:
            ahead = complements[:, length + stride - 1 : length + inside : stride]
            delay += np.einsum("sr,sr->s", packets[:, stride : inside + 1 : stride], ahead)
        beyond = (inside // stride + 1) * stride
        if reach >= beyond:
            ahead = complements[:, length + beyond - 1 : length + reach : stride]
            whole = complements[:, end]
            weight = at_least[:, beyond] - (at_least[:, reach + 1] if reach < width else 0)
            delay += whole * weight
            delay += (1 - whole) * np.einsum("sr,sr->s", packets[:, beyond : reach + 1 : stride], ahead)
        step = late[:, length] = delay / (idle + delay)
        _lengthen(complements[:, length : end + 1], step)
        if length == end - BLOCK:
            _lengthen(complements[:, end + 1 : length + width], complements[:, end])
            end = length - 1
        top = _either(top, step)
        if may_settle and distance % interval == 0 and distance > interval:
            same = _is_same(step, late[:, length + interval])
            unchanged = unchanged + 1 if same else 0
            if unchanged > 1:
                late[:, 1:length] = step[:, None]
                return


def _lengthen(complements: ComplexArray, late: ComplexArray) -> None:
    """Products that begin lower by what has this complement."""
    complements *= (1 - late)[:, None]
    complements += late[:, None]


def _either(one: ComplexArray, other: ComplexArray) -> ComplexArray:
    """Complement of a product, from those of its factors."""
    return one + other * (1 - one)


def _is_same(late: ComplexArray, before: ComplexArray) -> bool:
    return bool((np.abs(late - before) <= SAME * np.abs(late)).all())
