"""How far load and burst size can move before a class loses more than its layers tolerate."""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Final

from mltswitch.plan import PathPrediction, Plan, Prediction
from mltswitch.profile import Curve, ModelProfile, queue_curves
from mltswitch.report.sweep import SIMULATE, Sweep

LEAST_LOSS: Final = 1e-12
"""Loss ratio below which losses count as equal when their logarithms are interpolated."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The loss ratio that one class tolerates, and the sensitivity curve that it comes from."""

    traffic_class: str
    is_important: bool
    curve: Curve
    tolerance: float
    """End-to-end loss ratio up to which no training round is added."""
    port_loss: float
    """The loss ratio at each of the equal ports of a path that adds up to the end-to-end tolerance."""

    @property
    def importance(self) -> str:
        """Which packets the bound is for: `important` or `unimportant`."""
        return importance(self.is_important)


@dataclass(frozen=True, slots=True)
class Headroom:
    """Where the loss of a class first exceeds its bound along a sweep."""

    bound: Bound
    planned: float
    swept: tuple[float, float]
    """First and last value of the sweep."""
    breaks_at: float | None
    """The value at which the loss first exceeds the bound; None: nowhere in the sweep."""
    simulated_break: float | None
    """First simulated point whose loss lies above the bound; None: there is none."""

    @property
    def holds(self) -> bool:
        """Whether the planned point is within the bound."""
        return self.breaks_at is None or self.breaks_at > self.planned


def importance(is_important: bool) -> str:
    """The word `important` or `unimportant`."""
    return "important" if is_important else "unimportant"


def loss_of(prediction: Prediction | PathPrediction, is_important: bool) -> float:
    """Loss of the important or of the unimportant packets of a queue, or of a class over the whole path."""
    return prediction.loss_important if is_important else prediction.loss_unimportant


def error_of(prediction: Prediction, is_important: bool) -> float | None:
    """Half width of the 95 % confidence interval of the important or unimportant loss; None: it was not
    simulated."""
    return prediction.loss_important_error if is_important else prediction.loss_unimportant_error


def bounds(plan: Plan, model_profile: ModelProfile) -> tuple[Bound, ...]:
    """Two bounds for each gradient class, that of unimportant packets first."""
    made: list[Bound] = []
    for entry in plan.gradient_classes:
        if entry.layers is None:
            continue
        curves = queue_curves(model_profile, entry.layers.first, entry.layers.last)
        for is_important, curve in zip((False, True), curves, strict=True):
            planned = entry.loss_bound_important if is_important else entry.loss_bound_unimportant
            tolerance = _tolerance(curve) if planned is None else planned
            port_loss = 1.0 - (1.0 - tolerance) ** (1.0 / plan.hops)
            made.append(Bound(entry.name, is_important, curve, tolerance, port_loss))
    return tuple(made)


def _tolerance(curve: Curve) -> float:
    """Where extra rounds begin; 1 where they never do within the curve."""
    return max(
        (ratio for ratio, rounds in zip(curve.loss_ratios, curve.extra_rounds, strict=True) if rounds <= 0),
        default=0.0,
    )


def headrooms(sweep: Sweep, model: str, limits: tuple[Bound, ...]) -> tuple[Headroom, ...]:
    """The headroom for every bound, interpolated between the sweep's points; empty where the model predicts
    nothing."""
    points = [(point, outcome.predictions) for point, outcome in sweep.outcomes[model] if outcome.predictions]
    if not points:
        return ()
    swept = (points[0][0], points[-1][0])
    made: list[Headroom] = []
    for bound in limits:
        name = bound.traffic_class
        losses = [(point, loss_of(found[name], bound.is_important)) for point, found in points]
        simulated = (
            point
            for point, outcome in sweep.outcomes.get(SIMULATE, ())
            if outcome.predictions
            and loss_of(outcome.predictions[name], bound.is_important) > bound.port_loss
        )
        breaks_at = _first_break(losses, bound.port_loss)
        made.append(Headroom(bound, sweep.planned, swept, breaks_at, next(simulated, None)))
    return tuple(made)


def sees(sweep: Sweep, model: str) -> bool:
    """Whether the model's losses depend on the swept quantity at all."""
    said = [outcome.predictions for _, outcome in sweep.outcomes[model] if outcome.predictions]
    return len({tuple((q.loss_unimportant, q.loss_important) for q in each.values()) for each in said}) > 1


def _first_break(losses: list[tuple[float, float]], bound: float) -> float | None:
    """First point at which the loss exceeds the bound; logarithms are linear in between."""
    if losses[0][1] > bound:
        return losses[0][0]
    for (before, low), (after, high) in pairwise(losses):
        if high > bound:
            if bound < LEAST_LOSS:
                return before
            start, end = log(max(low, LEAST_LOSS)), log(max(high, LEAST_LOSS))
            part = (log(bound) - start) / (end - start) if end > start else 1.0
            return exp(log(before) + part * (log(after) - log(before)))
    return None
