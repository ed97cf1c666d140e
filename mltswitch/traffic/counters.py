"""Fit arrival processes to periodic queue counters, which give rates and their variation, but no single
packets.

The file of counters is CSV with a heading, or JSON lines.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from math import floor, isfinite
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from mltswitch.documents import open_regular
from mltswitch.errors import UserInputError
from mltswitch.traffic.capture import Progress
from mltswitch.traffic.document import TRAFFIC_SCHEMA, ClassTraffic, DispersionPoint, Source, Traffic
from mltswitch.traffic.fit import LARGEST_SIZE, FitSettings
from mltswitch.traffic.statistics import Values, limit_of, long_windows
from mltswitch.units import BITS_PER_BYTE

COLUMNS: Final = ("time_seconds", "class", "packets")
BYTES_COLUMN: Final = "bytes"
LONGEST_LINE_BYTES: Final = 4096
MOST_SAMPLES: Final = 5_000_000
FEWEST_SAMPLES: Final = 20
"""The fewest samples that are fitted; the variance of fewer counts is off by a third."""
WRAP: Final = 2**32
LARGEST_WRAP_TIMES: Final = 10.0
"""A counter that steps back has wrapped only if its rate is at most this many times the median; else it was
reset."""
LARGEST_COUNT: Final = 2**64
LARGEST_SECONDS: Final = 1e12
RESET: Final = "it was reset; fit the samples after it"


@dataclass(slots=True)
class _Total:
    """A cumulative counter, as what it grew by from sample to sample."""

    growth: list[int] = field(default_factory=list)
    last: int | None = None
    """As the counter says it in the newest sample."""
    wraps: list[tuple[int, str, str]] = field(default_factory=list)
    """(place of the growth, what the counter did, where): it stepped back, and was taken to have wrapped."""

    def take(self, now: int, where: str) -> None:
        """Add the growth since the last sample; a 32-bit counter that passed its end goes on from 0."""
        before, self.last = self.last, now
        if before is None:
            return
        step = f"the counter went back from {before} to {now}"
        if now < before:
            if before >= WRAP or before - now <= WRAP // 2:
                raise UserInputError(step, where=where, hint=RESET)
            self.wraps.append((len(self.growth), step, where))
            now += WRAP
        self.growth.append(now - before)

    def refuse_resets(self, times: list[float]) -> None:
        """A counter that was reset from high up looks as if it had wrapped, but for how much it then grew."""
        if not self.wraps:
            return
        rates = np.array(self.growth, dtype=np.float64) / np.diff(times)
        others = np.delete(rates, [place for place, _, _ in self.wraps])
        busy = others[others > 0]
        most = LARGEST_WRAP_TIMES * float(np.median(busy)) if busy.size else 0.0
        for place, step, where in self.wraps:
            if rates[place] > most:
                raise UserInputError(
                    f"{step}, which no 32-bit counter explains: it would have grown by "
                    f"{self.growth[place]:,}, more than {LARGEST_WRAP_TIMES:g} times as fast as in the other "
                    "samples",
                    where=where,
                    hint=RESET,
                )


@dataclass(slots=True)
class _Counter:
    """The readings of one traffic class's packet counter, in the order of their times."""

    times: list[float] = field(default_factory=list)
    packets: _Total = field(default_factory=_Total)
    sizes: _Total = field(default_factory=_Total)
    """Bytes; `last` is None where they are not given."""

    @property
    def wraps(self) -> int:
        """How often a counter began anew."""
        return len(self.packets.wraps) + len(self.sizes.wraps)


def fit_counters(path: Path, settings: FitSettings, on_progress: Progress | None = None) -> Traffic:
    """The traffic that cumulative queue counters in a file describe.

    The index of dispersion of a Poisson process of bursts is E[b²]/E[b]: for bursts of one size b it is b,
    for geometric sizes of mean m it is 2m - 1. So it gives a burst size, if bursts come independently.

    Raises:
        UserInputError: a line that cannot be used (named), a counter that went back, or no size of a packet.
    """
    counters = _read(path, on_progress)
    has_bytes = all(counter.sizes.last is not None for counter in counters.values())
    packets = sum(sum(counter.packets.growth) for counter in counters.values())
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
        totals = [(sum(c.sizes.growth), sum(c.packets.growth)) for c in counters.values()]
        packet_bytes = max(1, round(max(size / count for size, count in totals if count)))
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
    settings: FitSettings, counters: dict[str, _Counter], packet_bytes: int, has_bytes: bool
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


def _fit(name: str, counter: _Counter, rate_bps: int, packet_bytes: int, has_bytes: bool) -> ClassTraffic:
    times, packets = np.array(counter.times), sum(counter.packets.growth)
    duration = float(times[-1] - times[0])
    size_bytes = sum(counter.sizes.growth) if has_bytes else packets * packet_bytes
    counts = np.array(counter.packets.growth, dtype=np.float64)
    points = _dispersion(np.diff(times), counts)
    limit = limit_of(points)
    burst = min(max(1.0, limit if limit is not None else 1.0), LARGEST_SIZE)
    sizes, probabilities = _around(burst)
    longest = long_windows(points)
    error = (2 / longest[-1].windows) ** 0.5 if longest else 1.0
    return ClassTraffic(
        name=name,
        kind="estimated",
        packets=packets,
        size_bytes=size_bytes,
        load=size_bytes * BITS_PER_BYTE / duration / rate_bps,
        unimportant_share=None,
        importance="packet",
        sizes_packets=sizes,
        probabilities=probabilities,
        mean_burst_packets=burst,
        geometric_mean_packets=(burst + 1) / 2,
        dispersion=points,
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


def _dispersion(intervals: Values, counts: Values) -> tuple[DispersionPoint, ...]:
    """Index of dispersion at windows of 1, 2, 4, … samples, whose lengths need not be equal."""
    total = counts.sum()
    if total == 0:
        return ()
    rate = total / intervals.sum()
    found = []
    while len(counts) >= FEWEST_SAMPLES:
        surplus = counts - rate * intervals
        index = float((surplus**2).mean() / counts.mean())
        found.append(
            DispersionPoint(window_seconds=float(intervals.mean()), index=index, windows=len(counts))
        )
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


def is_counters(beginning: bytes) -> bool:
    """Whether a file that begins so looks like counters: a CSV heading, or JSON lines."""
    start = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith(b"{") or COLUMNS[0].encode() in start.split(b"\n")[0]


def _read(path: Path, on_progress: Progress | None) -> dict[str, _Counter]:
    """Counters by class; raises UserInputError naming the line that cannot be used."""
    counters: dict[str, _Counter] = {}
    samples = 0
    with open_regular(path) as stream:
        for number, row in _rows(stream, str(path)):
            where = f"{path}:{number}"
            _take(counters, row, where)
            samples += 1
            if samples > MOST_SAMPLES:
                raise UserInputError(f"more than {MOST_SAMPLES:,} samples", where=where)
            if on_progress is not None and samples % 10_000 == 0:
                on_progress(stream.tell())
    if not counters:
        raise UserInputError("holds no samples", where=str(path))
    for name, counter in counters.items():
        if len(counter.packets.growth) < FEWEST_SAMPLES:
            raise UserInputError(
                f"class {name[:40]} has {len(counter.times)} samples",
                where=str(path),
                expected=f"at least {FEWEST_SAMPLES + 1}",
            )
        for total in (counter.packets, counter.sizes):
            total.refuse_resets(counter.times)
    return counters


def _rows(stream: BinaryIO, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and fields of CSV with a heading, or of JSON lines."""
    heading: list[str] | None = None
    number = 0
    while line := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        place = f"{where}:{number}"
        if len(line) > LONGEST_LINE_BYTES:
            raise UserInputError(f"longer than {LONGEST_LINE_BYTES} bytes", where=place)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise UserInputError("is not UTF-8 text", where=place) from None
        if not text:
            continue
        if heading is None and text.startswith("{"):
            yield number, _json_fields(text, place)
        elif heading is None:
            heading = _heading(text, place)
        else:
            yield number, _csv_fields(text, heading, place)


def _json_fields(text: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UserInputError("is no JSON", where=where) from None
    if not isinstance(data, dict):
        raise UserInputError("is no JSON object", where=where)
    return data


def _csv_values(text: str, where: str) -> list[str]:
    try:
        return [value.strip() for value in next(csv.reader(StringIO(text)), [])]
    except csv.Error as error:
        raise UserInputError(f"is no CSV: {error}", where=where) from None


def _heading(text: str, where: str) -> list[str]:
    names = _csv_values(text, where)
    if len(set(names)) < len(names):
        raise UserInputError("a column stands twice", where=where)
    for name in COLUMNS:
        if name not in names:
            raise UserInputError(
                f"no column {name}", where=where, expected=",".join((*COLUMNS, BYTES_COLUMN))
            )
    return names


def _csv_fields(text: str, heading: list[str], where: str) -> dict[str, Any]:
    values = _csv_values(text, where)
    if len(values) != len(heading):
        raise UserInputError(f"{len(values)} values under {len(heading)} columns", where=where)
    fields: dict[str, Any] = dict(zip(heading, values, strict=True))
    for name in (COLUMNS[0], COLUMNS[2], BYTES_COLUMN):
        if name in fields:
            fields[name] = _parsed(fields[name])
    return fields


def _parsed(text: str) -> object:
    if text.isascii() and text.isdigit() and len(text) < 40:
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _take(counters: dict[str, _Counter], row: dict[str, Any], where: str) -> None:
    time = row.get("time_seconds")
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < LARGEST_SECONDS:
        raise _refused("time_seconds", time, "a number of seconds", where)
    name = row.get("class")
    if not isinstance(name, str) or not 0 < len(name) < 64 or not name.isprintable():
        raise _refused("class", name, "a name", where)
    packets = _count(row, "packets", where)
    sizes = _count(row, BYTES_COLUMN, where) if row.get(BYTES_COLUMN) is not None else None
    counter = counters.setdefault(name, _Counter())
    if counter.times:
        if (counter.sizes.last is None) != (sizes is None):
            raise UserInputError("bytes are given for some samples of the class only", where=where)
        if not time > counter.times[-1]:
            raise UserInputError(
                f"time does not go on after {counter.times[-1]:g} s", where=f"{where}: time_seconds"
            )
    counter.times.append(float(time))
    counter.packets.take(packets, f"{where}: packets")
    if sizes is not None:
        counter.sizes.take(sizes, f"{where}: bytes")


def _count(row: dict[str, Any], name: str, where: str) -> int:
    value = row.get(name)
    if isinstance(value, float) and isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST_COUNT:
        raise _refused(name, value, "a whole number, at least 0", where)
    return value


def _refused(name: str, value: object, expected: str, where: str) -> UserInputError:
    what = "is missing" if value is None else f"{str(value)[:40]!r} cannot be used"
    return UserInputError(what, where=f"{where}: {name}", expected=expected)
