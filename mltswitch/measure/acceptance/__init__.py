"""Tests on a real rack what capability data can only claim: one port, overloaded class by class."""

from mltswitch.measure.acceptance.checks import Check, Question, TestedClass
from mltswitch.measure.acceptance.place import Place, find_place
from mltswitch.measure.acceptance.report import AcceptanceResult, Verdict
from mltswitch.measure.acceptance.run import DeviceCounters, accept

__all__ = [
    "AcceptanceResult",
    "Check",
    "DeviceCounters",
    "Place",
    "Question",
    "TestedClass",
    "Verdict",
    "accept",
    "find_place",
]
