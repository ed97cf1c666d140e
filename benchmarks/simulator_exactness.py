"""The simulator against exact figures: textbook queues and the Markov chain of two priority queues."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import sqrt
from statistics import fmean, stdev
from typing import Final

from mltswitch.queueing import (
    Batch,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    predict,
)
from tests.queueing.exact import mm1k_loss, priority_mean_waits, solve_chain

RUNS: Final = 10
STUDENT_95: Final = 2.262
"""Two-sided 95 % quantile of Student's distribution with RUNS - 1 degrees of freedom."""
ENDLESS: Final = QueueThresholds(None, 1e5)
MM1K: Final = tuple(product((0.5, 0.9, 1.2), (4, 16)))
"""(load, places with the one in service)."""
WAITS: Final = (((0.5,), (1,)), ((0.8,), (1,)), ((0.8,), (8,)), ((0.3, 0.4), (1, 1)), ((0.4, 0.3), (6, 3)))
"""(loads, bursts) of endless queues, highest priority first."""
CHAIN_LOADS: Final = ((0.3, 0.3), (0.4, 0.5), (0.6, 0.6))
CHAIN_BURSTS: Final = ((1, 1), (3, 5), (8, 1))
CHAIN_THRESHOLDS: Final = (QueueThresholds(4, 9), QueueThresholds(6, 14))


@dataclass(frozen=True, slots=True)
class ExactComparison:
    """One exact figure, and the interval that the simulator gives for it."""

    name: str
    exact: float
    simulated: float
    half_width: float

    @property
    def is_outside(self) -> bool:
        """One in twenty of a sound simulator is."""
        return abs(self.simulated - self.exact) > self.half_width


def compare_with_exact(packets: int, seed: int = 1) -> Iterator[ExactComparison]:
    """Every comparison, each from about this many simulated packets."""
    for index, (load, places) in enumerate(MM1K):
        port = Port(count_in_service=True, service="exponential")
        (found,) = _simulate(port, [QueueTraffic(load, 0.0)], [QueueThresholds(None, places)], packets, seed)
        name = f"loss of M/M/1/{places} at load {load:g}"
        yield _loss(name, mm1k_loss(load, places), found.loss_important, found.loss_important_error)
        seed += index + 1
    for loads, bursts in WAITS:
        yield from _waits(loads, bursts, packets, seed)
        seed += RUNS
    for loads, bursts, count in product(CHAIN_LOADS, CHAIN_BURSTS, (False, True)):
        seed += 1
        yield from _chain(Port(count_in_service=count), loads, bursts, packets, seed)


def _simulate(
    port: Port, traffic: list[QueueTraffic], thresholds: list[QueueThresholds], packets: int, seed: int
) -> tuple[QueuePrediction, ...]:
    settings = SimulationSettings(packets=packets, seed=seed)
    return predict(port, traffic, thresholds, "simulate", simulation=settings)


def _loss(name: str, exact: float, simulated: float, half_width: float | None) -> ExactComparison:
    return ExactComparison(name, exact, simulated, half_width or 0.0)


def _waits(
    loads: tuple[float, ...], bursts: tuple[int, ...], packets: int, seed: int
) -> Iterator[ExactComparison]:
    """Mean waits carry no interval of their own: independent runs give one."""
    traffic = [QueueTraffic(load, 0.5, Batch(burst)) for load, burst in zip(loads, bursts, strict=True)]
    runs = [
        _simulate(Port(), traffic, [ENDLESS] * len(loads), packets // RUNS, seed + run) for run in range(RUNS)
    ]
    for queue, exact in enumerate(priority_mean_waits(loads, bursts)):
        found = [run[queue].mean_delay_packet_times or 0.0 for run in runs]
        name = f"mean wait in queue {queue} of M/D/1 with loads {loads}, bursts {bursts}"
        yield ExactComparison(name, exact, fmean(found), STUDENT_95 * stdev(found) / sqrt(RUNS))


def _chain(
    port: Port, loads: tuple[float, ...], bursts: tuple[int, ...], packets: int, seed: int
) -> Iterator[ExactComparison]:
    traffic = [QueueTraffic(load, 0.4, Batch(burst)) for load, burst in zip(loads, bursts, strict=True)]
    found = _simulate(port, traffic, list(CHAIN_THRESHOLDS), packets, seed)
    exact = solve_chain(port, traffic, CHAIN_THRESHOLDS)
    counted = ", in service counted" if port.count_in_service else ""
    for queue, (known, seen) in enumerate(zip(exact, found, strict=True)):
        name = f"in queue {queue} of the chain with loads {loads}, bursts {bursts}{counted}"
        for kind in ("unimportant", "important"):
            yield _loss(
                f"loss of {kind} {name}",
                getattr(known, f"loss_{kind}"),
                getattr(seen, f"loss_{kind}"),
                getattr(seen, f"loss_{kind}_error"),
            )
