"""Measures what a network does to tagged packets; needs hosts to send from, no knowledge of the switches."""

from mltswitch.measure.judge import Verdict, judge
from mltswitch.measure.offered import Bottleneck, Offer, offered_problem, predict_offer, sending_tasks
from mltswitch.measure.path import path_delay
from mltswitch.measure.probe import ClassLoss, LoadResult, ProbeResult, probe, probe_load
from mltswitch.measure.ramp import PathDelay, RampResult
from mltswitch.measure.run import ProbeHost

__all__ = [
    "Bottleneck",
    "ClassLoss",
    "LoadResult",
    "Offer",
    "PathDelay",
    "ProbeHost",
    "ProbeResult",
    "RampResult",
    "Verdict",
    "judge",
    "offered_problem",
    "path_delay",
    "predict_offer",
    "probe",
    "probe_load",
    "sending_tasks",
]
