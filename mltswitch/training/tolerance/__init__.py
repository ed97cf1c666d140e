"""Measures how much gradient loss a training tolerates: by layers, importance and ratio, with intervals."""

from mltswitch.training.tolerance.campaign import describe, measure
from mltswitch.training.tolerance.loss import Importance, Loss
from mltswitch.training.tolerance.results import Bound, Comparison, Measurement, Point, Settings
from mltswitch.training.tolerance.sequential import Interval, Verdict, interval
from mltswitch.training.tolerance.task import BUNDLED, TrainingTask, load_task
from mltswitch.training.tolerance.trial import Outcome, Trainings, train

__all__ = [
    "BUNDLED",
    "Bound",
    "Comparison",
    "Importance",
    "Interval",
    "Loss",
    "Measurement",
    "Outcome",
    "Point",
    "Settings",
    "TrainingTask",
    "Trainings",
    "Verdict",
    "describe",
    "interval",
    "load_task",
    "measure",
    "train",
]
