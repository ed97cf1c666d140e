"""A whole capture as columns of numbers: some 18 bytes per packet, in order of time."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.traffic.frames import Packets, ip_packets
from mltswitch.traffic.records import Column, read_records
from mltswitch.units import NANOSECONDS

MOST_PACKETS: Final = 50_000_000
MOST_STEP_BACK_NANOSECONDS: Final = NANOSECONDS
"""A network card's queues put packets out of order by milliseconds; if it is more, the clock was set."""
COARSEST_TICK_NANOSECONDS: Final = 1_000_000

Progress = Callable[[int], None]
"""Called with the number of bytes read so far."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The IP packets of a capture, in order of time."""

    times_nanoseconds: Column
    sizes_bytes: NDArray[np.uint32]
    traffic_class_bytes: NDArray[np.uint8]
    senders: NDArray[np.uint32]
    other_frames: int
    """Frames without IP; they are in no column."""
    interfaces: int
    """Interfaces that packets were captured on."""
    reordered_packets: int
    """Packets that stood behind a later one."""
    tick_nanoseconds: int
    """What the clock counted in: a power of ten."""

    @property
    def duration_seconds(self) -> float:
        """From the first packet to the last one."""
        return float(self.times_nanoseconds[-1] - self.times_nanoseconds[0]) / NANOSECONDS


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file to read bytes from; raises UserInputError when there is none, or it cannot be read."""
    try:
        # a pipe without a writer must not block the opening
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserInputError("is no regular file", where=str(path))
            yield stream
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def read_capture(path: Path, on_progress: Progress | None = None) -> Capture:
    """All IP packets of a pcap or pcapng file.

    Raises:
        UserInputError: the file is no capture, is damaged or cut off, holds no IP packets, or its times say
            nothing.
    """
    pieces: list[Packets] = []
    interfaces: set[int] = set()
    packets = 0
    with open_regular(path) as stream:
        for records in read_records(stream, str(path)):
            pieces.append(ip_packets(records, str(path)))
            interfaces.update(map(int, np.unique(records.interfaces)))
            packets += len(pieces[-1].senders)
            if packets > MOST_PACKETS:
                raise UserInputError(
                    f"holds more than {MOST_PACKETS:,} packets", where=str(path), hint="fit a shorter capture"
                )
            if on_progress is not None:
                on_progress(stream.tell())
    other = sum(piece.other_frames for piece in pieces)
    if packets == 0:
        what = f"holds no IP packet, and {other} other frames" if other else "holds no packets"
        raise UserInputError(what, where=str(path))
    columns: dict[str, Any] = {
        field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])
        for field in fields(Packets)
        if field.name != "other_frames"
    }
    pieces.clear()
    reordered = _sort(columns, str(path))
    return Capture(
        **columns,
        other_frames=other,
        interfaces=len(interfaces),
        reordered_packets=reordered,
        tick_nanoseconds=_tick(columns["times_nanoseconds"]),
    )


def _sort(columns: dict[str, Any], where: str) -> int:
    """Bring the columns into order of time; how many packets were out of it."""
    times = columns["times_nanoseconds"]
    latest = np.maximum.accumulate(times)
    late = latest - times
    if len(times) > 1 and times.max() == times.min():
        raise UserInputError(f"has no timestamps: all {len(times)} packets have the same time", where=where)
    if late.max() > MOST_STEP_BACK_NANOSECONDS:
        worst = int(np.argmax(late))
        raise UserInputError(
            f"time runs back by {late[worst] / NANOSECONDS:g} s at IP packet {worst + 1}",
            where=where,
            hint="the clock was set, or captures were joined; sort them with reordercap, or fit one of them",
        )
    reordered = int(np.count_nonzero(late))
    if reordered:
        order = np.argsort(times, kind="stable")
        for name, column in columns.items():
            columns[name] = column[order]
    return reordered


def _tick(times: Column) -> int:
    """The largest power of ten that all distances are multiples of."""
    common = int(np.gcd.reduce(times - times[0]))
    tick = 1
    while tick < COARSEST_TICK_NANOSECONDS and common and common % (tick * 10) == 0:
        tick *= 10
    return tick
