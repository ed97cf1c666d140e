"""Overload one switch port with tagged packets and compare what arrives with what the plan predicts.

All hosts of a probe share one clock. Packets of a burst, and of a busy period, are lost together, which
limits how exact a measured loss is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import MachineError
from mltswitch.measure.hosts import Hosts, open_hosts
from mltswitch.measure.observe import Trace, best_split, observe
from mltswitch.measure.offered import Bottleneck, Offer, offered_flows, offered_run, predict_offer
from mltswitch.measure.runs import ALTERNATING, NOT_ECT, TestedPort, threshold_run
from mltswitch.measure.schedule import Flow, Schedule, packets_at, poisson_bursts
from mltswitch.plan import ClassKind, Plan
from mltswitch.queueing import MODELS, QueuePrediction
from mltswitch.units import BITS_PER_BYTE

IDLE_GAP_SECONDS: Final = 0.02
IDLE_PACKETS: Final = 50
BUSY_OVERLOAD: Final = 2.0
"""Important packets of the last gradient class that overload the port, as a multiple of its rate."""
BUSY_CONTROL_PACKETS_PER_SECOND: Final = 50.0
BUSY_SECONDS: Final = 2.0
LONGEST_LINE_PACKETS: Final = 512
"""Packets that more than fill the line behind the queues of any known switch, in the first half of a run."""
LONGEST_SECONDS: Final = 60.0
"""The longest phase in seconds that fills a queue: deep ones at a low rate take so long to settle."""
LONGEST_WARM_UP_SECONDS: Final = 10.0
WARM_UP_SLACK: Final = 1.25
"""Factor by which a line behind the queues fills more slowly than mean arrivals and departures say."""
MARK_TOLERANCE_PACKETS: Final = 3
"""Packets on the wrong side of the threshold up to which a mark, or its absence, is no exception."""
FEWEST_PACKETS: Final = 20
"""The fewest packets whose median says anything."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RampResult:
    """Planned thresholds beside those seen; None where too few packets came through to tell."""

    traffic_class: str
    ecn_threshold_bytes: int
    limit_bytes: int
    drop_seen_bytes: int | None
    """The ECN threshold S in bytes as drops show it: the queue in front of Not-ECT packets that survive
    while drops hold it.
    """
    mark_seen_bytes: int | None
    """The ECN threshold S in bytes as marks show it: the queue length above which ECT packets arrive
    marked.
    """
    wrong_marks: float | None
    """Share of ECT packets that came unmarked through a longer queue, or marked through a shorter one."""
    full_seen_bytes: int | None
    """The limit L in bytes: the queue in front of ECT packets when they alone overload the port."""
    survivors_when_full: float
    """Share of Not-ECT packets that arrived while ECT overloaded the port; 0 where the ECN threshold S is
    well below L.
    """


@dataclass(frozen=True, slots=True)
class ClassLoss:
    """Packets of one class and importance at one load; delays are one way, None when nothing arrived."""

    traffic_class: str
    is_important: bool
    sent: int
    received: int
    ce_marked: int
    lost: int
    loss: float | None
    """Measured loss ratio; None when nothing was sent."""
    loss_half_width: float | None
    """Half width of the measured loss's 95 % interval, by batch means over time; None: nothing was sent."""
    predicted_loss: float
    delay_p50_seconds: float | None
    delay_p99_seconds: float | None
    wait_p50_seconds: float | None
    """Measured delay, of both importances, above that of the idle path and of the line behind the queues."""
    predicted_wait_p50_seconds: float | None
    """Predicted median wait to the start of transmission; None: the model predicts no delay."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One run at one load of the port."""

    load: float
    """Offered gradient traffic as a multiple of the port's rate."""
    burst_packets: int
    """Gradient packets that leave a sender back to back."""
    model: str
    """Name of the loss model that made the predictions."""
    duration_seconds: float
    late_seconds: float
    """How many seconds the slowest sender fell behind its schedule."""
    classes: tuple[ClassLoss, ...]
    warm_up_seconds: float = 0.0
    """Seconds at the start of the run, in which the line behind the queues filled, that are not counted."""
    behind_seconds: float = 0.0
    """How many seconds packets waited in that line, as the control class shows; subtracted from the waits."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """All results of a probe; each load's predictions are the model's for what was sent at that load."""

    port: str
    model: str
    rate_bps: int
    packet_bytes: int
    idle_delay_seconds: float
    loads: tuple[LoadResult, ...]
    ramps: tuple[RampResult, ...]
    behind_seconds: float = 0.0
    """How many seconds packets wait behind the queues while the port sends without pause."""


def probe(
    plan: Plan,
    bottleneck: Bottleneck,
    *,
    loads: Sequence[float],
    seconds: float,
    burst_packets: int,
    model: str = MODELS[0],
    seed: int,
    progress: Progress,
) -> ProbeResult:
    """Measure thresholds and losses at the given loads; raises MachineError when a host fails."""
    progress(f"probing {bottleneck.port}: idle path")
    with open_probe(plan, bottleneck, seed) as opened:
        ramps = []
        for position, entry in enumerate(plan.classes):
            if entry.kind is ClassKind.GRADIENT:
                progress(f"probing {bottleneck.port}: thresholds of {entry.name}")
                ramps.append(opened.thresholds(position))
        results = []
        for number, load in enumerate(loads):
            progress(f"probing {bottleneck.port}: load {load:g} for {seconds:g} s")
            offer = Offer(load, burst_packets)
            results.append(opened.load(offer, model=model, seconds=seconds, seed=seed + number))
    return ProbeResult(
        bottleneck.port,
        model,
        bottleneck.profile.rate_bps,
        bottleneck.profile.packet_bytes,
        opened.idle_seconds,
        tuple(results),
        tuple(ramps),
        opened.behind_seconds,
    )


@contextmanager
def open_probe(plan: Plan, bottleneck: Bottleneck, seed: int) -> Iterator["Probe"]:
    """Start the programs on the hosts and measure the empty path; raises MachineError when a host fails."""
    hint = "lower ports.rate in the fabric, or the loads"
    size = bottleneck.profile.packet_bytes
    with open_hosts(plan, bottleneck.receiver, bottleneck.senders, size, hint=hint) as hosts:
        yield Probe(plan, bottleneck, hosts, seed)


class Probe:
    """The hosts around a port, and how long packets take through it when nothing waits in its queues."""

    idle_seconds: float
    """Seconds one way through the idle port: the median of lone packets of the first gradient class."""
    behind_seconds: float
    """How many seconds longer a packet takes while the port sends without pause, in the line behind the
    queues; 0: there is no such line."""

    def __init__(self, plan: Plan, bottleneck: Bottleneck, hosts: Hosts, seed: int) -> None:
        self._plan = plan
        self._bottleneck = bottleneck
        self._hosts = hosts
        kinds = [entry.kind for entry in plan.classes]
        self._control = kinds.index(ClassKind.CONTROL)
        times = np.arange(IDLE_PACKETS) * IDLE_GAP_SECONDS
        idle = self._from_near(packets_at(times, kinds.index(ClassKind.GRADIENT), ALTERNATING))
        self.idle_seconds = float(np.median(idle.wait_seconds[idle.is_received]))
        self.behind_seconds = self._busy_wait_seconds(seed) if bottleneck.has_line_behind else 0.0

    def _from_near(self, schedule: Schedule, empty_seconds: float = 0.0) -> Trace:
        """What becomes of the packets of the near sender, while the others are silent."""
        silent = packets_at(np.zeros(0), 0, NOT_ECT)
        run = [
            schedule if each == self._bottleneck.near_sender else silent for each in self._bottleneck.senders
        ]
        trace = observe(self._hosts.exchange(tuple(run)), empty_seconds)
        if not np.any(trace.is_received):
            hint = "push the plan first: the alias routes may be missing"
            raise MachineError("nothing arrived", where=self._bottleneck.port, hint=hint)
        return trace

    def _busy_wait_seconds(self, seed: int) -> float:
        """What control waits, whose own queue is empty, while gradients overload the port."""
        line = 1 / self._bottleneck.profile.packet_seconds
        last = max(n for n, entry in enumerate(self._plan.classes) if entry.kind is ClassKind.GRADIENT)
        seconds = max(BUSY_SECONDS, 2 * LONGEST_LINE_PACKETS / (line * (BUSY_OVERLOAD - 1)))
        flows = (
            Flow(last, BUSY_OVERLOAD * line, 1, 0.0),
            Flow(self._control, BUSY_CONTROL_PACKETS_PER_SECOND, 1, 1.0),
        )
        trace = self._from_near(poisson_bursts(flows, seconds, seed))
        return self._control_wait_seconds(trace.where(trace.time_seconds >= seconds / 2))

    def _control_wait_seconds(self, trace: Trace) -> float:
        """Control is served before all else that is sent, so what it waits it waits behind the queues."""
        delays = trace.wait_seconds[(trace.class_index == self._control) & trace.is_received]
        return max(0.0, float(np.median(delays)) - self.idle_seconds) if len(delays) else 0.0

    def thresholds(self, position: int) -> RampResult:
        """Measure, from outside, the thresholds of the plan's class at `position`.

        The class alone overloads the port. The queue in front of a packet that came through is its delay
        above the empty path's, times the port rate; medians over the settled half of a phase, since single
        packets also wait for a busy machine.
        """
        profile, name = self._bottleneck.profile, self._plan.classes[position].name
        settings = next(queue for queue in profile.queues if queue.traffic_class == name)
        threshold = settings.ecn_threshold_bytes or 0
        limit = settings.limit.size_bytes if isinstance(settings.limit, BytesLimit) else profile.buffer_bytes
        bytes_per_second = profile.rate_bps / BITS_PER_BYTE
        behind = round(self.behind_seconds * bytes_per_second)  # fills as well, before the queue does
        port = TestedPort(profile.rate_bps, profile.packet_bytes, 1, ())
        (schedule,) = threshold_run(port, position, threshold + behind, limit + behind, LONGEST_SECONDS)
        trace = self._from_near(schedule, self.idle_seconds + self.behind_seconds)
        holding, filling = (_settled(trace.of(phase)) for phase in ("hold", "fill"))
        mark_seen, wrong = _marking(holding, bytes_per_second, profile.packet_bytes)
        return RampResult(
            traffic_class=name,
            ecn_threshold_bytes=threshold,
            limit_bytes=limit,
            drop_seen_bytes=_median_bytes(holding.where(~holding.is_ect), bytes_per_second),
            mark_seen_bytes=mark_seen,
            wrong_marks=wrong,
            full_seen_bytes=_median_bytes(filling.where(filling.is_ect), bytes_per_second),
            survivors_when_full=float(np.mean(filling.is_received[~filling.is_ect])),
        )

    def load(self, offer: Offer, *, model: str, seconds: float, seed: int) -> LoadResult:
        """Run one load, and return it beside the model's prediction for what is sent; raises MachineError."""
        plan, bottleneck = self._plan, self._bottleneck
        predicted = predict_offer(plan, bottleneck.profile, offer, model)
        warm_up = self._warm_up_seconds(offer.load)
        run = offered_run(plan, bottleneck, offer, warm_up + seconds, seed)
        trace = observe(self._hosts.exchange(run), 0.0)
        trace = replace(trace, time_seconds=trace.time_seconds - warm_up)
        trace = trace.where(trace.time_seconds >= 0)
        behind = self._control_wait_seconds(trace) if bottleneck.has_line_behind else 0.0
        classes = [
            loss
            for flow in offered_flows(plan, bottleneck.profile, offer)
            for loss in self._losses(
                trace.where(trace.class_index == flow.class_index),
                flow,
                predicted[plan.classes[flow.class_index].name],
                seconds,
                self.idle_seconds + behind,
            )
        ]
        late = trace.late_seconds
        return LoadResult(
            offer.load, offer.burst_packets, model, seconds, late, tuple(classes), warm_up, behind
        )

    def _losses(
        self,
        packets: Trace,
        flow: Flow,
        prediction: QueuePrediction,
        seconds: float,
        empty_seconds: float,
    ) -> Iterator[ClassLoss]:
        """Both kinds of a gradient class's packets; of other classes those that are sent, the unimportant."""
        entry = self._plan.classes[flow.class_index]
        delay, waiting = _percentile(packets, 50), prediction.p50_delay_packet_times
        for is_important in (False, True) if entry.kind is ClassKind.GRADIENT else (False,):
            mine = packets.where(packets.is_ect == is_important)
            sent, lost = (
                by_block(each.time_seconds, seconds) for each in (mine, mine.where(~mine.is_received))
            )
            received = int(np.sum(mine.is_received))
            yield ClassLoss(
                traffic_class=entry.name,
                is_important=is_important,
                sent=len(mine),
                received=received,
                ce_marked=int(np.sum(mine.is_marked)),
                lost=len(mine) - received,
                loss=(len(mine) - received) / len(mine) if len(mine) else None,
                loss_half_width=loss_half_width(sent, lost, flow.burst_packets),
                predicted_loss=prediction.loss_important if is_important else prediction.loss_unimportant,
                delay_p50_seconds=_percentile(mine, 50),
                delay_p99_seconds=_percentile(mine, 99),
                wait_p50_seconds=None if delay is None else max(0.0, delay - empty_seconds),
                predicted_wait_p50_seconds=None
                if waiting is None or not isfinite(waiting)
                else waiting * self._bottleneck.profile.packet_seconds,
            )

    def _warm_up_seconds(self, load: float) -> float:
        """Until an overload has filled the line behind the queues: then these lose what they should."""
        if load <= 1.0:
            return self.behind_seconds
        return min(LONGEST_WARM_UP_SECONDS, WARM_UP_SLACK * self.behind_seconds / (load - 1.0))


def _settled(phase: Trace) -> Trace:
    return phase.where(slice(len(phase) // 2, None))


def _median_bytes(packets: Trace, bytes_per_second: float) -> int | None:
    """Median queue in front of those packets that came through."""
    waits = packets.wait_seconds[packets.is_received]
    return round(float(np.median(waits)) * bytes_per_second) if len(waits) >= FEWEST_PACKETS else None


def _marking(holding: Trace, bytes_per_second: float, packet_bytes: int) -> tuple[int | None, float | None]:
    """(queue above which packets are marked, share of packets well on the wrong side of it)."""
    came = holding.where(holding.is_ect & holding.is_received)
    if np.sum(came.is_marked) < FEWEST_PACKETS:
        return None, None
    waiting = came.wait_seconds * bytes_per_second
    split = best_split(waiting, came.is_marked)
    tolerance = MARK_TOLERANCE_PACKETS * packet_bytes
    wrong = np.where(came.is_marked, waiting < split - tolerance, waiting > split + tolerance)
    return round(split), float(np.mean(wrong))


def _percentile(packets: Trace, percent: float) -> float | None:
    delays = packets.wait_seconds[packets.is_received]
    return float(np.percentile(delays, percent)) if len(delays) else None


BLOCKS: Final = 20
"""Number of blocks of a run; each must be long against a busy period for their losses to be independent."""
STUDENT_95: Final = 2.093
"""Student's t for 95 % and one degree of freedom less than there are blocks."""
NONE_LOST: Final = 3.0
"""The "rule of three": where none of n independent trials failed, up to 3/n may (95 %)."""


def by_block(time_seconds: npt.NDArray[np.float64], run_seconds: float) -> npt.NDArray[np.int64]:
    """How many of these packets fall into each block of the run."""
    block = np.minimum((time_seconds / run_seconds * BLOCKS).astype(np.int64), BLOCKS - 1)
    return np.bincount(block, minlength=BLOCKS)


def loss_half_width(
    sent: npt.NDArray[np.int64], lost: npt.NDArray[np.int64], burst_packets: int
) -> float | None:
    """Half width of the 95 % interval of lost/sent by batch means over blocks of time; None: nothing sent."""
    total = int(sent.sum())
    if not total:
        return None
    if not lost.sum():
        return min(1.0, NONE_LOST * burst_packets / total)
    residual = lost - lost.sum() / total * sent
    return STUDENT_95 * sqrt(float((residual**2).sum()) * BLOCKS / (BLOCKS - 1)) / total
