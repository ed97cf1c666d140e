"""Leaf-spine networks on one machine: Linux switches with real queues, emulated ones, and hosts."""

from mltswitch.lab.bottleneck import lab_bottleneck
from mltswitch.lab.lab import Lab
from mltswitch.lab.model import DeviceAddress, DeviceKind, DeviceStatus, HostStatus, LabMode, LabStatus
from mltswitch.lab.namespaces import NamespaceHandle

__all__ = [
    "DeviceAddress",
    "DeviceKind",
    "DeviceStatus",
    "HostStatus",
    "Lab",
    "LabMode",
    "LabStatus",
    "NamespaceHandle",
    "lab_bottleneck",
]
