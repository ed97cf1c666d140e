"""Fit arrival processes to a capture, class by class: bursts, sizes, and how independently they come."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.traffic.bursts import ALIKE, FEWEST_BURSTS, Bursts, bursts_of, find_gap, stream_of, undo_tick
from mltswitch.traffic.capture import Capture, Progress, read_capture
from mltswitch.traffic.document import TRAFFIC_SCHEMA, ClassTraffic, DispersionPoint, Fit, Source, Traffic
from mltswitch.traffic.statistics import (
    compact,
    dispersion,
    exponential_distance,
    limit_of,
    size_distances,
)
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

NEAR: Final = 0.1
"""Kolmogorov-Smirnov distance up to which a distribution describes another one well enough to plan with."""
CLUSTERED: Final = 1.5
"""Dispersion over that of independent bursts from which on queues notice the difference."""
LEAST_P_VALUE: Final = 0.01
LARGEST_FRAME_BYTES: Final = 9_300
"""Size of the largest jumbo frame; a larger one was captured before the sender's network card segmented
it."""
LARGEST_SIZE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Classes:
    """Maps DSCPs to traffic classes, and gives the classes' order."""

    names: tuple[str, ...] = ()
    by_dscp: Mapping[int, str] = field(default_factory=dict)
    other: str | None = None
    """Class of all other DSCPs; None: each DSCP is a class of its own."""

    def of(self, dscp: int) -> str:
        """Name of the class that a DSCP belongs to."""
        return self.by_dscp.get(dscp) or self.other or f"dscp-{dscp}"


@dataclass(frozen=True, slots=True)
class FitSettings:
    """Settings of a fit that the measured data do not contain."""

    rate_bps: int
    """Rate of the port that the traffic goes to, in bit/s."""
    packet_bytes: int | None = None
    """The size of a full-size packet as a queue counts it; None: that of the largest frame in the data."""
    gap_seconds: float | None = None
    """The largest spacing within a burst; None: found for each class from its histogram of spacings."""
    classes: Classes = field(default_factory=Classes)


def fit_capture(path: Path, settings: FitSettings, on_progress: Progress | None = None) -> Traffic:
    """The traffic in a pcap or pcapng file; raises UserInputError for a file that cannot be fitted."""
    capture = read_capture(path, on_progress)
    if len(capture.senders) < 2:
        raise UserInputError("holds one packet only", where=str(path), expected="two at least")
    largest = int(capture.sizes_bytes.max())
    packet_bytes = settings.packet_bytes or largest
    classes: dict[str, list[int]] = defaultdict(list)
    for dscp in map(int, np.unique(capture.traffic_class_bytes >> 2)):
        classes[settings.classes.of(dscp)].append(dscp)
    in_order = [name for name in settings.classes.names if name in classes]
    in_order += [name for name in classes if name not in in_order]
    return Traffic(
        schema=TRAFFIC_SCHEMA,
        source=Source(
            kind="capture",
            duration_seconds=capture.duration_seconds,
            packets=len(capture.senders),
            size_bytes=int(capture.sizes_bytes.sum(dtype=np.uint64)),
            other_frames=capture.other_frames,
            reordered_packets=capture.reordered_packets,
            tick_seconds=capture.tick_nanoseconds / NANOSECONDS,
        ),
        rate_bps=settings.rate_bps,
        packet_bytes=packet_bytes,
        classes=tuple(
            _fitted(capture, settings, packet_bytes, name, tuple(classes[name])) for name in in_order
        ),
        notes=tuple(_notes(capture, settings, packet_bytes, largest)),
    )


def _notes(capture: Capture, settings: FitSettings, packet_bytes: int, largest: int) -> list[str]:
    notes = []
    if capture.reordered_packets:
        notes.append(f"{capture.reordered_packets:,} packets stood behind a later one; they were sorted.")
    if capture.other_frames:
        notes.append(f"{capture.other_frames:,} frames carry no IP; they are in no class.")
    if capture.interfaces > 1:
        notes.append(
            f"{capture.interfaces} interfaces are taken together; a packet that crosses two counts twice."
        )
    if largest > LARGEST_FRAME_BYTES:
        advice = "" if settings.packet_bytes else "; give the packets' size with --mtu"
        notes.append(
            f"Frames of up to {largest:,} B: captured before the sender's card cut them into packets, whose "
            f"spacing is not in the capture{advice}."
        )
    elif settings.packet_bytes and largest > packet_bytes:
        notes.append(f"The largest frame has {largest:,} B, a full-size packet {packet_bytes:,} B.")
    packet_seconds = packet_bytes * BITS_PER_BYTE / settings.rate_bps
    if capture.tick_nanoseconds > packet_seconds * NANOSECONDS:
        notes.append(
            f"The capture's clock counts in {capture.tick_nanoseconds / 1000:g} µs, a packet lasts "
            f"{packet_seconds * 1e6:.3g} µs: spacings within bursts are not seen well."
        )
    return notes


def _fitted(
    capture: Capture, settings: FitSettings, packet_bytes: int, name: str, dscps: tuple[int, ...]
) -> ClassTraffic:
    """All figures of one class of a capture."""
    rows = np.flatnonzero(np.isin(capture.traffic_class_bytes >> 2, dscps))
    tick, duration = capture.tick_nanoseconds, capture.duration_seconds
    times = capture.times_nanoseconds[rows] - capture.times_nanoseconds[0]
    frames = capture.sizes_bytes[rows]
    important = capture.traffic_class_bytes[rows] & 3 > 0
    stream = stream_of(times, frames, capture.senders[rows], important, tick)
    gap_nanoseconds = (
        find_gap(stream.spacings_nanoseconds) or 0.0
        if settings.gap_seconds is None
        else settings.gap_seconds * NANOSECONDS
    )
    bursts = bursts_of(stream, gap_nanoseconds, tick)
    # Burst sizes in full-size packets: what a queue counted in bytes sees of them.
    packets = np.clip(np.rint(bursts.sizes_bytes / packet_bytes), 1, LARGEST_SIZE).astype(np.int64)
    sizes, counts = np.unique(packets, return_counts=True)
    probabilities = counts / counts.sum()
    size_bytes = int(frames.sum(dtype=np.uint64))
    mean = float(sizes @ probabilities)
    independent = float(sizes.astype(np.float64) ** 2 @ probabilities) / mean
    points = dispersion(times / NANOSECONDS, frames / packet_bytes, duration)
    fit = _judged(bursts, sizes, probabilities, tick)
    few_sizes, few_probabilities = compact(sizes, probabilities)
    correlation, rate = bursts.importance_correlation, bursts.rate_bps
    return ClassTraffic(
        name=name,
        dscp=dscps,
        packets=len(frames),
        size_bytes=size_bytes,
        load=size_bytes * BITS_PER_BYTE / duration / settings.rate_bps,
        unimportant_share=1 - float(important.mean()),
        importance="burst" if correlation is not None and correlation > ALIKE else "packet",
        importance_correlation=correlation,
        bursts=len(bursts.packets),
        gap_seconds=gap_nanoseconds / NANOSECONDS,
        sizes_packets=tuple(few_sizes.tolist()),
        probabilities=tuple(few_probabilities.tolist()),
        mean_burst_packets=mean,
        source_rate_ratio=None if rate is None else rate / settings.rate_bps,
        dispersion=points,
        index_of_dispersion=limit_of(points),
        independent_index=independent,
        fit=fit,
        verdict=verdict(fit, points, independent, len(bursts.packets)),
    )


def _judged(
    bursts: Bursts, sizes: NDArray[np.int64], probabilities: NDArray[np.float64], tick: int
) -> Fit | None:
    if len(bursts.packets) < FEWEST_BURSTS:
        return None
    distance, p_value = exponential_distance(undo_tick(np.diff(bursts.starts_nanoseconds), tick))
    fixed, geometric = size_distances(sizes, probabilities)
    nearest: Literal["fixed", "geometric"] = "fixed" if fixed <= geometric else "geometric"
    return Fit(
        gap_distance=distance,
        gap_p_value=p_value,
        fixed_size_distance=fixed,
        geometric_size_distance=geometric,
        sizes=nearest if min(fixed, geometric) <= NEAR else "other",
    )


def verdict(fit: Fit | None, points: tuple[DispersionPoint, ...], independent: float, bursts: int) -> str:
    """One line: whether independent bursts describe the traffic, and if not, why."""
    if fit is None:
        return f"too few bursts to judge: {bursts}"
    largest = max((point.index for point in points), default=independent)
    times = largest / independent
    if times > CLUSTERED:
        return f"bursts are clustered: index of dispersion {times:.1f} times that of independent bursts"
    last = limit_of(points)
    if last is not None and last * CLUSTERED < independent:
        return (
            f"bursts are more regular than independent ones: index of dispersion {last / independent:.2f} "
            "times theirs"
        )
    if fit.gap_distance > NEAR and fit.gap_p_value < LEAST_P_VALUE:
        return f"gaps between bursts are not exponential: Kolmogorov-Smirnov distance {fit.gap_distance:.2f}"
    return (
        f"fits: independent bursts, Kolmogorov-Smirnov distance of their gaps {fit.gap_distance:.3f}, "
        f"index of dispersion {times:.2f} times theirs"
    )
