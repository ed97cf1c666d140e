"""First passages: how long until a queue, with all classes above it, has one packet less.

A class serves one packet in a duration T (its transmission and the busy period above it), and what arrives
meanwhile joins. g_w(s) is the transform of the time in which it goes from w to w - 1 waiting packets; by
the structure of the chain (down by one at most),

    g_w = m_0 / (m_0 + D),    D = 1 - E exp(-s T) + sum over j of m_j (1 - g_w+1 … g_w+j-1),

with m_j the weight of j packets let in. Everything in D is a complement of a transform: near s = 0 nothing
cancels, so that even busy periods of 10^12 packet times keep their digits.
"""

from typing import Final

import numpy as np

from mltswitch.queueing.completion.admission import Admission, Offer
from mltswitch.queueing.completion.rational import ComplexArray

SAME: Final = 1e-12
"""Relative change from one length to the next below which the queue no longer feels its thresholds."""
LEAST_INTERVAL: Final = 8
"""Lengths between two such comparisons, at least one burst."""


def passages(admission: Admission, offer: Offer) -> ComplexArray:
    """F[:, w]: transform of the time from w waiting packets to none, w = 0 … L."""
    steps = np.ones((len(offer.total), admission.limit + 1), dtype=complex)
    complements = _above(admission, offer, steps)
    _below(admission, offer, complements, steps)
    return np.asarray(steps.cumprod(axis=1))


def _above(admission: Admission, offer: Offer, steps: ComplexArray) -> ComplexArray:
    """g_w for w = L … S + 1; returns 1 - g_S+1 … g_S+r for r = 0 … L - S."""
    threshold, limit = admission.threshold, admission.limit
    joined = admission.above(offer)
    left = offer.total[:, None] - joined.cumsum(axis=1)
    idle, lost = joined[:, 0], 1 - offer.total
    # complements[:, r] is 1 - g_w+1 … g_S+r.
    complements = np.zeros((len(lost), admission.room + 1), dtype=complex)
    for length in range(limit, threshold, -1):
        place, reach = length - threshold, limit - length
        delay = lost + left[:, reach] * complements[:, -1]
        if reach > 1:
            delay += np.einsum(
                "sr,sr->s", joined[:, 2 : reach + 1], complements[:, place + 1 : place + reach]
            )
        _step_down(steps, complements[:, place:], length, idle, delay)
    return complements


def _below(admission: Admission, offer: Offer, above: ComplexArray, steps: ComplexArray) -> None:
    """g_w for w = S … 1."""
    threshold, packets = admission.threshold, offer.packets
    crossing = admission.crossing_values(offer, above)
    width = min(packets.shape[1] - 1, threshold)
    left = offer.total[:, None] - packets[:, : width + 1].cumsum(axis=1)
    idle, lost = packets[:, 0], 1 - offer.total
    # Who passes S is late by the way back to S, and by what comes from beyond.
    crossed = lost[:, None] + crossing
    stays = left[:, np.minimum(np.arange(threshold + 1), width)] - crossing
    stride = admission.fixed_burst or 1
    first = max(2, stride)
    # complements[:, w'] is 1 - g_w+1 … g_w', kept as far as arrivals reach; `top` is that of w' = S.
    complements = np.zeros((len(lost), threshold + 1), dtype=complex)
    top = np.zeros(len(lost), dtype=complex)
    interval = max(LEAST_INTERVAL, stride)
    unchanged = 0
    for length in range(threshold, 0, -1):
        distance = threshold - length + 1
        reach = min(distance, width)
        delay = crossed[:, distance] + top * stays[:, distance]
        if reach >= first:
            ahead = complements[:, length + first - 1 : length + reach : stride]
            delay += np.einsum("sr,sr->s", packets[:, first : reach + 1 : stride], ahead)
        _step_down(steps, complements[:, length : length + width], length, idle, delay)
        top = 1 - steps[:, length] * (1 - top)
        if distance % interval == 0 and distance > interval:
            same = _is_same(steps[:, length], steps[:, length + interval])
            unchanged = unchanged + 1 if same else 0
            if unchanged > 1:
                steps[:, 1:length] = steps[:, length, None]
                return


def _step_down(
    steps: ComplexArray, complements: ComplexArray, length: int, idle: ComplexArray, delay: ComplexArray
) -> None:
    """Set g_w, and make the complements start one lower."""
    late = delay / (idle + delay)
    steps[:, length] = 1 - late
    complements *= steps[:, length, None]
    complements += late[:, None]


def _is_same(step: ComplexArray, before: ComplexArray) -> bool:
    return bool((np.abs(step - before) <= SAME * np.abs(1 - step)).all())
