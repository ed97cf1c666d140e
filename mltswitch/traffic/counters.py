"""Fit arrival processes to periodic queue counters, which tell rates and how counts vary, but no packet."""

from collections.abc import Iterator
from math import floor
from pathlib import Path

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.traffic.capture import Progress
from mltswitch.traffic.counter_samples import FEWEST_SAMPLES, Counter, read_counters
from mltswitch.traffic.document import TRAFFIC_SCHEMA, ClassTraffic, DispersionPoint, Source, Traffic
from mltswitch.traffic.fit import LARGEST_SIZE, FitSettings
from mltswitch.traffic.statistics import Dispersion, Values, limit_of, long_windows
from mltswitch.units import BITS_PER_BYTE


def fit_counters(path: Path, settings: FitSettings, on_progress: Progress | None = None) -> Traffic:
    """The traffic that cumulative counters tell of.

    The index of dispersion of a Poisson process of bursts is E[b²]/E[b]: for bursts of one size b it is b,
    for geometric sizes of mean m it is 2m - 1. So it gives a burst size, if bursts come independently.

    Raises:
        UserInputError: a line that cannot be used (named), a counter that went back, or no size of a packet.
    """
    counters = read_counters(path, on_progress)
    has_bytes = all(counter.last[1] is not None for counter in counters.values())
    packets = sum(sum(counter.packets) for counter in counters.values())
    if packets == 0:
        raise UserInputError("counts no packets", where=str(path))
    packet_bytes = settings.packet_bytes
    if packet_bytes is None:
        if not has_bytes:
            raise UserInputError(
                "counts packets, but no bytes",
                where=str(path),
                expected="a column bytes",
                hint="or give --mtu",
            )
        means = (sum(c.sizes) / sum(c.packets) for c in counters.values() if sum(c.packets))
        packet_bytes = max(1, round(max(means)))
    classes = [
        _fit(name, counter, settings.rate_bps, packet_bytes, has_bytes) for name, counter in counters.items()
    ]
    names = settings.classes.names
    classes.sort(key=lambda entry: names.index(entry.name) if entry.name in names else len(names))
    duration = max(counter.times[-1] - counter.times[0] for counter in counters.values())
    return Traffic(
        schema=TRAFFIC_SCHEMA,
        source=Source(
            kind="counters",
            duration_seconds=duration,
            packets=packets,
            size_bytes=sum(entry.size_bytes for entry in classes),
            wraps=sum(counter.wraps for counter in counters.values()),
        ),
        rate_bps=settings.rate_bps,
        packet_bytes=packet_bytes,
        classes=tuple(classes),
        notes=tuple(_notes(settings, counters, packet_bytes, has_bytes)),
    )


def _notes(
    settings: FitSettings, counters: dict[str, Counter], packet_bytes: int, has_bytes: bool
) -> Iterator[str]:
    yield (
        "Counters tell no packets: burst sizes are estimated from the index of dispersion, as if bursts came "
        "independently and all at once."
    )
    if not has_bytes:
        yield f"The counters hold no bytes: loads are estimated as if every packet had {packet_bytes:,} B."
    if settings.packet_bytes is None:
        yield f"A full-size packet is taken to be {packet_bytes:,} B, the largest mean of a class's packets."
    if wraps := sum(counter.wraps for counter in counters.values()):
        yield f"Counters of 32 bits began anew {wraps} times; that was undone."


def _fit(name: str, counter: Counter, rate_bps: int, packet_bytes: int, has_bytes: bool) -> ClassTraffic:
    times = np.array(counter.times)
    duration = float(times[-1] - times[0])
    size_bytes = sum(counter.sizes) if has_bytes else sum(counter.packets) * packet_bytes
    counts = np.array(counter.packets, dtype=np.float64)
    points = _dispersion(np.diff(times), counts)
    limit = limit_of(points)
    burst = min(max(1.0, limit if limit is not None else 1.0), LARGEST_SIZE)
    sizes, probabilities = _around(burst)
    longest = long_windows(points)
    error = (2 / longest[-1].windows) ** 0.5 if longest else 1.0
    return ClassTraffic(
        name=name,
        kind="estimated",
        packets=sum(counter.packets),
        size_bytes=size_bytes,
        load=size_bytes * BITS_PER_BYTE / duration / rate_bps,
        unimportant_share=None,
        importance="packet",
        sizes_packets=sizes,
        probabilities=probabilities,
        mean_burst_packets=burst,
        geometric_mean_packets=(burst + 1) / 2,
        dispersion=tuple(
            DispersionPoint(window_seconds=point.window_seconds, index=point.index, windows=point.windows)
            for point in points
        ),
        index_of_dispersion=limit,
        verdict=_verdict(limit, burst, error),
    )


def _verdict(limit: float | None, burst: float, error: float) -> str:
    if limit is None:
        return "no packets of this class"
    return (
        f"estimated from counters: index of dispersion {limit:.3g} (± {2 * error:.0%}) is that of "
        f"independent bursts of {burst:.3g} packets, or of {(burst + 1) / 2:.3g} in the mean if geometric"
    )


def _dispersion(intervals: Values, counts: Values) -> tuple[Dispersion, ...]:
    """Index of dispersion at windows of 1, 2, 4, … samples, whose lengths need not be equal."""
    total = counts.sum()
    if total == 0:
        return ()
    rate = total / intervals.sum()
    found = []
    while len(counts) >= FEWEST_SAMPLES:
        surplus = counts - rate * intervals
        index = float((surplus**2).mean() / counts.mean())
        found.append(Dispersion(float(intervals.mean()), index, len(counts)))
        pairs = len(counts) // 2 * 2
        counts = counts[:pairs:2] + counts[1:pairs:2]
        intervals = intervals[:pairs:2] + intervals[1:pairs:2]
    return tuple(found)


def _around(mean: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The whole sizes beside a mean, in the shares that give it."""
    low = floor(mean)
    if low == mean:
        return (low,), (1.0,)
    return (low, low + 1), (low + 1 - mean, mean - low)
