"""What a switch can do, as data: queues, units, ranges, and what nobody has yet tested on real hardware."""

from mltswitch.capabilities.bandwidth import Bandwidth, BandwidthCapability, BitRate, PortShare
from mltswitch.capabilities.device import (
    Capabilities,
    LimitCapability,
    ThresholdCapability,
    Unverified,
    unverified,
)
from mltswitch.capabilities.limits import AlphaLimit, BytesLimit, Limit, Unlimited
from mltswitch.capabilities.ports import PortGroup, PortNumbering

__all__ = [
    "AlphaLimit",
    "Bandwidth",
    "BandwidthCapability",
    "BitRate",
    "BytesLimit",
    "Capabilities",
    "Limit",
    "LimitCapability",
    "PortGroup",
    "PortNumbering",
    "PortShare",
    "ThresholdCapability",
    "Unlimited",
    "Unverified",
    "unverified",
]
