"""One module per switch OS, which writes a plan in the language of that OS and reads it back."""

from mltswitch.targets.base import (
    Change,
    Claim,
    FittedState,
    Guard,
    Identity,
    Lossless,
    Neighbour,
    Release,
    Rounding,
    RunningState,
    SessionKind,
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
    "FittedState",
    "Guard",
    "Identity",
    "Lossless",
    "Neighbour",
    "PortState",
    "QueueState",
    "RefusedHardware",
    "Release",
    "Rounding",
    "RouteState",
    "RunningState",
    "SegmentRouteState",
    "SegmentRouting",
    "SessionKind",
    "Step",
    "SwitchState",
    "Target",
    "hardware_capabilities",
    "known_hardware",
    "target_for",
    "targets",
]
