"""From a model profile and a fabric to a Plan: traffic, thresholds, predictions and what to doubt in them."""

from mltswitch.plan.resolve import CapabilityLookup
from mltswitch.planning.build import build_plan
from mltswitch.planning.predict import predict_port, predict_port_losses
from mltswitch.planning.refine import refine_plan

__all__ = ["CapabilityLookup", "build_plan", "predict_port", "predict_port_losses", "refine_plan"]
