"""One module per switch OS: a plan in its own language, and back."""

from mltswitch.targets.base import Change, Quantised, Rounding, RunningState, Session, Step, Target
from mltswitch.targets.registry import (
    RefusedHardware,
    hardware_capabilities,
    known_hardware,
    target_for,
    targets,
)
from mltswitch.targets.state import (
    PortState,
    QueueState,
    RouteState,
    SegmentRouteState,
    SegmentRouting,
    SwitchState,
)

__all__ = [
    "Change",
    "PortState",
    "Quantised",
    "QueueState",
    "RefusedHardware",
    "Rounding",
    "RouteState",
    "RunningState",
    "SegmentRouteState",
    "SegmentRouting",
    "Session",
    "Step",
    "SwitchState",
    "Target",
    "hardware_capabilities",
    "known_hardware",
    "target_for",
    "targets",
]
