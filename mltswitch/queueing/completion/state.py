"""From visits of a queue to what a reader wants to know of it."""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from mltswitch.queueing.completion.admission import Admission
from mltswitch.queueing.completion.durations import Duration
from mltswitch.queueing.completion.rational import FloatArray


@dataclass(frozen=True, slots=True)
class Stay:
    """Expected amounts in some number of cycles of one class, the same for all of them."""

    turns: FloatArray
    """Packets served that left w - 1 behind them waiting, [w], w = 0 … L (0 at w = 0)."""
    starts: FloatArray
    """Excursions that begin with 0 … L waiting."""
    idle_time: float
    busy_time: float
    """Time with any packet of this class, of a higher one, or a lower one in transmission."""
    high_time: float
    """Part of it that waits for the end of a higher burst which met an idle port."""
    served_at_once: float
    """Packets that met an idle port."""
    dropped_important: float
    """Important packets dropped at L."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What of the offered packets goes where."""

    unimportant: float
    important: float
    carried: float
    """Packets let in over packets offered."""
    marked: float
    """Of the important packets let in, those that met S or more."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """What is known of one queue."""

    losses: Losses
    queue_probabilities: FloatArray
    """Share of time with 0 … L waiting."""
    joined: FloatArray
    """Of the packets let in, those that met 0 … L - 1 waiting."""
    at_once: float
    """Of the packets let in, those that met an idle port."""
    mean_delay: float
    turn: Duration
    high: Duration | None
    high_share: float
    """Part of the busy time that waits for the end of a higher burst which met the port idle."""


def losses(admission: Admission, stay: Stay) -> Losses:
    """Levels are crossed both ways alike: packets that raise the queue from w are turns at w + 1."""
    important = admission.important_share
    raised = stay.turns[1:]
    joining = np.where(np.arange(admission.limit) < admission.threshold, 1.0, important)
    seen = np.divide(raised, joining, out=np.zeros_like(raised), where=joining > 0)
    full = stay.dropped_important / important if important else 0.0
    offered = stay.served_at_once + float(seen.sum()) + full
    marked = float(seen[admission.threshold :].sum())
    return Losses(
        unimportant=(marked + full) / offered,
        important=full / offered,
        carried=(stay.served_at_once + float(raised.sum())) / offered,
        marked=marked / (offered - full) if offered > full else 0.0,
    )


def queue_state(
    admission: Admission,
    stay: Stay,
    *,
    rate: float,
    turn: Duration,
    high: Duration | None,
) -> QueueState:
    """Lengths over time, and what packets meet."""
    shares = losses(admission, stay)
    change = stay.starts - stay.turns
    change[:-1] += stay.turns[1:]
    change[0] -= stay.starts.sum()
    time = admission.time_at_lengths(change, stay.busy_time, rate)
    time[0] += stay.idle_time
    probabilities = time / time.sum()
    mean_queue = float(probabilities @ np.arange(len(probabilities)))
    let_in = stay.served_at_once + float(stay.turns.sum())
    return QueueState(
        losses=shares,
        queue_probabilities=probabilities,
        joined=stay.turns[1:] / let_in,
        at_once=stay.served_at_once / let_in,
        mean_delay=mean_queue / (rate * admission.mean_burst * shares.carried),
        turn=turn,
        high=high,
        high_share=stay.high_time / stay.busy_time if isfinite(stay.busy_time) and stay.busy_time else 0.0,
    )
