"""The loss models by name, behind one call."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from mltswitch.errors import UserInputError
from mltswitch.queueing import completion, paper
from mltswitch.queueing.problem import (
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    check_problem,
)

Model = Callable[[Port, Sequence[QueueTraffic], Sequence[QueueThresholds]], tuple[QueuePrediction, ...]]

ANALYTIC: Final[dict[str, Model]] = {
    "completion": completion.predict,
    "paper": paper.predict,
}
MODELS: Final = (*ANALYTIC, "simulate")
"""Names of the loss models; the first is the default."""


def kind_of(model: str) -> Literal["predicted", "simulated"]:
    """How figures of a model are labelled: predicted or simulated."""
    return "simulated" if model == "simulate" else "predicted"


def predict(
    port: Port,
    traffic: Sequence[QueueTraffic],
    thresholds: Sequence[QueueThresholds],
    model: str = "completion",
    *,
    simulation: SimulationSettings | None = None,
) -> tuple[QueuePrediction, ...]:
    """Loss, delay, queue and marks of each queue, highest priority first.

    `simulation` has an effect for the model `simulate` alone.

    Raises:
        UserInputError: a number is impossible (names the field), the model is unknown, or it cannot express
            the problem (names the model that can).
        MachineError: the model is `simulate` and its extra is not installed.
    """
    check_problem(port, traffic, thresholds)
    if model == "simulate":
        from mltswitch.queueing.simulation import simulate

        return simulate(port, traffic, thresholds, simulation or SimulationSettings())
    if model not in ANALYTIC:
        raise UserInputError(f"unknown loss model {model!r}", expected=f"one of {', '.join(MODELS)}")
    return ANALYTIC[model](port, traffic, thresholds)


def predict_losses(
    port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds], model: str
) -> tuple[QueuePrediction, ...]:
    """Predictions for a search that needs losses alone: other figures are left out where that saves time."""
    if model == "completion":
        check_problem(port, traffic, thresholds)
        return completion.predict_losses(port, traffic, thresholds)
    return predict(port, traffic, thresholds, model)
