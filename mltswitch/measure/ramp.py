"""Thresholds of one queue as they show from outside, without the switch's counters.

One class alone is overloaded with ECT and Not-ECT packets in turn. The queue in front of a packet that came
through is its delay above the idle path's, times the port rate; medians over the settled half of a run, since
single packets also wait for a busy machine.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.capabilities import BytesLimit
from mltswitch.measure.run import ProbeHost, Received, run
from mltswitch.measure.sender import RampTask
from mltswitch.plan import Plan, PortProfile, QueueSettings
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire import Ecn

MARK_TOLERANCE_PACKETS: Final = 3
"""A packet marked, or not, this far on the wrong side of the threshold counts as an exception."""
HOLD_OVERLOAD: Final = 1.6
"""Offered over port rate at which ECT alone do not fill the port: Not-ECT drops hold the queue at S."""
FILL_OVERLOAD: Final = 2.6
"""At which ECT alone overload it: the queue stands at L."""
RUN_SECONDS: Final = 1.0
SETTLING_RUNS: Final = 4.0
"""A run lasts at least this many times what the queue needs to fill."""
FEWEST_PACKETS: Final = 20
"""Below this a median says nothing."""

Bytes = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RampResult:
    """Planned thresholds beside those seen; None where too few packets came through to tell."""

    traffic_class: str
    ecn_threshold_bytes: int
    limit_bytes: int
    drop_seen_bytes: int | None
    """Queue at which Not-ECT are dropped: in front of those that survive while the drops hold it. S."""
    mark_seen_bytes: int | None
    """Queue above which ECT packets come marked. S."""
    wrong_marks: float | None
    """Share of ECT packets that came unmarked through a longer queue, or marked through a shorter one."""
    full_seen_bytes: int | None
    """Queue in front of ECT packets when they alone overload the port. L."""
    survivors_when_full: float
    """Share of Not-ECT packets that came through then; 0 where S is well below L."""


@dataclass(frozen=True, slots=True)
class PathDelay:
    """One way through the port when nothing waits in its queues."""

    idle_ns: float
    behind_ns: float = 0.0
    """How much longer while the port sends all the time, in the line behind the queues."""

    @property
    def busy_ns(self) -> float:
        """While it sends all the time: what a packet's delay has above it, it waited in its queue."""
        return self.idle_ns + self.behind_ns


def packets_per_second(profile: PortProfile) -> float:
    """Full-size packets that the port sends in a second."""
    return profile.rate_bps / BITS_PER_BYTE / profile.packet_bytes


def ramp(
    plan: Plan,
    profile: PortProfile,
    hosts: tuple[ProbeHost, ProbeHost],
    position: int,
    delay: PathDelay,
    seed: int,
) -> RampResult:
    """Measure the thresholds of the plan's class at `position`; hosts are (sender, receiver)."""
    name = plan.classes[position].name
    settings = next(queue for queue in profile.queues if queue.traffic_class == name)
    planned = _Planned(settings, profile)
    observe = _Observer(plan, profile, hosts, position, delay, seed)
    holding = observe(HOLD_OVERLOAD, planned.threshold_bytes)
    filling = observe(FILL_OVERLOAD, planned.limit_bytes)
    mark_seen, wrong = _marking(holding, profile.packet_bytes)
    return RampResult(
        traffic_class=name,
        ecn_threshold_bytes=planned.threshold_bytes,
        limit_bytes=planned.limit_bytes,
        drop_seen_bytes=_median(holding.waiting[~holding.is_important]),
        mark_seen_bytes=mark_seen,
        wrong_marks=wrong,
        full_seen_bytes=_median(filling.waiting[filling.is_important]),
        survivors_when_full=float(np.sum(~filling.is_important)) / max(1, filling.sent_unimportant),
    )


class _Planned:
    def __init__(self, settings: QueueSettings, profile: PortProfile) -> None:
        self.threshold_bytes = settings.ecn_threshold_bytes or 0
        limit = settings.limit
        self.limit_bytes = limit.size_bytes if isinstance(limit, BytesLimit) else profile.buffer_bytes


@dataclass(frozen=True, slots=True)
class _Settled:
    """Packets of the second half of one run."""

    waiting: Bytes
    is_important: npt.NDArray[np.bool_]
    is_marked: npt.NDArray[np.bool_]
    sent_unimportant: int


@dataclass(frozen=True, slots=True)
class _Observer:
    plan: Plan
    profile: PortProfile
    hosts: tuple[ProbeHost, ProbeHost]
    position: int
    delay: PathDelay
    seed: int

    def __call__(self, overload: float, queue_bytes: int) -> _Settled:
        sender, receiver = self.hosts
        line = packets_per_second(self.profile)
        growth = (overload / 2 if overload > 2 else overload) - 1.0
        fill_seconds = (queue_bytes / self.profile.packet_bytes / line + self.delay.behind_ns / 1e9) / growth
        seconds = max(RUN_SECONDS, SETTLING_RUNS * fill_seconds)
        task = RampTask(class_index=self.position, packets_per_second=overload * line)
        received = run(self.plan, receiver, {sender: task}, seconds, self.seed)
        received.require_some(self.profile.role)
        return self._settled(received, round(overload * line * seconds))

    def _settled(self, received: Received, sent: int) -> _Settled:
        records = received.records[received.records["sequence"] >= sent // 2]
        waiting = (records["delay_ns"] - self.delay.busy_ns) / 1e9 * self.profile.rate_bps / BITS_PER_BYTE
        return _Settled(
            waiting=np.maximum(waiting, 0.0),
            is_important=records["is_important"],
            is_marked=(records["tos"] & Ecn.CE) == Ecn.CE,
            sent_unimportant=sent // 4,
        )


def _median(values: Bytes) -> int | None:
    return round(float(np.median(values))) if len(values) >= FEWEST_PACKETS else None


def _marking(settled: _Settled, packet_bytes: int) -> tuple[int | None, float | None]:
    """(queue above which packets are marked, share of packets well on the wrong side of it)."""
    waiting = settled.waiting[settled.is_important]
    marked = settled.is_marked[settled.is_important]
    if np.sum(marked) < FEWEST_PACKETS:
        return None, None
    split = _best_split(waiting, marked)
    tolerance = MARK_TOLERANCE_PACKETS * packet_bytes
    wrong = (marked & (waiting < split - tolerance)) | (~marked & (waiting > split + tolerance))
    return round(split), float(np.mean(wrong))


def _best_split(waiting: Bytes, marked: npt.NDArray[np.bool_]) -> float:
    """The length that separates unmarked from marked packets with the fewest exceptions."""
    order = np.argsort(waiting, kind="stable")
    marks_below = np.concatenate([[0], np.cumsum(marked[order])])
    unmarked_above = np.sum(~marked) - np.concatenate([[0], np.cumsum(~marked[order])])
    cut = int((marks_below + unmarked_above).argmin())
    return float(waiting[order][min(cut, len(waiting) - 1)])
