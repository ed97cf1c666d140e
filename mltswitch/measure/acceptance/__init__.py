"""Settles on a real rack what capability data alone can only claim: one port, overloaded class by class."""

from mltswitch.measure.acceptance.checks import Check, ExpectedPort, ExpectedQueue, Question
from mltswitch.measure.acceptance.place import Place, find_place
from mltswitch.measure.acceptance.report import AcceptanceResult, Verdict
from mltswitch.measure.acceptance.run import DeviceCounters, accept, payload_bytes
from mltswitch.measure.acceptance.session import TestHost, open_hosts

__all__ = [
    "AcceptanceResult",
    "Check",
    "DeviceCounters",
    "ExpectedPort",
    "ExpectedQueue",
    "Place",
    "Question",
    "TestHost",
    "Verdict",
    "accept",
    "find_place",
    "open_hosts",
    "payload_bytes",
]
