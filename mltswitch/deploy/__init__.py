"""Comparing switches with a plan, and changing them: connect, diff, push, verify."""

from mltswitch.deploy.conversation import Connector, Conversation
from mltswitch.deploy.operations import diff, push, verify
from mltswitch.deploy.results import DeviceDifference, DeviceReport, FleetReport, Status
from mltswitch.deploy.ssh import connect, unlock_keys

__all__ = [
    "Connector",
    "Conversation",
    "DeviceDifference",
    "DeviceReport",
    "FleetReport",
    "Status",
    "connect",
    "diff",
    "push",
    "unlock_keys",
    "verify",
]
