"""Bursts in a stream of packets: what one sender sends back to back."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.traffic.records import Column
from mltswitch.traffic.statistics import Values
from mltswitch.units import NANOSECONDS

FEWEST_SPACINGS: Final = 50
BINS_PER_DECADE: Final = 20
SMOOTHING: Final = np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 9
VALLEY_DEPTH: Final = 0.5
"""The floor of a valley in the histogram of spacings lies below this share of the lower of its two hills."""
VALLEY_DEVIATIONS: Final = 5.0
"""The floor of a valley lies at least this many standard deviations of the lower hill below it, to exclude
noise."""
SPIKE_SHARE: Final = 0.25
"""Least share of spacings of nearly one length that counts as a spike; an exponential distribution has 2 %
there."""
SPIKE_MARGIN: Final = 1.3
FEWEST_GAPS: Final = 5
"""The fewest gaps between bursts; with fewer, the stream is one long burst or shows none."""
FEWEST_BURSTS: Final = 20
ALIKE: Final = 0.5
"""Correlation of neighbours' importance in a burst above which whole bursts, not packets, are important or
not."""
OUTLIER: Final = 3.0


@dataclass(frozen=True, slots=True)
class Stream:
    """Packets of one class: sender by sender, each in order of time."""

    times_nanoseconds: Column
    sizes_bytes: Values
    is_important: NDArray[np.bool_]
    spacings_nanoseconds: Values
    """Spacing from the same sender's packet before, varied within the clock's tick; infinite for a sender's
    first packet."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """The bursts of one class in order of time, and their common properties."""

    starts_nanoseconds: Column
    sizes_bytes: Values
    packets: Column
    rate_bps: float | None
    """Rate within bursts in bit/s; None: packets come at once as far as the clock tells, or no burst has two
    packets."""
    importance_correlation: float | None
    """Correlation of neighbours' importance in a burst: 1 if all packets of a burst are alike, 0 if each is
    drawn alone; None: unknown."""


def stream_of(
    times: Column,
    sizes: NDArray[np.uint32],
    senders: NDArray[np.uint32],
    important: NDArray[np.bool_],
    tick: int,
) -> Stream:
    """The stream of one class's packets, which are given in order of time."""
    order = np.argsort(senders, kind="stable")
    sender, moments = senders[order], times[order]
    spacings = np.full(len(order), np.inf)
    spacings[1:] = np.where(sender[1:] == sender[:-1], undo_tick(np.diff(moments), tick), np.inf)
    return Stream(moments, sizes[order].astype(np.float64), important[order], spacings)


def undo_tick(distances: Column, tick: int) -> Values:
    """Time differences that were truncated to ticks, spread reproducibly over the values that they may have
    had."""
    noise = np.random.default_rng(1)
    error = noise.random(len(distances)) - noise.random(len(distances))
    return np.abs(distances + tick * error)


def find_gap(spacings: Values) -> float | None:
    """The largest spacing within a burst in ns, from the histogram of spacings; None where it shows no
    bursts."""
    known = spacings[np.isfinite(spacings) & (spacings > 0)]
    if len(known) < FEWEST_SPACINGS:
        return None
    gap = _valley(np.log10(known)) or _behind_spike(np.log10(known))
    if gap is None or np.count_nonzero(spacings > gap) < FEWEST_GAPS:
        return None
    return gap


def _valley(logarithms: Values) -> float | None:
    """Spacings within bursts are one hill of the histogram, those between bursts another one."""
    low = logarithms.min()
    bins = int((logarithms.max() - low) * BINS_PER_DECADE) + 1
    counts, edges = np.histogram(logarithms, bins=bins, range=(low, low + bins / BINS_PER_DECADE))
    smooth = np.convolve(counts, SMOOTHING, mode="same")
    hill = np.minimum(np.maximum.accumulate(smooth), np.maximum.accumulate(smooth[::-1])[::-1])
    depth = hill - smooth
    is_valley = (smooth < VALLEY_DEPTH * hill) & (depth > VALLEY_DEVIATIONS * np.sqrt(hill))
    if not is_valley.any():
        return None
    deepest = int(np.argmax(np.where(is_valley, depth, -1)))
    return float(10 ** ((edges[deepest] + edges[deepest + 1]) / 2))


def _behind_spike(logarithms: Values) -> float | None:
    """Busy senders leave no valley, but their link's packet time stands out."""
    ordered = np.sort(logarithms)
    width = 1 / BINS_PER_DECADE
    inside = np.searchsorted(ordered, ordered + width, side="right") - np.arange(len(ordered))
    densest = int(np.argmax(inside))
    if inside[densest] < SPIKE_SHARE * len(ordered):
        return None
    return float(10 ** (ordered[densest] + width) * SPIKE_MARGIN)


def bursts_of(stream: Stream, gap_nanoseconds: float, tick: int) -> Bursts:
    """The bursts of a stream: runs of one sender's packets whose spacings are at most the gap."""
    inside = stream.spacings_nanoseconds <= gap_nanoseconds
    firsts = np.flatnonzero(~inside)
    sizes = np.add.reduceat(stream.sizes_bytes, firsts)
    packets = np.diff(np.append(firsts, len(inside)))
    starts = stream.times_nanoseconds[firsts]
    order = np.argsort(starts, kind="stable")
    return Bursts(
        starts_nanoseconds=starts[order],
        sizes_bytes=sizes[order],
        packets=packets[order],
        rate_bps=_rate_bps(stream, inside, tick),
        importance_correlation=_importance_correlation(stream.is_important, inside),
    )


def _rate_bps(stream: Stream, inside: NDArray[np.bool_], tick: int) -> float | None:
    spacings, sizes = stream.spacings_nanoseconds[inside], stream.sizes_bytes[inside]
    if not len(spacings):
        return None
    usual = spacings <= max(OUTLIER * float(np.median(spacings)), 2.0 * tick)
    total = float(spacings[usual].sum())
    if total < tick * np.count_nonzero(usual):  # the tick alone would look like this
        return None
    return float(sizes[usual].sum()) * 8 * NANOSECONDS / total


def _importance_correlation(is_important: NDArray[np.bool_], inside: NDArray[np.bool_]) -> float | None:
    neighbours = inside[1:]
    if np.count_nonzero(neighbours) < FEWEST_BURSTS:
        return None
    before, after = is_important[:-1][neighbours], is_important[1:][neighbours]
    share = float(np.concatenate((before, after)).mean())
    if share in (0.0, 1.0):
        return None
    return 1 - float((before != after).mean()) / (2 * share * (1 - share))
