"""Overload one switch port with tagged packets and compare what arrives with what the plan predicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltswitch.measure.run import ProbeHost, Received, run
from mltswitch.measure.schedule import Flow
from mltswitch.measure.sender import BurstTask, RampTask
from mltswitch.plan import ClassKind, Plan, PortProfile, Prediction, TrafficClass, predict_port
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire import Ecn

CONTROL_PACKETS_PER_SECOND = 50.0
"""Control traffic of a probe, whatever the plan's load: enough packets to see a loss of 1 %."""
RAMP_OVERLOAD = 3.0
"""Offered over port rate: above 2, important packets alone (every other one) fill the queue to L."""
RAMP_SECONDS = 0.4
IDLE_PACKETS_PER_SECOND = 50.0
IDLE_SECONDS = 1.0
THRESHOLD_TOLERANCE_PACKETS = 8
"""How far an observed threshold may stand from the planned one: averaging and timing count."""
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
    duration_seconds: float
    late_seconds: float
    """How far the slowest sender fell behind its schedule."""
    classes: tuple[ClassLoss, ...]


@dataclass(frozen=True, slots=True)
class RampResult:
    """Thresholds of one class as they show from outside: how long the queue was for what came through.

    The waiting bytes before a packet are its delay above the idle path's, times the port rate.
    """

    traffic_class: str
    ecn_threshold_bytes: int
    limit_bytes: int
    deepest_unimportant_bytes: int | None
    """Longest queue that a Not-ECT packet survived: S."""
    shallowest_mark_bytes: int | None
    """Shortest queue at which a packet was marked, while the queue grew: S."""
    deepest_important_bytes: int | None
    """Longest queue that an ECT packet survived: L."""
    unmarked_above_threshold: int
    """ECT packets that came unmarked through a queue longer than S by more than the tolerance."""
    lost_important: int


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
    seed: int,
    progress: Progress,
) -> ProbeResult:
    """Measure thresholds and losses at the given loads; raises MachineError when a host fails."""
    progress(f"probing {bottleneck.port}: idle path")
    idle_delay_ns = _idle_delay_ns(plan, bottleneck, seed)
    ramps = []
    for position, entry in enumerate(plan.classes):
        if entry.kind is ClassKind.GRADIENT:
            progress(f"probing {bottleneck.port}: thresholds of {entry.name}")
            ramps.append(_ramp(plan, bottleneck, position, idle_delay_ns, seed))
    results = []
    for number, load in enumerate(loads):
        progress(f"probing {bottleneck.port}: load {load:g} for {seconds:g} s")
        results.append(_at_load(plan, bottleneck, load, seconds, seed + number))
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


def _packets_per_second(profile: PortProfile) -> float:
    return profile.rate_bps / BITS_PER_BYTE / profile.packet_bytes


def _idle_delay_ns(plan: Plan, bottleneck: Bottleneck, seed: int) -> float:
    """Delay through the empty port: the least of a few lone packets of the first gradient class."""
    position = next(n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.GRADIENT)
    task = RampTask(class_index=position, packets_per_second=IDLE_PACKETS_PER_SECOND)
    received = run(plan, bottleneck.receiver, {bottleneck.near_sender: task}, IDLE_SECONDS, seed)
    received.require_some(bottleneck.port)
    return float(np.median(received.records["delay_ns"]))


def _ramp(plan: Plan, bottleneck: Bottleneck, position: int, idle_delay_ns: float, seed: int) -> RampResult:
    """Fill one otherwise idle queue with ECT and Not-ECT in turn."""
    profile = bottleneck.profile
    entry = plan.classes[position]
    settings = next(queue for queue in profile.queues if queue.traffic_class == entry.name)
    task = RampTask(class_index=position, packets_per_second=RAMP_OVERLOAD * _packets_per_second(profile))
    received = run(plan, bottleneck.receiver, {bottleneck.near_sender: task}, RAMP_SECONDS, seed)
    received.require_some(bottleneck.port)
    records = received.records
    waiting = (records["delay_ns"] - idle_delay_ns) / 1e9 * profile.rate_bps / BITS_PER_BYTE
    important = records["is_important"]
    marked = (records["tos"] & Ecn.CE) == Ecn.CE
    threshold = settings.ecn_threshold_bytes or 0
    tolerance = THRESHOLD_TOLERANCE_PACKETS * profile.packet_bytes
    return RampResult(
        traffic_class=entry.name,
        ecn_threshold_bytes=threshold,
        limit_bytes=getattr(settings.limit, "size_bytes", profile.buffer_bytes),
        deepest_unimportant_bytes=_extreme(waiting[~important], np.max),
        shallowest_mark_bytes=_extreme(waiting[important & marked], np.min),
        deepest_important_bytes=_extreme(waiting[important], np.max),
        unmarked_above_threshold=int(np.sum(important & ~marked & (waiting > threshold + tolerance))),
        lost_important=received.sent_important(position) - int(np.sum(important)),
    )


def _extreme(
    values: npt.NDArray[np.float64], of: Callable[[npt.NDArray[np.float64]], np.float64]
) -> int | None:
    return round(float(of(values))) if len(values) else None


def _at_load(plan: Plan, bottleneck: Bottleneck, load: float, seconds: float, seed: int) -> LoadResult:
    flows = [
        _flow(plan, bottleneck, position, entry, load / plan.fabric.traffic.load)
        for position, entry in enumerate(plan.classes)
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
    return LoadResult(load, seconds, received.late_seconds, tuple(classes))


def _is_sent(entry: TrafficClass, *, is_important: bool) -> bool:
    """Only gradients are tagged by importance; control and background are sent Not-ECT."""
    return entry.kind is ClassKind.GRADIENT or not is_important


def _flow(
    plan: Plan, bottleneck: Bottleneck, position: int, entry: TrafficClass, gradient_scale: float
) -> Flow | None:
    """One sender's part of a class; None where the plan expects no traffic."""
    share = 1.0 / len(bottleneck.senders)
    port_packets_per_second = _packets_per_second(bottleneck.profile)
    if entry.kind is ClassKind.GRADIENT:
        rate = entry.load * gradient_scale * port_packets_per_second
        return Flow(position, rate * share, plan.paths.burst_packets, plan.unimportant_share)
    if entry.kind is ClassKind.BACKGROUND:
        rate = entry.load * port_packets_per_second
        return Flow(position, rate * share, 1, 1.0) if rate else None
    if entry.kind is ClassKind.CONTROL:
        return Flow(position, CONTROL_PACKETS_PER_SECOND * share, 1, 1.0)
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
