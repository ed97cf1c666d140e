"""Computes from one run the queue that each packet found, and how long the packet waited.

The hosts' clocks differ. Lone packets before and after a run give each sender's delay through the empty port,
in the receiver's clock; a line through both takes up what the clocks drift meanwhile. A packet's delay beyond
that is time spent waiting, and times the port's rate it is the queue in bytes that the packet found. A lost
packet found the queue that its neighbours found.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.errors import MachineError
from mltswitch.measure.hosts import Exchanged
from mltswitch.measure.schedule import Bools, Floats
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire import Ecn

FEWEST_IDLE_PACKETS: Final = 10
"""The fewest lone packets of a sender from which the delay of its empty path is known."""
NOISE_PERCENTILE: Final = 90.0
RATE_BLOCKS: Final = 10
FEWEST_BLOCK_PACKETS: Final = 5
ARRAYS: Final = ("phase", "class_index", "is_ect", "is_received", "is_marked", "time_seconds", "wait_seconds")
"""Names of a trace's fields that have one entry per packet."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The packets of some phases in order of arrival at the port; all arrays have one entry per packet."""

    phase: npt.NDArray[np.str_]
    class_index: npt.NDArray[np.uint8]
    is_ect: Bools
    is_received: Bools
    is_marked: Bools
    """Whether each packet arrived with CE."""
    time_seconds: Floats
    """Seconds, by the receiver's clock, of each packet's arrival at the port plus the empty path's delay."""
    wait_seconds: Floats
    """Seconds that each packet waited in the queue; for a lost one, those of its neighbours in its class."""
    noise_seconds: float
    """Spread in seconds of the empty path's delay: by so much a wait may be wrong."""
    late_seconds: float

    def __len__(self) -> int:
        return len(self.time_seconds)

    @property
    def left_seconds(self) -> Floats:
        """When each packet left the queue, in seconds of the receiver's clock."""
        return self.time_seconds + self.wait_seconds

    def where(self, chosen: Bools | npt.NDArray[np.int64] | slice) -> "Trace":
        """The trace of some packets only, chosen by a mask, by indices or by a slice."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in ARRAYS})

    def of(self, phase: str) -> "Trace":
        """The trace of the packets of one phase."""
        return self.where(self.phase == phase)

    def rate_bps(self, packet_bytes: int) -> float | None:
        """Bits per second that left the port over the second half of these packets; None: too few came.

        The median over parts of that time: while a busy host pauses, the port may stand idle.
        """
        left = np.sort(self.left_seconds[self.is_received])
        left = left[len(left) // 2 :]
        step = len(left) // RATE_BLOCKS
        if step < FEWEST_BLOCK_PACKETS:
            return None
        typical = float(np.median(np.diff(left[::step])))
        return step * packet_bytes * BITS_PER_BYTE / typical if typical > 0 else None


def observe(exchanged: Exchanged, empty_seconds: float | None = None) -> Trace:
    """The trace of a run at the port.

    Args:
        empty_seconds: the delay of the empty path, where it is known and all hosts share one clock; None: the
            run's own phases `idle` tell it.

    Raises:
        MachineError: the empty path cannot be known.
    """
    columns = [
        _of_sender(exchanged, sender, empty_seconds)
        for sender, schedule in enumerate(exchanged.run)
        if len(schedule)
    ]
    trace = Trace(
        **{name: np.concatenate([getattr(column, name) for column in columns]) for name in ARRAYS},
        noise_seconds=max(column.noise_seconds for column in columns),
        late_seconds=exchanged.late_seconds,
    )
    trace = trace.where(np.argsort(trace.time_seconds, kind="stable"))
    return replace(trace, wait_seconds=_with_waits_of_the_lost(trace))


def _of_sender(exchanged: Exchanged, sender: int, empty_seconds: float | None) -> Trace:
    sent, schedule = exchanged.sent_ns[sender], exchanged.run[sender]
    arrived = np.zeros(len(sent), dtype=np.int64)
    is_marked = np.zeros(len(sent), dtype=np.bool_)
    mine = exchanged.records[exchanged.records["sender"] == sender]
    mine = mine[mine["sequence"] < len(sent)]
    arrived[mine["sequence"]] = mine["arrived_ns"]
    is_marked[mine["sequence"]] = (mine["tos"] & Ecn.CE) == Ecn.CE
    is_received = arrived > 0
    start_ns = next(int(each[0]) for each in exchanged.sent_ns if len(each))
    # Nanoseconds since the epoch do not fit a float; the clocks' difference is in `delay`, and stays there.
    left = (sent - start_ns) / 1e9
    delay = np.where(is_received, (arrived - sent) / 1e9, np.nan)
    if empty_seconds is None:
        empty, noise = _empty_path(left, delay, (schedule.phase == "idle") & is_received)
    else:
        empty, noise = np.full(len(left), empty_seconds), 0.0
    return Trace(
        schedule.phase,
        schedule.class_index,
        schedule.is_important,
        is_received,
        is_marked,
        left + empty,
        delay - empty,
        noise,
        exchanged.late_seconds,
    )


def _empty_path(left: Floats, delay: Floats, idle: Bools) -> tuple[Floats, float]:
    """(delay of the empty path when each packet left, its spread)."""
    if np.sum(idle) < FEWEST_IDLE_PACKETS:
        raise MachineError(
            "nothing arrived over the empty port, or almost nothing",
            hint="push the plan first: the alias routes may be missing",
        )
    middle = (left[0] + left[-1]) / 2
    early, late = idle & (left < middle), idle & (left >= middle)
    if min(np.sum(early), np.sum(late)) < FEWEST_IDLE_PACKETS:
        empty = np.full(len(left), np.median(delay[idle]))
    else:
        places = [float(np.median(left[block])) for block in (early, late)]
        levels = [float(np.median(delay[block])) for block in (early, late)]
        slope = (levels[1] - levels[0]) / (places[1] - places[0])
        empty = levels[0] + slope * (left - places[0])
    spread = np.abs(delay[idle] - empty[idle])
    return empty, float(np.percentile(spread, NOISE_PERCENTILE))


def _with_waits_of_the_lost(trace: Trace) -> Floats:
    """Each packet's wait; lost packets get those of their neighbours in time, of the same class and phase."""
    wait = np.maximum(trace.wait_seconds, 0.0)
    for phase in np.unique(trace.phase):
        for index in np.unique(trace.class_index):
            mine = (trace.phase == phase) & (trace.class_index == index)
            known, lost = mine & trace.is_received, mine & ~trace.is_received
            if np.any(known):
                wait[lost] = np.interp(trace.time_seconds[lost], trace.time_seconds[known], wait[known])
            else:
                wait[lost] = 0.0
    return wait


def best_split(found: Floats, marked: Bools) -> float:
    """The length, in the unit of `found`, that separates unmarked from marked packets with least errors."""
    order = np.argsort(found, kind="stable")
    marks_below = np.concatenate([[0], np.cumsum(marked[order])])
    unmarked_above = np.sum(~marked) - np.concatenate([[0], np.cumsum(~marked[order])])
    cut = int((marks_below + unmarked_above).argmin())
    return float(found[order][min(cut, len(found) - 1)])
