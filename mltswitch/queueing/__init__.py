"""Loss models and the optimiser: pure functions of numbers, no files, no devices."""

from mltswitch.queueing.decision import Decision, decide
from mltswitch.queueing.optimiser import GradientQueue, Optimum, least_buffer_packets, optimise
from mltswitch.queueing.paper import QueueLoad, QueueLoss, QueueThresholds, blocking, predict, utilisations

MODELS = ("paper",)
"""Names of the loss models."""

__all__ = [
    "MODELS",
    "Decision",
    "GradientQueue",
    "Optimum",
    "QueueLoad",
    "QueueLoss",
    "QueueThresholds",
    "blocking",
    "decide",
    "least_buffer_packets",
    "optimise",
    "predict",
    "utilisations",
]
