"""Measures what a network does to tagged packets; needs hosts to send from, no knowledge of the switches."""

from mltswitch.measure.judge import Verdict, judge
from mltswitch.measure.probe import Bottleneck, ClassLoss, LoadResult, ProbeResult, probe
from mltswitch.measure.ramp import RampResult
from mltswitch.measure.run import ProbeHost

__all__ = [
    "Bottleneck",
    "ClassLoss",
    "LoadResult",
    "ProbeHost",
    "ProbeResult",
    "RampResult",
    "Verdict",
    "judge",
    "probe",
]
