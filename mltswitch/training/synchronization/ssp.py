"""Stale-synchronous (`ssp`; Ho et al., NIPS 2013): `asp`, but no rank is far ahead of the slowest one.

A rank begins step c when the slowest one has finished step c - staleness - 1.
"""

import sys
from collections import Counter, defaultdict

from pydantic import Field

from mltswitch.training.axes import NoSettings, Stage, Sum, Synchronization, settings_of
from mltswitch.training.job import Job
from mltswitch.training.synchronization.asp import Asp, AspKeeper
from mltswitch.training.synchronization.bsp import SYNCHRONIZATION as BSP


class SspSettings(NoSettings):
    """Settings of the synchronization `ssp`."""

    staleness: int = Field(default=3, ge=0, le=1_000_000, strict=True)
    """Steps that a rank may be ahead of the slowest one, beside the step that it is at; 0 is `bsp`."""


class SspKeeper(AspKeeper):
    """Answers a push only when the slowest rank is no more than the staleness behind."""

    def __init__(self, job: Job, staleness: int) -> None:
        super().__init__(job)
        self.staleness = staleness
        self._pushes: defaultdict[int, Counter[int]] = defaultdict(Counter)
        """By piece: how many of each rank are in."""
        self._held: defaultdict[int, list[Sum]] = defaultdict(list)
        """By piece: those that are not answered."""

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        """Answer a push as `asp` does; ranks that drain no longer hold others up."""
        found = super().pushed(rank, total, now_ns)
        return found + self._free(total.piece) if total.stage is Stage.LATER else found

    def answers(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:  # noqa: ARG002
        """The pushes that are no longer too far ahead of the slowest rank."""
        self._pushes[total.piece][rank] += 1
        self._held[total.piece].append(total)
        return self._free(total.piece)

    def gone(self, rank: int) -> list[Sum]:
        """Forget a gone rank, and answer the pushes that waited for it."""
        return super().gone(rank) + [total for piece in [*self._held] for total in self._free(piece)]

    def _free(self, piece: int) -> list[Sum]:
        draining = {rank for place, ranks in self._draining.items() if place[0] == piece for rank in ranks}
        pushing = self._ranks - draining
        slowest = min((self._pushes[piece][rank] for rank in pushing), default=sys.maxsize)
        held = [total for total in self._held[piece] if total.origin in self._ranks]
        self._held[piece] = [total for total in held if total.number >= slowest + self.staleness]
        return [total for total in held if total.number < slowest + self.staleness]


class Ssp(Asp):
    """The registered synchronization `ssp`."""

    name = "ssp"

    def of(self, job: Job) -> Synchronization:
        """This synchronization; for a staleness of 0 `bsp`, in which gradients are summed."""
        return self if settings_of(job, SspSettings).staleness else BSP

    def keeper(self, job: Job) -> SspKeeper:
        """A new keeper of `ssp`, with the staleness of the job, for a node that keeps parameters."""
        return SspKeeper(job, settings_of(job, SspSettings).staleness)


SYNCHRONIZATION = Ssp()
