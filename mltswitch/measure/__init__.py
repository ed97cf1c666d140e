"""Measures what a network does to tagged packets; it needs hosts to send from, and no switch access."""

from mltswitch.measure.hosts import TestHost, open_hosts
from mltswitch.measure.judge import Verdict, judge
from mltswitch.measure.offered import Bottleneck, Offer, offered_problem, offered_run, predict_offer
from mltswitch.measure.probe import ClassLoss, LoadResult, ProbeResult, RampResult, open_probe, probe

__all__ = [
    "Bottleneck",
    "ClassLoss",
    "LoadResult",
    "Offer",
    "ProbeResult",
    "RampResult",
    "TestHost",
    "Verdict",
    "judge",
    "offered_problem",
    "offered_run",
    "open_hosts",
    "open_probe",
    "predict_offer",
    "probe",
]
