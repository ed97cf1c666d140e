"""How often each class waits while lower packets are sent, found so that all classes carry their own
throughput.

Seen from one class, time is a row of excursions from "this class and all above are empty": a lower packet's
transmission, an own burst or a higher one at an idle port. Lower classes touch it in the first way only, and
as often as their throughput says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.queueing.completion.durations import Duration
from mltswitch.queueing.completion.rational import FloatArray

SWEEPS: Final = 30
SETTLED: Final = 1e-10

VACATION, OWN, HIGH = range(3)
"""Kinds of excursions of a class: a lower packet's transmission, an own burst at an idle port, a higher burst
there."""


@dataclass(frozen=True, slots=True)
class Mix:
    """One mean cycle of a class; times and weights are relative to the same number of excursions."""

    weights: FloatArray
    """Shares of the kinds of excursions (VACATION, OWN, HIGH)."""
    idle_time: float
    busy_time: float


def settled(loads: Sequence[float], carried_share: Callable[[int, float], float]) -> list[float]:
    """For each class, the load that the classes below it carry together, found by iteration.

    Args:
        loads: the offered loads, highest class first.
        carried_share: (class, load carried below it) → share of its load that the class carries.
    """
    carried = list(loads)

    def below(index: int) -> float:
        return min(sum(carried[index + 1 :]), max(0.0, 1.0 - sum(carried[: index + 1])))

    for _ in range(SWEEPS):
        before = list(carried)
        for index, load in enumerate(loads):
            carried[index] = load * carried_share(index, below(index))
        if max((abs(new - old) for new, old in zip(carried, before, strict=True)), default=0.0) < SETTLED:
            break
    return [below(index) for index in range(len(loads))]


def mix(
    turns: FloatArray,
    *,
    unit: float,
    turn: Duration,
    high: Duration | None,
    rate: float,
    rate_above: float,
    carried_below: float,
) -> Mix:
    """The shares of the kinds of excursions of one class, given the load that the classes below carry.

    Args:
        turns: [kind, length], the expected turns in `unit` excursions of each kind.
        unit: the number of excursions, below 1 where a class is hardly ever empty; it may underflow.
        turn: duration of every turn, and the first one of a vacation and of an own burst.
        high: first duration of a higher burst's excursion; None: there is no higher class.
        rate: bursts of the class per packet time.
        rate_above: bursts of all classes above per packet time.
        carried_below: the load that the classes below carry.
    """
    total = rate_above + rate
    kinds = len(turns)
    shares = np.array([0.0, rate / total, rate_above / total])[:kinds]
    firsts = np.array([turn.mean, turn.mean, high.mean if high is not None else 0.0])[:kinds]
    lasting = unit * firsts + turn.mean * turns.sum(axis=1)
    idle_cycle = unit / total + float(shares @ lasting)
    # A vacation is one lower packet: x / (x · vacation + (1 - x) · idle) = carried below.
    per_unit = unit - carried_below * (float(lasting[VACATION]) - idle_cycle)
    vacations = min(1.0, carried_below * idle_cycle / per_unit) if per_unit > 0 else 1.0
    weights = (1 - vacations) * shares
    weights[VACATION] = vacations
    return Mix(weights, (1 - vacations) * unit / total, float(weights @ lasting))
