"""How often each class is away serving lower packets, so that all classes carry what they carry.

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
"""Kinds of excursions: a lower packet's transmission, an own burst at an idle port, a higher one."""


@dataclass(frozen=True, slots=True)
class Mix:
    """One cycle on average; times and weights are relative to the same number of excursions."""

    weights: FloatArray
    """Share of each kind of excursion."""
    idle_time: float
    busy_time: float


def settled(loads: Sequence[float], carried_share: Callable[[int, float], float]) -> list[float]:
    """Load that the classes below each class get through, when all carry what they do.

    Args:
        loads: offered, highest class first.
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
    """How the excursions of one class are mixed when the classes below carry so much.

    Args:
        turns: [kind, length] expected turns in `unit` excursions of each kind.
        unit: the number of excursions, below 1 where a class is hardly ever empty; it may underflow.
        turn: first duration of a vacation and of an own burst, and of every turn.
        high: first duration of a higher burst's excursion; None: nothing is above.
        rate: bursts of the class.
        rate_above: bursts of all classes above.
        carried_below: load.
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
