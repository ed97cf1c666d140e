"""When which packet is sent: arrival processes as arrays, reproducible from a seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltswitch.queueing import Importance


@dataclass(frozen=True, slots=True)
class Flow:
    """What one sender offers in one traffic class."""

    class_index: int
    packets_per_second: float
    burst_packets: int
    """Packets of one burst leave back to back."""
    unimportant_share: float
    importance: Importance = "packet"
    """Whether it is drawn for each packet, or for each burst."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Packets in order of time; all arrays have one entry per packet."""

    time_seconds: npt.NDArray[np.float64]
    class_index: npt.NDArray[np.uint8]
    is_important: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.time_seconds)


def poisson_bursts(flows: Sequence[Flow], duration_seconds: float, seed: int) -> Schedule:
    """Bursts at exponential intervals, each of one class."""
    generator = np.random.default_rng(seed)
    times: list[npt.NDArray[np.float64]] = []
    classes: list[npt.NDArray[np.uint8]] = []
    important: list[npt.NDArray[np.bool_]] = []
    for flow in flows:
        bursts_per_second = flow.packets_per_second / flow.burst_packets
        count = generator.poisson(bursts_per_second * duration_seconds)
        starts = np.sort(generator.uniform(0.0, duration_seconds, count))
        packets = np.repeat(starts, flow.burst_packets)
        times.append(packets)
        classes.append(np.full(len(packets), flow.class_index, dtype=np.uint8))
        if flow.importance == "burst":
            important.append(np.repeat(generator.random(count) >= flow.unimportant_share, flow.burst_packets))
        else:
            important.append(generator.random(len(packets)) >= flow.unimportant_share)
    return _merged(times, classes, important)


def alternating(class_index: int, packets_per_second: float, duration_seconds: float) -> Schedule:
    """Evenly spaced packets of one class, important and unimportant in turn."""
    count = int(packets_per_second * duration_seconds)
    time = np.arange(count, dtype=np.float64) / packets_per_second
    return Schedule(time, np.full(count, class_index, dtype=np.uint8), np.arange(count) % 2 == 0)


def _merged(
    times: list[npt.NDArray[np.float64]],
    classes: list[npt.NDArray[np.uint8]],
    important: list[npt.NDArray[np.bool_]],
) -> Schedule:
    time = np.concatenate(times)
    order = np.argsort(time, kind="stable")
    return Schedule(time[order], np.concatenate(classes)[order], np.concatenate(important)[order])
