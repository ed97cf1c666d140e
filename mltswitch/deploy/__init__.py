"""Comparing switches with a plan, and changing them: connect, diff, push, verify, and the way back."""

from mltswitch.deploy.conversation import Connector, Conversation
from mltswitch.deploy.journal import OPEN, Journal, State, change, changes
from mltswitch.deploy.operations import (
    Fleet,
    Rollout,
    abandon,
    diff,
    push,
    resume,
    rollback,
    status,
    verify,
)
from mltswitch.deploy.results import DeviceDifference, DeviceReport, FleetReport, Status
from mltswitch.deploy.ssh import connect, unlock_keys

__all__ = [
    "OPEN",
    "Connector",
    "Conversation",
    "DeviceDifference",
    "DeviceReport",
    "Fleet",
    "FleetReport",
    "Journal",
    "Rollout",
    "State",
    "Status",
    "abandon",
    "change",
    "changes",
    "connect",
    "diff",
    "push",
    "resume",
    "rollback",
    "status",
    "unlock_keys",
    "verify",
]
