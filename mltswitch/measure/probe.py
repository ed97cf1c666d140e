"""Overload one switch port with tagged packets and compare what arrives with what the plan predicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mltswitch.measure.ramp import RampResult, packets_per_second, ramp
from mltswitch.measure.run import ProbeHost, Received, run
from mltswitch.measure.schedule import Flow
from mltswitch.measure.sender import BurstTask, RampTask
from mltswitch.plan import ClassKind, Plan, PortProfile, Prediction, TrafficClass, predict_port
from mltswitch.wire import Ecn

CONTROL_PACKETS_PER_SECOND = 50.0
"""Control traffic of a probe, whatever the plan's load: enough packets to see a loss of 1 %."""
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
    predicted_loss: float
    delay_p50_seconds: float | None
    delay_p99_seconds: float | None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One run at one load of the port."""

    load: float
    """Gradient bits offered over the port's rate."""
    burst_packets: int
    """Gradient packets that leave a sender back to back."""
    duration_seconds: float
    late_seconds: float
    """How far the slowest sender fell behind its schedule."""
    classes: tuple[ClassLoss, ...]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Everything measured; the loads' predictions are the plan's model at that load."""

    port: str
    model: str
    rate_bps: int
    packet_bytes: int
    idle_delay_seconds: float
    loads: tuple[LoadResult, ...]
    ramps: tuple[RampResult, ...]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The port under test and the hosts around it."""

    port: str
    profile: PortProfile
    receiver: ProbeHost
    senders: tuple[ProbeHost, ...]
    near_sender: ProbeHost
    """A sender whose packets cross no other queue than the port's."""


def probe(
    plan: Plan,
    bottleneck: Bottleneck,
    *,
    loads: Sequence[float],
    seconds: float,
    burst_packets: int,
    seed: int,
    progress: Progress,
) -> ProbeResult:
    """Measure thresholds and losses at the given loads; raises MachineError when a host fails."""
    progress(f"probing {bottleneck.port}: idle path")
    idle_delay_ns = _idle_delay_ns(plan, bottleneck, seed)
    hosts = (bottleneck.near_sender, bottleneck.receiver)
    ramps = []
    for position, entry in enumerate(plan.classes):
        if entry.kind is ClassKind.GRADIENT:
            progress(f"probing {bottleneck.port}: thresholds of {entry.name}")
            ramps.append(ramp(plan, bottleneck.profile, hosts, position, idle_delay_ns, seed))
    results = []
    for number, load in enumerate(loads):
        progress(f"probing {bottleneck.port}: load {load:g} for {seconds:g} s")
        results.append(_at_load(plan, bottleneck, load, burst_packets, seconds, seed + number))
    profile = bottleneck.profile
    return ProbeResult(
        bottleneck.port,
        plan.provenance.queueing_model,
        profile.rate_bps,
        profile.packet_bytes,
        idle_delay_ns / 1e9,
        tuple(results),
        tuple(ramps),
    )


def _idle_delay_ns(plan: Plan, bottleneck: Bottleneck, seed: int) -> float:
    """Delay through the empty port: the median of lone packets of the first gradient class."""
    position = next(n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.GRADIENT)
    task = RampTask(class_index=position, packets_per_second=IDLE_PACKETS_PER_SECOND)
    received = run(plan, bottleneck.receiver, {bottleneck.near_sender: task}, IDLE_SECONDS, seed)
    received.require_some(bottleneck.port)
    return float(np.median(received.records["delay_ns"]))


def _at_load(
    plan: Plan, bottleneck: Bottleneck, load: float, burst_packets: int, seconds: float, seed: int
) -> LoadResult:
    flows = [
        _flow(plan, bottleneck, position, load, burst_packets) for position, entry in enumerate(plan.classes)
    ]
    tasks = {
        sender: BurstTask(flows=tuple(flow for flow in flows if flow is not None), seed=seed * 1000 + number)
        for number, sender in enumerate(bottleneck.senders)
    }
    received = run(plan, bottleneck.receiver, tasks, seconds, seed)
    predictions = predict_port(plan, bottleneck.profile, load=load)
    classes = [
        _class_loss(entry, received, position, predictions[entry.name], is_important=is_important)
        for position, entry in enumerate(plan.classes)
        for is_important in (False, True)
        if flows[position] is not None and _is_sent(entry, is_important=is_important)
    ]
    return LoadResult(load, burst_packets, seconds, received.late_seconds, tuple(classes))


def _is_sent(entry: TrafficClass, *, is_important: bool) -> bool:
    """Only gradients are tagged by importance; control and background are sent Not-ECT."""
    return entry.kind is ClassKind.GRADIENT or not is_important


def _flow(plan: Plan, bottleneck: Bottleneck, position: int, load: float, burst_packets: int) -> Flow | None:
    """One sender's part of a class; None where the plan expects no traffic."""
    entry = plan.classes[position]
    line = packets_per_second(bottleneck.profile) / len(bottleneck.senders)
    if entry.kind is ClassKind.GRADIENT:
        rate = entry.load * load / plan.fabric.traffic.load * line
        return Flow(position, rate, burst_packets, plan.unimportant_share)
    if entry.kind is ClassKind.CONTROL:
        return Flow(position, CONTROL_PACKETS_PER_SECOND / len(bottleneck.senders), 1, 1.0)
    if entry.kind is ClassKind.BACKGROUND and entry.load > 0:
        return Flow(position, entry.load * line, 1, 1.0)
    return None


def _class_loss(
    entry: TrafficClass, received: Received, position: int, prediction: Prediction, *, is_important: bool
) -> ClassLoss:
    records = received.records
    mine = records[(records["class_index"] == position) & (records["is_important"] == is_important)]
    sent = received.sent[position, is_important]
    delays = mine["delay_ns"] / 1e9
    return ClassLoss(
        traffic_class=entry.name,
        is_important=is_important,
        sent=sent,
        received=len(mine),
        ce_marked=int(np.sum((mine["tos"] & Ecn.CE) == Ecn.CE)),
        lost=sent - len(mine),
        loss=(sent - len(mine)) / sent if sent else None,
        predicted_loss=prediction.loss_important if is_important else prediction.loss_unimportant,
        delay_p50_seconds=float(np.percentile(delays, 50)) if len(mine) else None,
        delay_p99_seconds=float(np.percentile(delays, 99)) if len(mine) else None,
    )
