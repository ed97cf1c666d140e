"""Compares switches with a plan, and changes them: connect, diff, push, verify, and roll back."""

from mltswitch.deploy.comparison import lost_words
from mltswitch.deploy.connector import connect
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.journal import OPEN, Journal, State, change, changes
from mltswitch.deploy.operations import diff, leaks, push, verify
from mltswitch.deploy.recovery import abandon, confirm, remove, resume, rollback, status
from mltswitch.deploy.results import DeviceDifference, DeviceReport, FleetReport, Question, Status
from mltswitch.deploy.rollout import Rollout
from mltswitch.deploy.session import Connector, Session
from mltswitch.deploy.ssh import unlock_keys

__all__ = [
    "OPEN",
    "Connector",
    "DeviceDifference",
    "DeviceReport",
    "Fleet",
    "FleetReport",
    "Journal",
    "Question",
    "Rollout",
    "Session",
    "State",
    "Status",
    "abandon",
    "change",
    "changes",
    "confirm",
    "connect",
    "diff",
    "leaks",
    "lost_words",
    "push",
    "remove",
    "resume",
    "rollback",
    "status",
    "unlock_keys",
    "verify",
]
