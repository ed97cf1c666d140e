"""The packets that a probe sends at a load, as its senders' schedules and as a loss model's input.

Both come from the same flows: a prediction is for what was sent, not for what the plan expects.
"""

from dataclasses import dataclass, replace

from mltswitch.measure.hosts import TestHost
from mltswitch.measure.schedule import Flow, Run, poisson_bursts
from mltswitch.plan import ClassKind, Plan, PortProfile
from mltswitch.planning.predict import PortProblem, port_problem
from mltswitch.queueing import Batch, Importance, Poisson, QueuePrediction, QueueTraffic, predict

CONTROL_PACKETS_PER_SECOND = 50.0
"""Control packets a second in a probe, whatever the plan's load: enough to see a loss of 1 %."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The port under test and the hosts around it."""

    port: str
    profile: PortProfile
    receiver: TestHost
    senders: tuple[TestHost, ...]
    near_sender: TestHost
    """The sender whose packets cross no other queue than the port's."""
    has_line_behind: bool = False
    """Whether packets that left the queues wait again, in one line for all classes, before the link.

    On BMv2 they do, in its transmit buffer of 128 packets: bursts that it takes lose nothing, and under
    overload every delay is longer by the whole of it.
    """


@dataclass(frozen=True, slots=True)
class Offer:
    """The load of the gradient classes and the size of their bursts in a probe."""

    load: float
    """Offered gradient traffic as a multiple of the port's rate."""
    burst_packets: int


def offered_flows(plan: Plan, profile: PortProfile, offer: Offer) -> tuple[Flow, ...]:
    """The traffic that all senders together send to the port; classes without traffic have no flow."""
    line = 1 / profile.packet_seconds
    flows = []
    for position, entry in enumerate(plan.classes):
        if entry.kind is ClassKind.GRADIENT:
            rate = entry.load * offer.load / plan.fabric.traffic.load * line
            importance = _importance(plan, offer.burst_packets)
            flows.append(Flow(position, rate, offer.burst_packets, plan.unimportant_share, importance))
        elif entry.kind is ClassKind.CONTROL:
            flows.append(Flow(position, CONTROL_PACKETS_PER_SECOND, 1, 1.0))
        elif entry.kind is ClassKind.BACKGROUND and entry.load > 0:
            flows.append(Flow(position, entry.load * line, 1, 1.0))
    return tuple(flows)


def offered_run(plan: Plan, bottleneck: Bottleneck, offer: Offer, seconds: float, seed: int) -> Run:
    """The senders' schedules, with the flows in equal parts; together their Poisson bursts stay Poisson."""
    count = len(bottleneck.senders)
    flows = [
        replace(flow, packets_per_second=flow.packets_per_second / count)
        for flow in offered_flows(plan, bottleneck.profile, offer)
    ]
    return tuple(poisson_bursts(flows, seconds, seed * 1000 + number) for number in range(count))


def offered_problem(plan: Plan, profile: PortProfile, offer: Offer) -> PortProblem:
    """The loss model's input for these flows; bursts arrive at once, as from far faster links."""
    port, _, thresholds = port_problem(plan, profile)
    line = 1 / profile.packet_seconds
    traffic = [QueueTraffic(0.0) for _ in plan.classes]
    for flow in offered_flows(plan, profile, offer):
        traffic[flow.class_index] = QueueTraffic(
            flow.packets_per_second / line,
            flow.unimportant_share,
            Batch(flow.burst_packets) if flow.burst_packets > 1 else Poisson(),
            flow.importance,
        )
    return port, tuple(traffic), thresholds


def predict_offer(plan: Plan, profile: PortProfile, offer: Offer, model: str) -> dict[str, QueuePrediction]:
    """Class → what the model expects of these flows, in packets and packet times."""
    port, traffic, thresholds = offered_problem(plan, profile, offer)
    if model != "simulate":  # the others know nothing of a shared buffer
        port = replace(port, buffer_packets=None)
        thresholds = tuple(replace(entry, alpha=None) for entry in thresholds)
    figures = predict(port, traffic, thresholds, model)
    return {entry.name: figure for entry, figure in zip(plan.classes, figures, strict=True)}


def _importance(plan: Plan, burst_packets: int) -> Importance:
    """As the plan says; else a burst has one, since its packets share one ECN field."""
    return plan.fabric.traffic.importance or ("burst" if burst_packets > 1 else "packet")
