"""Where each queue of a port hangs, and which way a packet takes to it through the port's qdiscs.

Without a guaranteed share, one prio holds all queues:

    10: prio > queue 1, 2, …, n

With some, strict priority goes on to rule among the gradients, but a deficit round robin divides what the
control classes leave between all of them and each of the last queues, which are guaranteed a share. Below it
nothing may be held back (drr stops for a child that has packets and gives none), so that a queue with a rate
cap has to stand before it:

    10: prio > control queues
             > 20: drr > 30: prio > gradient queues
                       > weighted queues
                       > background

A prio that would have one band is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mltswitch.targets.state import QueueState

SHAPER: Final = "1:"
OUTER: Final = "10:"
SHARE: Final = "20:"
INNER: Final = "30:"
LEVELS: Final = (OUTER, SHARE, INNER)
"""Handles of the qdiscs that have filters, as packets meet them."""
GRADIENT_CLASS: Final = 1
"""Minor number in the round robin; each queue with a share of its own has the next one."""

Hop = tuple[str, int]
"""(handle of a qdisc, minor number of its band or class)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Queues count from 0 here, in order of service; the last one takes what no filter names."""

    count: int
    ahead: int | None
    """Queues served before the rest is shared; None: nothing is shared."""
    shares: int = 0
    """The last queues, each of which has a share of its own."""

    @property
    def top(self) -> str:
        """Handle of the qdisc that a packet meets first."""
        return OUTER if self.ahead is None or self.ahead else SHARE

    @property
    def outer(self) -> int:
        """Bands of the first prio; 0: there is none."""
        if self.ahead is None:
            return self.count
        return self.ahead + 1 if self.ahead else 0

    @property
    def inner(self) -> int:
        """Bands of the gradients' own prio; 0: there is none."""
        if self.ahead is None:
            return 0
        gradients = self.count - self.ahead - self.shares
        return gradients if gradients > 1 else 0

    def default(self, handle: str) -> int:
        """Minor number for packets that no filter of a qdisc names."""
        return {OUTER: self.outer, SHARE: GRADIENT_CLASS + self.shares, INNER: self.inner}[handle]


@lru_cache(maxsize=64)
def paths(layout: Layout) -> tuple[tuple[Hop, ...], ...]:
    """Queue → the qdiscs on its way, and where it leaves each of them."""
    if layout.ahead is None:
        return tuple(((OUTER, number),) for number in range(1, layout.count + 1))
    first = tuple(((OUTER, number),) for number in range(1, layout.ahead + 1))
    shared: tuple[Hop, ...] = ((OUTER, layout.outer),) if layout.outer else ()
    gradients: tuple[tuple[Hop, ...], ...] = ((*shared, (SHARE, GRADIENT_CLASS)),)
    if layout.inner:
        gradients = tuple((*gradients[0], (INNER, number)) for number in range(1, layout.inner + 1))
    own = (GRADIENT_CLASS + number for number in range(1, layout.shares + 1))
    return (*first, *gradients, *((*shared, (SHARE, minor)) for minor in own))


def place(hop: Hop) -> str:
    """A band or class as tc names it."""
    return f"{hop[0]}{hop[1]:x}"


def layout_of(queues: Sequence[QueueState]) -> Layout:
    """Where these queues hang.

    Before the share stand the queues before the first threshold, and every capped one.
    """
    shares = len(queues) - next(
        (place for place, queue in enumerate(queues) if queue.minimum is not None), len(queues)
    )
    if not shares:
        return Layout(len(queues), None)
    before = next(
        (place for place, queue in enumerate(queues) if queue.ecn_threshold_bytes is not None),
        len(queues) - shares - 1,
    )
    capped = [place + 1 for place, queue in enumerate(queues) if queue.maximum is not None]
    return Layout(len(queues), max([before, *capped]), shares)
