"""How bursts are put on paths: shares of the paths in use, and a sequence that keeps them."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.spraying.settings import Policy, SprayingSettings

CYCLES: Final = 16
"""Of a table for sequences in turn: shares are kept in 16ths of the largest."""
GOLDEN_RATIO: Final = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, fill an interval more evenly than those of any other number (Kronecker
sequence)."""


class Sequencer(Protocol):
    """Paths for bursts, in given shares."""

    def share(self, shares: NDArray[np.float64]) -> None:
        """From now on, so much for each path; at least one is above 0."""
        ...

    def draw(self, bursts: int) -> NDArray[np.int64]:
        """A path for each burst."""
        ...


class InTurn:
    """Cycle by cycle; a path with half of a share takes part in every second one.

    The order is another in each cycle: where a full queue drops every n-th packet, a fixed order would give
    all losses to one path.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._table = np.zeros(1, np.int64)
        self._place = 0

    def share(self, shares: NDArray[np.float64]) -> None:
        """Make a new table."""
        members = np.flatnonzero(shares)
        rounds = np.maximum(np.round(CYCLES * shares[members] / shares.max()), 1)
        offsets = self._random.random(len(members))
        cycles = []
        for cycle in range(CYCLES):
            phase = rounds * cycle / CYCLES + offsets
            takes_part = np.floor(phase + rounds / CYCLES) > np.floor(phase)
            cycles.append(self._random.permutation(members[takes_part]))
        self._table = np.concatenate(cycles).astype(np.int64)
        self._place = 0

    def draw(self, bursts: int) -> NDArray[np.int64]:
        """The next of the table, which begins again at its end."""
        length = len(self._table)
        places = np.arange(self._place, self._place + bursts) % length
        self._place = (self._place + bursts) % length
        return self._table[places]


class _ByIntervals:
    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._bounds = np.ones(1)

    def share(self, shares: NDArray[np.float64]) -> None:
        """Each path gets its part of the interval from 0 to 1."""
        sums = np.cumsum(shares)
        self._bounds = sums / sums[-1]

    def _at(self, points: NDArray[np.floating]) -> NDArray[np.int64]:
        # The last bound is exactly 1, which no point reaches; a path without a share ends where it begins.
        return np.searchsorted(self._bounds, points, side="right").astype(np.int64)


class AtRandom(_ByIntervals):
    """Each burst by itself."""

    def draw(self, bursts: int) -> NDArray[np.int64]:
        """Independently."""
        return self._at(self._random.random(bursts))


class Even(_ByIntervals):
    """Any shares, kept closely at all times: after k bursts no path is more than a few ahead."""

    def __init__(self, random: np.random.Generator) -> None:
        super().__init__(random)
        self._point = float(random.random())

    def draw(self, bursts: int) -> NDArray[np.int64]:
        """The next multiples of the golden ratio."""
        points = np.mod(self._point + GOLDEN_RATIO * np.arange(1, bursts + 1, dtype=np.float64), 1.0)
        if bursts:
            self._point = float(points[-1])
        return self._at(points)


def sequencer_for(policy: Policy, random: np.random.Generator) -> Sequencer:
    """How a policy keeps its shares."""
    match policy:
        case Policy.ROUND_ROBIN:
            return InTurn(random)
        case Policy.RANDOM:
            return AtRandom(random)
        case _:
            return Even(random)


def by_delay(round_trips_ns: Sequence[float | None], settings: SprayingSettings) -> NDArray[np.float64]:
    """Shares by round trip: twice the least one gets a quarter. Paths not measured yet count as the best."""
    known = [value for value in round_trips_ns if value is not None]
    least = min(known, default=0.0) + settings.delay_floor_ns
    delays = np.array(
        [least if value is None else value + settings.delay_floor_ns for value in round_trips_ns]
    )
    return np.maximum((least / delays) ** 2, settings.least_share)


def by_loss(loss_shares: Sequence[float | None], settings: SprayingSettings) -> NDArray[np.float64]:
    """Shares by loss: `loss_scale` above the least gets half. Paths not measured yet count as the best."""
    least = min((value for value in loss_shares if value is not None), default=0.0)
    excess = np.array([0.0 if value is None else value - least for value in loss_shares])
    return np.maximum(1 / (1 + excess / settings.loss_scale), settings.least_share)
