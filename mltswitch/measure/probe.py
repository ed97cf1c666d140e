"""Overload one switch port with tagged packets and compare what arrives with what the plan predicts.

Packets of a burst, and of a busy period, share their fate: that bounds how exact a measured loss is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.measure.offered import Bottleneck, Offer, offered_flows, predict_offer, sending_tasks
from mltswitch.measure.path import path_delay
from mltswitch.measure.ramp import PathDelay, RampResult, ramp
from mltswitch.measure.run import Received, run
from mltswitch.measure.schedule import Flow
from mltswitch.plan import ClassKind, Plan, TrafficClass
from mltswitch.queueing import MODELS, QueuePrediction
from mltswitch.wire import Ecn

LONGEST_WARM_UP_SECONDS = 10.0
WARM_UP_SLACK = 1.25
"""A line behind the queues takes so much longer to fill than by the means of all that comes and leaves."""
Progress = Callable[[str], None]


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
    """Measured; None when nothing was sent."""
    loss_half_width: float | None
    """Of its 95 % interval, by batch means over time."""
    predicted_loss: float
    delay_p50_seconds: float | None
    delay_p99_seconds: float | None
    wait_p50_seconds: float | None
    """Measured delay, of both importances, above that of the idle path and of the line behind the queues."""
    predicted_wait_p50_seconds: float | None
    """The same, to the start of transmission; None: the model predicts no delay."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One run at one load of the port."""

    load: float
    """Gradient bits offered over the port's rate."""
    burst_packets: int
    """Gradient packets that leave a sender back to back."""
    model: str
    """The loss model of the predictions."""
    duration_seconds: float
    late_seconds: float
    """How far the slowest sender fell behind its schedule."""
    classes: tuple[ClassLoss, ...]
    warm_up_seconds: float = 0.0
    """Before that time, in which the line behind the queues filled; not counted."""
    behind_seconds: float = 0.0
    """How long packets waited in that line, by those of the control class; taken off the waits."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Everything measured; each load's predictions are the model's for what was sent at that load."""

    port: str
    model: str
    rate_bps: int
    packet_bytes: int
    idle_delay_seconds: float
    loads: tuple[LoadResult, ...]
    ramps: tuple[RampResult, ...]
    behind_seconds: float = 0.0
    """How long packets wait behind the queues while the port sends all the time."""


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
    delay = path_delay(plan, bottleneck, seed)
    hosts = (bottleneck.near_sender, bottleneck.receiver)
    ramps = []
    for position, entry in enumerate(plan.classes):
        if entry.kind is ClassKind.GRADIENT:
            progress(f"probing {bottleneck.port}: thresholds of {entry.name}")
            ramps.append(ramp(plan, bottleneck.profile, hosts, position, delay, seed))
    results = []
    for number, load in enumerate(loads):
        progress(f"probing {bottleneck.port}: load {load:g} for {seconds:g} s")
        results.append(
            probe_load(
                plan,
                bottleneck,
                Offer(load, burst_packets),
                model=model,
                delay=delay,
                seconds=seconds,
                seed=seed + number,
            )
        )
    profile = bottleneck.profile
    return ProbeResult(
        bottleneck.port,
        model,
        profile.rate_bps,
        profile.packet_bytes,
        delay.idle_ns / 1e9,
        tuple(results),
        tuple(ramps),
        delay.behind_ns / 1e9,
    )


def probe_load(
    plan: Plan,
    bottleneck: Bottleneck,
    offer: Offer,
    *,
    model: str,
    delay: PathDelay,
    seconds: float,
    seed: int,
) -> LoadResult:
    """One run at one load, beside the model's prediction for what is sent; raises MachineError."""
    tasks = sending_tasks(plan, bottleneck, offer, seed)
    predicted = predict_offer(plan, bottleneck.profile, offer, model)
    warm_up = _warm_up_seconds(offer.load, delay.behind_ns / 1e9)
    received = run(plan, bottleneck.receiver, tasks, warm_up + seconds, seed)
    behind = _behind_seconds(plan, received, warm_up, delay) if bottleneck.has_line_behind else 0.0
    view = _View(received, bottleneck.profile.packet_seconds, delay.idle_ns / 1e9 + behind, warm_up, seconds)
    classes = [
        view.class_loss(
            plan.classes[flow.class_index],
            flow,
            predicted[plan.classes[flow.class_index].name],
            is_important=is_important,
        )
        for flow in offered_flows(plan, bottleneck.profile, offer)
        for is_important in (False, True)
        if _is_sent(plan.classes[flow.class_index], is_important=is_important)
    ]
    return LoadResult(
        offer.load,
        offer.burst_packets,
        model,
        seconds,
        received.late_seconds,
        tuple(classes),
        warm_up,
        behind,
    )


def _warm_up_seconds(load: float, behind_seconds: float) -> float:
    """Until an overload has filled the line behind the queues, and these begin to lose what they should."""
    if load <= 1.0:
        return behind_seconds
    return min(LONGEST_WARM_UP_SECONDS, WARM_UP_SLACK * behind_seconds / (load - 1.0))


def _behind_seconds(plan: Plan, received: Received, warm_up_seconds: float, delay: PathDelay) -> float:
    """Control is served before all else that is sent, so what it waits it waits behind the queues."""
    position = next(n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.CONTROL)
    records = received.records[received.received_seconds(received.records) >= warm_up_seconds]
    delays = records["delay_ns"][records["class_index"] == position]
    return max(0.0, float(np.median(delays)) - delay.idle_ns) / 1e9 if len(delays) else 0.0


def _is_sent(entry: TrafficClass, *, is_important: bool) -> bool:
    """Only gradients are tagged by importance; control and background are sent Not-ECT."""
    return entry.kind is ClassKind.GRADIENT or not is_important


@dataclass(frozen=True, slots=True)
class _View:
    received: Received
    packet_seconds: float
    idle_delay_seconds: float
    warm_up_seconds: float
    seconds: float

    def class_loss(
        self, entry: TrafficClass, flow: Flow, prediction: QueuePrediction, *, is_important: bool
    ) -> ClassLoss:
        records = self.received.records[
            self._is_counted(self.received.received_seconds(self.received.records))
        ]
        mine = records[
            (records["class_index"] == flow.class_index) & (records["is_important"] == is_important)
        ]
        sent = self._by_block(self.received.sent_seconds(flow.class_index, is_important=is_important))
        lost = sent - self._by_block(self.received.received_seconds(mine))
        total = int(sent.sum())
        p50, p99 = _percentiles(mine["delay_ns"] / 1e9)
        class_p50, _ = _percentiles(records["delay_ns"][records["class_index"] == flow.class_index] / 1e9)
        waiting = prediction.p50_delay_packet_times
        return ClassLoss(
            traffic_class=entry.name,
            is_important=is_important,
            sent=total,
            received=len(mine),
            ce_marked=int(np.sum((mine["tos"] & Ecn.CE) == Ecn.CE)),
            lost=total - len(mine),
            loss=(total - len(mine)) / total if total else None,
            loss_half_width=loss_half_width(sent, lost, flow.burst_packets),
            predicted_loss=prediction.loss_important if is_important else prediction.loss_unimportant,
            delay_p50_seconds=p50,
            delay_p99_seconds=p99,
            wait_p50_seconds=None if class_p50 is None else max(0.0, class_p50 - self.idle_delay_seconds),
            predicted_wait_p50_seconds=None
            if waiting is None or not isfinite(waiting)
            else waiting * self.packet_seconds,
        )

    def _is_counted(self, due_seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        return due_seconds >= self.warm_up_seconds

    def _by_block(self, due_seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        counted = due_seconds[self._is_counted(due_seconds)]
        return by_block(counted - self.warm_up_seconds, self.seconds)


def _percentiles(delays: npt.NDArray[np.float64]) -> tuple[float | None, float | None]:
    if not len(delays):
        return None, None
    return float(np.percentile(delays, 50)), float(np.percentile(delays, 99))


BLOCKS: Final = 20
"""Parts of a run; each must last long against a busy period for their losses to be independent."""
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
