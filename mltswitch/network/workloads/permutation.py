"""Each host sends to one other, and each receives from one other."""

from typing import Literal

from pydantic import Field

from mltswitch.documents import SparseDocument
from mltswitch.network.units import SizeBytes
from mltswitch.network.workloads.base import Extent, Flow, Stage, Work


class Permutation(SparseDocument):
    """Every host sends `size` to another one, which the seed chooses."""

    kind: Literal["permutation"]
    size_bytes: SizeBytes = Field(alias="size")
    flows_per_host: int = Field(default=1, ge=1, le=10_000)

    def extent(self, stage: Stage) -> Extent:
        """How much there is to send; raises UserInputError where the fabric is too small."""
        stage.need(2, "a permutation's two ends")
        count = self.flows_per_host * stage.hosts
        return Extent(count, count * self.size_bytes, self.size_bytes, 0.0)

    def flows(self, stage: Stage) -> Work:
        """A cycle through all hosts in random order, so that nobody sends to itself."""
        flows = Work()
        for turn in range(self.flows_per_host):
            order = stage.random.permutation(stage.hosts)
            following = dict(zip(order.tolist(), [*order[1:].tolist(), int(order[0])], strict=True))
            flows += [
                Flow(host, following[host], self.size_bytes, stage.class_of(0, 1), 0, f"permutation {turn}")
                for host in range(stage.hosts)
            ]
        return flows
