"""One module per switch OS: a plan in its own language, and back."""

from mltswitch.targets.base import Change, Quantised, Rounding, RunningState, Session, Step, Target
from mltswitch.targets.registry import hardware_capabilities, target_for, targets
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState

__all__ = [
    "Change",
    "PortState",
    "Quantised",
    "QueueState",
    "Rounding",
    "RouteState",
    "RunningState",
    "Session",
    "Step",
    "SwitchState",
    "Target",
    "hardware_capabilities",
    "target_for",
    "targets",
]
