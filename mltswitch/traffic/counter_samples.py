"""Cumulative counters of queues in a file: CSV with a heading, or JSON lines."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.traffic.capture import Progress, open_regular

COLUMNS: Final = ("time_seconds", "class", "packets")
BYTES_COLUMN: Final = "bytes"
LONGEST_LINE_BYTES: Final = 4096
MOST_SAMPLES: Final = 5_000_000
FEWEST_SAMPLES: Final = 20
"""The variance of fewer counts is off by a third."""
WRAP: Final = 2**32
LARGEST_WRAP_TIMES: Final = 10.0
"""Times the median rate of the other samples; a step back that gives more growth as a wrap is a reset."""
LARGEST_COUNT: Final = 2**64
LARGEST_SECONDS: Final = 1e12


@dataclass(frozen=True, slots=True)
class Wrap:
    """A step back: a 32-bit counter's end, if the growth that it then had is like that of other samples."""

    place: int
    """Of the growth, in its series."""
    before: int
    now: int
    where: str


@dataclass(slots=True)
class Counter:
    """Samples of one class, as differences."""

    times: list[float] = field(default_factory=list)
    packets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    last: tuple[int, int | None] = (0, None)
    """Packets and bytes of the newest sample, as the counter says them."""
    packet_wraps: list[Wrap] = field(default_factory=list)
    size_wraps: list[Wrap] = field(default_factory=list)

    @property
    def wraps(self) -> int:
        """How often a counter began anew."""
        return len(self.packet_wraps) + len(self.size_wraps)


def is_counters(beginning: bytes) -> bool:
    """Whether a file that begins so looks like counters: a CSV heading, or JSON lines."""
    start = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith(b"{") or COLUMNS[0].encode() in start.split(b"\n")[0]


def read_counters(path: Path, on_progress: Progress | None) -> dict[str, Counter]:
    """Counters by class; raises UserInputError naming the line that cannot be used."""
    counters: dict[str, Counter] = {}
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
        if len(counter.packets) < FEWEST_SAMPLES:
            raise UserInputError(
                f"class {name[:40]} has {len(counter.times)} samples",
                where=str(path),
                expected=f"at least {FEWEST_SAMPLES + 1}",
            )
        _refuse_resets(counter.times, counter.packets, counter.packet_wraps)
        _refuse_resets(counter.times, counter.sizes, counter.size_wraps)
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


def _take(counters: dict[str, Counter], row: dict[str, Any], where: str) -> None:
    time = row.get("time_seconds")
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < LARGEST_SECONDS:
        raise _refused("time_seconds", time, "a number of seconds", where)
    name = row.get("class")
    if not isinstance(name, str) or not 0 < len(name) < 64 or not name.isprintable():
        raise _refused("class", name, "a name", where)
    packets = _count(row, "packets", where)
    sizes = _count(row, BYTES_COLUMN, where) if row.get(BYTES_COLUMN) is not None else None
    counter = counters.setdefault(name, Counter())
    if counter.times:
        if (counter.last[1] is None) != (sizes is None):
            raise UserInputError("bytes are given for some samples of the class only", where=where)
        if not time > counter.times[-1]:
            raise UserInputError(
                f"time does not go on after {counter.times[-1]:g} s", where=f"{where}: time_seconds"
            )
        _grow(counter.packets, counter.packet_wraps, counter.last[0], packets, f"{where}: packets")
        if sizes is not None:
            _grow(counter.sizes, counter.size_wraps, counter.last[1] or 0, sizes, f"{where}: bytes")
    counter.times.append(float(time))
    counter.last = (packets, sizes)


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


def _grow(growths: list[int], wraps: list[Wrap], before: int, now: int, where: str) -> None:
    """Add the growth since the last sample; a 32-bit counter that passed its end goes on from 0."""
    if now >= before:
        growths.append(now - before)
    elif before < WRAP and before - now > WRAP // 2:
        wraps.append(Wrap(len(growths), before, now, where))
        growths.append(now + WRAP - before)
    else:
        raise _went_back(before, now, where)


def _refuse_resets(times: list[float], growths: list[int], wraps: list[Wrap]) -> None:
    """A counter that was reset from high up looks like one that wrapped, but for how much it then grew."""
    if not wraps:
        return
    rates = np.array(growths, dtype=np.float64) / np.diff(times)
    others = np.delete(rates, [wrap.place for wrap in wraps])
    busy = others[others > 0]
    most = LARGEST_WRAP_TIMES * float(np.median(busy)) if busy.size else 0.0
    for wrap in wraps:
        if rates[wrap.place] > most:
            raise _went_back(
                wrap.before,
                wrap.now,
                wrap.where,
                f", which no 32-bit counter explains: it would have grown by {growths[wrap.place]:,}, more "
                f"than {LARGEST_WRAP_TIMES:g} times as fast as in the other samples",
            )


def _went_back(before: int, now: int, where: str, why: str = "") -> UserInputError:
    return UserInputError(
        f"the counter went back from {before} to {now}{why}",
        where=where,
        hint="it was reset; fit the samples after it",
    )
