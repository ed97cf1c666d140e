"""Pictures and pages: a plan as one HTML file that needs nothing else."""

from mltswitch.report.page import SIMULATION, plan_report

__all__ = ["SIMULATION", "plan_report"]
