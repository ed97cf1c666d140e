"""The times at which packets are sent: arrival processes as arrays, reproducible from a seed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from mltswitch.queueing import Importance

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The packets of one sender in order of time; all arrays have one entry per packet."""

    time_seconds: Floats
    class_index: npt.NDArray[np.uint8]
    """Index of each packet's class in the plan, which decides its code point."""
    is_important: Bools
    """Whether each packet leaves as ECT(0); the others are Not-ECT."""
    turn: npt.NDArray[np.int64]
    """Number that decides each packet's path: packets of a class with equal numbers share one, in turn."""
    phase: npt.NDArray[np.str_]
    """Name of the phase of a run to which each packet belongs; empty where a run has no phases."""

    def __len__(self) -> int:
        return len(self.time_seconds)


Run = tuple[Schedule, ...]
"""The schedule of each sender in a run."""


def run_seconds(run: Run) -> float:
    """When the last packet of a run is due, in seconds from its start."""
    return max(float(schedule.time_seconds[-1]) for schedule in run if len(schedule))


@dataclass(frozen=True, slots=True)
class Flow:
    """What one sender offers in one traffic class."""

    class_index: int
    packets_per_second: float
    burst_packets: int
    """How many packets of a burst leave back to back."""
    unimportant_share: float
    importance: Importance = "packet"
    """Whether importance is drawn for each packet, or for each burst."""


def poisson_bursts(flows: Sequence[Flow], duration_seconds: float, seed: int) -> Schedule:
    """The schedule of bursts at exponential intervals, each of one class; a burst takes one path."""
    generator = np.random.default_rng(seed)
    parts = []
    for flow in flows:
        size = flow.burst_packets
        count = generator.poisson(flow.packets_per_second / size * duration_seconds)
        starts = np.sort(generator.uniform(0.0, duration_seconds, count))
        draws = generator.random(count if flow.importance == "burst" else count * size)
        important = np.repeat(draws, size if flow.importance == "burst" else 1) >= flow.unimportant_share
        parts.append(packets_at(np.repeat(starts, size), flow.class_index, important, turn_packets=size))
    return merged(parts)


def packets_at(
    time_seconds: npt.NDArray[np.floating[Any]],
    class_index: int,
    is_important: Bools | Sequence[bool],
    *,
    turn_packets: int = 1,
    phase: str = "",
) -> Schedule:
    """The schedule of one class's packets at these times; every `turn_packets` of them take the next path.

    Args:
        is_important: one entry per packet, or a shorter pattern that the packets take in turn.
    """
    count = len(time_seconds)
    return Schedule(
        time_seconds.astype(np.float64),
        np.full(count, class_index, dtype=np.uint8),
        np.resize(np.asarray(is_important, dtype=np.bool_), count),
        np.arange(count) // turn_packets,
        np.full(count, phase),
    )


def merged(schedules: Sequence[Schedule]) -> Schedule:
    """One schedule of all packets in order of time; those of one moment are in the order of the schedules."""
    time = np.concatenate([schedule.time_seconds for schedule in schedules])
    order = np.argsort(time, kind="stable")
    columns = ([getattr(schedule, field.name) for schedule in schedules] for field in fields(Schedule))
    return Schedule(*(np.concatenate(column)[order] for column in columns))
