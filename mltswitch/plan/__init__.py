"""The Plan: built from a model profile and a fabric, read by every renderer and agent."""

from mltswitch.plan.device_checks import check_lossless, check_ports, check_spray_mode, trailing_number
from mltswitch.plan.document import (
    ClassKind,
    LayerRange,
    PathPrediction,
    Paths,
    Plan,
    PortProfile,
    Prediction,
    Provenance,
    QueueSettings,
    ScenarioPrediction,
    TrafficClass,
)
from mltswitch.plan.elements import NO_ADDRESS, Host, PathName, Port, Route, Switch
from mltswitch.plan.fabric import CapabilityLookup, Fabric, resolve_fabric
from mltswitch.plan.seal import load_plan, sealed
from mltswitch.plan.segments import SegmentRoute, Segments
from mltswitch.plan.topology import Topology
from mltswitch.plan.topology_document import PortRole, SwitchRole
from mltswitch.plan.underlay import attached_hosts, owned_blocks, underlay

__all__ = [
    "NO_ADDRESS",
    "CapabilityLookup",
    "ClassKind",
    "Fabric",
    "Host",
    "LayerRange",
    "PathName",
    "PathPrediction",
    "Paths",
    "Plan",
    "Port",
    "PortProfile",
    "PortRole",
    "Prediction",
    "Provenance",
    "QueueSettings",
    "Route",
    "ScenarioPrediction",
    "SegmentRoute",
    "Segments",
    "Switch",
    "SwitchRole",
    "Topology",
    "TrafficClass",
    "attached_hosts",
    "check_lossless",
    "check_ports",
    "check_spray_mode",
    "load_plan",
    "owned_blocks",
    "resolve_fabric",
    "sealed",
    "trailing_number",
    "underlay",
]
