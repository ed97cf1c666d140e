"""How long packets take through a port whose queues are empty, idle and busy."""

from typing import Final

import numpy as np

from mltswitch.measure.offered import Bottleneck
from mltswitch.measure.ramp import PathDelay, packets_per_second
from mltswitch.measure.run import run
from mltswitch.measure.schedule import Flow
from mltswitch.measure.sender import BurstTask, RampTask
from mltswitch.plan import ClassKind, Plan

IDLE_PACKETS_PER_SECOND: Final = 50.0
IDLE_SECONDS: Final = 1.0
BUSY_OVERLOAD: Final = 2.0
"""Offered over port rate, by important packets of the last gradient class."""
BUSY_CONTROL_PACKETS_PER_SECOND: Final = 50.0
BUSY_SECONDS: Final = 2.0
LONGEST_LINE_PACKETS: Final = 512
"""More than the line behind the queues of a switch that we know: the first half of a run must fill it."""


def path_delay(plan: Plan, bottleneck: Bottleneck, seed: int) -> PathDelay:
    """Measure both delays, where the bottleneck has two; raises MachineError."""
    idle_ns = idle_delay_ns(plan, bottleneck, seed)
    if not bottleneck.has_line_behind:
        return PathDelay(idle_ns)
    return PathDelay(idle_ns, max(0.0, _busy_delay_ns(plan, bottleneck, seed) - idle_ns))


def idle_delay_ns(plan: Plan, bottleneck: Bottleneck, seed: int) -> float:
    """Delay through the empty port: the median of lone packets of the first gradient class."""
    position = next(n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.GRADIENT)
    task = RampTask(class_index=position, packets_per_second=IDLE_PACKETS_PER_SECOND)
    received = run(plan, bottleneck.receiver, {bottleneck.near_sender: task}, IDLE_SECONDS, seed)
    received.require_some(bottleneck.port)
    return float(np.median(received.records["delay_ns"]))


def _busy_delay_ns(plan: Plan, bottleneck: Bottleneck, seed: int) -> float:
    """Delay of control, whose own queue is empty, while gradients overload the port."""
    line = packets_per_second(bottleneck.profile)
    control = next(n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.CONTROL)
    last_gradient = max(n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.GRADIENT)
    seconds = max(BUSY_SECONDS, 2 * LONGEST_LINE_PACKETS / (line * (BUSY_OVERLOAD - 1)))
    flows = (
        Flow(last_gradient, BUSY_OVERLOAD * line, 1, 0.0),
        Flow(control, BUSY_CONTROL_PACKETS_PER_SECOND, 1, 1.0),
    )
    task = BurstTask(flows=flows, seed=seed)
    received = run(plan, bottleneck.receiver, {bottleneck.near_sender: task}, seconds, seed)
    records = received.records
    settled = received.received_seconds(records) >= seconds / 2
    delays = records["delay_ns"][settled & (records["class_index"] == control)]
    received.require_some(bottleneck.port)
    return float(np.median(delays)) if len(delays) else 0.0
