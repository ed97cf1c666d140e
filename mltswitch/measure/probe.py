"""Overload one switch port with tagged packets and compare what arrives with what the plan predicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import numpy.typing as npt

from mltswitch.measure.interval import by_block, loss_half_width
from mltswitch.measure.offered import Bottleneck, Offer, offered_flows, predict_offer, sending_tasks
from mltswitch.measure.ramp import RampResult, ramp
from mltswitch.measure.run import Received, run
from mltswitch.measure.schedule import Flow
from mltswitch.measure.sender import RampTask
from mltswitch.plan import ClassKind, Plan, TrafficClass
from mltswitch.queueing import MODELS, QueuePrediction
from mltswitch.wire import Ecn

IDLE_PACKETS_PER_SECOND = 50.0
IDLE_SECONDS = 1.0
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
    """Measured delay above that of the idle path, over both importances of the class."""
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
    idle_ns = idle_delay_ns(plan, bottleneck, seed)
    hosts = (bottleneck.near_sender, bottleneck.receiver)
    ramps = []
    for position, entry in enumerate(plan.classes):
        if entry.kind is ClassKind.GRADIENT:
            progress(f"probing {bottleneck.port}: thresholds of {entry.name}")
            ramps.append(ramp(plan, bottleneck.profile, hosts, position, idle_ns, seed))
    results = []
    for number, load in enumerate(loads):
        progress(f"probing {bottleneck.port}: load {load:g} for {seconds:g} s")
        results.append(
            probe_load(
                plan,
                bottleneck,
                Offer(load, burst_packets),
                model=model,
                idle_delay_seconds=idle_ns / 1e9,
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
        idle_ns / 1e9,
        tuple(results),
        tuple(ramps),
    )


def idle_delay_ns(plan: Plan, bottleneck: Bottleneck, seed: int) -> float:
    """Delay through the empty port: the median of lone packets of the first gradient class."""
    position = next(n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.GRADIENT)
    task = RampTask(class_index=position, packets_per_second=IDLE_PACKETS_PER_SECOND)
    received = run(plan, bottleneck.receiver, {bottleneck.near_sender: task}, IDLE_SECONDS, seed)
    received.require_some(bottleneck.port)
    return float(np.median(received.records["delay_ns"]))


def probe_load(
    plan: Plan,
    bottleneck: Bottleneck,
    offer: Offer,
    *,
    model: str,
    idle_delay_seconds: float,
    seconds: float,
    seed: int,
) -> LoadResult:
    """One run at one load, beside the model's prediction for what is sent; raises MachineError."""
    tasks = sending_tasks(plan, bottleneck, offer, seed)
    predicted = predict_offer(plan, bottleneck.profile, offer, model)
    received = run(plan, bottleneck.receiver, tasks, seconds, seed)
    view = _View(received, bottleneck.profile.packet_seconds, idle_delay_seconds, seconds)
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
    return LoadResult(offer.load, offer.burst_packets, model, seconds, received.late_seconds, tuple(classes))


def _is_sent(entry: TrafficClass, *, is_important: bool) -> bool:
    """Only gradients are tagged by importance; control and background are sent Not-ECT."""
    return entry.kind is ClassKind.GRADIENT or not is_important


@dataclass(frozen=True, slots=True)
class _View:
    received: Received
    packet_seconds: float
    idle_delay_seconds: float
    seconds: float

    def class_loss(
        self, entry: TrafficClass, flow: Flow, prediction: QueuePrediction, *, is_important: bool
    ) -> ClassLoss:
        records = self.received.records
        mine = records[
            (records["class_index"] == flow.class_index) & (records["is_important"] == is_important)
        ]
        sent = by_block(self.received.sent_seconds(flow.class_index, is_important=is_important), self.seconds)
        lost = sent - by_block(self.received.received_seconds(mine), self.seconds)
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


def _percentiles(delays: npt.NDArray[np.float64]) -> tuple[float | None, float | None]:
    if not len(delays):
        return None, None
    return float(np.percentile(delays, 50)), float(np.percentile(delays, 99))
