"""Measures what a network does to tagged packets; needs hosts to send from, no knowledge of the switches."""

from mltswitch.measure.judge import Verdict, judge
from mltswitch.measure.probe import Bottleneck, LoadResult, ProbeResult, RampResult, probe
from mltswitch.measure.run import ProbeHost

__all__ = ["Bottleneck", "LoadResult", "ProbeHost", "ProbeResult", "RampResult", "Verdict", "judge", "probe"]
