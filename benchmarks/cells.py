"""The problems that the loss models are judged by, drawn once from fixed seeds and never changed.

Every combination of a range of load, of burst size and of the number of queues has the same number of
cells, so that no corner hides behind easy ones. Only uniform numbers come from the generator: its other
distributions may change between versions of numpy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import exp, log
from typing import Any, Final

import numpy as np

from mltswitch.queueing import Batch, Port, QueueThresholds, QueueTraffic

LOADS: Final = ((0.5, 0.64), (0.64, 0.78), (0.78, 0.92), (0.92, 1.06), (1.06, 1.2))
BURSTS: Final = ((1, 1), (2, 4), (5, 10), (11, 22), (23, 45))
QUEUES: Final = ((2, 2), (3, 4), (5, 6), (7, 8))
LEAST_THRESHOLD_PACKETS: Final = 8
MOST_THRESHOLD_PACKETS: Final = 512
UNIMPORTANT: Final = (0.3, 0.7)
SEED: Final = 20_240_301
HELD_OUT_SEED: Final = 70_240_302
DIGITS: Final = 6
"""Shares and loads are rounded, so that a printed cell is exactly the cell."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One problem, and its name."""

    name: str
    port: Port
    traffic: tuple[QueueTraffic, ...]
    thresholds: tuple[QueueThresholds, ...]

    @property
    def load(self) -> float:
        """Offered packets per packet time of all queues together."""
        return sum(offered.load for offered in self.traffic)

    def as_spec(self) -> dict[str, Any]:
        """The problem as `mltswitch loss --spec` reads it."""
        return {
            "queues": [
                {
                    "load": offered.load,
                    "burst_packets": _burst(offered),
                    "unimportant": offered.unimportant_share,
                    "ecn_threshold_packets": limits.ecn_threshold_packets,
                    "limit_packets": limits.limit_packets,
                }
                for offered, limits in zip(self.traffic, self.thresholds, strict=True)
            ],
        }


def tuning_cells() -> tuple[Cell, ...]:
    """300 cells: those that a model may be looked at with while it is written."""
    return tuple(_draw("cell", SEED, each=3))


def held_out_cells() -> tuple[Cell, ...]:
    """100 more, to be looked at only when a model is done."""
    return tuple(_draw("held-out", HELD_OUT_SEED, each=1))


def _burst(offered: QueueTraffic) -> float:
    return offered.arrivals.burst_packets if isinstance(offered.arrivals, Batch) else 1


class _Uniform:
    """Everything that a cell needs, from uniform numbers alone."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def between(self, least: float, most: float) -> float:
        return least + (most - least) * float(self._generator.random())

    def whole(self, least: int, most: int) -> int:
        return min(most, int(self.between(least, most + 1)))

    def log_whole(self, least: int, most: int) -> int:
        return min(most, max(least, round(exp(self.between(log(least - 0.5), log(most + 0.5))))))

    def shares(self, count: int) -> list[float]:
        """Dirichlet with all parameters 1: exponential numbers over their sum."""
        gaps = [-log(1.0 - self.between(0.0, 1.0)) for _ in range(count)]
        return [gap / sum(gaps) for gap in gaps]

    def half_of(self, count: int) -> set[int]:
        """Half of the indices, at random."""
        keys = [self.between(0.0, 1.0) for _ in range(count)]
        return set(sorted(range(count), key=keys.__getitem__)[: count // 2])


def _draw(prefix: str, seed: int, each: int) -> Iterator[Cell]:
    uniform = _Uniform(seed)
    strata = list(product(range(each), LOADS, BURSTS, QUEUES))
    equal_bursts, even_loads = uniform.half_of(len(strata)), uniform.half_of(len(strata))
    for index, (_, load, burst, queues) in enumerate(strata):
        count = uniform.whole(*queues)
        total = uniform.between(*load)
        shares = [1 / count] * count if index in even_loads else uniform.shares(count)
        bursts = _bursts(uniform, burst, count, is_equal=index in equal_bursts)
        traffic = tuple(
            QueueTraffic(
                load=round(total * share, DIGITS),
                unimportant_share=round(uniform.between(*UNIMPORTANT), DIGITS),
                arrivals=Batch(size),
            )
            for share, size in zip(shares, bursts, strict=True)
        )
        thresholds = tuple(_thresholds(uniform) for _ in range(count))
        yield Cell(f"{prefix}-{index:03d}", Port(), traffic, thresholds)


def _bursts(uniform: _Uniform, burst: tuple[int, int], count: int, *, is_equal: bool) -> list[int]:
    """One size for all queues, or any sizes, of which that of one queue lies in the cell's range."""
    chosen = uniform.log_whole(*burst)
    if is_equal:
        return [chosen] * count
    sizes = [uniform.log_whole(BURSTS[0][0], BURSTS[-1][1]) for _ in range(count)]
    sizes[uniform.whole(0, count - 1)] = chosen
    return sizes


def _thresholds(uniform: _Uniform) -> QueueThresholds:
    drawn = [uniform.log_whole(LEAST_THRESHOLD_PACKETS, MOST_THRESHOLD_PACKETS) for _ in range(2)]
    return QueueThresholds(float(min(drawn)), float(max(drawn)))
