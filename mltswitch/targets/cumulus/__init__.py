"""NVIDIA Cumulus Linux 5.4 and later: NVUE commands over a shell, applied as one revision."""

from mltswitch.targets.cumulus.target import CumulusTarget

TARGET = CumulusTarget()
