"""From a model profile and a fabric to a Plan: traffic classes, thresholds, predictions and warnings."""

from mltswitch.plan.fabric import CapabilityLookup
from mltswitch.planning.build import build_plan, predict_edited
from mltswitch.planning.predict import predict_port
from mltswitch.planning.refine import refine_plan

__all__ = ["CapabilityLookup", "build_plan", "predict_edited", "predict_port", "refine_plan"]
