"""Leaf-spine networks on one machine: hosts, and Linux, BMv2 or merely emulated switches."""

from mltswitch.lab.bmv2 import mininet_file, network_description, network_inventory
from mltswitch.lab.bottleneck import lab_bottleneck
from mltswitch.lab.lab import Lab
from mltswitch.lab.model import (
    BMV2_PLATFORM,
    LINUX_PLATFORM,
    DeviceAddress,
    DeviceKind,
    DeviceStatus,
    Engine,
    HostStatus,
    LabMode,
    LabStatus,
    Records,
)
from mltswitch.lab.namespaces import NamespaceHandle
from mltswitch.lab.star import (
    LeafSpine,
    Queue,
    Star,
    one_queue,
    planned_queues,
    running_leaf_spine,
    running_star,
)

__all__ = [
    "BMV2_PLATFORM",
    "LINUX_PLATFORM",
    "DeviceAddress",
    "DeviceKind",
    "DeviceStatus",
    "Engine",
    "HostStatus",
    "Lab",
    "LabMode",
    "LabStatus",
    "LeafSpine",
    "NamespaceHandle",
    "Queue",
    "Records",
    "Star",
    "lab_bottleneck",
    "mininet_file",
    "network_description",
    "network_inventory",
    "one_queue",
    "planned_queues",
    "running_leaf_spine",
    "running_star",
]
