"""Loss models and the optimiser: pure functions of numbers, no files, no devices."""

from mltswitch.queueing.arrivals import Arrivals, Batch, Incast, Poisson, Trace, mean_burst_packets
from mltswitch.queueing.decision import Decision, decide
from mltswitch.queueing.models import MODELS, predict
from mltswitch.queueing.optimiser import GradientQueue, Optimum, least_buffer_packets, optimise
from mltswitch.queueing.paper import blocking, utilisations
from mltswitch.queueing.problem import (
    Importance,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    check_problem,
)
from mltswitch.queueing.settings import SimulationSettings

__all__ = [
    "MODELS",
    "Arrivals",
    "Batch",
    "Decision",
    "GradientQueue",
    "Importance",
    "Incast",
    "Optimum",
    "Poisson",
    "Port",
    "QueuePrediction",
    "QueueThresholds",
    "QueueTraffic",
    "SimulationSettings",
    "Trace",
    "blocking",
    "check_problem",
    "decide",
    "least_buffer_packets",
    "mean_burst_packets",
    "optimise",
    "predict",
    "utilisations",
]
