"""Thresholds under any loss model: exact where queues do not influence each other, else by descent."""

from mltswitch.queueing.descent.choice import Choice, Constraints
from mltswitch.queueing.descent.evaluation import Evaluation, Evaluator, Predictor
from mltswitch.queueing.descent.search import descend
from mltswitch.queueing.descent.solve import (
    as_choice,
    as_optimum,
    evaluation_budget,
    optimise,
    optimise_by_descent,
)

__all__ = [
    "Choice",
    "Constraints",
    "Evaluation",
    "Evaluator",
    "Predictor",
    "as_choice",
    "as_optimum",
    "descend",
    "evaluation_budget",
    "optimise",
    "optimise_by_descent",
]
