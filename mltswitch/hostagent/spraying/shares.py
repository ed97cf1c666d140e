"""How bursts are divided among paths: integer weights, from what each path has carried and lost.

The data plane applies the weights burst by burst, and by itself leaves out paths that are dead or gray.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from mltswitch.hostagent.transport.records import PathSnapshot

FULL_WEIGHT: Final = 1000
"""Weight of the best path."""
LEAST_SHARE: Final = 0.05
"""Least weight of a path as a share of the best path's, so that its recovery is noticed."""
DELAY_FLOOR_SECONDS: Final = 50e-6
"""Delay differences below it hardly matter: batching at the receiver alone causes them."""
LOSS_SCALE: Final = 0.01
"""A path whose loss rate exceeds that of the best path by this much gets half the best path's weight."""


class Policy(StrEnum):
    """How bursts are divided among the paths in use."""

    ROUND_ROBIN = "round-robin"
    """Each path in turn."""
    RANDOM = "random"
    """Paths chosen independently at random by the data plane, as in the MLT paper."""
    LEAST_DELAY = "least-delay"
    """More bursts on paths with a shorter round trip: a path with twice the least one gets a quarter."""
    LEAST_LOSS = "least-loss"
    """More bursts on paths that lose fewer packets."""

    @property
    def is_adaptive(self) -> bool:
        """Whether weights follow what is measured, and have to be computed again and again."""
        return self in {Policy.LEAST_DELAY, Policy.LEAST_LOSS}


def path_weights(
    policy: Policy, paths: Sequence[PathSnapshot], before: Sequence[PathSnapshot] = ()
) -> tuple[int, ...]:
    """A weight of 1 to 1000 for each path; one that has not been measured yet counts as the best.

    Args:
        policy: the agent's spraying policy.
        paths: state of the paths now.
        before: their state when weights were last computed: only later losses count. Empty: all do.
    """
    share: Callable[[float, float], float]
    if policy is Policy.LEAST_DELAY:
        costs = [path.round_trip_seconds for path in paths]
        share = _share_by_delay
    elif policy is Policy.LEAST_LOSS:
        earlier = {path.path: path for path in before}
        costs = [_loss(path, earlier.get(path.path)) for path in paths]
        share = _share_by_loss
    else:
        return (FULL_WEIGHT,) * len(paths)
    least = min((cost for cost in costs if cost is not None), default=0.0)
    shares = (1.0 if cost is None else share(cost, least) for cost in costs)
    return tuple(round(FULL_WEIGHT * max(each, LEAST_SHARE)) for each in shares)


def _share_by_delay(seconds: float, least: float) -> float:
    return ((least + DELAY_FLOOR_SECONDS) / (seconds + DELAY_FLOOR_SECONDS)) ** 2


def _share_by_loss(loss: float, least: float) -> float:
    return 1 / (1 + (loss - least) / LOSS_SCALE)


def _loss(path: PathSnapshot, before: PathSnapshot | None) -> float | None:
    lost = path.lost_packets - (before.lost_packets if before else 0)
    arrived = path.acknowledged_packets - (before.acknowledged_packets if before else 0)
    return lost / (lost + arrived) if lost + arrived > 0 else None
