"""The Plan: built from a model profile and a fabric, read by every renderer and agent."""

from mltswitch.plan.build import CapabilityLookup, build_plan, resolve_fabric
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
    TrafficClass,
)
from mltswitch.plan.fabric import Fabric, PortRole, SwitchRole
from mltswitch.plan.port_numbers import trailing_number
from mltswitch.plan.predict import predict_port, predict_port_losses
from mltswitch.plan.refine import refine_plan
from mltswitch.plan.segments import SegmentRoute, Segments
from mltswitch.plan.spraying import check_spray_mode
from mltswitch.plan.topology import Host, Port, Route, Switch, Topology
from mltswitch.plan.underlay import attached_hosts, underlay

__all__ = [
    "CapabilityLookup",
    "ClassKind",
    "Fabric",
    "Host",
    "LayerRange",
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
    "SegmentRoute",
    "Segments",
    "Switch",
    "SwitchRole",
    "Topology",
    "TrafficClass",
    "attached_hosts",
    "build_plan",
    "check_spray_mode",
    "predict_port",
    "predict_port_losses",
    "refine_plan",
    "resolve_fabric",
    "trailing_number",
    "underlay",
]
