"""Loss models and the optimiser: pure functions of numbers, no files, no devices."""

from mltswitch.queueing.arrivals import Arrivals, Batch, Incast, Poisson, Trace, mean_burst_packets
from mltswitch.queueing.decision import Decision, decide
from mltswitch.queueing.models import MODELS, kind_of, predict
from mltswitch.queueing.objective import Optimum, QueueObjective, Scenario, ThresholdProblem
from mltswitch.queueing.optimise import optimise
from mltswitch.queueing.paper import blocking, utilisations
from mltswitch.queueing.problem import (
    Importance,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    check_problem,
)

__all__ = [
    "MODELS",
    "Arrivals",
    "Batch",
    "Decision",
    "Importance",
    "Incast",
    "Optimum",
    "Poisson",
    "Port",
    "QueueObjective",
    "QueuePrediction",
    "QueueThresholds",
    "QueueTraffic",
    "Scenario",
    "SimulationSettings",
    "ThresholdProblem",
    "Trace",
    "blocking",
    "check_problem",
    "decide",
    "kind_of",
    "mean_burst_packets",
    "optimise",
    "predict",
    "utilisations",
]
