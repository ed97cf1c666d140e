"""Several hosts send to one at the same time."""

from typing import Literal

from pydantic import Field

from mltswitch.documents import SparseDocument
from mltswitch.network.units import PICOSECONDS, Seconds, SizeBytes
from mltswitch.network.workloads.base import Extent, Flow, Stage, Work


class Incast(SparseDocument):
    """`senders` hosts send `size` each to the last host of the fabric."""

    kind: Literal["incast"]
    senders: int = Field(ge=1, le=100_000)
    size_bytes: SizeBytes = Field(alias="size")
    jitter_seconds: Seconds = Field(default=0.0, alias="jitter")
    """Senders start up to so much late."""
    rounds: int = Field(default=1, ge=1, le=100_000)
    period_seconds: Seconds = Field(default=0.001, gt=0, alias="period")
    """From the start of one round to that of the next."""

    def extent(self, stage: Stage) -> Extent:
        """How much there is to send; raises UserInputError where the fabric is too small."""
        stage.need(self.senders + 1, f"{self.senders} senders and their receiver")
        count = self.rounds * self.senders
        last_start_seconds = (self.rounds - 1) * self.period_seconds + self.jitter_seconds
        return Extent(count, count * self.size_bytes, self.size_bytes, last_start_seconds)

    def flows(self, stage: Stage) -> Work:
        """All senders of all rounds; they are spread evenly over the fabric's hosts."""
        last = stage.hosts - 1
        senders = [place * last // self.senders for place in range(self.senders)]
        jitter = stage.random.random((self.rounds, self.senders)) * self.jitter_seconds
        return Work(
            Flow(
                sender,
                last,
                self.size_bytes,
                stage.class_of(0, 1),
                round((turn * self.period_seconds + float(jitter[turn, place])) * PICOSECONDS),
                f"round {turn}",
            )
            for turn in range(self.rounds)
            for place, sender in enumerate(senders)
        )
