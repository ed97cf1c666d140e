"""Broadcom FASTPATH and what is built on it (ICOS, Dell EMC Networking N-series): its command line."""

from mltswitch.targets.icos.target import IcosTarget

TARGET = IcosTarget()
