"""The optimisation problem of one port, and what a solution of it says of itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.problem import Port, QueueThresholds, QueueTraffic

TOLERANCE_ROUNDS: Final = 2e-6
"""Extra rounds that nobody can measure: tie-breaks weigh less, and a bound this near is reached."""
LOSS_WEIGHT: Final = 1e-6
"""Tie-break: what a byte-weighted loss of 1 counts in extra rounds; far below what anybody can measure."""
PACKET_WEIGHT: Final = LOSS_WEIGHT * 1e-9
"""Tie-break: a packet of buffer is spent where it saves at least one packet in 10^9."""

FloatArray = npt.NDArray[np.float64]
RoundsCurve = Callable[[FloatArray], FloatArray]
"""Loss ratio (any shape) → extra training rounds (same shape)."""

Buffer = Literal["static", "shared"]
"""`static`: the limits together fit into the buffer. `shared`: each limit is the length at which a queue with
one of the alphas (dynamic threshold) comes to rest when it alone is congested, alpha / (1 + alpha) · buffer.
That leaves out that queues which are full at once hold less, alpha · buffer / (1 + sum of their alphas); the
model `simulate` follows the free buffer packet by packet, and a refinement by it does, too."""


@dataclass(frozen=True, slots=True)
class QueueObjective:
    """What losses of one gradient class cost, and what bounds its delay."""

    byte_share: float
    """Part of the model's bytes that the class carries."""
    rounds_unimportant: RoundsCurve
    rounds_important: RoundsCurve
    delay_bound_packet_times: float | None = None
    """Bound of the 99th percentile of the delay (of the worst case L where the model predicts no delay)."""


@dataclass(frozen=True, slots=True)
class ThresholdProblem:
    """Choose S and L of the gradient queues of a port."""

    port: Port
    traffic: tuple[QueueTraffic, ...]
    """All queues of the port, highest priority first."""
    fixed: tuple[QueueThresholds | None, ...]
    """Per queue: thresholds that are given (control, background), or None: a gradient queue, to be chosen."""
    objectives: tuple[QueueObjective, ...]
    """One for each None in `fixed`, in the same order."""
    buffer_packets: int
    """What the chosen queues may hold."""
    hops: int = 1
    """Equal ports in a row over which the loss counts: 1 - (1 - r)^hops."""
    buffer: Buffer = "static"
    alphas: tuple[float, ...] = ()
    """Values of alpha that the device knows, rising; for a shared buffer."""
    granularity_packets: int = 1
    """S and L are multiples of this (the device's cells, in whole packets)."""
    is_ordered: bool = False
    """Higher priority has the smaller S (MLT, section 5.2)."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """Thresholds of the chosen queues, highest priority first, and how good they are known to be."""

    thresholds: tuple[QueueThresholds, ...]
    extra_rounds: float
    """The objective: sum of f^S(r^S) + f^L(r^L) over the chosen queues."""
    byte_weighted_loss: float
    """Tie-break where the objective is flat."""
    lower_bound_rounds: float
    """No choice within the constraints does better, under this model; 0 where nothing better is known."""
    method: str
    """How it was found, in a few words for the reader of a plan."""

    @property
    def gap(self) -> float:
        """Relative distance to the bound: (found - bound) / found; 0 is a global optimum.

        0, too, where the two are within `TOLERANCE_ROUNDS`.
        """
        distance = self.extra_rounds - self.lower_bound_rounds
        return distance / self.extra_rounds if distance > TOLERANCE_ROUNDS else 0.0


def resting_packets(alpha: float, buffer_packets: int) -> int:
    """Where a queue alone in a shared buffer B comes to rest: q = alpha (B - q).

    Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.
    """
    return int(buffer_packets * alpha / (1 + alpha))


def admissible_limits(problem: ThresholdProblem) -> tuple[int, ...]:
    """Every L that a queue could have alone: in the device's steps, or the resting length at each alpha."""
    most, step = problem.buffer_packets, problem.granularity_packets
    if problem.buffer == "shared" and problem.alphas:
        resting = {resting_packets(alpha, most) for alpha in problem.alphas}
        return tuple(sorted(length for length in resting if length >= step))
    return tuple(range(step, most + 1, step))


def least_buffer_packets(
    queues: int, step_packets: int = 1, *, is_ordered: bool = True, is_shared: bool = False
) -> int:
    """Smallest buffer that has a feasible choice: 1 + 2 + … + n steps where S rises from queue to queue."""
    if is_shared:
        return step_packets * (queues if is_ordered else 1)
    return step_packets * (queues * (queues + 1) // 2 if is_ordered else queues)
