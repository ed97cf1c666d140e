"""What a switch can do, as data: queues, units, ranges, and what nobody has yet tested on real hardware."""

from mltswitch.capabilities.device import Capabilities, LimitCapability, PortNumbering, ThresholdCapability
from mltswitch.capabilities.limits import AlphaLimit, BytesLimit, Limit, Unlimited

__all__ = [
    "AlphaLimit",
    "BytesLimit",
    "Capabilities",
    "Limit",
    "LimitCapability",
    "PortNumbering",
    "ThresholdCapability",
    "Unlimited",
]
