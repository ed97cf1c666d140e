"""The optimisation problem of one port: what its queues are offered in each scenario, what is chosen."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.problem import Port, QueueThresholds, QueueTraffic

FloatArray = npt.NDArray[np.float64]
RoundsCurve = Callable[[FloatArray], FloatArray]
"""Loss ratio (any shape) → extra training rounds (same shape)."""

LEAST_TOLERANCE: Final = 1e-6
"""Stands for a tolerance of 0 where losses are compared with it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One situation that thresholds are chosen for."""

    weight: float
    """Its share of the objective; the weights of a problem are relative to each other."""
    traffic: tuple[QueueTraffic, ...]
    """All queues of the port, highest priority first."""
    limit_packets: int | None = None
    """L of every chosen queue there, where it is less than `shared_limit_packets`; S lies below it."""


@dataclass(frozen=True, slots=True)
class QueueObjective:
    """What losses of one gradient class cost, and what bounds its thresholds."""

    rounds_unimportant: RoundsCurve
    rounds_important: RoundsCurve
    tolerances: tuple[float, float]
    """End-to-end loss of (unimportant, important) packets up to which training takes no extra round."""
    least_threshold_packets: int = 1
    """S holds at least a sender's largest burst and the class's share of an incast."""
    least_margin_packets: int = 1
    """L lies so far above S, so that important packets survive what no scenario foresees."""
    most_threshold_packets: int | None = None
    """S is at most this, so that marks do not come too late; None: as much as the buffer holds."""
    delay_bound_packet_times: float | None = None
    """Bound of the 99th percentile of the delay (of the worst case L where the model predicts no delay)."""


@dataclass(frozen=True)
class ThresholdProblem:
    """Choose S, and L where the device has one, of the gradient queues of a port."""

    port: Port
    scenarios: tuple[Scenario, ...]
    """The planned one first."""
    fixed: tuple[QueueThresholds | None, ...]
    """Per queue: thresholds that are given (control, background), or None: a gradient queue, to be chosen."""
    objectives: tuple[QueueObjective, ...]
    """One for each None in `fixed`, in the same order."""
    buffer_packets: int
    """What the chosen queues may hold together; with `shared_limit_packets` nothing depends on it."""
    hops: int = 1
    """Equal ports in a row over which the loss counts: 1 - (1 - r)^hops."""
    shared_limit_packets: int | None = None
    """L of every chosen queue where the device lets nobody set one: what the chip's shared memory leaves a
    congested queue. None: L is chosen, and all of them fit into the buffer together."""
    is_ordered: bool = True
    """A class of higher priority has a smaller or equal S (MLT, section 5.2)."""
    is_cap_firm: bool = True
    """False: where `most_threshold_packets` alone costs training rounds at the planned load, all of them are
    doubled until it does not."""

    def room_packets(self, limit_packets: int) -> int:
        """What a chosen queue with this L can fill in every scenario: S stays below it."""
        limits = [entry.limit_packets for entry in self.scenarios if entry.limit_packets is not None]
        return min([limit_packets, *limits])

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """Positions of the gradient queues among all."""
        return tuple(position for position, given in enumerate(self.fixed) if given is None)

    def full(self, choice: Iterable[tuple[int, int]], scenario: Scenario) -> tuple[QueueThresholds, ...]:
        """Thresholds of all queues of the port in a scenario, from (S, L) of the chosen ones."""
        most = inf if scenario.limit_packets is None else scenario.limit_packets
        remaining = iter(
            QueueThresholds(float(least), float(max(least, min(limit, most)))) for least, limit in choice
        )
        return tuple(next(remaining) if given is None else given for given in self.fixed)


@dataclass(frozen=True, slots=True)
class Optimum:
    """Thresholds of the chosen queues, highest priority first, and what they cost."""

    thresholds: tuple[QueueThresholds, ...]
    extra_rounds: float
    """Expected over the scenarios: Σ weight · Σ f^S(r^S) + f^L(r^L)."""
    evaluations: int
    """Calls of the loss model that the search made."""
    loss_of_caps: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    """What each queue loses more of its (unimportant, important) packets because of `most_threshold_packets`,
    at the planned load and in the worst scenario; empty where no S is held back by it."""
    stretch: int = 1
    """Times that `most_threshold_packets` was exceeded at most, for the tolerances at the planned load."""


def end_to_end(loss: npt.ArrayLike, hops: int) -> FloatArray:
    """Loss over `hops` ports in a row that lose `loss` each."""
    ratio = np.clip(np.asarray(loss, dtype=np.float64), 0.0, 1 - 1e-16)
    return np.asarray(-np.expm1(hops * np.log1p(-ratio)))
