"""One module per switch OS: a plan in its own language, and back."""

from mltswitch.targets.base import (
    Change,
    Claim,
    Guard,
    Identity,
    Lossless,
    Neighbour,
    Quantised,
    Release,
    Rounding,
    RunningState,
    Session,
    Step,
)
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
from mltswitch.targets.target import Target

__all__ = [
    "Change",
    "Claim",
    "Guard",
    "Identity",
    "Lossless",
    "Neighbour",
    "PortState",
    "Quantised",
    "QueueState",
    "RefusedHardware",
    "Release",
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
