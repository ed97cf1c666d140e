"""Predicts loss against load and against burst size by every model, and simulates a few points."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from mltswitch.errors import MltswitchError
from mltswitch.planning.predict import port_problem
from mltswitch.queueing import MODELS
from mltswitch.report.ports import Outcome, PortGroup

Axis = Literal["load", "burst_packets"]
Advance = Callable[[str], None]
"""Called before each step of the work with a name for it."""

AXES: Final[tuple[Axis, Axis]] = ("load", "burst_packets")
SIMULATE: Final = "simulate"
ANALYTIC_MODELS: Final = tuple(model for model in MODELS if model != SIMULATE)
LOADS: Final = tuple(round(0.3 + 0.05 * step, 2) for step in range(19))
"""Gradient loads of a fine sweep, from 0.3 to 1.2 of the port's rate."""
COARSE_LOADS: Final = LOADS[::2]
COARSE_ABOVE_PACKETS: Final = 1500
"""Ports that may hold more waiting packets than this are swept on the coarse grid."""
SIMULATED_LOAD_FACTORS: Final = (0.6, 0.8, 1.0, 1.15, 1.3)
BURSTS_PACKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
SIMULATED_BURSTS_PACKETS: Final = (1, 4, 16, 64)


def origin(model: str) -> str:
    """Says how a model's figures are made: simulated, or predicted by the model."""
    return "simulated" if model == SIMULATE else f"predicted by {model}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Outcomes of each model along one axis, the other at its planned value."""

    axis: Axis
    planned: float
    outcomes: dict[str, tuple[tuple[float, Outcome], ...]]

    def reasons(self) -> dict[str, str]:
        """For each model the reason why it predicts nothing for some points."""
        return {
            model: outcome.reason
            for model, points in self.outcomes.items()
            for _, outcome in points
            if outcome.reason
        }


def sweep_points(group: PortGroup, axis: Axis, model: str) -> tuple[float, ...]:
    """The values at which a model is asked; the planned one is always among them."""
    if axis == "burst_packets":
        bursts = SIMULATED_BURSTS_PACKETS if model == SIMULATE else BURSTS_PACKETS
        return tuple(sorted({*bursts, group.burst_packets}))
    load = group.profile.load
    points = {load, *(round(load * factor, 4) for factor in SIMULATED_LOAD_FACTORS)}
    if model != SIMULATE:
        grid = COARSE_LOADS if _waiting_packets(group) > COARSE_ABOVE_PACKETS else LOADS
        points = {load, *grid, *(point for point in points if point > max(grid))}
    return tuple(sorted(points))


def _waiting_packets(group: PortGroup) -> float:
    """Packets that all limits of a port allow together to wait: what a model's time grows with."""
    try:
        _, _, thresholds = port_problem(group.plan, group.profile)
    except MltswitchError:
        return 0.0
    return sum(entry.limit_packets for entry in thresholds)


def sweep_length(group: PortGroup, models: tuple[str, ...]) -> int:
    """Number of steps that both sweeps of a group of ports take."""
    return sum(len(sweep_points(group, axis, model)) for axis in AXES for model in models)


def sweep(group: PortGroup, axis: Axis, models: tuple[str, ...], advance: Advance) -> Sweep:
    """The outcomes of every model along one axis for a group of ports."""
    at = group.profile.load if axis == "load" else float(group.burst_packets)
    return Sweep(axis, at, {model: tuple(_outcomes(group, axis, model, advance)) for model in models})


def _outcomes(group: PortGroup, axis: Axis, model: str, advance: Advance) -> Iterator[tuple[float, Outcome]]:
    for point in sweep_points(group, axis, model):
        if axis == "load":
            advance(f"{model}: loss against load")
            yield point, group.outcome(model, load=point)
        else:
            advance(f"{model}: loss against burst size")
            yield point, group.outcome(model, burst_packets=int(point))
