"""Reports on plans, trainings and simulations: one self-contained HTML file with pictures and tables."""

from mltswitch.report.page import SIMULATION, plan_report, plotly_script
from mltswitch.report.routes import routes_report
from mltswitch.report.simulation import SimulatedPlay, simulation_report
from mltswitch.report.training import Rung, Training, TrainingCase, training_report

__all__ = [
    "SIMULATION",
    "Rung",
    "SimulatedPlay",
    "Training",
    "TrainingCase",
    "plan_report",
    "plotly_script",
    "routes_report",
    "simulation_report",
    "training_report",
]
